#!/usr/bin/env bash
# Counts mechanisms of the product code: of each kind there should be few. With an argument, of that directory.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

files=$(git ls-files '*.go' | grep -vE '_test\.go$|^(bench|examples|clients)/|^server/console/e2e/|^internal/(testrig|soak|sim|virtual|fakeconsul|repotest)/')
count() { # count NAME PATTERN counts the lines with a match
  printf '%-42s %4d\n' "$1" "$(grep -hE "$2" $files | grep -cvE '^\s*//')"
}

count "group commits" 'groupcommit\.New\('
count "retries with growing pauses" 'wait\.Backoff\{'
count "tickers and wait.For loops" 'time\.NewTicker|wait\.For\('
count "callbacks: func fields of a Config" '^[[:space:]]+[A-Z][A-Za-z, ]* +func\('
echo "methods of the largest types:"
for f in $files; do
  perl -ne 'print "'"$(dirname "$f")"'.$1\n" if /^func \(\w+ \*?(\w+)(?:\[\w+\])?\)/' "$f"
done | sort | uniq -c | sort -rn | head -8
