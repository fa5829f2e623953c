# lmerge: two commands do all their own set-up on a machine with Python >= 3.10, git and a C toolchain.
#   make demo   merges three replicas of a year of real flights and kills the winner
#   make test   checks everything
# PYTHON=python3.12 chooses the interpreter of the virtual environment.

SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
DEFECT_JOBS ?= 2

.PHONY: demo test test-long lint types wire defects bench clean help

help:
	@echo "make demo       three replicas of a year of flights, the winner killed: a verdict"; \
	echo "make test       lint, types, architecture, generated code, tests, seeded defects"; \
	echo "make test-long  the long tests: many seeds (LMERGE_SEEDS=1000)"; \
	echo "make bench      every benchmark; tables in bench/results"; \
	echo "make wire       generate the code of proto/ again"; \
	echo "make clean      remove the virtual environment and caches"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "lmerge needs Python 3.10 or newer; none was found. Say PYTHON=/path/to/python3"; exit 1; }
	@echo "==> virtual environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "==> installing lmerge and what the demo needs"
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "==> installing lmerge and what the tests need"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/lmerge demo $(ARGS)

test: $(VENV)/.dev lint types wire-check
	@echo "==> tests"
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" $(ARGS)
	@$(MAKE) --no-print-directory defects

test-long: $(VENV)/.dev
	LMERGE_SEEDS=$${LMERGE_SEEDS:-1000} $(BIN)/python -m pytest -n 2 --dist worksteal -m long --timeout 3000 $(ARGS)

lint: $(VENV)/.dev
	@echo "==> lint and architecture"
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

types: $(VENV)/.dev
	@echo "==> types"
	@$(BIN)/mypy

.PHONY: wire-check
wire-check: $(VENV)/.dev
	@echo "==> generated code against proto/"
	@$(BIN)/python scripts/generate_wire.py --check

wire: $(VENV)/.dev
	@$(BIN)/python scripts/generate_wire.py

defects: $(VENV)/.dev
	@echo "==> seeded defects: each must turn its test red"
	@$(BIN)/python scripts/defects.py --jobs $(DEFECT_JOBS)

bench: $(VENV)/.dev
	@for name in core_r3 core_stable core_memory service_throughput service_latency; do \
		$(BIN)/python -m bench.$$name || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
