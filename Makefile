# Two commands need nothing done first: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: install demo test check bench mutants results

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/squid train recipes/demo.toml --out runs/demo --overwrite
	$(BIN)/squid evaluate runs/demo
	$(BIN)/squid report runs/demo

# Test files side by side, one for each core; tests of one file share what it trains.
test: install
	$(BIN)/python -m pytest -n auto --dist loadfile

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/speed.py

# Every table and figure of docs/ from the stored results; nothing is trained. Without ZhangLab's
# images the kept study of sharpness stays as it is.
JOBS    := benchmarks/results/jobs
STUDIES := benchmarks/results/studies
OURS     = $(JOBS)/zhanglab-ours-seed-*.json
STOPS    = $(STUDIES)/stops-zhanglab-seed-*.json
REREAD  := $(BIN)/python benchmarks/reread.py

results: install
	$(REREAD) agreement $(OURS)
	$(REREAD) agreement $(JOBS)/zhanglab-reference-seed-*.json
	$(REREAD) agreement $(JOBS)/zhanglab-reference_1000-seed-*.json
	$(REREAD) ensembles $(OURS)
	$(REREAD) ensembles --folders 1 $(STOPS)
	$(REREAD) ensembles --folders 2 $(STOPS)
	$(REREAD) ensembles --folders 5 $(STOPS)
	$(REREAD) rows $(OURS) --beside $(JOBS)/zhanglab-fusion-seed-*.json
	$(REREAD) site $(OURS)
	-$(REREAD) sharpness $(OURS)
	$(BIN)/python docs/reference/generate.py
	$(BIN)/python docs/images/results.py
	$(BIN)/squid benchmark $(JOBS) --table --out runs/results > /dev/null

# Do the tests notice deliberate faults? It takes about half an hour.
mutants: install
	$(BIN)/python benchmarks/mutants.py
