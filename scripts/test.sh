#!/usr/bin/env bash
# scripts/test.sh      `make test`: proves each promise once, in minutes
# scripts/test.sh all  `make test-all`: every test, on every server, in every arena of the soak
#
# PKG narrows both to some packages (default ./...), and TOC_TEST_ARGS goes to go test. All stages run, also after one that failed; the last line says how it went.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

PKG=${PKG:-./...}
whole=$([[ ${1:-} == all ]] && echo all)
export TOC_TEST_RUN=$whole CGO_ENABLED=1
export GORACE="${GORACE:-atexit_sleep_ms=10}" # each process under the race detector sleeps a second at its end without this
began=$(date +%s)
counts=$(mktemp) kept=$(mktemp)
beside='' # the process group of the stage that runs beside another
trap '[[ -z $beside ]] || kill -- "-$beside"; rm -f "$counts" "$kept"' EXIT
failed=0

# SQLite in Go is a C library in translation, and Lua runs in the embedded Redis on a machine in Go: under the race detector both
# are up to ten times slower, and say nothing about us. (Not code with generics: what it instantiates without the detector may be
# linked for all others.)
race=(-race)
for package in modernc.org/{sqlite,sqlite/lib,libc,memory} github.com/yuin/gopher-lua{,/ast,/parse,/pm}; do
  race+=("-gcflags=$package=-race=false")
done

# stage NAME COMMAND... runs a stage, and goes on if it fails.
stage() {
  echo "== $1 ($(($(date +%s) - began)) s)"
  shift
  "$@" || failed=1
}

# run_module DIRECTORY ARGUMENT... tests a module of its own; a line for each package, and the counts are kept.
run_module() { bin/testreport -into "$counts" -- go test -C "$1" -json -count=1 "${@:2}" ./...; }
on_servers() { scripts/with-servers.sh -- bin/testreport -into "$counts" -- go test -json -count=1 "$@"; }

# on_mysql asks MySQL 9.7 what it may answer differently from MariaDB: the schema, all that the store does, its indexes, a table
# that is gone, a fail-over, the sessions on a hostile server; and in `all` a center with a broken table or server, one whose replica takes over,
# and a cluster that is broken in all ways.
# Not the tests of locked rows: MySQL waits a second at least for a lock, so a statement that shares a batch with a locked row
# may be refused there (503, nothing changed).
on_mysql() {
  local arguments=("${race[@]}" -timeout=20m)
  (
    export TOC_TEST_DATABASE=mysql TOC_SOAK_ARENA=cluster
    unset TOC_TEST_MYSQL_ADDR TOC_TEST_MYSQL_AUTH
    code=0
    on_servers "${arguments[@]}" -run='^(TestMySQL($|StatementsUse|AMissingTable|FailOver)|TestEightDatabases$|TestUp|TestALaterStep|TestStopped|TestTwoProcesses|TestChecks|TestIndexNames|TestHostileServer$|TestBinaryLogOfStatements$|TestEverySessionVariable|TestRefusedVariable$|TestPacketSize$|TestCloseOfAClosed)' \
      ./migrations ./store ./internal/mysqlsession ./app || code=1
    [[ -z $whole ]] ||
      on_servers "${arguments[@]}" -run='^(TestSoak|TestATableHoldsUpItselfOnly|TestAForgottenCommitHoldsUpItsOwnTask|TestFailOver(ToAReplica|AfterACrash))$' ./internal/soak ./app || code=1
    exit "$code"
  )
}

# servers names what the tests ran on.
servers() {
  local list=()
  has() { PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec" command -v "$1"; }
  number() { grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -1; }
  if [[ -f bin/test.env ]]; then
    list+=("the servers of docker-compose.yml")
  else
    if has mariadbd >/dev/null; then list+=("MariaDB $("$(has mariadbd)" --version | sed 's/.*Ver //' | number)"); else list+=("MySQL $("$(has mysqld)" --version | number)"); fi
    list+=("Redis $("$(has redis-server)" --version | number)" "Consul $(PATH="$PATH:$(echo "${XDG_CACHE_HOME:-$HOME/.cache}"/toc/consul-*/usr/bin)" consul version | number)")
  fi
  if [[ $PKG == ./... ]]; then
    if scripts/mysql.sh have; then list+=("MySQL 9.7"); fi
    if scripts/test-console.sh have; then list+=("Chromium"); fi
    if [[ -n $whole ]] && scripts/kafka.sh have; then list+=("Kafka"); fi
  fi
  local text=${list[*]/%/,}
  echo "${text%,}"
}

CGO_ENABLED=0 go build -buildvcs=false -o bin/testreport ./internal/testrig/testreport || exit
# shellcheck disable=SC2086 # PKG may be several
stage "compile, with the race detector" scripts/compile.sh "make test" go build "${race[@]}" -- $PKG
# The slowest packages first, so that none of them runs alone at the end; three at a time on two cores, because most wait a lot.
first=$([[ $PKG != ./... ]] || echo ./cmd/toc ./internal/virtual ./app ./internal/soak ./store ./cluster ./server/kafka ./redistimer)
# shellcheck disable=SC2086
stage "tests on MariaDB, Redis and Consul" on_servers "${race[@]}" -p="$(($(nproc) * 3 / 2))" -timeout=$([[ $whole ]] && echo 60m || echo 15m) ${TOC_TEST_ARGS:-} $first $PKG
if [[ $PKG == ./... ]]; then
  stage "alerts" scripts/prometheus.sh test
  # Beside the browser, because each leaves a core idle. Its output follows that of the browser.
  if scripts/mysql.sh have; then
    set -m # a process group of its own, for the trap
    (failed=0; stage "MySQL 9.7" on_mysql; exit "$failed") >"$kept" 2>&1 </dev/null &
    beside=$!
    set +m
  else
    echo "--    no MySQL 9.7 here; nothing of this ran on it" >&2
  fi
  if scripts/test-console.sh have; then
    # Without the race detector, which the console's own tests have: here it would look at little but SQLite.
    CGO_ENABLED=0 stage "console in Chromium" run_module server/console/e2e -timeout=10m
  else
    echo "--    server/console/e2e/ was not tested: its tests need Chromium or Chrome" >&2
  fi
  if [[ $beside ]]; then
    wait "$beside" || failed=1
    beside=
    cat "$kept"
  fi
  if [[ $whole ]]; then
    if [[ -e /proc/self/stat ]] && command -v redis-server redis-benchmark >/dev/null; then
      stage "bench/" run_module bench "${race[@]}" -timeout=20m
    else
      echo "--    bench/ was not tested: its tests need Linux, redis-server and redis-benchmark" >&2
    fi
    scripts/kafka.sh have || echo "--    no Kafka here (it takes mvn and Java 17): what is tested with Kafka was tested on kfake only" >&2
  fi
fi
bin/testreport -sum "$counts" -since "$began" -on "$(servers)" || failed=1
exit "$failed"
