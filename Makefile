# Everything a developer runs. `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nabu
# Outside the clone, beside the test servers.
export CARGO_TARGET_DIR := $(shell scripts/target-dir.sh)
export PATH := $(cache)/cargo-tools/bin:$(PATH)
# The test bed's servers are looked for with this; see scripts/testbed.sh.
testbed := scripts/testbed.sh
IMAGES ?= $(cache)/images

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build all crates and binaries
	cargo build --workspace --bins --locked

.PHONY: test
test: prerequisites testbed build ## Run all tests, after building what they need
	cargo test --workspace --locked

.PHONY: prerequisites
prerequisites: ## Install what tests and checks need beside Rust, Go, git and a C compiler
	@scripts/prerequisites.sh --install

.PHONY: testbed
testbed: ## Build the servers that tests start (a real API server, a real Gitea, helm)
	@$(testbed) build

.PHONY: fmt
fmt: ## Format Rust and Go
	cargo fmt --all
	gofmt -w tests/servers

.PHONY: lint
lint: ## Run clippy, shellcheck, gofmt and rustfmt as CI does
	scripts/lint.sh

.PHONY: protos
protos: prerequisites ## Check the protocol's files: form, comments, and that nothing others rely on has changed
	scripts/protos.sh

.PHONY: deny
deny: ## Check licences, advisories and sources of dependencies
	scripts/deny.sh

.PHONY: crds
crds: ## Write the CRDs to charts/ from the Rust types
	scripts/generated.sh --write crds

.PHONY: charts
charts: testbed ## Write what is generated from the charts: tables of values and rights, rendered examples
	cargo build --locked --bins -p nabu-hub -p nabu-agent
	UPDATE=1 cargo test --locked -p nabu-tests --test charts -- generated kubectl

.PHONY: docs-flags
docs-flags: ## Write the reference of command-line flags to docs/src/reference
	scripts/generated.sh --write flags

.PHONY: check-generated
check-generated: ## Fail when a generated file is not what `make crds docs-flags` writes
	scripts/generated.sh --check

.PHONY: docs
docs: prerequisites ## Build the book into the cache
	mdbook build docs --dest-dir $(cache)/book

.PHONY: demo
demo: ## Show two clusters, a hub and a forge at work (KEEP=1 leaves them running; FORGE=github|gitlab; CHARTS=1)
	@KEEP=$(KEEP) FORGE=$(FORGE) CHARTS=$(CHARTS) scripts/demo.sh

.PHONY: image
image: prerequisites ## Put the images and bills of materials together in IMAGES, from release builds (no container daemon needed)
	scripts/release.sh cargo build --locked --release --bins -p nabu-hub -p nabu-agent
	scripts/image.sh hub $(CARGO_TARGET_DIR)/release $(IMAGES)/nabu-hub.tar
	scripts/image.sh agent $(CARGO_TARGET_DIR)/release $(IMAGES)/nabu-agent.tar
	scripts/sbom.sh $(IMAGES)

.PHONY: sbom
sbom: prerequisites ## Write the bills of materials (CycloneDX) of the programs into IMAGES
	scripts/sbom.sh $(IMAGES)

.PHONY: reproducible
reproducible: ## Build the programs twice in different places and compare them, byte for byte
	scripts/reproducible.sh

.PHONY: bench
bench: testbed ## Measure latency, throughput and memory against a real API server
	scripts/release.sh cargo build --workspace --bins --release --locked
	scripts/release.sh cargo run --release --locked -p nabu-tests --bin bench

.PHONY: clean-cache
clean-cache: ## Remove builds, test servers and tools from the cache
	rm -rf $(cache)
