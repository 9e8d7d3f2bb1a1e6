#!/usr/bin/env bash
# Runs a command with the test servers up: scripts/with-servers.sh [FLAG]... -- COMMAND. The program is built and then
# takes this shell's place, so that signals reach it (`go run` would keep some).
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -f bin/test.env ]]; then # written by scripts/deps.sh where the servers run in Docker
  # shellcheck source=/dev/null
  source bin/test.env
fi
CGO_ENABLED=0 go build -buildvcs=false -o bin/with-servers ./internal/testrig/with-servers
exec bin/with-servers "$@"
