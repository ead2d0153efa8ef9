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
ACTIONLINT_VERSION := v1.7.12
GOVULNCHECK_VERSION := v1.9.0
GOVULNCHECK := $(ORTET_CACHE)/tools/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck
ACTIONLINT := $(ORTET_CACHE)/tools/actionlint-$(ACTIONLINT_VERSION)/actionlint
CONTROLLER_GEN_VERSION := v0.23.0
CONTROLLER_GEN := $(ORTET_CACHE)/tools/controller-gen-$(CONTROLLER_GEN_VERSION)/controller-gen
GOTESTSUM_VERSION := v1.13.0
export GOTESTSUM := $(ORTET_CACHE)/tools/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
GOLANGCI := $(ORTET_CACHE)/tools/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
TESTFLAGS ?= -timeout 30m
SEEDS ?=
FROM ?= 1
WITHIN ?=
REST ?=
BENCH ?=
FUZZTIME ?= 10s
EXTENSIONS ?= linux-amd64 linux-arm64 windows-amd64 windows-arm64

.PHONY: build story demo playground pictures test fresh skipped e2e check browser azclient simulate mutants fuzz lab elastic live live-files live-clean bench crds lint vulncheck arch controlplane helm tailnet image publish extension release clean help

build: ## bin/ortet, bin/ortet-node, bin/azsim
	@mkdir -p bin
	@[ -e bin/ortet ] || echo 'compiling; the first time this takes some minutes'
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/... $(ALSO)
	@hack/agent.sh --check bin/ortet-node

# POOL=flexible has a Flexible scale set. CANARY=N proves the image by N clones first; BAD=1
# breaks it. FRESH=1 captures a node that is added for it, so that no serving one leaves service.
POOL ?=
CANARY ?=
BAD ?=
FRESH ?=
export POOL CANARY BAD FRESH

# CONTROLPLANE=real takes Kubernetes' own programs; the default is an API server in
# memory, which needs no build.
CONTROLPLANE ?=
export CONTROLPLANE

demo: story ## a capture in a simulated Azure; POOL=flexible, CANARY=2, BAD=1, FRESH=1, CONTROLPLANE=real
	bin/demo

# BAD=1 has one node whose image breaks. CLUSTER=1 has an Azure with nothing in it, to follow the tutorial of ortet cluster.
CLUSTER ?=
export CLUSTER

playground: story ## its world, kept until Ctrl-C; BAD=1, POOL=flexible, CONTROLPLANE=real; or CLUSTER=1
	bin/demo -keep

# All programs by one go build, so that both processors have work until the end.
story: ALSO = ./hack/demo
story: build $(if $(filter real,$(CONTROLPLANE)),controlplane)

pictures: story ## the pictures of the docs, and the recording of the demo (asciinema, npx)
	go run ./hack/pictures
	@hack/pictures/record.sh

# What takes longest begins first, so that both processors have work until the end.
PKG ?= ./test/simulate ./internal/k3s/lifecycle ./...
test: ## tests without root; builds nothing external; PKG=./internal/...
	@hack/ready.sh
	go test $(TESTFLAGS) $(PKG)
	go vet -tags e2e $(PKG)
	@hack/e2e.sh --count

# RUNAS=nobody is for root: as that user, with caches in /var/cache/ortet.
RUNAS ?=
# RESULTS=FILE keeps the JSON of the tests, for hack/untested.sh.
RESULTS ?=
export RESULTS
fresh: $(GOTESTSUM) ## make test as a fresh machine has it: new clone, listed programs, empty HOME; RUNAS=USER
	hack/fresh.sh $(if $(RUNAS),--as "$(RUNAS)") $(if $(filter command% environment%,$(origin PKG)),$(PKG))

# OF has the RESULTS of make fresh.
skipped: $(GOTESTSUM)
	hack/untested.sh --run $(OF)

$(GOTESTSUM):
	GOBIN=$(dir $@) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

e2e: build controlplane helm $(GOTESTSUM) ## tests with a real control plane, helm, az…; E2EFLAGS
	hack/e2e.sh $(E2EFLAGS)
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory azclient
	cd hack/release && go vet ./... && go test -count=1 ./...

