# The verbs of this project. `make` alone explains them; what needs more than a line of shell is in scripts/.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS    ?=
PKG     ?= ./...

# As in scripts/test.sh: foreign code that the race detector makes slow, and that says nothing about us.
NORACE  := $(foreach package,modernc.org/sqlite modernc.org/sqlite/lib modernc.org/libc modernc.org/memory github.com/yuin/gopher-lua,-gcflags='$(package)=-race=false')

.DEFAULT_GOAL := help
.PHONY: help run demo stack stack-down build check deps test test-all soak sim lint bench bench-peers fuzz

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1mmake %-11s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\n  ARGS="--config FILE" goes to the program (run, demo, bench-peers); PKG=./store/... narrows check, test, bench and fuzz.\n'

# run and demo start the built program itself: `go run` would not pass SIGTERM on to it.
run: build ## start a timeout center on 127.0.0.1:8080, its store in data/ (needs only Go)
	bin/toc serve $(ARGS)

demo: build ## watch a few thousand timeouts fire, then their lateness as a histogram
	bin/toc demo $(ARGS)

# scripts/stack-test.sh tests it, on a bare Debian machine as root.
stack: ## three nodes, MySQL, Redis, Consul, Prometheus and Grafana on 127.0.0.1, under some load (needs Docker)
	@scripts/stack.sh up

stack-down: ## remove that stack with its data
	@scripts/stack.sh down

build: ## bin/toc, static
	@CGO_ENABLED=0 scripts/compile.sh "make build" go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o bin/toc -- ./cmd/toc

deps: ## bring what the tests need and this machine lacks: MariaDB, MySQL, Redis, Consul, Prometheus, Chromium, a C compiler
	@scripts/deps.sh

# -short leaves out each test that asks for a server, that takes real time, or that keeps the machine busy for long.
check: export CGO_ENABLED := 0
check: ## the tests that need no server and no time, and vet: half a minute where little has changed
	@scripts/compile.sh "make check" go build -- $(PKG)
	@go test -short -vet=all $(PKG)

test: deps ## each promise once, with the race detector, on real servers: some minutes, for each change
	@PKG="$(PKG)" scripts/test.sh

test-all: deps ## every test, on every server, and every arena of the soak: by hand, and before a release
	@PKG="$(PKG)" scripts/test.sh all

# TOC_SOAK_ARENA is cluster, rediscluster, embedded, pull, kafka or outages, without it all but the last. TOC_SOAK_SEED repeats the choice of
# faults; go test's -artifacts keeps what the nodes wrote and logged. scripts/soak-mutations.sh tests the soak itself.
soak: deps ## break each kind of center for TOC_SOAK (10m) in all ways, then measure how a cluster grows
	CGO_ENABLED=1 TOC_SOAK=$${TOC_SOAK:-10m} scripts/with-servers.sh -- go test -race $(NORACE) -v -count=1 -timeout=120m -run=Soak ./internal/soak
	scripts/with-servers.sh -- go test -v -count=1 -run='^$$' -bench=Scale -benchtime=1x ./internal/soak

# A seed that fails is reported with the line that runs it once more. testdata/found.md of internal/sim has what was found.
sim: ## run SEEDS simulations (1000) of a center in virtual time, ten minutes of load and faults each, also with the smallest queues (needs only Go)
	TOC_TEST_RUN=all go test -count=1 -timeout=0 -run='^TestSim' ./internal/sim -length=10m -seeds=$${SEEDS:-1000}

lint: ## formatting, vet, staticcheck, go.mod, and what is in deploy/
	@scripts/lint.sh

bench: deps ## every Go benchmark, one package after the other, on servers of their own
	scripts/with-servers.sh -buffer-pool=2G -- go test -run='^$$' -bench=. -benchmem -count=1 -timeout=60m -p=1 $(PKG)

bench-peers: ## this beside RocketMQ, Artemis, Quartz, beanstalkd and others, into docs/bench/peers.md: hours (ARGS=--quick for a look)
	@scripts/bench-deps.sh
	@scripts/bench-peers.sh $(ARGS)

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(PKG)
