# Every target sets itself up first: a .venv beside this file, installed once and again when the pins change.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-soak test-lowest test-robot test-openpi test-ray test-leapp test-libero test-isaaclab check format docs clean

SHELL := /bin/bash
# Where this is set, every process would compile torch and the simulator anew, seven seconds each.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.gantry-installed

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt constraints-ros.txt
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## train a Go2, export it, walk it over ROS 2, write report.html
	@$(BIN)/gantry demo

test: $(STAMP)  ## all tests but the soak tests
	@scripts/test.sh $(BIN)/python

test-fast: $(STAMP)  ## the tests that take a few seconds each at most
	@scripts/test.sh $(BIN)/python --fast

test-soak: $(STAMP)  ## tests that repeat faults many times; `make test` has a few cases of each
	@scripts/test.sh $(BIN)/python --soak

test-lowest:  ## tests of robots and datasets, with the lowest versions that pyproject.toml allows
	@scripts/test_lowest.sh

test-robot:  ## tests of what runs on a robot, without torch and simulators: make test-robot PY=3.10
	@scripts/test_robot_side.sh $(PY)

test-openpi: $(STAMP)  ## tests of `gantry serve` with openpi's own client, in an environment of its own
	@scripts/test_openpi.sh

test-ray: $(STAMP)  ## tests of sweeps and actors on Ray, in an environment of its own
	@scripts/test_ray.sh

test-leapp: $(STAMP)  ## tests of LEAPP folders with the package leapp, in an environment of its own
	@scripts/test_leapp.sh

test-libero: $(STAMP)  ## tests of LIBERO's tasks, in an environment of its own
	@scripts/test_libero.sh

test-isaaclab: $(STAMP)  ## tests of Isaac Lab's tasks with Isaac Lab itself, in an environment of its own
	@scripts/test_isaaclab.sh

check: $(STAMP)  ## format, lint, import rules and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/pyright

format: $(STAMP)  ## format the code and sort imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: $(STAMP)  ## guides, commands and Python API as a site: build/docs/index.html; warnings are errors
	@$(BIN)/python scripts/docs

clean:  ## remove .venv, build outputs and caches; runs and recordings stay
	@rm -rf $(VENV) .venv-* build dist .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
