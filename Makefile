# Everything a user or a developer runs. `make demo` and `make test` set up a bare machine by themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Binaries, wheels and images live here, outside the clone; `make clean` gives the space back.
export PDD_CACHE ?= /var/cache/pdd
export PDD_STATE ?= /var/lib/pdd-localkube
export UV_CACHE_DIR ?= $(PDD_CACHE)/uv
export PATH := $(CURDIR)/.venv/bin:$(PDD_CACHE)/bin/current:$(PATH)

LK := e2e/localkube/lk
STEP := hack/step
# The clusters that the demo and the e2e suite use; any two kubeconfigs will do.
export PDD_E2E_SITE_A ?= $(PDD_STATE)/site-a.kubeconfig
export PDD_E2E_SITE_B ?= $(PDD_STATE)/site-b.kubeconfig
# How the suite asks the line for its byte counters; empty where it cannot be asked.
export PDD_E2E_LINE ?= $(CURDIR)/$(LK) wan

.PHONY: help demo test test-fast test-apiserver test-e2e bench check lock crds api-doc venv bootstrap binaries images \
        load up down wan wan-down wan-up wan-show clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

## --- the two commands -------------------------------------------------------------------------------------
demo: up ## two clusters, one model, one answer through both: set-up included
	@pdd-demo run

test: venv up ## every check and test: set-up included
	@$(STEP) "Checks" $(MAKE) --no-print-directory check
	@$(STEP) "Tests without a cluster" pytest -q -m "not apiserver and not e2e"
	@$(STEP) "Tests of the line's emulator" hack/test-go
	@$(STEP) "Tests of the engine's plugins, inside its image" worker-images/engine/tests/in-image
	@$(STEP) "Tests against a real API server" pytest -q -m apiserver operator/tests
	@$(STEP) "Tests on the two clusters" $(MAKE) --no-print-directory test-e2e

## --- development ------------------------------------------------------------------------------------------
test-fast: venv ## the tests that need no cluster, under 2 minutes
	@pytest -q -m "not apiserver and not e2e"

test-apiserver: venv binaries ## the operator against a real kube-apiserver
	@pytest -q -m apiserver operator/tests

test-e2e: ## the proofs on the clusters that are up (pytest arguments in ARGS)
	@pytest -q -m e2e e2e/tests $(ARGS)

bench: ## what the router costs, beside the engines alone
	@python e2e/bench/router_overhead.py $(ARGS)

check: venv ## ruff, mypy, import-linter, drift of CRDs and docs/api.md, chart lint; pre-commit and CI run the same
	@ruff check --quiet .
	@ruff format --quiet --check .
	@mypy
	@lint-imports --no-cache
	@python -m pdd_operator.api.crd --check
	@python -m pdd_e2e.parity.api_doc --check
	@hack/lint-charts

lock: venv ## new lock files from the pyproject files
	@hack/lock

crds: venv ## crds/ from the pydantic models
	@python -m pdd_operator.api.crd

api-doc: venv ## the table of docs/api.md from the catalogue that the proofs run
	@python -m pdd_e2e.parity.api_doc

## --- what is installed ------------------------------------------------------------------------------------
bootstrap:
	@hack/bootstrap/packages

venv: bootstrap
	@hack/venv

binaries: bootstrap
	@ln -sfn "$$(e2e/localkube/build)" $(PDD_CACHE)/bin/current

images: venv ## the engine, operator, router and link images
	@hack/images/build

## --- the clusters -----------------------------------------------------------------------------------------
up: venv binaries images ## both clusters and the line between them
	@$(LK) up

down: ## both clusters; leaves nothing but the caches
	@$(LK) down

load: images ## rebuilt images into the running nodes
	@$(LK) images

wan: ## the line, while it runs: make wan RATE=100mbit DELAY=10ms (one way) LOSS=0%
	@$(LK) wan set $(if $(RATE),rate=$(RATE)) $(if $(DELAY),delay=$(DELAY)) $(if $(LOSS),loss=$(LOSS))

wan-down: ## cut the line
	@$(LK) wan down

wan-up: ## mend it
	@$(LK) wan up

wan-show: ## its settings and byte counters
	@$(LK) wan show

clean: down ## clusters, caches, virtual environment: all the disk space
	@rm -rf $(PDD_CACHE) $(PDD_STATE) .venv
