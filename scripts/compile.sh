#!/usr/bin/env bash
# scripts/compile.sh WHAT COMMAND... -- PACKAGE...
#
# Runs a `go build`, `go vet` or `go list` COMMAND on the packages, and says first how many of them and of what they import are not
# compiled yet, then how many are done: with empty caches Go compiles for minutes without a word. WHAT names what is built.
set -euo pipefail
cd "$(dirname "$0")/.."

what=$1
shift
command=() flags=()
while (($#)) && [[ $1 != -- ]]; do
  command+=("$1")
  # Only these flags decide which compiled package fits.
  [[ $1 == -race || $1 == -trimpath || $1 == -gcflags=* || $1 == -tags=* || $1 == -buildvcs=* ]] && flags+=("$1")
  shift
done
shift

# -e: an error is reported by the command itself.
stale=$(go list -e -deps ${flags[@]+"${flags[@]}"} -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" | grep -c . || true)
if ((stale < 50)); then
  exec "${command[@]}" "$@"
fi
echo "$what: compiling $stale packages; with empty caches that takes minutes" >&2
began=$SECONDS
# -v prints each package that is compiled; other lines are errors.
"${command[@]}" -v "$@" 2>&1 | {
  done=0 shown=$SECONDS
  while IFS= read -r line; do
    if [[ $line =~ ^[a-zA-Z0-9./_-]+$ ]]; then
      done=$((done + 1))
      if [[ -t 2 ]]; then
        printf '\r%s: %d of %d packages, %d s ' "$what" "$done" "$stale" $((SECONDS - began)) >&2
      elif ((SECONDS - shown >= 10)); then
        echo "$what: $done of $stale packages, $((SECONDS - began)) s" >&2
        shown=$SECONDS
      fi
    else
      echo "$line" >&2
    fi
  done
  if [[ -t 2 ]]; then echo >&2; fi
}
