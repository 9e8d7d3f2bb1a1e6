#!/usr/bin/env bash
# scripts/promtool.sh have   tells whether there is a promtool
# scripts/promtool.sh fetch  sees to it that there is
# scripts/promtool.sh test   tests deploy/prometheus/rules.yml, where there is one
#
# Brings promtool into the user's cache, out of Debian's package prometheus: nothing is installed, and nothing started.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${XDG_CACHE_HOME:-$HOME/.cache}/toc/promtool

fail() {
  echo "make deps: $1" >&2
  exit 1
}

# fetch unpacks the package of the machine's own release into $work.
fetch() {
  cd "$work"
  apt-get download prometheus && dpkg -x prometheus_*.deb . && usr/bin/promtool --version
}

have() { command -v promtool >/dev/null || [[ -x $binary ]]; }

case ${1:-} in
have) have; exit ;;
test)
  if ! have; then
    echo "promtool is not here: the alerts were not tested" >&2
    exit 0
  fi
  PATH="$PATH:${binary%/*}" exec promtool test rules deploy/prometheus/rules_test.yml
  ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/promtool.sh have|fetch|test" ;;
esac

echo "make deps: fetching promtool into ${binary%/*}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(fetch) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "promtool is not to be had from this machine's package mirrors"; }
# In one step: another may be doing the same.
install -D "$work/usr/bin/promtool" "$binary.$$"
mv "$binary.$$" "$binary"
