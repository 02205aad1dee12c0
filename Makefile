# The few commands of this project. All of them work in .venv and build/: nothing outside this folder is
# touched, but for system packages that scripts/check-tools.sh names (and installs where it may).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/python
# Steps of the demo; empty: as many as it takes a minute for. make demo DEMO_STEPS=60 is a quick look.
DEMO_STEPS ?=
# WERROR=1 makes compiler warnings errors. CUDA=ON|OFF|AUTO chooses the back ends.
WERROR ?=
CUDA ?= AUTO
PYTEST_FLAGS ?=

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
CCACHE := $(shell command -v ccache 2>/dev/null)
ifneq ($(CCACHE),)
export CMAKE_CXX_COMPILER_LAUNCHER := $(CCACHE)
endif

SOURCES := CMakeLists.txt pyproject.toml $(shell find cmake cpp -type f \( -name '*.cpp' -o -name '*.h' \
  -o -name '*.cu' -o -name '*.cuh' -o -name '*.cmake' -o -name 'CMakeLists.txt' \) 2>/dev/null)

.PHONY: help demo test test-cpp test-py lint format bench clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

demo: $(BUILD)/.installed ## train a small model on text that is on this machine, about a minute
	@$(BIN)/python scripts/demo.py --out demo $(if $(DEMO_STEPS),--steps $(DEMO_STEPS))

test: test-cpp test-py ## all suites: GoogleTest and pytest

test-cpp: $(BUILD)/.tested-build
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

test-py: $(BUILD)/.installed $(VENV)/.have-test
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(BUILD)/.tested-build $(VENV)/.have-lint $(VENV)/.have-test ## formatters, clang-tidy, ruff, mypy --strict
	@bash scripts/lint.sh $(BUILD)

format: $(VENV)/.have-lint ## let the formatters lay out all sources
	@git ls-files 'cpp/*.cpp' 'cpp/*.h' 'cpp/*.cu' 'cpp/*.cuh' 'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' \
	  | xargs $(BIN)/clang-format -i
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(BUILD)/.installed ## a training step on the CPU beside PyTorch's, if torch is installed
	@$(BIN)/python bench/torch_step.py experiments/ANDREA-NANO-TRAIN.json --device cpu --batch-size 8
	@$(BIN)/python bench/torch_step.py experiments/ANDREA-12M-TRAIN.json --device cpu --batch-size 1

clean: ## remove what was built (.venv and demo/ stay)
	rm -rf build

# ---- how it gets there

$(VENV)/bin/python:
	@bash scripts/check-tools.sh '$(PYTHON)'
	@echo 'Making the environment .venv'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip

# Each stamp is a group of requirements of pyproject.toml. Once it is there, nothing is asked of the network.
$(VENV)/.have-%: pyproject.toml scripts/requirements.py | $(VENV)/bin/python
	@echo 'Installing what pyproject.toml needs for: $*'
	@$(BIN)/python scripts/requirements.py $* > $(VENV)/requirements-$*.txt
	@$(BIN)/python -m pip install --quiet --requirement $(VENV)/requirements-$*.txt
	@touch $@

# The package in editable form; pip runs CMake in $(BUILD), which later calls find as they left it.
$(BUILD)/.installed: $(SOURCES) | $(VENV)/.have-build
	@bash scripts/check-tools.sh '$(PYTHON)'
	@bash scripts/build-package.sh $(BUILD) '$(CUDA)' '$(WERROR)'
	@touch $@

$(BUILD)/.tested-build: $(BUILD)/.installed $(shell find tests/cpp -type f 2>/dev/null)
	@bash scripts/check-tools.sh '$(PYTHON)' tests
	@cmake -S . -B $(BUILD) -DANDREA_TESTS=ON > $(BUILD)/configure-tests.log || { cat $(BUILD)/configure-tests.log; exit 1; }
	@cmake --build $(BUILD)
	@touch $@
