# lmerge: two commands do all their own set-up on a machine with Python >= 3.10, git and a C toolchain.
#   make demo   merges five replicas of a year of real flights, one of them in Spark, and kills the leading one
#   make test   checks everything
# PYTHON=python3.12 chooses the interpreter of the virtual environment. With cargo and Rust >= 1.88 the native core is
# built, and `make test` requires that it passes; `make test HAS_RUST=` does not. Without Rust, lmerge runs on Python.
# In CI (CI or LMERGE_REQUIRE_NATIVE set) the native core must be built. `make test TESTS=tests/core
# SPARK_TESTS=tests/spark/test_docs.py` runs a part. `make demo-bare` and `make test-bare` run without Rust and Java.

SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
DEFECT_JOBS ?= 2
TESTS ?= tests
SPARK_TESTS ?= tests/spark
SLOWEST ?= --durations 20 --durations-min 2

HAS_RUST := $(shell command -v cargo >/dev/null && rustc --version 2>/dev/null | \
	awk '{ split($$2, v, "."); if (v[1] > 1 || v[2] >= 88) print "yes" }')
# If Rust is installed, a native core that does not build fails the tests. The demo then runs on Python.
REQUIRE_NATIVE := $(if $(or $(HAS_RUST),$(CI),$(LMERGE_REQUIRE_NATIVE)),LMERGE_REQUIRE_NATIVE=1)
NATIVE_SOURCES := setup.py $(shell find native -name target -prune -o \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' \) -print)
# pip, setup.py and clippy must name the same interpreter in the same form: otherwise each compiles pyo3 again.
export PYO3_PYTHON := $(abspath $(BIN)/python)
# The tests start hundreds of processes. Without bytecode files each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# Run a command and show its output only if it fails. Many warnings of pip do not concern the user of this file.
quietly = { log=$$(mktemp) && { $(1) >"$$log" 2>&1 || { status=$$?; cat "$$log" >&2; rm -f "$$log"; (exit $$status); } && \
	rm -f "$$log"; }; }
pip_install = $(call quietly,$(BIN)/python -m pip install $(1))
# The folder that setuptools leaves here is found before the installed metadata by all that runs in this folder. Older
# than pyproject.toml, it would hide entry points.
editable_install = $(call pip_install,--editable '.[$(1)]') && rm -rf lmerge.egg-info

.PHONY: bench-against bench-stale check demo docs test demo-bare test-bare spark-test test-long lint types wire crd defects bench soak native native-check missing clean help

help:
	@echo "make demo       replicas of a year of flights, one in Spark; kills the leading one; a verdict"; \
	echo "make test       lint, types, architecture, generated code, the native core, tests, tests with Spark"; \
	echo "make check      lint, types and the tests near a change, in about a minute; BASE=<commit> to compare with"; \
	echo "make demo-bare  the demo with only Python, git and a C toolchain; make test-bare: the tests"; \
	echo "make test-long  the long tests: many seeds (LMERGE_SEEDS=1000), kills, seeded defects"; \
	echo "make test-cluster  the chart on the Kubernetes that KUBECONFIG names"; \
	echo "make bench      every benchmark; tables in bench/results"; \
	echo "make bench-against BASE=<commit>  measures both commits in turns: is this tree slower?"; \
	echo "make bench-stale  results that are older than the code that they measure"; \
	echo "make soak       an hour under load, with kills: is memory flat, is anything lost"; \
	echo "make dist       sdist, wheels, image, chart and bill of materials, each installed and tried"; \
	echo "make docs       the documentation site, in build/site"; \
	echo "make wire       generate the code of proto/ again"; \
	echo "make crd        generate the chart's CustomResourceDefinition again"; \
	echo "make monitoring write the alerts and dashboards of monitoring/ again"; \
	echo "make native     build the native core again, in place"; \
	echo "make clean      remove the virtual environment and caches"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "lmerge needs Python 3.10 or newer; none was found. Use PYTHON=/path/to/python3"; exit 1; }
	@echo "==> virtual environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(call pip_install,--upgrade pip)

$(VENV)/.demo: pyproject.toml $(NATIVE_SOURCES) | $(BIN)/python
	@echo "==> installing lmerge and what the demo needs"
	@$(call editable_install,demo)
	@touch $@

