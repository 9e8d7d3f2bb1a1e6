#!/usr/bin/env bash
# Every check that needs no server. All of them run; the exit code tells whether one complained.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
failed=0

# check NAME COMMAND... runs a command that is silent and successful when all is well.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok    $name"
  else
    echo "FAIL  $name"
    failed=1
  fi
}

check gofmt test -z "$(gofmt -l . | tee /dev/stderr)" # names the files to run gofmt -w on
check vet go vet ./...
check staticcheck go run "$staticcheck" ./...
check "go mod tidy" go mod tidy -diff
# Modules of their own: what we compare ourselves with, and what drives a browser, is no dependency of ours.
for module in bench console/e2e; do
  check "$module: vet" go vet -C "$module" ./...
  check "$module: staticcheck" go run -C "$module" "$staticcheck" ./...
  check "$module: go mod tidy" go mod tidy -C "$module" -diff
done
for script in scripts/*.sh .ci/run; do
  check "$script" bash -n "$script"
done
if docker compose version >/dev/null 2>&1; then
  check "docker compose" docker compose config -q
else
  echo "--    docker compose is not here: docker-compose.yml was not checked"
fi
exit "$failed"
