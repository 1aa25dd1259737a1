# make tune   tunes examples/sizes.yaml, on the GPU if there is one, else without
# make tune EXTRAS=cute   the same with an optional part of setup.cfg: kernels in NVIDIA's CuTe DSL, proprietary
# make test   lint, types, and all tests that need no GPU
# make test-all   the same, with the whole of every grid that make test samples
# make test-gpu   the tests that need one
PYTHON ?= python3
VENV ?= .venv
SIZES ?= examples/sizes.yaml
EXTRAS ?=
RUN = $(VENV)/bin/python

.PHONY: tune test test-all lint unit test-gpu golden clean

tune: $(VENV)/installed $(if $(EXTRAS),$(VENV)/installed-$(EXTRAS))
	$(RUN) tune_gemm.py --gemm_size_file $(SIZES) --compare --time_breakdown

test: lint unit

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --config setup.cfg --no-logo

unit: $(VENV)/installed-dev
	$(RUN) -m pytest -n 2 --dist worksteal --timeout 900

test-all: lint $(VENV)/installed-dev
	FUZZ_EXAMPLES=2000 CHECK_OVERFLOW=1 $(RUN) -m pytest -m "not gpu" -n 2 --dist worksteal --timeout 900

test-gpu: $(VENV)/installed-dev
	$(RUN) -m pytest -m gpu tests/gpu tests/faults

golden: $(VENV)/installed-dev
	$(RUN) -m pytest tests/source/test_codegen.py --update-golden

$(VENV)/installed: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet -r requirements.txt
	touch $@

$(VENV)/installed-%: setup.cfg $(VENV)/installed
	$(VENV)/bin/pip install --quiet '.[$*]'
	touch $@

$(VENV)/installed-dev: requirements-dev.txt $(VENV)/installed
	$(VENV)/bin/pip install --quiet -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache generated/*/
