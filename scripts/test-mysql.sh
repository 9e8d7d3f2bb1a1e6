#!/usr/bin/env bash
# What MariaDB and MySQL may answer differently, on MySQL 9.7: the schema, all that the store does, its indexes, a table that is
# gone, a fail-over, a center with a broken table or server, a cluster that is broken in all ways. Not the tests of locked rows:
# MySQL waits a second at least for a lock, so what shares a batch with a locked row may be refused there (503, nothing changed).
# Its arguments go to `go test`. Without scripts/mysql.sh's MySQL (not on Debian) it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! scripts/mysql.sh have; then
  echo "test-mysql: no MySQL 9.7 here; nothing of this ran on it" >&2
  exit 0
fi
export TOC_TEST_DATABASE=mysql TOC_SOAK_ARENA=cluster
unset TOC_TEST_MYSQL_ADDR TOC_TEST_MYSQL_AUTH
echo "test-mysql: on MySQL 9.7"
scripts/with-servers.sh -- go test "$@" ./migrations
scripts/with-servers.sh -- go test "$@" -run='^TestMySQL($|StatementsUse|AMissingTable|FailOver)' ./store
scripts/with-servers.sh -- go test "$@" -run='^(TestSoak|TestATableHoldsUpItselfOnly|TestADatabaseThatIsDownIsTold|TestAForgottenCommitHoldsUpItsOwnTask)$' ./internal/soak ./app
