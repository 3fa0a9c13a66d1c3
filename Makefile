# Needs python3 (3.11 or later), pip, make and git; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What only some suites need, each in an environment of its own.
CACHE := .cache
# Without compiled files every worker, and every program that a test starts, would compile all of it anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve test test-laws test-agents test-comply test-frameworks test-mcp fuzz check format bench bench-gateway bench-search bench-code golden test-sandbox test-browser bench-browser matrix clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(READY) ## start the gateway; with no key in the environment, on the embedded simulator
	$(BIN)/toolwire serve

test: $(READY) ## run the tests
	$(BIN)/pytest -n auto --dist worksteal

test-laws: $(READY) ## run the laws over every recording and every target, where the corpus is present
	TOOLWIRE_WHOLE_CORPUS=1 $(BIN)/pytest -n auto --dist worksteal tests/laws

test-agents: $(READY) ## run the real agents through the gateway on every upstream; needs npm, and 20 minutes
	$(BIN)/python -m tests.agents --cache $(CACHE)/agents $(ARGUMENTS)

test-browser: $(READY) ## run the browser on real pages; needs Chromium, and installs none
	$(BIN)/pytest -n 2 tests/runtime/tools/browser/chromium $(ARGUMENTS)

test-comply: $(READY) $(CACHE)/comply/.ready ## run the compliance suite by others; writes its page of the documentation
	$(BIN)/python -m tests.compliance $(CACHE)/comply/bin/llm-comply

test-frameworks: $(READY) $(CACHE)/frameworks/.ready ## run agent frameworks through the gateway (needs Node)
	$(BIN)/python -m tests.frameworks $(CACHE)/frameworks

test-mcp: $(READY) ## run the official MCP conformance suite, and servers by others (needs npm)
	$(BIN)/python -m tests.mcp_conformance --cache $(CACHE)/mcp

fuzz: $(READY) ## mutate recorded input against every reader; ARGUMENTS='--seconds 60 --only sse'
	$(BIN)/python -m tests.fuzz $(ARGUMENTS)

test-sandbox: $(READY) ## try what a shell command can't do in bubblewrap; says what is missing where it can't
	$(BIN)/python -m tests.runtime.sandbox.bubblewrap

check: $(READY) ## format, lint, types, import contracts, then the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: $(READY) ## format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## print the speed ratios
	$(BIN)/python -m benchmarks

bench-browser: $(READY) ## print what the browser harness adds to bare Playwright; needs Chromium
	$(BIN)/python -m benchmarks.browser $(ARGUMENTS)

bench-gateway: $(READY) ## print what an exchange costs, beside nginx and LiteLLM where they are installed
	$(BIN)/python -m benchmarks.gateway $(ARGUMENTS)

bench-search: $(READY) ## print how well and how fast a tool is found among 5,000
	$(BIN)/python -m benchmarks.search

bench-code: $(READY) ## print what a tool call from code costs
	$(BIN)/python -m benchmarks.code

golden: $(READY) ## write the golden files anew, for review
	TOOLWIRE_REWRITE_GOLDEN=1 $(BIN)/pytest tests/laws/test_golden.py

matrix: $(READY) ## write the support matrix anew, from the golden files
	$(BIN)/python -m tests.matrix

clean: ## remove the environment and every cache
	rm -rf $(VENV) $(CACHE) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

$(CACHE)/comply/.ready: tests/compliance/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(CACHE)/frameworks/.ready: tests/frameworks/requirements.txt tests/frameworks/package.json
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	cp tests/frameworks/package.json $(@D)
	npm install --prefix $(@D) --no-audit --no-fund --ignore-scripts --silent
	@touch $@
