#!/usr/bin/env bash
# scripts/consul.sh have   tells whether there is a Consul
# scripts/consul.sh fetch  sees to it that there is
#
# Brings Consul 1.8 into the user's cache, where no newer one is in PATH: the current distributions have no package of
# it, an earlier release has.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/private-apt.sh
source scripts/private-apt.sh

version=1.8.7
# internal/testrig/option.go looks here.
binary=${XDG_CACHE_HOME:-$HOME/.cache}/toc/consul-$version/usr/bin/consul

fail() {
  echo "make deps: $1" >&2
  exit 1
}

# fetch unpacks the package, of the last release that had it, into $work/consul.
fetch() {
  local ID=
  # shellcheck source=/dev/null
  source /etc/os-release
  if [[ $ID == ubuntu ]]; then
    private_apt jammy universe /usr/share/keyrings/ubuntu-archive-keyring.gpg
  else
    private_apt bullseye main "$debian_keys"
  fi
  cd "$work"
  apt-get -c apt.conf download "consul=$version*" && dpkg -x consul_*.deb consul && consul/usr/bin/consul version
}

have() { command -v consul >/dev/null || [[ -x $binary ]]; }

case ${1:-} in
have) have; exit ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/consul.sh have|fetch" ;;
esac

echo "make deps: fetching Consul $version into ${binary%/*}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(fetch) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Consul $version is not to be had from this machine's package mirrors"; }
# In one step: another may be doing the same.
install -D "$work/consul/usr/bin/consul" "$binary.$$"
mv "$binary.$$" "$binary"
