#!/usr/bin/env bash
# Runs `toc bench` of several programs in turns, on 8 × 128 tables of the test servers' MariaDB and on their Redis, and prints the
# medians. Each argument is a program and its flags:
#   scripts/with-servers.sh -buffer-pool=2G -- scripts/bench-turns.sh 5 "old/toc" "bin/toc" "bin/toc --limited"
# SCENARIOS (drain lateness) and FLAGS (--mode redis --rate 1000 --duration 15s) go to all of them.
set -euo pipefail
turns=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for i in $(seq $#); do # each program has tables and keys of its own: their columns may differ
  cat >"$dir/$i.yaml" <<CONFIG
http: {listen: "127.0.0.1:0"}
store: {driver: mysql, databases: 8, tables_per_database: 128, mysql: {dsn: "root@tcp($TOC_TEST_MYSQL_ADDR)/toc_turns${i}_%d"}}
redis: {addrs: ["$TOC_TEST_REDIS_ADDR"], prefix: "turns$i"}
CONFIG
  read -ra program <<<"${!i}"
  "${program[0]}" migrate --config "$dir/$i.yaml" >"$dir/migrate" 2>&1 || { cat "$dir/migrate" >&2; exit 1; }
done
for turn in $(seq "$turns"); do
  for i in $(seq $#); do
    read -ra program <<<"${!i}"
    # shellcheck disable=SC2086
    "${program[0]}" bench --config "$dir/$i.yaml" "${program[@]:1}" ${FLAGS:---mode redis --rate 1000 --duration 15s} ${SCENARIOS:-drain lateness} |
      tee -a "$dir/$i.out" | sed "s|^|$turn  ${!i}: |"
  done
done
for i in $(seq $#); do
  echo "medians of ${!i}:"
  awk '
    { key = $1; line = $0 }
    match(line, /[0-9,]+\/s \(|: [0-9,]+\/s/) && key != "lateness" { v = substr(line, RSTART, RLENGTH); gsub(/[^0-9]/, "", v); add(key "/s", v) }
    key == "lateness" { n = split(line, w, /[ ,()]+/); for (j = 1; j < n; j++) if (w[j] ~ /^p(50|99)$/) { v = w[j + 1]; add(key " " w[j], v + 0) } }
    function add(k, v) { count[k]++; values[k, count[k]] = v }
    END {
      for (k in count) {
        c = count[k]
        for (a = 1; a <= c; a++) for (b = a + 1; b <= c; b++) if (values[k, b] + 0 < values[k, a] + 0) { t = values[k, a]; values[k, a] = values[k, b]; values[k, b] = t }
        printf "  %-14s %s  (%s to %s)\n", k, values[k, int((c + 1) / 2)], values[k, 1], values[k, c]
      }
    }' "$dir/$i.out" | sort
done