# Spark and Java are large. If they cannot be installed, or with SPARK=no, the demo runs without them.
finds_java = $(BIN)/python -c 'from lmerge.spark.java import use_java; use_java()' 2>/dev/null
$(VENV)/.spark: pyproject.toml | $(VENV)/.demo
	@echo "==> installing what the demo's replica in Spark needs (without: make demo SPARK=no)"
	@$(call pip_install,'lmerge[spark]') && { $(finds_java) || $(call pip_install,'lmerge[java]'); } && \
		$(finds_java) && touch $@ || \
		echo "    it cannot be installed; the demo goes on without"

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "==> installing lmerge and what the tests need"
	@export $(REQUIRE_NATIVE); $(call editable_install,dev)
	@touch $@ $(VENV)/.native $(VENV)/.demo

$(VENV)/.native: $(NATIVE_SOURCES) $(VENV)/.dev
	@$(MAKE) --no-print-directory native

# Rust was installed after the stamp was written.
ifneq ($(REQUIRE_NATIVE),)
ifeq ($(wildcard lmerge/_native*.so),)
$(VENV)/.native: missing
endif
endif

native: $(VENV)/.dev
	@echo "==> native core"
	@export $(REQUIRE_NATIVE); $(call quietly,$(BIN)/python setup.py --quiet build_ext --inplace)
	@touch $(VENV)/.native $(VENV)/.demo

demo: $(VENV)/.demo $(if $(filter no,$(SPARK)),,$(VENV)/.spark)
	@$(BIN)/lmerge demo $(if $(SPARK),--spark $(SPARK)) $(ARGS)

# Both parts run and both results are printed, also if the first part fails. Exit code 2 of pytest is Ctrl-C.
test: $(VENV)/.native lint types wire-check native-check
	@echo "==> tests"
	@$(REQUIRE_NATIVE) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not long and not cluster" --ignore tests/spark $(TESTS) $(SLOWEST) $(ARGS); \
	first=$$?; test $$first -ne 2 || exit 2; \
	$(MAKE) --no-print-directory spark-test; second=$$?; \
	result() { test $$1 -eq 0 && echo passed || echo FAILED; }; \
	echo "==> tests: $$(result $$first); tests with Spark: $$(result $$second)"; \
	test $$first -eq 0 -a $$second -eq 0

# For the loop of editing: what differs from the last commit (BASE=<commit> for another) decides which tests run.
check: $(VENV)/.native
	@$(REQUIRE_NATIVE) $(BIN)/python scripts/check.py $(if $(BASE),--base $(BASE)) $(ARGS)

# In a copy of this folder, with only the tools on the PATH that README requires: see scripts/bare.sh.
demo-bare:
	@scripts/bare.sh make --no-print-directory demo SPARK='$(SPARK)' ARGS='$(ARGS)'

test-bare:
	@scripts/bare.sh make --no-print-directory test TESTS='$(TESTS)' SPARK_TESTS='$(SPARK_TESTS)' ARGS='$(ARGS)'

# Two processes with a session each, because most of the time is starting and waiting. Without Java, a package has one.
spark-test: $(VENV)/.native
	@echo "==> tests with Spark"
	@$(finds_java) || $(call pip_install,'lmerge[java]')
	@$(REQUIRE_NATIVE) $(BIN)/python -m pytest -n 2 --dist loadfile $(SPARK_TESTS) -m "not long" $(SLOWEST) $(ARGS)

test-long: $(VENV)/.native
	$(REQUIRE_NATIVE) LMERGE_SEEDS=$${LMERGE_SEEDS:-1000} $(BIN)/python -m pytest -n 2 --dist worksteal -m long --timeout 3000 $(ARGS)
	@$(MAKE) --no-print-directory defects
	@test -z "$(HAS_RUST)" || { echo "==> seeded defects of the native core"; $(BIN)/python scripts/native_defects.py; }

# On any cluster: KUBECONFIG names it, LMERGE_IMAGE an image that its nodes have or can pull. See tests/README.md.
.PHONY: test-cluster
test-cluster: $(VENV)/.native
	@$(BIN)/python -m pytest -m cluster -rs $(if $(filter tests,$(TESTS)),tests/cluster,$(TESTS)) $(SLOWEST) $(ARGS)

lint: $(VENV)/.dev
	@echo "==> lint and architecture"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted; ruff format . does it:"; $(BIN)/ruff format --check .; }
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/commit_subjects.py

