# Murho's commands for people; `make help` lists them. Needs make and Python 3.11 or newer, nothing else.

HOST ?= 127.0.0.1
PORT ?= 8000
DEVICE ?= auto
CHECKPOINTS ?= checkpoints
WORKERS ?= auto
ARGS ?=

BIN := .venv/bin

# Handed to scripts/setup.sh, which decides whether there is anything to do.
export PYTHON TORCH_VARIANT TORCH_INDEX_URL
# Tests start many processes: each would compile PyTorch's modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup serving demo serve browser test slow check format bench docs clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  Variables: HOST=$(HOST) PORT=$(PORT) DEVICE=$(DEVICE) CHECKPOINTS=$(CHECKPOINTS), TORCH_VARIANT=cpu|cuda,"
	@echo "  PYTHON=/path/to/python3, WORKERS=processes that test (0: this one),"
	@echo "  ARGS='more words for serve, test, slow or bench'. More: docs/install.md"

setup: ## the set-up alone, into .venv (the other commands do it by themselves)
	@scripts/setup.sh

serving: # what serving needs, into .venv, and no development tools; the whole of it is 'setup'
	@scripts/setup.sh --serving

demo: serving ## train the demo checkpoint, if there is no checkpoint yet
	@set -- "$(CHECKPOINTS)"/*/*/model.json; if [ ! -e "$$1" ]; then \
	  echo "No checkpoint in $(CHECKPOINTS)/ yet: training the demo on examples/cars.csv, about a minute ..."; \
	  $(BIN)/murho train examples/cars.csv --target Miles_per_Gallon --config examples/cars.toml --name cars \
	    --checkpoints "$(CHECKPOINTS)"; \
	fi

serve: demo ## serve the checkpoints on http://HOST:PORT (set-up and a demo checkpoint included)
	@exec $(BIN)/murho serve --checkpoints "$(CHECKPOINTS)" --host "$(HOST)" --port "$(PORT)" --device "$(DEVICE)" $(ARGS)

browser: setup ## find a Chromium for the tests of the page, or install one
	@$(BIN)/python scripts/browser.py >/dev/null || true

test: browser ## run the tests, as many at a time as there are cores (ARGS='-m fast': in less than a minute)
	@$(BIN)/python -m pytest -m "not slow" --numprocesses=$(WORKERS) --maxprocesses=8 --dist=worksteal $(ARGS)

slow: browser ## run the long tests, which 'make test' leaves out
	@$(BIN)/python -m pytest -m slow --numprocesses=$(WORKERS) --maxprocesses=8 --dist=worksteal $(ARGS)

check: setup ## check format, lint, types and the order of packages
	@status=0; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/mypy || status=1; \
	(cd client && ../$(BIN)/mypy) || status=1; \
	$(BIN)/lint-imports --no-logo --no-cache || status=1; \
	$(BIN)/zizmor --offline --persona pedantic --quiet . || status=1; \
	exit $$status

format: setup ## put the code into its format, mend what lint can mend
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: setup ## measure coverage on held-out cars (minutes)
	@$(BIN)/python -m benchmarks.cars $(ARGS)

docs: setup ## build the documentation into build/site, and say if a link in it leads nowhere
	@$(BIN)/python scripts/site_pages.py
	@echo "Open build/site/index.html, or: $(BIN)/python -m http.server --directory build/site 8080"

clean: ## remove .venv and everything made but the checkpoints
	rm -rf .venv build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
