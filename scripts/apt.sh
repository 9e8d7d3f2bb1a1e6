# Sourced by the scripts that install Debian packages. It is not run by itself.

as_root() {
  if ((EUID == 0)); then
    env "$@"
  elif [[ -t 0 ]]; then
    sudo env "$@"
  else
    sudo -n env "$@"
  fi
}

apt() {
  as_root DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

policy=/usr/sbin/policy-rc.d

# Tests and benchmarks start servers of their own, so the packages must not start theirs: a policy that forbids it stands
# for as long as the script runs, unless the machine has one already.
forbid_services() {
  [[ ! -e $policy ]] || return 0
  trap 'as_root rm -f "$policy"' EXIT
  as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
}
