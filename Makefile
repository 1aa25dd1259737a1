# make tune   tunes examples/sizes.yaml, on the GPU if there is one, else without
# make tune EXTRAS=cute   the same with an optional part of setup.cfg: kernels in NVIDIA's CuTe DSL, proprietary
# make test   lint, types, and all tests that need no GPU
# make test-all   the same, with the whole of every grid that make test samples, and all processes started anew
# make test-gpu   the tests that need one
PYTHON ?= python3
VENV ?= .venv
SIZES ?= examples/sizes.yaml
EXTRAS ?=
RUN = $(VENV)/bin/python
# Tests wait for processes that they start: one worker more than cores. Eight at most: a container may have a share of
# the cores that it sees, and a worker takes half a GB.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 1); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST = $(RUN) -m pytest -n $(WORKERS) --dist worksteal --timeout 900
# Most of what is installed. With make --jobs 2 it is unpacked beside the rest, and the lint runs beside that.
LARGE = ^(torch|triton)
# Where pip compiles no byte code, one process does so for what all workers would compile at once.
COMPILED = torch.fx.experimental.symbolic_shapes, pandas, scipy.optimize, scipy.special, sklearn.ensemble, triton

.PHONY: tune test test-all lint unit test-gpu golden clean

tune: $(VENV)/installed $(if $(EXTRAS),$(VENV)/installed-$(EXTRAS))
	$(RUN) tune_gemm.py --gemm_size_file $(SIZES) --compare --time_breakdown

test: lint unit

lint: $(VENV)/installed-dev  # needs neither torch nor triton
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --config setup.cfg --no-logo

unit: $(VENV)/installed-dev $(VENV)/installed
	$(PYTEST)

test-all: lint $(VENV)/installed-dev $(VENV)/installed
	FUZZ_EXAMPLES=2000 CHECK_OVERFLOW=1 COLD_START=1 $(PYTEST) -m "not gpu"

test-gpu: $(VENV)/installed-dev $(VENV)/installed
	$(RUN) -m pytest -m gpu tests/gpu tests/faults

golden: $(VENV)/installed-dev $(VENV)/installed
	$(RUN) -m pytest tests/source/test_golden_scripts.py --update-golden

# The pip that comes with Python 3.11 takes half a minute longer to choose what it installs; it will do.
$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	-$(VENV)/bin/pip install --quiet --retries 0 pip==26.3
	touch $@

$(VENV)/large: requirements.txt $(VENV)/pip
	grep -E '$(LARGE)' requirements.txt | $(VENV)/bin/pip install --quiet --no-deps -r /dev/stdin
	touch $@

# What else they need. The developers' tools, if they are asked for, come before it: one pip at a time does the rest.
$(VENV)/installed: requirements.txt $(VENV)/large | $(if $(filter-out tune clean,$(MAKECMDGOALS)),$(VENV)/installed-dev)
	$(VENV)/bin/pip install --quiet -r requirements.txt
	$(if $(filter 0,$(PIP_COMPILE)),$(RUN) -c 'import $(COMPILED)')
	touch $@

$(VENV)/installed-dev: requirements.txt requirements-dev.txt $(VENV)/pip
	cat requirements.txt requirements-dev.txt | grep -vE '$(LARGE)|^-r' | $(VENV)/bin/pip install --quiet -r /dev/stdin
	touch $@

# What an extra of setup.cfg asks for, without the package: what does not run here would import that copy, also an old one.
EXTRA = import configparser; cfg = configparser.RawConfigParser(); cfg.read("setup.cfg"); print(cfg["options.extras_require"]["$*"])
$(VENV)/installed-%: setup.cfg $(VENV)/installed
	$(RUN) -c '$(EXTRA)' > $(VENV)/extra-$*
	$(VENV)/bin/pip install --quiet -r $(VENV)/extra-$*
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache generated/*/
