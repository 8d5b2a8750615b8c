# SPDX-License-Identifier: Apache-2.0
# make demo   installs what is missing, builds, and shows FP8 attention on a real model's Q, K and V
# make test   the same for every test that needs no GPU
PRESET ?= $(shell command -v nvcc >/dev/null 2>&1 && echo cuda || echo cpu)
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=
BUILD := build/$(PRESET)
PYTHON_FLAGS := -DOCTAVO_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python

.PHONY: demo test configure clean

demo:
	@tools/install_deps.sh
	@$(MAKE) -s configure
	@ninja -C $(BUILD) -j $(JOBS) octavo_cli
	@$(BUILD)/cli/octavo compare examples/data/smollm2-135m.safetensors
	@echo "  (octavo here is $(BUILD)/cli/octavo)"

test:
	@tools/install_deps.sh test
	@$(MAKE) -s configure
	@grep -q '^OCTAVO_PYTHON:BOOL=ON' $(BUILD)/CMakeCache.txt || cmake $(BUILD) $(PYTHON_FLAGS) >$(BUILD)/configure.log \
	  || { cat $(BUILD)/configure.log; exit 1; }
	@ninja -C $(BUILD) -j $(JOBS)
	@python3 tools/check_layers.py
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) --no-tests=error
	@OCTAVO_BIN=$(BUILD)/cli/octavo OCTAVO_PYTHON=$(BUILD)/python .venv/bin/python -m pytest -q -rs tests/python

# Once; ninja repeats it where a CMake file changes.
configure:
	@mkdir -p $(BUILD)
	@[ -f $(BUILD)/build.ninja ] || cmake --preset $(PRESET) $(CMAKE_FLAGS) >$(BUILD)/configure.log \
	  || { cat $(BUILD)/configure.log; exit 1; }

clean:
	rm -rf build
