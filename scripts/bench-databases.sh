#!/usr/bin/env bash
# Measures this system on MariaDB and on MySQL, one after the other: scripts/bench-databases.sh [LAYOUT]... (128 1024 by
# default: tables of each of 8 databases). What `toc bench` prints goes to standard output.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measure runs within with-servers.sh, beside one database server and a Redis.
measure() {
  local tables=$1
  cat >"$work/toc.yaml" <<YAML
store: {driver: mysql, databases: 8, tables_per_database: $tables, mysql: {dsn: "root@tcp($TOC_TEST_MYSQL_ADDR)/bench${tables}_%d"}}
redis: {addrs: ["$TOC_TEST_REDIS_ADDR"]}
YAML
  bin/toc migrate --config "$work/toc.yaml" >/dev/null 2>&1
  local bench=(bin/toc bench --config "$work/toc.yaml")
  for _ in 1 2 3; do
    "${bench[@]}" drain
    "${bench[@]}" --mode redis drain lateness
    "${bench[@]}" --mode redis --rate 5000 lateness
  done
}

if [[ ${1:-} == --measure ]]; then
  measure "$2"
  exit
fi
make --no-print-directory build
[[ $# -gt 0 ]] || set -- 128 1024
for tables in "$@"; do
  for database in mariadb mysql; do
    echo "== $database, 8 x $tables"
    TOC_TEST_DATABASE=$database scripts/with-servers.sh -buffer-pool=2G -- "$0" --measure "$tables" 2>&1
  done
done
