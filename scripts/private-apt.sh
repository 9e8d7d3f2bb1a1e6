# Sourced by the scripts that bring a program of another release than the machine's. It is not run by itself.
#
# What apt needs stands in a world of its own below $work: the machine's own package mirrors, with lists and caches apart
# from the system's, checked by apt against the distribution's keys. Nothing is installed and nobody need be root.

# mirrors are what the machine's sources name, in either format. One that has not got the release, or signs it with
# other keys than the distribution's, is passed over by apt.
mirrors() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --no-release-info --format '$(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^main //p' | sort -u
}

# private_apt SUITE COMPONENT KEYS writes $work/apt.conf and reads the lists. The hooks of the system's are for the
# system's lists; a mirror that has not got the release is no matter.
private_apt() {
  [[ -r $3 ]] || fail "no keys to check the packages of $1 with: $3 is missing"
  chmod 755 "$work" # apt fetches as a user of its own
  mkdir -p "$work"/{lists/partial,cache/archives/partial}
  mirrors | sed "s|.*|deb [signed-by=$3] & $1 $2|" >"$work/sources.list"
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
  (cd "$work" && apt-get -c apt.conf update) || true
}

debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
