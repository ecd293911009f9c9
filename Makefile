# What can be made here. `make` lists it.

VERSION   = $(shell git -c safe.directory='*' describe --tags --always --dirty)
GO_BUILD  = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X wgsteer/internal/build.version=$(VERSION)'
FUZZTIME  = 10s
BENCHTIME = 1s
SEED      = 1
ROUNDS    = 100
IMAGE     = wgsteer-server

# The version comes from above; asking git itself, Go fails where root builds in a
# folder of somebody else.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
# Where Debian has programs that an ordinary user's PATH does not find.
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help build demo test check bench chaos simulate fuzz image clean always
.NOTPARALLEL:

help:   ## List the targets
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' Makefile | expand -t 16

build: bin/wgsteer-server bin/wgsteer-agent ## Build the static programs bin/wgsteer-server and bin/wgsteer-agent

demo:   ## Show a whole mesh on this machine; KEEP=1 leaves it up to look around in (root)
	@.ci/setup demo
	@$(MAKE) --no-print-directory build bin/wgsteer-demo
	bin/wgsteer-demo

test:   ## Run all tests, none skipped: real tunnels, the container, the units (root)
	@.ci/setup test
	CI=true go test -race -count=1 $(TESTFLAGS) ./...

check:  ## Check format, lint and dependencies, then test: what CI runs (root)
	@.ci/setup test
	@test -z "$$(gofmt -l .)" || { echo 'not formatted, run gofmt -w on:'; gofmt -l .; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	go mod verify
	@$(MAKE) --no-print-directory test

bench:  ## Run all benchmarks, each for BENCHTIME (root)
	@.ci/setup bench
	@set -e; list=$$(.ci/each Benchmark); echo "$$list" | while read -r package names; do \
		go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) "$$package"; done

chaos:  ## Break a mesh ROUNDS times, drawn from SEED, and check that nothing is lost (root)
	@.ci/setup test
	@# Server and agents have the race detector in any case; the userspace WireGuard of many keys need not.
	CI=true go test -count=1 -timeout 0 -v -run '^TestChaos$$' ./internal/chaos -chaos.seed $(SEED) -chaos.rounds $(ROUNDS)

simulate: ## Simulate a mesh in eight scenarios, and write table and plots into docs/
	go run ./examples/simulate --out docs/steering --page docs/steering.md

fuzz:   ## Run every fuzz target for FUZZTIME
	@set -e; list=$$(.ci/each Fuzz); echo "$$list" | while read -r package names; do \
		for name in $$names; do echo "$$name in $$package"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package"; done; done

image: bin/wgsteer-server ## Build the server's container image, without pulling anything
	install -d bin/state
	chmod 755 bin/wgsteer-server
	docker build --tag $(IMAGE) .

clean:  ## Remove what was built, a demo that was kept up, and the image
	@if test -x bin/wgsteer-demo; then bin/wgsteer-demo clean; fi
	-@if docker image inspect $(IMAGE) >/dev/null 2>&1; then docker image rm $(IMAGE); fi
	rm -rf bin

# Go knows better than make what is up to date.
bin/wgsteer-server: always
	$(GO_BUILD) -o $@ ./server
bin/wgsteer-agent: always
	$(GO_BUILD) -o $@ ./agent
bin/wgsteer-demo: always
	$(GO_BUILD) -o $@ ./examples/demo
