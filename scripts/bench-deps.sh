#!/usr/bin/env bash
# Brings the systems that `make bench-peers` measures beside this one, where there is apt: PostgreSQL 15 (River) and
# beanstalkd, and Node.js with npm where the distribution's are all there is. Never fails for one that is not to be had:
# the benchmark reports what is missing as missing. Says nothing when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

# What the product itself needs is a matter of the tests' script.
scripts/deps.sh

has() {
  local path
  path="$PATH:/usr/sbin:/usr/local/sbin$(printf ':%s' /usr/lib/postgresql/*/bin)"
  PATH=$path command -v "$1" >/dev/null
}

# install PROGRAM PACKAGE... installs the packages one by one, so that one that is not to be had spoils no other.
install() {
  local program=$1 log
  shift
  has "$program" && return 0
  echo "bench-deps: installing $*"
  log=$(mktemp)
  if ! apt install --no-install-recommends "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "bench-deps: without $program; what needs it is reported as missing" >&2
  fi
  rm -f "$log"
}

if ! has postgres || ! has beanstalkd || ! has node || ! has npm; then
  if ! has apt-get; then
    echo "bench-deps: no apt here; what is not installed is reported as missing" >&2
    exit 0
  fi
  forbid_services
  apt update >/dev/null 2>&1 || true # on with the lists there are
  install postgres postgresql
  install beanstalkd beanstalkd
  install node nodejs
  install npm npm
fi
