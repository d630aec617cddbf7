# From nothing to a result, each in a virtual environment of the project's own (.venv):
#   make demo    build, then train a small network on the xla device
#   make test    build, then run all tests, C++ and Python
#   make bench   build, then measure against CPU eager
#   make docs    build, then write the API reference, out/api/index.html
#   make lint    check formatting and style;  make format  repair it
#
# PYTHON=python3.12      another interpreter
# TORCH="torch==2.14.1"  another torch (or a path to a wheel); the source is compiled against it
# ARGS="..."             more arguments for the program that a target runs
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test bench docs lint format build build-tests clean help

PYTHON ?= python3
TORCH ?= torch==2.13.0
ARGS ?=
# A file's tests stay in one process. PARALLEL= runs all in one, as pytest itself does.
PARALLEL ?= -n logical --maxprocesses 4 --dist loadfile
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# torch stays as installed: an editable install may not trade it for another.
INSTALL := $(PIP) install --no-build-isolation --no-deps -v -e .

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -10

demo: $(VENV)/.demo build
	$(BIN)/python -m examples.digits $(ARGS)

bench: $(VENV)/.demo build
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.docs build
	$(BIN)/python docs/generate_api.py out/api

test: $(VENV)/.test build-tests
	$(BIN)/ctest --test-dir build --output-on-failure
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find csrc tests/cpp \( -name '*.cpp' -o -name '*.h' -o -name '*.c' \) -print0 \
	  | xargs -0 --no-run-if-empty $(BIN)/clang-format --dry-run -Werror

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find csrc tests/cpp \( -name '*.cpp' -o -name '*.h' -o -name '*.c' \) -print0 \
	  | xargs -0 --no-run-if-empty $(BIN)/clang-format -i

# The compiler only runs for what changed: the build folder is kept between calls.
build: $(VENV)/.torch
	$(INSTALL)

build-tests: $(VENV)/.torch
	$(INSTALL) --config-settings=cmake.define.TORCH_XLA_BUILD_TESTS=ON

# Installed packages, each stamp made anew when pyproject.toml changes what it asks for.
$(VENV)/.venv:
	@cmake/check_machine.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.torch: $(VENV)/.venv pyproject.toml
	$(PIP) install $(TORCH)
	$(PIP) install "scikit-build-core>=0.11" "cmake>=3.24" ninja
	$(PIP) install $$($(BIN)/python cmake/requirements.py)
	touch $@

$(VENV)/.demo $(VENV)/.docs $(VENV)/.test: $(VENV)/.%: $(VENV)/.torch
	$(PIP) install $$($(BIN)/python cmake/requirements.py $*)
	touch $@

$(VENV)/.lint: $(VENV)/.venv pyproject.toml
	$(PIP) install $$($(BIN)/python cmake/requirements.py --only lint)
	touch $@

clean:
	rm -rf build $(VENV)
