#!/usr/bin/env bash
# Brings what the tests need and this machine lacks: a MariaDB (or MySQL) server, a Redis server, Consul, Prometheus, Python,
# and a C compiler for the race detector; on Debian also MySQL 9.7, beside MariaDB, and Chromium with a font;
# where there are mvn and Java, Kafka. Installs packages
# where there is apt (Consul, Prometheus, MySQL and Kafka go to the user's cache: scripts/consul.sh, scripts/prometheus.sh, scripts/mysql.sh,
# scripts/kafka.sh); else
# runs the servers of docker-compose.yml; else says what is missing. Says nothing when nothing is.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/apt.sh
source scripts/apt.sh

# Where scripts/with-servers.sh finds the servers that run in Docker.
env_file=bin/test.env

# Servers are often not in a user's PATH.
has() { PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec" command -v "$1" >/dev/null; }

on_debian() { grep -qx 'ID=debian' /etc/os-release 2>/dev/null; }
has_mysql() { if has mariadbd; then has mariadb-install-db; else has mysqld; fi; }
has_redis() { has redis-server; }
# Only Debian has it as a package.
has_chromium() { scripts/test-console.sh have || ! on_debian; }
has_consul() { scripts/consul.sh have; }
has_prometheus() { scripts/prometheus.sh have; }
# Only Debian's mirrors have it.
has_mysql97() { scripts/mysql.sh have || ! on_debian; }
# Where it is not to be had the tests run on one database, and say so.
fetch_mysql97() { has_mysql97 || scripts/mysql.sh fetch || echo "make deps: on without MySQL 9.7" >&2; }
# Only tests on a broker of Kafka's own need it, which are left out without it.
fetch_kafka() { scripts/kafka.sh have || ! has mvn || ! has java || scripts/kafka.sh fetch || echo "make deps: on without Kafka" >&2; }
has_cc() { echo '#include <stdlib.h>' | "$(go env CC)" -E - >/dev/null 2>&1; }

# missing fills `lacks` with what is not there, in words, and `packages` with the Debian packages that bring it.
missing() {
  lacks=() packages=()
  has_mysql || { lacks+=("MariaDB 10.6 or later, or MySQL 8 (mariadbd or mysqld)"); packages+=(mariadb-server); }
  has_redis || { lacks+=("Redis 7 (redis-server)"); packages+=(redis-server); }
  has_consul || lacks+=("Consul 1.8 or newer (consul in PATH)")
  has_chromium || { lacks+=("Chromium (chromium)"); packages+=(chromium fonts-dejavu-core); }
  has_prometheus || lacks+=("Prometheus 2.40 or newer (prometheus and promtool in PATH)")
  has python3 || { lacks+=("Python 3.9 or newer (python3)"); packages+=(python3); }
  has_cc || { lacks+=("a C compiler with headers (go test -race)"); packages+=(gcc libc6-dev); }
}

fail() {
  echo "make deps: $1" >&2
  exit 1
}

refresh_lists() { apt update -o APT::Update::Error-Mode=any; }

install_packages() {
  ((EUID == 0)) || has sudo || fail "not root and no sudo; as root run: apt-get install --no-install-recommends ${packages[*]}"
  echo "make deps: installing ${packages[*]}"
  local log
  log=$(mktemp)
  forbid_services
  # One more try for a network that hiccups; then on with the lists there are: a broken source need not be one of ours.
  refresh_lists >"$log" 2>&1 || { sleep 5; refresh_lists >>"$log" 2>&1; } || true
  apt install --no-install-recommends "${packages[@]}" >>"$log" 2>&1 || { cat "$log" >&2; fail "apt-get install failed"; }
  rm -f "$log"
  if [[ -d /run/systemd/system ]]; then
    echo "make deps: nothing was started; should mariadb and redis-server not start at boot either: systemctl disable mariadb redis-server"
  fi
}

# The tests of the clients in PHP and Java are left out without those. A JDK is large, so nobody gets one unasked.
fetch_php() { has php || ! has apt-get || { ((EUID != 0)) && ! sudo -n true 2>/dev/null; } || (packages=(php-cli) && install_packages) || true; }
offer_clients() {
  fetch_php
  has php || echo "make deps: SKIP: no PHP here (php), so the PHP client is not tested" >&2
  has javac || echo "make deps: SKIP: no JDK here (javac, 17 or later), so the Java client is not tested" >&2
}

has_docker() { docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; }

start_containers() {
  echo "make deps: no apt; starting MySQL, Redis and Consul of docker-compose.yml"
  scripts/stack.sh secrets
  docker compose up --detach --wait mysql redis consul
  local password
  password=$(docker compose exec -T mysql printenv MYSQL_ROOT_PASSWORD || true)
  mkdir -p "$(dirname "$env_file")"
  {
    printf 'export TOC_TEST_MYSQL_ADDR=%q\n' "$(docker compose port mysql 3306)"
    printf 'export TOC_TEST_MYSQL_AUTH=%q\n' "root${password:+:$password}"
    printf 'export TOC_TEST_REDIS_ADDR=%q\n' "$(docker compose port redis 6379)"
    printf 'export TOC_TEST_CONSUL_ADDR=%q\n' "$(docker compose port consul 8500)"
  } >"$env_file"
  echo "make deps: make test finds them by $env_file; for go test alone: source $env_file"
  echo "make deps: tests that stop and kill a server of their own still need these in PATH, and fail without:$(printf '\n  - %s' "${lacks[@]}")"
}

offer_clients
has go || fail "Go is missing: install the version that go.mod names, or later"
rm -f "$env_file"
missing
if ((${#lacks[@]} == 0)); then
  fetch_mysql97
  fetch_kafka
  exit 0
fi

if has apt-get; then
  ((${#packages[@]} == 0)) || install_packages
  has_consul || scripts/consul.sh fetch || true
  has_prometheus || scripts/prometheus.sh fetch || true
  missing
elif has_cc && has_docker; then
  start_containers
  lacks=()
fi
if ((${#lacks[@]} > 0)); then
  fail "missing and not installed by this script here:$(printf '\n  - %s' "${lacks[@]}")"
fi
fetch_mysql97
fetch_kafka