types: $(VENV)/.dev
	@echo "==> types"
	@$(BIN)/mypy

.PHONY: wire-check
wire-check: $(VENV)/.dev
	@echo "==> generated code against proto/"
	@$(BIN)/python scripts/generate_wire.py --check

# What is shipped, each installed into an empty place and tried there; PARTS=sdist,wheel,pure,sbom,image,chart.
# ARGS=--twice builds again elsewhere and compares the bytes.
$(VENV)/.dist: pyproject.toml | $(VENV)/.dev
	@$(call pip_install,'lmerge[dist]')
	@touch $@

.PHONY: dist
dist: $(VENV)/.dist
	@echo "==> dist"
	@$(BIN)/python scripts/dist.py $(if $(PARTS),--parts $(PARTS)) $(ARGS)

wire: $(VENV)/.dev
	@$(BIN)/python scripts/generate_wire.py

crd: $(VENV)/.dev
	@$(BIN)/python scripts/generate_crd.py

# Distributions package rustfmt and clippy apart from cargo. If one is missing, it is skipped, except in CI.
cargo_tool = cd native && if [ -z "$(CI)$(LMERGE_REQUIRE_NATIVE)" ] && ! cargo $(1) --version >/dev/null 2>&1; \
	then echo "    cargo $(1): skipped, it is not installed"; else cargo $(1) $(2); fi

# Alerts, dashboards and the heads of runbooks, from monitoring/.
.PHONY: monitoring
monitoring: $(VENV)/.dev
	@$(BIN)/python -m monitoring

native-check: $(VENV)/.native
ifneq ($(REQUIRE_NATIVE),)
	@echo "==> native core: format, lint, tests"
	@$(call cargo_tool,fmt,--check)
	@$(call cargo_tool,clippy,--quiet --locked --all-targets -- -D warnings)
	@cd native && cargo test --quiet --locked --release
else
	@echo "==> native core: skipped, there is no cargo with Rust >= 1.88; lmerge runs on Python"
endif

defects: $(VENV)/.native
	@echo "==> seeded defects: each must turn its test red"
	@$(BIN)/python scripts/defects.py --jobs $(DEFECT_JOBS)

# Every benchmark but two: bench.soak takes an hour, bench.cluster_faults a Kubernetes. ARGS=--quick for a short one.
bench: $(VENV)/.native
	@for name in core_r3 core_throughput core_inputs core_figures core_stable core_memory core_shards service_throughput \
		service_latency transports arrow_rows durability divergence kills bursty congestion feedback subscribers snapshot peers \
		counts temporal_operators temporal_functions temporal_costs temporal_end_to_end temporal_feedback scenarios \
		verify relay_tree metrics_cost status_page spark_sink spark_source spark_feedback spark_merge spark_kills up \
		drills controller; do $(BIN)/python -m bench.$$name $(ARGS) || exit 1; done

# Compares the service and the core of this tree with another commit, in turns; ARGS='--rounds 3 --only core' for less.
bench-against: $(VENV)/.native
	@test -n "$(BASE)" || { echo "name the commit to compare with: make bench-against BASE=<commit>"; exit 2; }
	@$(BIN)/python -m bench.against "$(BASE)" $(ARGS)

# Lists results in bench/results that are older than the code that they measure.
bench-stale: | $(VENV)/.dev
	@$(BIN)/python -m bench.stale

# An hour; MINUTES=5 for less.
soak: $(VENV)/.native
	@$(BIN)/python -m bench.soak --minutes $${MINUTES:-60}

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@echo "==> installing lmerge and what the documentation site needs"
	@$(call editable_install,docs)
	@touch $@

# The site of docs/ in build/site. A warning is an error, so links and anchors are checked.
docs: $(VENV)/.docs
	@echo "==> documentation site in build/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The versions and hashes of everything in the image: newest that pyproject.toml allows. Needs uv.
.PHONY: image-lock
image-lock:
	uv pip compile pyproject.toml --extra kubernetes $(LOCK) -o deploy/image/requirements.txt
	uv pip compile deploy/image/build-requirements.in $(LOCK) -o deploy/image/build-requirements.txt
LOCK := --upgrade --universal --python-version 3.12 --generate-hashes --no-annotate --no-header --quiet

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info native/target lmerge/_native*.so lmerge/_native_build.json
