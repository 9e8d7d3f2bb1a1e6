#!/usr/bin/env bash
# Brings docker-compose.yml really up on a bare Debian machine, as root, and breaks it: the Dockerfile is built, all services but
# Grafana run, tasks fire on all three nodes, one node is killed, the others take over, Prometheus sees it.
# Some ten minutes on two busy cores, most of it the build; not a part of `make test`.
#
# No image is pulled: those of other projects are stand-ins of the same names, made of Debian packages (deploy/stack/standins),
# which behave as the real ones do as far as docker-compose.yml and the Dockerfile look.
# The Docker engine runs in namespaces of its own (network, processes, mounts): it reaches nothing outside, its ports collide
# with nobody's, and when the first process there ends, in whatever way, the kernel ends everything in it.
set -euo pipefail
cd "$(dirname "$0")/.."

log() { printf '\n== %(%H:%M:%S)T %s\n' -1 "$1"; }
fail() {
  echo "stack-test: $1" >&2
  exit 1
}

# --- outside ---------------------------------------------------------------------------------------------------------

cache=${XDG_CACHE_HOME:-$HOME/.cache}/toc
base=$cache/standins.tar
packages=redis-server,redis-tools,haproxy,prometheus,mariadb-client,ca-certificates,wget

install_engine() {
  local lacks=()
  command -v dockerd >/dev/null || lacks+=(docker.io)
  docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || lacks+=(docker-compose)
  command -v iptables >/dev/null || lacks+=(iptables)
  command -v mmdebstrap >/dev/null || lacks+=(mmdebstrap)
  command -v ip >/dev/null || lacks+=(iproute2)
  command -v curl >/dev/null || lacks+=(curl)
  ((${#lacks[@]} > 0)) || return 0
  log "installing ${lacks[*]}"
  # shellcheck source=scripts/apt.sh
  (source scripts/apt.sh && forbid_services && apt update && apt install --no-install-recommends "${lacks[@]}")
}

# make_base brings a root file system with all packages that the stand-ins are made of.
make_base() {
  [[ ! -e $base ]] || return 0
  log "making $base: minutes, once"
  # shellcheck source=scripts/private-apt.sh
  source scripts/private-apt.sh
  # shellcheck source=/dev/null
  source /etc/os-release
  mkdir -p "$cache"
  mmdebstrap --quiet --format=tar --variant=minbase --include=$packages "$VERSION_CODENAME" "$base.$$" "$(mirrors | grep -v -- -security | head -1)"
  mv "$base.$$" "$base"
}

# make_contexts gives each stand-in its folder, with what no package of the release brings.
make_contexts() {
  local to=$1 consul
  cp -r deploy/stack/standins "$to"
  consul=$(command -v consul || ls "$cache"/consul-*/usr/bin/consul)
  copy "$cache/mysql-9.7" "$to/mysql/mysql"
  copy "$consul" "$to/consul/consul"
  copy "$(go env GOROOT)" "$to/golang/go"
  GOMODCACHE=$to/golang/modules GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GOFLAGS=-modcacherw go mod download
  find "$to/golang/modules" -mindepth 1 -maxdepth 1 ! -name cache -exec rm -rf {} +
}

# copy makes links where it can: nobody writes there.
copy() { cp -rl "$1" "$2" 2>/dev/null || { rm -rf "$2" && cp -r "$1" "$2"; }; }

outside() {
  ((EUID == 0)) || fail "a Docker engine needs root"
  grep -qx 'ID=debian' /etc/os-release || fail "the stand-ins are made of Debian's packages"
  install_engine
  scripts/mysql.sh fetch
  scripts/consul.sh have || scripts/consul.sh fetch
  make_base
  work=$(mktemp -d /tmp/toc-stack.XXXXXX)
  inner=
  trap clean EXIT
  make_contexts "$work/standins"
  unshare --net --pid --mount --mount-proc --ipc --fork --kill-child=KILL "$0" inside "$work" &
  inner=$!
  local code=0
  wait $inner || code=$?
  inner=
  ((code == 0)) || { echo "--- the engine's last words"; tail -20 "$work/dockerd.log"; } >&2
  return $code
}

# clean ends what still runs, and removes what ended processes leave: files, and the names of their groups.
clean() {
  [[ -z $inner ]] || kill -KILL "$inner"
  wait
  rm -rf "$work"
  find /sys/fs/cgroup -depth -type d -path "*/${work##*/}*" -exec rmdir {} + 2>/dev/null || true
}

# --- inside ----------------------------------------------------------------------------------------------------------

start_engine() {
  ip link set lo up
  dockerd --data-root "$work/data" --exec-root "$work/exec" -H "unix://$work/docker.sock" -p "$work/dockerd.pid" \
    --cgroup-parent "/${work##*/}" >"$work/dockerd.log" 2>&1 &
  export DOCKER_HOST=unix://$work/docker.sock DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0
  eventually 60 docker info
}

make_images() {
  local name folder
  docker import "$base" standins >/dev/null
  for name in golang:1.26 mysql:8.4 redis:7 hashicorp/consul:1.20 haproxy:3.2-alpine prom/prometheus:v3.5.0; do
    grep -qF "$name" docker-compose.yml Dockerfile || fail "neither docker-compose.yml nor the Dockerfile names $name any more"
    folder=${name##*/}
    docker build --quiet --tag "$name" "$work/standins/${folder%%:*}" >/dev/null
    echo "$name"
  done
}

# eventually SECONDS COMMAND... repeats a command each second until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1)) what=${*:2}
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "still not so: $what"
    sleep 1
  done
}

token='' # of .env
get() { curl --fail --silent --max-time 10 -H "Authorization: Bearer $token" "$@"; }

# nodes prints what the center behind the balancer says of its nodes: NAME PARTITIONS, a line each.
nodes() {
  get http://127.0.0.1:8080/v1/cluster | python3 -c '
import json, sys
for n in json.load(sys.stdin)["nodes"]:
    print(n["name"], len(n["partitions"]))'
}

# own all 256 partitions: the named nodes, each some, and nobody else.
own() { [[ $(nodes | awk '$2 { print $1; n += $2 } END { print n }' | sort | xargs) == "$(printf '%s\n' 256 "$@" | sort | xargs)" ]]; }

# fired PORT is how many runs of a node went well.
fired() { get "http://127.0.0.1:$1/metrics" | awk '/^toc_runs_total\{.*outcome="processed"/ { n += $2 } END { print n + 0 }'; }
has_fired() { (($(fired "$1") > 0)); }

# submit NAME N submits n tasks of many biz_ids, due in the next two seconds, whose attribute is the name.
submit() {
  awk -v name="$1" -v n="$2" 'BEGIN {
    printf "{\"tasks\":["
    for (i = 0; i < n; i++)
      printf "%s{\"biz_type\":\"%s\",\"biz_id\":%d,\"delay\":\"%dms\",\"attribute\":\"%s\"}", i ? "," : "", i % 2 ? "seat_hold" : "order_close", 100000 + i, i * 2000 / n, name
    print "]}"
  }' | get -o /dev/null -H 'Content-Type: application/json' --data-binary @- http://127.0.0.1:8080/v1/tasks/batch
}

# processed NAME tells how many tasks of that name are processed, by SQL over all tables.
processed() {
  docker exec "$(container toc1)" /toc sql --config /etc/toc/toc.yaml "SELECT job_id FROM timeout_task WHERE attribute = '$1' AND status = 2" 2>/dev/null | grep -cE '^[^0-9]*[0-9]{15,}' || true
}
all_processed() { (($(processed "$1") == $2)); }

container() { docker ps -aq --filter "label=com.docker.compose.service=$1"; }

# query EXPRESSION prints what Prometheus answers: LABEL VALUE, a line each.
query() {
  curl --fail --silent --max-time 10 --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query | python3 -c '
import json, sys
for r in json.load(sys.stdin)["data"]["result"]:
    print(r["metric"].get("instance", r["metric"].get("alertname", "")), r["value"][1])' | sort
}
answers() { [[ $(query "$1") == "$2" ]]; }

inside() {
  work=$2
  log "starting a Docker engine of its own"
  start_engine
  docker version --format 'client {{.Client.Version}}, engine {{.Server.Version}}'
  log "making the stand-ins"
  make_images

  log "make stack, without Grafana"
  TOC_STACK_WITHOUT=grafana scripts/stack.sh up
  token=${TOC_TOKEN:-$(sed -n 's/^TOC_TOKEN=//p' .env)}
  docker ps --format 'table {{.Names}}\t{{.Status}}\t{{.Ports}}'
  ! docker ps --format '{{.Ports}}' | grep -E '(0\.0\.0\.0|\[?::\]?):[0-9]+->' || fail "a port is published on other addresses than 127.0.0.1"

  log "three nodes own everything, and Prometheus scrapes them"
  eventually 60 own toc1 toc2 toc3
  nodes
  eventually 60 answers 'up{job="toc"}' $'toc1:8080 1\ntoc2:8080 1\ntoc3:8080 1'
  query 'up{job="toc"}'
  (($(curl --fail --silent http://127.0.0.1:9090/api/v1/rules | grep -o '"name":"Toc[A-Za-z]*"' | wc -l) == $(grep -c 'alert: ' deploy/prometheus/rules.yml))) || fail "Prometheus has not loaded all alerts"

  log "tasks fire on all three nodes"
  submit before-the-kill 600
  for port in 8081 8082 8083; do eventually 60 has_fired $port; done
  eventually 60 all_processed before-the-kill 600
  echo "runs: toc1 $(fired 8081), toc2 $(fired 8082), toc3 $(fired 8083); 600 of 600 tasks processed"

  log "toc2 is killed"
  docker kill "$(container toc2)" >/dev/null
  killed=$SECONDS
  eventually 60 own toc1 toc3
  echo "after $((SECONDS - killed)) s the others have its partitions:"
  nodes
  submit after-the-kill 600
  eventually 60 all_processed after-the-kill 600
  echo "600 of 600 tasks fired without it, submitted through the balancer"
  eventually 60 answers 'up{job="toc"}' $'toc1:8080 1\ntoc2:8080 0\ntoc3:8080 1'
  query 'up{job="toc"}'

  log "toc2 is back"
  docker start "$(container toc2)" >/dev/null
  eventually 60 own toc1 toc2 toc3
  nodes
  eventually 60 answers 'up{job="toc"}' $'toc1:8080 1\ntoc2:8080 1\ntoc3:8080 1'

  log "make stack-down"
  scripts/stack.sh down
  [[ -z $(docker ps -aq)$(docker volume ls -q)$(docker network ls -q --filter type=custom) ]] || fail "something is left"
  kill "$(<"$work/dockerd.pid")"
  wait
  log "green"
}

if [[ ${1:-} == inside ]]; then
  inside "$@"
else
  outside
fi
