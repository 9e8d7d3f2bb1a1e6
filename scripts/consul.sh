#!/usr/bin/env bash
# scripts/consul.sh have   tells whether there is a Consul
# scripts/consul.sh fetch  sees to it that there is
#
# Brings Consul 1.8 into the user's cache, where no newer one is in PATH: the current distributions have no package of
# it, an earlier release has. It comes from the machine's own package mirrors, checked by apt against the distribution's
# keys, with lists and caches apart from the system's. Nothing is installed and nobody need be root.
set -euo pipefail

version=1.8.7
# internal/testrig/option.go looks here.
binary=${XDG_CACHE_HOME:-$HOME/.cache}/toc/consul-$version/usr/bin/consul

fail() {
  echo "make deps: $1" >&2
  exit 1
}

# release names the last release that had the package, and the keys that sign it.
release() {
  local ID=
  # shellcheck source=/dev/null
  source /etc/os-release
  suite=bullseye component=main keys=/usr/share/keyrings/debian-archive-keyring.gpg
  if [[ $ID == ubuntu ]]; then
    suite=jammy component=universe keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  fi
  [[ -r $keys ]] || fail "no keys to check Consul's package with: $keys is missing"
}

# mirrors are what the machine's sources name, in either format. One that has not got the release, or signs it with
# other keys than the distribution's, is passed over by apt.
mirrors() {
  apt-get indextargets --no-release-info --format '$(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^main //p' | sort -u
}

# configure writes an apt.conf for a world of its own below $work. The hooks of the system's are for the system's lists.
configure() {
  mkdir -p "$work"/{lists/partial,cache/archives/partial}
  mirrors | sed "s|.*|deb [signed-by=$keys] & $suite $component|" >"$work/sources.list"
  cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
Acquire::AllowInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
#clear APT::Update;
#clear Acquire::IndexTargets::deb::DEP-11;
END
}

# fetch unpacks the package into $work/consul. What else apt complains of is no matter, if it has Consul.
fetch() (
  cd "$work"
  apt-get -c apt.conf update || true
  apt-get -c apt.conf download "consul=$version*" && dpkg -x consul_*.deb consul && consul/usr/bin/consul version
)

have() { command -v consul >/dev/null || [[ -x $binary ]]; }

case ${1:-} in
have) have; exit ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/consul.sh have|fetch" ;;
esac

echo "make deps: fetching Consul $version into ${binary%/*}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt fetches as a user of its own
release
configure
fetch >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Consul $version is not to be had from this machine's package mirrors"; }
# In one step: another may be doing the same.
install -D "$work/consul/usr/bin/consul" "$binary.$$"
mv "$binary.$$" "$binary"
