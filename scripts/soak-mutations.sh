#!/usr/bin/env bash
# Breaks the product on purpose, one promise at a time, and expects the simulation or the soak to say so: for each patch in
# internal/soak/mutations, at HEAD. NAMEs choose some. Prints a table; fails unless each was found.
#
# A patch whose header has a line "sim:", with arguments of the simulation or none, needs no real server: up to 50 seeds, until one
# breaks the rule that the patch names, and three runs without the patch keep it. One with a line "arena:" has the short form of that arena
# of the soak. One with a line "test: PACKAGE PATTERN" has a Go test, which must fail with the patch, and not without it.
# The columns are: the seed that found it, the virtual minutes of all seeds to it, and their CPU seconds.
#
#   scripts/soak-mutations.sh [NAME]...
set -euo pipefail
cd "$(dirname "$0")/.."

tree=$(mktemp -d)
trap 'git worktree remove --force "$tree" >/dev/null 2>&1; rm -rf "$tree" "$tree".*' EXIT
git worktree add -q --detach "$tree" HEAD
logs=${TMPDIR:-/tmp}

build() { (cd "$tree" && go test -vet=off -c -o "$tree.$1" ./internal/sim); }

# simulate BINARY SEED ARGUMENTS: one simulation of two minutes; a crash of the test or two real minutes end it.
simulate() {
  local binary=$1 seed=$2
  shift 2
  (cd internal/sim && timeout 120 "$binary" -test.run='^TestSim$' -seed="$seed" -length=2m "$@" 2>&1) || true
}

# breaks RULE: whether the output has a breach of it.
breaks() { grep "_test.go:[0-9]*: $1: " >/dev/null; }

# is_sound SEED RULE ARGUMENTS: whether the product without the patch keeps the rule: three times, for no run is quite like another.
is_sound() {
  local seed=$1 rule=$2
  shift 2
  for _ in 1 2 3; do
    ! simulate "$tree.sound" "$seed" "$@" | breaks "$rule" || return 1
  done
}

# find_in_sim NAME RULE ARGUMENTS
find_in_sim() {
  local name=$1 rule=$2 log=$logs/sim-mutation-$1.log seed cpu=0 t
  shift 2
  for seed in $(seq 50); do
    { t=$(TIMEFORMAT='%U %S'; { time simulate "$tree.mutant" "$seed" "$@" >"$log" 2>&1; } 2>&1); }
    cpu=$(awk -v a="$cpu" '{print a + $1 + $2}' <<<"$t")
    if breaks "$rule" <"$log" && is_sound "$seed" "$rule" "$@"; then
      printf '%-24s %-9s %-10s seed %s, %s min, %.0f s CPU\n' "$name" sim found "$seed" "$((2 * seed))" "$cpu"
      return 0
    fi
  done
  printf '%-24s %-9s %-10s %.0f s CPU\n' "$name" sim 'NOT FOUND' "$cpu"
  return 1
}

# find_in_soak NAME RULE ARENA
find_in_soak() {
  local log=$logs/soak-mutation-$1.log result='NOT FOUND'
  (cd "$tree" && TOC_TEST_RUN=all TOC_SOAK='' TOC_SOAK_ARENA=$3 go test -vet=off -count=1 -timeout=8m -run='^TestSoak$' ./internal/soak) >"$log" 2>&1 || true
  grep -q "[0-9] $2\$" "$log" && result=found
  printf '%-24s %-9s %-10s\n' "$1" "$3" "$result"
  [[ $result == found ]]
}

# find_in_test NAME PACKAGE PATTERN
find_in_test() {
  local log=$logs/test-mutation-$1.log result='NOT FOUND'
  (cd "$tree" && go test -vet=off -count=1 -timeout=5m -run="$3" "$2") >"$log" 2>&1 || true
  if grep -q '^ *--- FAIL: ' "$log"; then
    git -C "$tree" checkout -q --force HEAD
    if (cd "$tree" && go test -vet=off -count=1 -timeout=5m -run="$3" "$2") >>"$log" 2>&1; then
      result=found
    fi
  fi
  printf '%-24s %-9s %-10s\n' "$1" test "$result"
  [[ $result == found ]]
}

missed=0
printf '%-24s %-9s %-10s %s\n' mutation arena result at
for patch in internal/soak/mutations/*.patch; do
  name=$(basename "$patch" .patch)
  [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
  rule=$(sed -n 's/^breaks: //p' "$patch")
  arena=$(sed -n 's/^arena: //p' "$patch")
  read -r package pattern < <(sed -n 's/^test: //p' "$patch") || package=
  eval "arguments=($(sed -n 's/^sim://p' "$patch"))"
  git -C "$tree" checkout -q --force HEAD
  if [[ -z $arena$package && ! -e $tree.sound ]]; then
    build sound
  fi
  if ! git -C "$tree" apply --recount "$PWD/$patch"; then
    [[ -z $package ]] || arena=test
    printf '%-24s %-9s %s\n' "$name" "${arena:-sim}" 'NO PATCH' # the product has moved on: write it anew
    missed=1
  elif [[ -n $arena ]]; then
    find_in_soak "$name" "$rule" "$arena" || missed=1
  elif [[ -n $package ]]; then
    find_in_test "$name" "$package" "$pattern" || missed=1
  else
    build mutant
    find_in_sim "$name" "$rule" "${arguments[@]}" || missed=1
  fi
done
exit "$missed"
