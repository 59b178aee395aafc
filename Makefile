# Every target sets itself up first: a .venv beside this file, installed once and again when the pins change.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check format clean

SHELL := /bin/bash
# Where this is set, every process would compile torch and the simulator anew, seven seconds each.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.gantry-installed

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt constraints-ros.txt
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## train a Go2, export it, walk it over ROS 2, write report.html
	@$(BIN)/gantry demo

# Two processes; what depends on how soon something happens gets the machine alone. Nodes of one file share a domain.
# Tests over ROS 2 live in tests/ros; naming it spares loading all others.
PYTEST := $(BIN)/python -m pytest

test: $(STAMP)  ## all tests
	@failed=0; \
	$(PYTEST) -n 2 --dist worksteal -m "not ros" || failed=1; \
	$(PYTEST) -n 2 --dist loadfile -m "ros and not timed" tests/ros || failed=1; \
	$(PYTEST) -m "timed" tests/ros || failed=1; \
	exit $$failed

test-fast: $(STAMP)  ## the tests that take a few seconds each at most
	@failed=0; \
	$(PYTEST) -n 2 --dist worksteal -m "not ros and not slow" || failed=1; \
	$(PYTEST) -n 2 --dist loadfile -m "ros and not timed and not slow" tests/ros || failed=1; \
	$(PYTEST) -m "timed and not slow" tests/ros || failed=1; \
	exit $$failed

check: $(STAMP)  ## format, lint, import rules and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/pyright

format: $(STAMP)  ## format the code and sort imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean:  ## remove .venv, build outputs and caches; runs and recordings stay
	@rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
