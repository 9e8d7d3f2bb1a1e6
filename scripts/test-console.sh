#!/usr/bin/env bash
# Tests the console in a headless browser: console/e2e/, a module of its own; arguments go to go test. Without the race
# detector, which the console's own tests have: here most of the time would be SQLite's and the browser's.
set -euo pipefail
cd "$(dirname "$0")/.."

exec go test -C console/e2e "$@" ./...
