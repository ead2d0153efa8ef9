# Everything is built from Go modules and kept, keyed by version, outside the
# checkout, so that a second run is quick.
SHELL := /bin/bash
.DEFAULT_GOAL := build

export ORTET_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ortet

# One set of flags for building and testing, so that nothing is compiled twice.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(ORTET_CACHE)/tools/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
# Test packages that share the machine's two cores with an API server of their
# own run a few at a time.
TESTFLAGS ?= -timeout 20m
SEEDS ?= 1000
FROM ?= 1
BENCH ?=
FUZZTIME ?= 10s
EXTENSIONS ?= linux-amd64 linux-arm64 windows-amd64 windows-arm64

.PHONY: build demo test browser simulate fuzz lab bench lint arch controlplane helm image extension clean help

build: ## bin/ortet, bin/ortet-node, bin/azsim
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/ortet ./cmd/azsim
	hack/agent.sh bin/ortet-node '$(VERSION)'

demo: build controlplane ## capture a node of a simulated pool and see its clone come up
	go run ./hack/demo

test: lint build controlplane helm ## all that needs no root
	go test $(TESTFLAGS) ./...
	@$(MAKE) --no-print-directory browser

browser: ## the page of a boot, looked at in headless Chromium
	cd test/browser && go vet . && go test -count=1 -v -timeout 10m .

fuzz: ## every fuzzer for FUZZTIME, one after the other
	hack/fuzz.sh $(FUZZTIME:s=)

simulate: ## play captures that go wrong, in virtual time: SEEDS=N of them, FROM=M on
	@cd test/scenario/play && go test -count=1 -timeout 0 -run '^TestSimulate$$' -seeds=$(SEEDS) -from=$(FROM)

lab: build controlplane helm image ## the same on real machines; root on Debian
	hack/lab/run.sh

bench: build controlplane ## a line per figure: name, value, unit, bound, ok or over
	go run ./bench $(if $(BENCH),-only $(BENCH))

lint: $(GOLANGCI) ## formatting, vet, linters; the architecture rules are tests
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'not formatted; run gofmt -w on:'; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GOLANGCI) run ./...

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (some minutes)"
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

controlplane: ## etcd, the Kubernetes control plane and the kubelet, built once
	@hack/controlplane/build.sh >/dev/null

helm: ## helm, built once
	@hack/helm/build.sh >/dev/null

image: build ## the container image of the two binaries, as an OCI archive
	go run ./hack/image -out bin/ortet-image.tar -version $(VERSION) bin/ortet bin/ortet-node

extension: ## the packages of the Azure VM extension: bin/ortet-extension-OS-ARCH.zip
	@for target in $(EXTENSIONS); do \
		os=$${target%-*} arch=$${target#*-} suffix=; [ $$os != windows ] || suffix=.exe; \
		GOOS=$$os GOARCH=$$arch hack/agent.sh bin/$$target/ortet-node$$suffix '$(VERSION)' && \
		go run ./hack/extension -out bin/ortet-extension-$$target.zip -manifest deploy/extension/$$os/HandlerManifest.json -program bin/$$target/ortet-node$$suffix || exit 1; \
	done; ls -l bin/ortet-extension-*.zip

clean:
	rm -rf bin

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
