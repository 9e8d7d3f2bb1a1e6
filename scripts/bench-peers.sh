#!/usr/bin/env bash
# Measures this system beside others: scripts/bench-peers.sh [FLAG]... (--help tells them). The program is built and then
# takes this shell's place, so that signals reach it.
set -euo pipefail
cd "$(dirname "$0")/.."

# BullMQ is a Node.js library; without npm or a registry it is reported as missing. No package's scripts are run.
if command -v npm >/dev/null && [[ ! -d bench/bullmq/node_modules/bullmq ]]; then
  npm --prefix bench/bullmq install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || true
fi
# What runs on the JVM, likewise.
if command -v mvn >/dev/null && command -v javac >/dev/null; then
  bench/jvm/fetch.sh >&2 || true
fi

CGO_ENABLED=0 go build -C bench -buildvcs=false -o ../bin/bench-peers .
exec bin/bench-peers "$@"
