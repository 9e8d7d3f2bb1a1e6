#!/usr/bin/env bash
# scripts/flakes.sh N [PKG [RUN]]
#
# Finds tests that chance can fail: runs `make test` N times, beside one busy loop a core, and prints how often each test failed.
# PKG narrows it to some packages; RUN, a regular expression, to some tests of them, which then run N times in one process.
# LOOPS=0 leaves out the busy loops. The logs of failed runs stay in a directory that the last line names.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

if ! [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
runs=$1 packages=${2:-./...} only=${3:-}
logs=$(mktemp -d "${TMPDIR:-/tmp}/flakes.XXXXXX")
loops=()
trap '((${#loops[@]} == 0)) || kill "${loops[@]}" 2>/dev/null' EXIT
for ((i = 0; i < ${LOOPS:-$(nproc)}; i++)); do
  (while :; do :; done) &
  loops+=($!)
done
disown -a

if [[ $only ]]; then
  TOC_TEST_ARGS="-run=$only -count=$runs -timeout=0" PKG=$packages scripts/test.sh >"$logs/1.log" 2>&1
  code=$?
  tail -1 "$logs/1.log"
  grep -hE '^ *--- FAIL: ' "$logs/1.log" | awk '{print $3}' | sort | uniq -c | sort -rn | awk -v n="$runs" '{print "failed", $1, "of", n ":", $2}'
else
  code=0
  for ((i = 1; i <= runs; i++)); do
    PKG=$packages scripts/test.sh >"$logs/$i.log" 2>&1 || code=1
    echo "run $i: $(tail -1 "$logs/$i.log")"
  done
  grep -hE '^failed: ' "$logs"/*.log | sort | uniq -c | sort -rn | awk -v n="$runs" '{count = $1; $1 = $2 = ""; print "failed", count, "of", n ":" $0}'
fi
if ((code == 0)); then
  echo "nothing failed in $runs runs"
  rm -rf "$logs"
else
  echo "logs: $logs"
fi
exit "$code"
