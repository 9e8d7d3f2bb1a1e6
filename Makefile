# The verbs of this project. `make` alone explains them; what needs more than a line of shell is in scripts/.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS    ?=
PKG     ?= ./...

# SQLite in Go is a C library in translation: under the race detector it is ten times slower and says nothing about us.
NORACE  := $(foreach package,sqlite sqlite/lib libc memory,-gcflags='modernc.org/$(package)=-race=false')

.DEFAULT_GOAL := help
.PHONY: help run demo stack stack-down build check deps test soak lint bench bench-peers fuzz

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
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o bin/toc ./cmd/toc

deps: ## bring what the tests need and this machine lacks: MariaDB, MySQL, Redis, Consul, Prometheus, Chromium, a C compiler
	@scripts/deps.sh

# The rig's own tests are of servers, all of them. -short leaves out what asks the rig for one,
# and a few tests that keep the machine busy for long.
check: export CGO_ENABLED := 0
check: ## build, vet and the tests that need no server: a minute, and less where little has changed
	go build ./...
	go vet ./...
	go test -short $$(go list $(PKG) | grep -v /internal/testrig)

test: deps ## every test, with the race detector, on real servers
	go vet $(PKG)
	$(if $(filter ./...,$(PKG)),scripts/prometheus.sh test)
	@scripts/kafka.sh have || echo "no Kafka here (it takes mvn and Java 17): what is tested with Kafka was tested on kfake only" >&2
	CGO_ENABLED=1 scripts/with-servers.sh -- go test -race $(NORACE) -count=1 -timeout=20m $(PKG)
	$(if $(filter ./...,$(PKG)),CGO_ENABLED=1 scripts/test-mysql.sh -race $(NORACE) -count=1 -timeout=20m)
	$(if $(filter ./...,$(PKG)),CGO_ENABLED=1 scripts/test-bench.sh -race $(NORACE) -count=1 -timeout=20m)
	$(if $(filter ./...,$(PKG)),scripts/test-console.sh -count=1 -timeout=10m)

# TOC_SOAK_ARENA is cluster, rediscluster, embedded, pull, kafka, youzan or outages, without it all but the last. TOC_SOAK_SEED repeats the choice of
# faults; go test's -artifacts keeps what the nodes wrote and logged. scripts/soak-mutations.sh tests the soak itself.
soak: deps ## break each kind of center for TOC_SOAK (10m) in all ways, then measure how a cluster grows
	CGO_ENABLED=1 TOC_SOAK=$${TOC_SOAK:-10m} scripts/with-servers.sh -- go test -race $(NORACE) -v -count=1 -timeout=120m -run=Soak ./internal/soak
	scripts/with-servers.sh -- go test -v -count=1 -run='^$$' -bench=Scale -benchtime=1x ./internal/soak

lint: ## formatting, vet, staticcheck, go.mod, and what is in deploy/
	@scripts/lint.sh

bench: deps ## every Go benchmark, one package after the other, on servers of their own
	scripts/with-servers.sh -buffer-pool=2G -- go test -run='^$$' -bench=. -benchmem -count=1 -timeout=60m -p=1 $(PKG)

bench-peers: ## this beside asynq, River, beanstalkd and BullMQ, into docs/bench/peers.md: hours (ARGS=--quick for a look)
	@scripts/bench-deps.sh
	@scripts/bench-peers.sh $(ARGS)

fuzz: ## every fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(PKG)
