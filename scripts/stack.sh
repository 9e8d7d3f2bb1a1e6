#!/usr/bin/env bash
# scripts/stack.sh up    brings docker-compose.yml up, waits until all of it is healthy, submits a demo load, prints the addresses
# scripts/stack.sh down  removes it with its data
# scripts/stack.sh secrets  draws into .env what is missing there; the others do that, too
#
# Takes Docker's compose plugin, or docker-compose 1.29. TOC_STACK_WITHOUT names services that are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

center=http://127.0.0.1:8080
patience=600 # seconds until all is healthy; the first start pulls and builds

fail() {
  echo "make stack: $1" >&2
  exit 1
}

# secrets draws the token of the nodes and Grafana's password, which compose reads from .env: where they are known, any page in a browser of
# this machine can use them.
secrets() {
  local name
  (
    umask 077
    for name in TOC_TOKEN GRAFANA_PASSWORD; do
      grep -qs "^$name=" .env || printf '%s=%s\n' "$name" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >>.env
    done
  )
  token=${TOC_TOKEN:-$(sed -n 's/^TOC_TOKEN=//p' .env)}
}

secrets
[[ ${1:-} != secrets ]] || exit 0

if docker compose version >/dev/null 2>&1; then
  compose() { docker compose "$@"; }
elif command -v docker-compose >/dev/null; then
  compose() { docker-compose "$@"; }
else
  fail "this needs Docker with compose (the plugin, or docker-compose 1.29)"
fi

# services are all that is to run.
services() { compose config --services | grep -vxF -f <(tr ' ' '\n' <<<"${TOC_STACK_WITHOUT:-none}"); }

# state of a container: healthy, or running where it has no health check, or exited with 0.
well() {
  case $(docker inspect -f '{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}} {{.State.ExitCode}}{{end}}' "$1") in
  healthy | 'running 0' | 'exited 0') ;;
  *) return 1 ;;
  esac
}

await_healthy() {
  local deadline=$((SECONDS + patience)) service container
  for service in $(services); do
    container=$(compose ps -aq "$service" 2>/dev/null || compose ps -q "$service")
    until well "$container"; do
      ((SECONDS < deadline)) || fail "$service is not healthy: $(docker logs --tail 20 "$container" 2>&1)"
      sleep 1
    done
  done
}

# demo_load prints the body of a submit of 4,200 tasks, due one after the other in the next minute. The type mail gets
# more than its rate.
demo_load() {
  awk 'BEGIN {
    printf "{\"tasks\":["
    n["order_close"] = n["seat_hold"] = 1200; n["mail"] = 1800
    for (type in n)
      for (i = 0; i < n[type]; i++)
        printf "%s{\"biz_type\":\"%s\",\"biz_id\":%d,\"delay\":\"%dms\",\"attribute\":\"demo\"}", first++ ? "," : "", type, i, 3000 + i * 60000 / n[type]
    print "]}"
  }'
}

up() {
  compose build migrate
  # shellcheck disable=SC2046 # a word each
  compose up --detach $(services)
  await_healthy
  demo_load | curl --fail --silent --show-error --max-time 60 -o /dev/null -H "Authorization: Bearer $token" \
    -H 'Content-Type: application/json' --data-binary @- "$center/v1/tasks/batch"
  cat <<END

The stack is up. 4,200 tasks fire over the next minute, those of the type mail at its rate of 20 a second.

  center       $center      /docs has its API; its token is in .env
  its nodes    http://127.0.0.1:8081, :8082, :8083
  Grafana      http://127.0.0.1:3000
  Prometheus   http://127.0.0.1:9090

  export TOC_SERVER=$center \$(grep ^TOC_TOKEN= .env)
  bin/toc cluster

make stack-down removes it with its data.
END
}

case ${1:-} in
up) up ;;
down) compose down --volumes --remove-orphans --timeout 45 ;;
*) fail "usage: scripts/stack.sh up|down|secrets" ;;
esac