check: lint test e2e ## lint, test, e2e

browser: ## the page of a boot, looked at in headless Chromium
	cd test/browser && go vet . && go test -count=1 -v -timeout 10m .

azclient: controlplane ## azsim used by the Azure client of cluster-autoscaler and the cloud provider
	cd test/azclient && go vet ./... && go test -count=1 -v -timeout 10m ./...
	cd test/azclient && POOL=flexible go test -count=1 -v -timeout 10m ./beside

fuzz: ## every fuzzer for FUZZTIME, one after the other
	hack/fuzz.sh $(FUZZTIME:s=)

# REST=1 is what make test leaves out: the other half of the sweep's sample, and the next seeds.
simulate: ## captures that go wrong: all, seeds only by SEEDS=N, FROM=M, WITHIN=2h; or REST=1
ifdef REST
	go test -count=1 -timeout 0 -v ./test/simulate -run '^Test(Sweep|SweepWatch|SweepCanary|Seeds)$$' -args -rest -first=76
else
	go test -count=1 -timeout 0 -v ./test/simulate -run '^Test($(if $(SEEDS)$(WITHIN),,Stories|Sweep|SweepWatch|SweepCanary|)Seeds)$$' \
		-args -sweep -seeds=$(or $(SEEDS),$(if $(WITHIN),100,1000)) -first=$(FROM) $(if $(WITHIN),-within=$(WITHIN))
	$(if $(SEEDS)$(WITHIN),,go test -count=1 ./internal/k3s/lifecycle -run 'Stories$$' -args -sweep)
endif

mutants: ## plant bugs; a story or a test has to find each
	go test -count=1 -timeout 0 -v ./test/simulate -run '^TestMutants$$' -args -mutants

# LAB=NAME is the one test TestNAMECapture of test/lab, in any letter case.
lab: build controlplane helm image $(GOTESTSUM) ## captures on real machines; LAB=online, LAB=k3s; root on Debian
	hack/lab/run.sh $(if $(LAB),--one '$(LAB)',$(LABFLAGS))

# ELASTIC=NAME is the one test TestElasticNAME, in small letters.
ELASTIC ?= $(if $(SHORT),short)
# OUTAGE=1h has the coordination server of ELASTIC=tailscale away for so long (default 30s).
OUTAGE ?=
elastic: build controlplane helm $(if $(filter tailscale,$(ELASTIC)),tailnet) $(GOTESTSUM) ## ortet cluster on real machines; SHORT=1, ELASTIC=tailscale (OUTAGE=1h), ELASTIC=live; root on Debian
	$(if $(filter-out short capture tailscale live,$(ELASTIC)),$(error ELASTIC=$(ELASTIC): use short, capture, tailscale or live))
	$(if $(OUTAGE),$(if $(filter tailscale,$(ELASTIC)),,$(error OUTAGE=$(OUTAGE) is for ELASTIC=tailscale)))
	hack/lab/run.sh --elastic -run '(?i)^TestElastic$(ELASTIC)$$' $(if $(OUTAGE),-outage=$(OUTAGE) -timeout=60m$(OUTAGE))

# On the subscription of whoever has credentials: docs/how-to/live.md has the settings.
live: $(if $(filter publish full,$(LIVE)),live-files) ## questions to the real Azure that cost money: it says what and asks; LIVE=contract, LIVE=publish, LIVE=full
	@go build -ldflags '$(LDFLAGS)' -o bin/run-live ./hack/live
	@bin/run-live

# What the machines of LIVE=publish and LIVE=full fetch, of which no registry has Ortet's image.
live-files: export GOOS := linux
live-files: export GOARCH := amd64
live-files: export CGO_ENABLED := 0
live-files:
	@mkdir -p bin/live-files
	@go build -ldflags '$(LDFLAGS)' -o bin/live-files/ ./cmd/ortet ./cmd/ortet-node
	@GOOS= GOARCH= go run ./hack/image -name live.ortet.invalid/ortet:live -arch amd64 -out bin/live-files/images.tar bin/live-files/ortet bin/live-files/ortet-node

