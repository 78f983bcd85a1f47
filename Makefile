# Every target is one line that can be copied. Only Python (3.11 or newer) and make are needed; whatever else is wanted
# goes into .venv. `make help` lists the targets. Works with GNU make 3.82 and later.
#
#   make run PYTHON=python3.12      take this interpreter for a new .venv
#   make test PYTEST_ARGS='-k heat' hand options on to pytest

comma := ,
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Python compiles what is imported; all that is in the packages takes half a minute more.
PIP_INSTALL := $(PY) -m pip install -qq --no-compile --disable-pip-version-check --editable
PYTEST := $(PY) -m pytest $(PYTEST_ARGS)
# Tests at the same time: one per core, but not so many that their compilers fill the memory.
TESTS := $(PY) -m pytest -n auto --maxprocesses 8 $(PYTEST_ARGS)
GPU := gpu13
# Compiles GPU kernels where there is no GPU; for CUDA 12 the GPU extra brings it.
COMPILER := $(if $(filter gpu13,$(GPU)),$(comma)nvrtc)
COMPILE := $(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 pyproject.toml \
	--extra notebook --extra report --extra compression --extra stl --extra live
LOWEST := $(VENV)/lowest
# One file or two of each kind of dependency: readers and writers, formulas, kernels, bodies, pictures, tables.
SMOKE := tests/unit/test_config.py tests/unit/test_quantities.py tests/unit/test_checkpoint.py \
	tests/unit/test_outputs_fields.py tests/unit/test_packing.py tests/unit/test_outputs_painting.py
CANDIDATES := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: run test test-all test-gpu test-mpi test-lowest smoke-lowest dependencies check lint docs site bench size clean help

run: $(VENV)/.installed ## simulate a cooling copper plate: checkpoint, pictures and report in results/copper_plate
	@$(PY) -m tetris_sim run examples/copper_plate.yaml --overwrite

test: $(VENV)/.installed-dev ## run the tests; what cannot run here is counted at the end
	@$(TESTS)

test-all: $(VENV)/.installed-dev ## run the tests with the whole product of cases
	@$(TESTS) --run-full

test-gpu: $(VENV)/.installed-$(GPU) ## run the tests that need a GPU (GPU=gpu12 for CUDA 12)
	@$(PYTEST) -m gpu

test-mpi: $(VENV)/.installed-dev ## run the tests that need MPI
	@$(PYTEST) -m mpi

test-lowest: $(LOWEST)/.installed ## run the quick tests with the lowest versions that pyproject.toml allows
	@CI=true $(LOWEST)/bin/python -m pytest -n auto --maxprocesses 8 -m "not slow" $(PYTEST_ARGS) tests/unit

smoke-lowest: $(LOWEST)/.installed ## import everything and run a few tests with the lowest versions
	@CI=true $(LOWEST)/bin/python -m pytest -q -n 2 -m "not slow" $(PYTEST_ARGS) $(SMOKE)

dependencies: $(VENV)/.installed-release ## write the lowest versions, the lock file, licences and SBOM into .ci
	@$(COMPILE) --resolution lowest-direct --output-file .ci/lowest.txt
	@$(COMPILE) --extra mpi --universal --generate-hashes --upgrade --output-file .ci/lock.txt
	@$(BIN)/uv venv --quiet --clear build/locked
	@$(BIN)/uv pip install --quiet --python build/locked/bin/python --require-hashes -r .ci/lock.txt
	@$(BIN)/pip-licenses --python build/locked/bin/python --from mixed --format markdown --order license --output-file .ci/licences.md
	@$(BIN)/cyclonedx-py environment build/locked/bin/python --pyproject pyproject.toml --output-reproducible --of JSON -o .ci/sbom.json

check: lint ## lint, types, layers and the quick tests, in about a minute: before every commit
	@$(PYTEST) -m "not slow" -n auto tests/unit tests/docs

lint: $(VENV)/.installed-dev ## ruff, mypy, import layers
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@$(BIN)/lint-imports

docs: $(VENV)/.installed-dev ## build the API reference into docs/api
	@$(PY) .ci/reference.py docs/api

site: $(VENV)/.installed-dev ## build the documentation as a site into build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

bench: $(VENV)/.installed ## time the CPU methods beside Numba loops a user would write, in one run
	@$(PY) -m tetris_sim bench cpu

size: ## lines per source file, and their change since the last release
	@sh .ci/size

clean: ## remove .venv and everything that was made from the sources; results/ stays
	@rm -rf $(VENV) build dist docs/api *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .compiled
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

# A .venv that is not there, or whose interpreter has gone (an upgrade, an interrupted start), is made anew.
ifneq ($(shell $(PY) -c 'import pip; print("works")' 2>/dev/null),works)
.PHONY: $(PY) $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-$(GPU)
endif

# The first interpreter that is new enough and can make virtual environments; a found name may still not start (pyenv).
$(PY):
	@found=; unfit=; \
	for python in $(CANDIDATES); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			if $$python -c 'import venv, ensurepip' >/dev/null 2>&1; then found=$$python; break; fi; \
			unfit=$$python; \
		fi; \
	done; \
	if [ -z "$$found" ] && [ -n "$$unfit" ]; then \
		echo "$$unfit has no venv or ensurepip module, which make needs: install them (Debian, Ubuntu: apt install python3-venv), or name another Python with make PYTHON=path." >&2; exit 1; \
	fi; \
	if [ -z "$$found" ]; then \
		echo "No Python 3.11 or newer was found (tried: $(CANDIDATES)): install one, or name it with make PYTHON=path." >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV)

$(VENV)/.installed: pyproject.toml | $(PY)
	@echo "Installing tetris_sim and what it needs into $(VENV) (once; a minute or two)"
	@$(PIP_INSTALL) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(PY)
	@echo "Installing tetris_sim and what its tests need, MPI included, into $(VENV) (once; a minute or two)"
	@$(PIP_INSTALL) '.[dev,mpi$(COMPILER)]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-release: $(VENV)/.installed
	@$(PIP_INSTALL) '.[release]'
	@touch $@

# By pip, like everything that CI installs: whatever lets pip reach the registry is enough.
$(LOWEST)/.installed: .ci/lowest.txt | $(VENV)/.installed
	@echo "Installing the lowest versions that pyproject.toml allows into $(LOWEST)"
	@$(PY) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet -r .ci/lowest.txt pytest pytest-xdist hypothesis h5netcdf
	@touch $@

$(VENV)/.installed-$(GPU): $(VENV)/.installed-dev
	@echo "Installing CuPy and the CUDA libraries into $(VENV) (once; a few minutes)"
	@$(PIP_INSTALL) '.[$(GPU)]'
	@touch $@
