# Two commands need nothing done first: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: install demo test check bench mutants

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/squid train recipes/demo.toml --out runs/demo --overwrite
	$(BIN)/squid evaluate runs/demo
	$(BIN)/squid report runs/demo

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/speed.py

# Do the tests notice deliberate faults? It takes about half an hour.
mutants: install
	$(BIN)/python benchmarks/mutants.py
