#!/usr/bin/env bash
# Finds words in comments and docs that a reader stumbles over: code returns, reports, stores and checks; it does not tell, hear or know. A sentence has
# a subject. A line with the mark words:ok, where the word is the right one, is passed over.
set -euo pipefail
cd "$(dirname "$0")/.."
words='[Tt]ells?|told|hears?|heard|believes?|knows|[Ww]hatever|[Ww]hoever|anew|[Tt]hose that|that which|of (its|their) own|by (itself|themselves)|refuses to'
found=$({
  git ls-files '*.go' | grep -v _test.go | xargs grep -nE "//.*\b($words)\b|^\s*// What [a-z]" /dev/null
  git ls-files '*.md' | grep -vE '^CHANGELOG|testdata/' | xargs grep -nE "\b($words)\b" /dev/null
} | grep -v 'words:ok' || true)
[[ -z $found ]] && exit
echo "$found" >&2
exit 1
