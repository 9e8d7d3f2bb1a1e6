#!/usr/bin/env bash
# scripts/test-console.sh have            tells whether there is a browser
# scripts/test-console.sh [ARGUMENT]...   tests the console in it: server/console/e2e/, a module of its own; arguments go to go test
#
# Without the race detector, which the console's own tests have: here it would look at little but SQLite.
set -euo pipefail
cd "$(dirname "$0")/.."

have() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

if [[ ${1:-} == have ]]; then
  have
  exit
fi
if ! have; then
  echo "--    server/console/e2e/ was not tested: its tests need Chromium or Chrome" >&2
  exit
fi
exec go test -C server/console/e2e "$@" ./...
