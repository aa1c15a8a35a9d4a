# Every target prepares what it needs (uv, a virtual environment, pinned packages) and says so.
# `make` alone lists the targets.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo test check lint types unit integration local crds lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup:
	@$(PYTHON) tools/bootstrap.py

demo: setup ## train a model from examples/digits/frayjob.yaml on this machine: 2 slices x 2 hosts
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/fray run -f examples/digits/frayjob.yaml

test: check integration local ## everything that this machine can run

check: lint types unit ## the quick part: lint, types, layers, unit tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

unit: setup
	$(PYTEST) tests/unit

integration: setup
	$(BIN)/python -m e2e.cluster build apiserver etcd
	$(PYTEST) tests/integration

local: setup
	$(PYTEST) tests/local

crds: setup ## generate crds/ from src/fray/wire/
	$(BIN)/python tools/generate_crds.py

lock: setup ## choose newer versions within pyproject.toml and pin them in requirements.lock
	@PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/python tools/lock.py

clean: ## remove what was installed into the checkout
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
