# Two commands for a newcomer, each complete in itself: `make demo` and `make test`.
# They need Python >= 3.11 and make; everything else goes into .venv in this folder.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Two processes share two cores: more BLAS threads than that only wait for each other.
WORKERS ?= 2
# For test-installs: all, newest, or versions such as "3.11 3.12".
PYTHONS ?= all
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo docs paper test test-all test-browser test-installs dist screenshots check bench clean

help:
	@echo "make demo      SeqGraphMED beside other classifiers, and the paper's figures in short"
	@echo "make paper     the paper's figures in full, and RESULTS.md: hours"
	@echo "make test      run the tests, except those marked exhaustive (5 minutes on 2 cores)"
	@echo "make test-all  run all tests, then the solver's without compilation"
	@echo "make test-browser  run the tests of the labeling page, and of a site that was built, in Chromium;"
	@echo "                   as root, install it first"
	@echo "make test-installs  install without constraints: every Python, lowest versions, no home (5 minutes)"
	@echo "make dist      build and check what is released, in dist; then test-installs on it (8 minutes)"
	@echo "make screenshots   take the screenshots of docs/labeling.md"
	@echo "make docs      build the documentation site in build/site (6 minutes on 2 cores)"
	@echo "make check     style, types, import rules"
	@echo "make bench     speed, side by side with other libraries"
	@echo "make clean     remove the environment and everything generated"

demo: $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/digits_stream.py --out demo
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m paper all --quick --out demo

paper: $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m paper all --ours --exact --trials 50 --report RESULTS.md

test: $(READY)
	$(PYTEST) -m "not exhaustive"
	@echo "Left to make test-all: tests marked exhaustive, and the solver without compilation."

test-all: test
	$(PYTEST) -m exhaustive
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m nojit tests

# axe-core, which finds defects of accessibility, is installed into a folder of its own.
AXE := build/axe
BROWSER_TESTS ?= tests/browser
BROWSER := OPENBLAS_NUM_THREADS=1 SEQMED_BROWSER=1 SEQMED_AXE=$(AXE) $(BIN)/python -m pytest $(BROWSER_TESTS)

test-browser: $(READY)
	mkdir -p $(AXE)
	tests/browser/install.sh $(AXE)
	$(BROWSER)

test-installs:
	$(PYTHON) tests/installs/check_installs.py $(PYTHONS)

dist:
	$(PYTHON) tests/installs/make_dist.py
	$(PYTHON) tests/installs/check_installs.py --wheel dist/*.whl $(PYTHONS)

screenshots: $(READY)
	mkdir -p $(AXE)
	tests/browser/install.sh $(AXE)
	SEQMED_SCREENSHOTS=docs/images $(BROWSER) -k screenshots

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings are errors. Nothing is fetched: the site has no address of another site in it.
SITE := build/site

docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[docs]'
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -j 2 -n -W --keep-going -q docs $(SITE) -d build/doctrees
	@echo "Open $(SITE)/index.html."

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[bench]'
	cd benchmarks && ../$(BIN)/python speed.py

clean:
	rm -rf .venv demo build dist docs/gallery docs/reference/generated .import_linter_cache src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	"seqmed needs Python 3.11 or newer, found %d.%d: run make with PYTHON=<path>" % v[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@
