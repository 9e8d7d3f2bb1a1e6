#!/usr/bin/env bash
# Every check that needs no server. All of them run; the exit code tells whether one complained.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
gocognit=github.com/uudashr/gocognit/cmd/gocognit@v1.2.0
kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
kube_score=github.com/zegl/kube-score/cmd/kube-score@v1.20.0
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

# score_manifests builds the manifests and shows them to kube-score, whose warnings count as well. That it wants a limit of the
# processor does not: deployment.yaml says why there is none.
score_manifests() {
  local said
  said=$(go run "$kustomize" build deploy/kubernetes |
    go run "$kube_score" score --ignore-container-cpu-limit --exit-one-on-warning --output-format ci - deploy/kubernetes/migrate.yaml) ||
    { grep -v '^\[OK\]\|^\[SKIPPED\]' <<<"$said" >&2; return 1; }
}

# verify_unit has systemd read the unit, with a program that is there, and rate how much it exposes: at most 2 of 10.
verify_unit() {
  local work code=0
  work=$(mktemp -d)
  sed 's#^ExecStart=/usr/local/bin/toc#ExecStart=/bin/true#' deploy/systemd/toc.service >"$work/toc.service"
  systemd-analyze verify --man=no "$work/toc.service" || code=1
  systemd-analyze security --offline=true --no-pager --threshold=20 deploy/systemd/toc.service >"$work/exposure" || { tail -1 "$work/exposure"; code=1; }
  rm -rf "$work"
  return $code
}

check gofmt test -z "$(gofmt -l . | tee /dev/stderr)" # names the files to run gofmt -w on
check vet go vet ./...
check "lines of each folder" scripts/lines.sh
check staticcheck go run "$staticcheck" ./...
# A function that takes more than 25 points of attention is more than one.
check "cognitive complexity" go run "$gocognit" -over 25 -ignore "_test|^bench|testdata|internal/(testrig|sim|soak|virtual|fakeconsul)" .
check "go mod tidy" go mod tidy -diff
# Modules of their own: what we compare ourselves with, and what drives a browser, is no dependency of ours.
for module in bench server/console/e2e; do
  check "$module: vet" go vet -C "$module" ./...
  check "$module: staticcheck" go run -C "$module" "$staticcheck" ./...
  check "$module: go mod tidy" go mod tidy -C "$module" -diff
done
for script in scripts/*.sh bench/jvm/*.sh .ci/run; do
  check "$script" bash -n "$script"
done
# scripts/soak-mutations.sh needs them.
apply_mutations() {
  local patch code=0
  for patch in internal/soak/mutations/*.patch; do
    git apply --recount --check "$patch" || code=1
  done
  return $code
}
check "internal/soak/mutations" apply_mutations
# Lines of product code keep within 140 characters, the texts of their literals aside.
long_lines() {
  ! git ls-files '*.go' | grep -vE '_test.go$|^(bench|examples)/|^internal/(testrig|soak|sim|virtual|fakeconsul)/' |
    xargs perl -CSD -ne 'chomp; ($c = $_) =~ s/"(\\.|[^"\\])*"|`[^`]*`/""/g; print "$ARGV:$.: $_\n" if length($c) > 140; close ARGV if eof' | grep . >&2
}
check "lines within 140" long_lines
check words scripts/words.sh
# What deploys it, by its own tools.
if docker compose version >/dev/null 2>&1; then
  check "docker compose" env TOC_TOKEN=any GRAFANA_PASSWORD=any docker compose config -q
elif command -v docker-compose >/dev/null; then
  check "docker-compose" env TOC_TOKEN=any GRAFANA_PASSWORD=any docker-compose config -q
else
  echo "--    docker compose is not here: docker-compose.yml was not checked"
fi
check "deploy/kubernetes" score_manifests
if command -v systemd-analyze >/dev/null; then
  check "deploy/systemd" verify_unit
else
  echo "--    systemd is not here: deploy/systemd was not checked"
fi
exit "$failed"
