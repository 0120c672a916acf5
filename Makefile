# gradwise: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Test files are shared out to this many processes: tests mostly trace and compile, which one core does at a time.
WORKERS ?= 2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow bench check clean

# A stamp for each set of packages: the environment is made when it is missing and renewed when its inputs changed.
$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a minute or two the first time)"
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	@echo "setting up $(VENV) with the tools for tests (a minute or two the first time)"
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) -e ".[dev,bench]"
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/gradwise search digits --budget 60s --out runs/demo --overwrite

# Every row of the chapter, proved once, in a few minutes; `test-slow` proves the rest. Together they are all tests.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not gpu" $(PYTEST)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "slow and not gpu" $(PYTEST)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for script in examples/*.py; do echo "$$script"; $(BIN)/python "$$script" || exit 1; done

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/suite_time.py
	$(BIN)/python benchmarks/defaults_quality.py
	$(BIN)/python benchmarks/fit_vs_peers.py
	$(BIN)/python benchmarks/search_overhead.py
	$(BIN)/python benchmarks/hyperlearner.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/watched.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
