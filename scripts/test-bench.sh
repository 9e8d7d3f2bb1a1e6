#!/usr/bin/env bash
# Tests bench/, a module of its own; arguments go to go test. Its tests start a Redis themselves and read /proc.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -e /proc/self/stat ]] || ! command -v redis-server >/dev/null || ! command -v redis-benchmark >/dev/null; then
  echo "--    bench/ was not tested: its tests need Linux, redis-server and redis-benchmark" >&2
  exit
fi
exec go test -C bench "$@" ./...
