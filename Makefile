# `make demo` and `make test` each do everything: set up what is missing, then do their job.
# The first interpreter that is new enough; a name on PATH may be a shim for one that is not there.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint format bench clean

setup: $(VENV)/.ready system

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "ringfence: needs Python 3.11 or newer on PATH" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/system-packages none-such-program:python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# bubblewrap and what the tests need from the system, with the machine's package manager where missing.
.PHONY: system
system:
	@scripts/system-packages bwrap:bubblewrap git:git pgrep:procps unshare:util-linux

demo: setup
	@$(BIN)/python demo/tour.py

# Programs that tests run inside: the suite shows that they work there.
.PHONY: tools
tools:
	@scripts/system-packages gcc:gcc strace:strace gdb:gdb node:nodejs javac:default-jdk-headless chromium:chromium

test: setup tools
	$(BIN)/python -m pytest $(ARGS)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	@$(BIN)/python benchmarks/run.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
