# Every target does its own set-up. A new machine needs python3 (3.11 or newer), make, git and the package registries.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help install demo test proof check format bench bench-year soak attack docs lock clean

BIN := .venv/bin
INSTALLED := .venv/.installed
# Extra arguments for the underlying tool, for example: make test ARGS="tests/unit -k clock"
ARGS ?=
# Parts of the long proofs, for example: make proof PART=soak
PART ?=

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## Create the full development environment in .venv
$(INSTALLED): pyproject.toml requirements/uv.txt requirements/dev.txt scripts/install
	@scripts/install

demo: $(INSTALLED)  ## Show detection and evacuation of a failing zone, in about a minute
	@$(BIN)/holdfast demo $(ARGS)

test: $(INSTALLED)  ## Run all tests, against real services on loopback (ARGS=... selects tests)
	@scripts/chromium
	@scripts/asl-validator
	@scripts/test $(ARGS)

proof: $(INSTALLED)  ## Run the long proofs, of which the tests are samples (PART=branches, properties, cases or soak: only that part)
	@scripts/proof $(PART) -- $(ARGS)

check: $(INSTALLED)  ## Check formatting, lint, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## Format, and apply automatic fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(INSTALLED)  ## Run all benchmarks (ARGS=--quick: each under a minute, that of queues under five)
	@status=0; for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file $(ARGS) || status=1; done; exit $$status

bench-year: $(INSTALLED)  ## Count false isolations in 200 simulated days (about 80 minutes on two cores; continues where it was stopped)
	@$(BIN)/python benchmarks/detect.py --part year --whole

soak: $(INSTALLED)  ## Kill the queue's processes repeatedly, and account for every message (about 10 minutes)
	@scripts/soak $(ARGS)

attack: $(INSTALLED)  ## Attack a server with odd requests, slow and idle connections and header floods (5 minutes at most)
	@scripts/attack

docs: $(INSTALLED)  ## Build the documentation as a site in site/
	@$(BIN)/zensical build --strict

lock: $(INSTALLED)  ## Resolve the locked versions again, after a change of dependencies
	@scripts/lock $(ARGS)

clean:  ## Remove everything that the other targets created
	rm -rf .venv .cache .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
