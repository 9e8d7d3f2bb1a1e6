#!/usr/bin/env bash
# Fuzzes every target of the given packages in turn, each for FUZZTIME (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."

list=$(go list -f '{{.ImportPath}} {{.Dir}}' "${@:-./...}")
while read -r package dir; do
  targets=$(grep -hos '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -c6-) || true # most packages have none
  for target in $targets; do
    found=yes
    echo "== $package $target"
    go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-10s}" "$package"
  done
done <<<"$list"
[[ ${found:-} ]] || { echo "fuzz: no target in these packages" >&2; exit 1; }
