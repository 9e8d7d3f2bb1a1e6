#!/usr/bin/env bash
# scripts/mysql.sh have   tells whether there is a MySQL of Oracle's beside MariaDB
# scripts/mysql.sh fetch  sees to it that there is
#
# Brings MySQL 9.7 into the user's cache: Debian has it in its unstable suite only. Its libraries, the C library among
# them, are newer than the machine's, so they come with it, and the test rig starts it by its own loader.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/private-apt.sh
source scripts/private-apt.sh

version=9.7
# internal/testrig/mysqld.go looks here.
root=${XDG_CACHE_HOME:-$HOME/.cache}/toc/mysql-$version

fail() {
  echo "make deps: $1" >&2
  exit 1
}

# fetch unpacks the server and all libraries that it needs into $work/root.
fetch() {
  private_apt sid main "$debian_keys"
  cd "$work"
  apt-cache -c apt.conf depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances mysql-server-core |
    sed -n 's/^\([a-z0-9][a-z0-9.+-]*\)$/\1/p' | grep -E '^(mysql-server-core|zlib1g|lib.*)$' | sort -u >packages
  mkdir debs
  (cd debs && xargs apt-get -c ../apt.conf download <../packages)
  for deb in debs/*.deb; do
    dpkg -x "$deb" root
  done
  # `sid` moves on: what was tried is 9.7.
  "$PWD"/root/usr/lib/*/ld-linux-*.so.* --library-path "$(echo "$PWD"/root/usr/lib/*-linux-gnu)" root/usr/sbin/mysqld --no-defaults --version | grep -F " $version."
}

have() { [[ -x $root/usr/sbin/mysqld ]]; }

case ${1:-} in
have) have; exit ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/mysql.sh have|fetch" ;;
esac

echo "make deps: fetching MySQL $version into $root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(fetch) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "MySQL $version is not to be had from this machine's package mirrors"; }
# In one step: another may be doing the same.
mkdir -p "${root%/*}"
mv "$work/root" "$root.$$"
mv -T "$root.$$" "$root" 2>/dev/null || { have && rm -rf "$root.$$"; }
