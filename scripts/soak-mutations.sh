#!/usr/bin/env bash
# Breaks the product on purpose, one promise at a time, and expects the soak to say so: the short form of one arena for each patch
# in internal/soak/mutations, at HEAD; with tasks that end their process where it says so. NAMEs choose some. Prints a table; fails
# unless each was found.
#
#   scripts/soak-mutations.sh [NAME]...
set -euo pipefail
cd "$(dirname "$0")/.."

tree=$(mktemp -d)
trap 'git worktree remove --force "$tree" >/dev/null 2>&1; rm -rf "$tree"' EXIT
git worktree add -q --detach "$tree" HEAD

missed=0
printf '%-24s %-12s %-10s %s\n' mutation arena result 'rules that broke'
for patch in internal/soak/mutations/*.patch; do
  name=$(basename "$patch" .patch)
  [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
  breaks=$(sed -n 's/^breaks: //p' "$patch")
  arena=$(sed -n 's/^arena: //p' "$patch")
  poisons=$(sed -n 's/^poisons: //p' "$patch")
  log=${TMPDIR:-/tmp}/soak-mutation-$name.log
  git -C "$tree" checkout -q --force HEAD
  if ! git -C "$tree" apply --recount "$PWD/$patch" 2>"$log"; then
    result='NO PATCH' # the product has moved on: write it anew
  elif (cd "$tree" && TOC_TEST_RUN=all TOC_SOAK='' TOC_SOAK_ARENA=$arena TOC_SOAK_POISONS=$poisons go test -vet=off -count=1 -timeout=8m -run='^TestSoak$' ./internal/soak) >"$log" 2>&1; then
    result='NOT FOUND'
  elif grep -q "[0-9] $breaks\$" "$log"; then
    result=found
  else
    result='NOT FOUND'
  fi
  [[ $result == found ]] || missed=1
  printf '%-24s %-12s %-10s %s\n' "$name" "$arena" "$result" "$(sed -nE 's/^ +[a-z]+_test.go:[0-9]+: ([0-9]+ [a-z].*)$/\1/p' "$log" | paste -sd ';')"
done
exit "$missed"
