# hk: what people and CI run. Everything here needs Go and a shell; lab targets
# need Linux and root too.

# Tools, pinned here and nowhere else; they are fetched by the Go tool itself.
GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT       = go run mvdan.cc/gofumpt@v0.12.0
GOTESTSUM     = go run gotest.tools/gotestsum@v1.13.0
GOVULNCHECK   = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null)
LDFLAGS  = -s -w -X hk/cli.version=$(VERSION) -X hk/cli.commit=$(COMMIT)

# The quick tests are all packages; the lab's own need -tags lab.
PKGS     ?= ./...
FUZZTIME ?= 60s
HK        = bin/hk

.PHONY: build demo quick test lab-test lab-long compare race fuzz bench lint fmt golden clean release vuln help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## bin/hk
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(HK) .

demo: build ## a real 3 + 2 cluster called demo in the lab of this computer
	./.ci/demo

quick: ## all tests that need nothing but Go (under 3 minutes)
	$(GOTESTSUM) --format pkgname-and-test-fails -- $(PKGS)

test: quick lab-test ## quick, then one lab cluster with its checks

lab-test: build
	./.ci/lab-test

lab-long: build ## what takes longer: reboots, kills, several topologies; writes docs/lab-long.md
	./.ci/lab-test long

compare: build ## build time against a hand-written script, in turn, in the lab
	./.ci/compare

race: ## the quick tests under the race detector
	$(GOTESTSUM) --format pkgname-and-test-fails -- -race $(PKGS)

fuzz: ## every fuzz target for FUZZTIME
	./.ci/fuzz $(FUZZTIME)

bench: build ## benchmarks; the figures go to docs/performance.md by hand
	go test -run '^$$' -bench . -benchmem $(PKGS)

lint: ## golangci-lint with the rules of .golangci.yml
	$(GOLANGCI_LINT) run ./...

fmt: ## gofumpt and import order
	$(GOLANGCI_LINT) fmt ./...

golden: ## write the expected outputs anew; look at the difference
	go test ./cli/... ./graph/draw/... -update

clean: ## what this Makefile made; caches stay
	rm -rf bin

release: ## static programs for the platforms hk runs on
	for p in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do \
	  CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -trimpath -ldflags '$(LDFLAGS)' -o bin/hk-$${p%/*}-$${p#*/} . || exit 1; \
	done

vuln: ## known vulnerabilities (needs the network)
	$(GOVULNCHECK) ./...
