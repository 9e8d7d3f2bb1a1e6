#!/usr/bin/env bash
# Fuzzes every target of the given packages in turn, each for FUZZTIME (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."

list=$(go list -f '{{.ImportPath}} {{.Dir}}' "${@:-./...}")
while read -r package dir; do
  targets=$(cat "$dir"/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p')
  for target in $targets; do
    echo "== $package $target"
    go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-10s}" "$package"
  done
done <<<"$list"
