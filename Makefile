# Every target prepares what it needs (uv, a virtual environment, pinned packages) and says so.
# `make` alone lists the targets.

# Modules that are compiled once, and not by each process, start programs and tests in half the time.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=loadfile
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
CONFORMANCE ?= local,threads,isolated
KIND_SUITE ?= e2e/test_cluster_smoke.py e2e/test_digits.py e2e/test_taken_away.py::test_an_evicted_host_is_charged_to_preemptions_and_the_gang_starts_again

.PHONY: help setup demo test check lint types unit faults integration local conformance conformance-ray conformance-kubernetes on-cluster ahead kind chart engine chaos chaos-actors chaos-pool e2e scale skew gpu bench prepare cluster cluster-down images crds docs lock clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup:
	@$(PYTHON) tools/bootstrap.py

demo: setup ## train a model from examples/digits/frayjob.yaml on this machine: 2 slices x 2 hosts
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/fray run --cluster local -f examples/digits/frayjob.yaml

test: setup ## everything that this machine can run: what needs a cluster beside all else
	@echo 'two suites at a time: each prints what it has to say when it has ended'
	@$(MAKE) --no-print-directory --jobs=2 $(TOGETHER) on-cluster check ahead engine local conformance conformance-ray faults integration chart

on-cluster: setup # first in the list above, since it takes as long as all others; it builds its cluster first
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory conformance-kubernetes

ahead: setup # what scenarios and suites want later
	@$(BIN)/python -m e2e.cluster build && $(BIN)/python -m e2e.images || \
		echo 'not all of it can be built: who needs a part says why'

check: lint types unit ## the quick part: lint, types, layers, unit tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy
	$(BIN)/mypy tests/types

unit: setup
	$(PYTEST) $(PARALLEL) tests/unit

faults: setup ## the operator in virtual time: 10,000 faults and 500 kills, each job's end predicted
	$(PYTEST) tests/faults

chart: setup
	$(BIN)/python -m e2e.cluster build helm promtool
	$(PYTEST) tests/chart

engine: setup ## contexts, worker pool and queues, with real processes that are killed
	$(PYTEST) tests/behaviour # alone: Dask leaves a process of the standard library's to who has used it
	$(PYTEST) tests/queue tests/pool tests/actors

chaos: setup ## 20 minutes of random faults on the cluster under jobs of all shapes, seed after seed; SECONDS=, SEED=
	$(BIN)/python -m e2e.chaos --seconds $(or $(SECONDS),1200) --seed $(or $(SEED),1)

chaos-pool: setup ## 20 minutes of random kills and full disks in the worker pool under a mixed load; SECONDS=, SEED=
	$(BIN)/python -m tests.pool.chaos --seconds $(or $(SECONDS),1200) --seed $(or $(SEED),1)

chaos-actors: setup ## 1,000 kills of an actor and of its pods under callers: no wrong incarnation, no hang; KILLS=, SEED=
	$(BIN)/python -m tests.actors.chaos --kills $(or $(KILLS),1000) --seed $(or $(SEED),1)

integration: setup ## a real API server: what it refuses, and the operator, killed and lied to at every call
	$(BIN)/python -m e2e.cluster build apiserver etcd scheduler kwok helm kind
	$(PYTEST) $(PARALLEL) tests/integration

skew: setup ## integration tests with three API servers, the example on three JobSets; not a part of test
	@failed=; for skew in lowest,jobset-lowest '' newest; do \
		FRAY_SKEW=$$skew $(BIN)/python -m e2e.cluster build apiserver etcd scheduler kwok helm kind && \
		FRAY_SKEW=$$skew $(PYTEST) $(PARALLEL) tests/integration || failed="$$failed $${skew:-pinned}"; \
	done; for skew in jobset-lowest jobset-older ''; do \
		FRAY_SKEW=$$skew $(PYTEST) e2e/test_digits.py || failed="$$failed digits-$${skew:-pinned}"; \
	done; test -z "$$failed" || { echo "failed with:$$failed"; exit 1; }

local: setup
	$(PYTEST) tests/local

conformance: setup ## one suite for every backend; CONFORMANCE=local,threads chooses
	CONFORMANCE=$(CONFORMANCE) $(PYTEST) tests/conformance

conformance-ray: setup ## the same suite through the job API of a Ray that it starts
	CONFORMANCE=ray $(PYTEST) tests/conformance

conformance-kubernetes: setup ## the same suite on the cluster of `make e2e`, which it starts if need be
	CONFORMANCE=kubernetes $(PYTEST) tests/conformance -k kubernetes

e2e: setup ## scenarios on a real cluster of this machine, which it starts (root; about 30 minutes)
	$(PYTEST) e2e

kind: setup ## some of it on kind: a gang of two slices, an eviction, the client's suite; starts a Docker engine if need be
	FRAY_CLUSTER_PROVIDER=kind $(PYTEST) $(KIND_SUITE)
	FRAY_CLUSTER_PROVIDER=kind CONFORMANCE=kubernetes $(PYTEST) tests/conformance -k kubernetes

scale: setup ## FrayJobs and gangs against the same JobSets, 1,000 workers, restarts over thousands; prints JSON; PARTS=
	$(BIN)/python -m e2e.scale $(PARTS)

gpu: setup ## what needs an NVIDIA GPU: the example, ranks that share it, a pool, torchrun; says so where there is none
	$(BIN)/python tools/gpu.py

bench: setup ## the worker pool beside Ray, Dask and ProcessPoolExecutor; prints a table
	$(BIN)/python -m benchmarks.pool

prepare: setup ## build ahead what suites on a cluster need: its programs and the images, about 20 minutes
	$(BIN)/python -m e2e.cluster build
	$(BIN)/python -m e2e.images

cluster: setup ## a real Kubernetes cluster on this machine: two pools of v5p-16, two GPU hosts and JobSet; needs no container engine
	$(BIN)/python -m e2e.cluster up

cluster-down: setup ## remove that cluster and every trace of it
	$(BIN)/python -m e2e.cluster down

images: setup ## build the container images; REGISTRY=HOST/PATH pushes them, BASE=IMAGE is built upon
	$(BIN)/python tools/images.py $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(BASE),--base $(BASE))

crds: setup ## generate crds/ from src/fray/wire/
	$(BIN)/python tools/generate_crds.py

docs: setup ## generate docs/exit-codes.md, docs/frayjob.md, docs/variables.md and the tables of docs/failures.md; build the site in .site/html
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python -m tools.build_site

lock: setup ## choose newer versions within pyproject.toml and pin them in requirements.lock and docs/requirements.lock
	@PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/python tools/lock.py

clean: ## remove what was installed into the checkout
	rm -rf .venv .tools .gpu .site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