live-clean: ## delete what a killed make live left; LIVE_NAME=RUN
	@go build -ldflags '$(LDFLAGS)' -o bin/run-live ./hack/live
	@bin/run-live -clean

bench: build controlplane ## figures with bounds: BENCH=NAME, SPEED=1, DISK=20; BENCH=clone-boot: ROUNDS=3, CORES=1, root on Debian
	go run ./bench $(if $(BENCH),-only $(BENCH)) $(if $(SPEED),-speed $(SPEED)) $(if $(DISK),-disk $(DISK)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(CORES),-cores $(CORES))

corpus: ## how many verdicts on fixtures and lines are right, vague, silent, baseless, wrong
	go test -count=1 -v ./internal/boots/verdict -run '^TestCorpus$$'

# What controller-gen writes of api/, and where it is committed.
CRD := charts/ortet/files/ortet.io_scalesetpools.yaml
DEEPCOPY := api/v1alpha1/zz_generated.deepcopy.go

crds: $(CONTROLLER_GEN) ## the CRD of charts/ortet and deep copies, from the types of api/
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=$(dir $(CRD))

$(CONTROLLER_GEN):
	GOBIN=$(dir $@) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

lint: $(GOLANGCI) $(ACTIONLINT) $(CONTROLLER_GEN) ## formatting, vet, linters, generated files
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'not formatted; run gofmt -w on:'; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && $(CONTROLLER_GEN) object crd paths=./api/... output:dir="$$work" && \
	for file in $(CRD) $(DEEPCOPY); do \
		diff -u $$file "$$work/$${file##*/}" || { echo "$$file is not what the types of api/ give; run make crds, and commit it"; exit 1; }; \
	done
	$(GOLANGCI) run ./...
	@# It gets our packages, so that a new dependency of theirs is missing in its go.sum.
	@cd hack/release && go list -deps -test ./... >/dev/null || { echo "run go mod tidy in hack/release, and commit go.mod and go.sum"; exit 1; }
	@# Not by shellcheck and pyflakes, which each machine has of another version or not at all.
	$(ACTIONLINT) -shellcheck= -pyflakes=

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (some minutes)"
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(ACTIONLINT):
	GOBIN=$(dir $@) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

vulncheck: $(GOVULNCHECK) ## known vulnerabilities that our code reaches
	hack/vulncheck.sh $(GOVULNCHECK) .

$(GOVULNCHECK):
	GOBIN=$(dir $@) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

controlplane: ## etcd and Kubernetes, built once
	@hack/controlplane/build.sh >/dev/null

helm: ## helm, built once
	@hack/helm/build.sh >/dev/null

tailnet: ## Tailscale's programs and a coordination server, built once
	@hack/tailnet/build.sh >/dev/null

image: build ## the container image, its SBOM and provenance
	go run ./hack/image -out bin/ortet-image.tar -version $(VERSION) bin/ortet bin/ortet-node

publish: ## push image and charts of dist/ to REGISTRY=reg.example/org
	go run ./hack/publish -from dist -registry '$(REGISTRY)'

extension: ## the Azure VM extension's packages
	@for target in $(EXTENSIONS); do \
		os=$${target%-*} arch=$${target#*-} suffix=; [ $$os != windows ] || suffix=.exe; \
		GOOS=$$os GOARCH=$$arch hack/agent.sh bin/$$target/ortet-node$$suffix '$(VERSION)' && \
		go run ./hack/extension -out bin/ortet-extension-$$target.zip -manifest deploy/extension/$$os/HandlerManifest.json -program bin/$$target/ortet-node$$suffix || exit 1; \
	done; ls -l bin/ortet-extension-*.zip

# The version is the tag's. Nothing is pushed; make publish does that.
REGISTRY ?=
PLATFORMS ?=
DOWNLOAD ?=
release: ## dist/, all files of a release; REGISTRY=reg.example/org, PLATFORMS=, DOWNLOAD=URL
	cd hack/release && go run . -root ../.. $(if $(REGISTRY),-registry '$(REGISTRY)') $(if $(PLATFORMS),-platforms '$(PLATFORMS)') $(if $(DOWNLOAD),-download '$(DOWNLOAD)')

clean: ## remove bin/ and dist/
	rm -rf bin dist

help:
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20
