#!/usr/bin/env bash
# scripts/prometheus.sh have   tells whether there is a Prometheus, with its promtool
# scripts/prometheus.sh fetch  sees to it that there is
# scripts/prometheus.sh test   tests deploy/prometheus: the alerts on histories of their own, and that the files load
#
# Brings both into the user's cache, out of Debian's package prometheus: nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

# internal/testrig/option.go looks here.
bin=${XDG_CACHE_HOME:-$HOME/.cache}/toc/prometheus
PATH="$PATH:$bin"

fail() {
  echo "make deps: $1" >&2
  exit 1
}

# fetch unpacks the package of the machine's own release into $work.
fetch() {
  cd "$work"
  apt-get download prometheus && dpkg -x prometheus_*.deb . && usr/bin/promtool --version && usr/bin/prometheus --version
}

have() { command -v promtool >/dev/null && command -v prometheus >/dev/null; }

case ${1:-} in
have) have; exit ;;
test)
  promtool check config --syntax-only deploy/prometheus/prometheus.yml
  exec promtool test rules deploy/prometheus/rules_test.yml
  ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/prometheus.sh have|fetch|test" ;;
esac

echo "make deps: fetching Prometheus into $bin"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(fetch) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Prometheus is not to be had from this machine's package mirrors"; }
# Each in one step: another may be doing the same.
for program in promtool prometheus; do
  install -D "$work/usr/bin/$program" "$bin/$program.$$"
  mv "$bin/$program.$$" "$bin/$program"
done
