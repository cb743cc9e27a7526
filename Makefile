# Two commands do all set-up on a fresh machine with Python 3.11 and make:
#   make run    the main job on embedded data, with its tables
#   make test   the tests
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TOOLS := .venv/.tools
SITE := .venv/.site
# Not --quiet: that would be silent for minutes.
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --editable

FLWR ?= 1.42.0
# The head of hashes.txt.
HASHES := make lock, for installs of the wheel with --require-hashes (CONTRIBUTING.md); make installs by constraints.txt

.PHONY: run test test-whole test-fast test-devices test-gpu test-flwr test-python check docs site mutate audit reproduce-one benchmark wheel lock clean help

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "Installing what runs need, of which PyTorch is the largest: minutes, by the network"
	$(INSTALL) .
	@touch $@

$(TOOLS): $(READY)
	@echo "Installing the tools of developers: minutes, by the network"
	$(INSTALL) '.[dev]'
	@touch $@

$(SITE): $(TOOLS)
	@echo "Installing what builds the site: minutes, by the network"
	$(INSTALL) '.[site]'
	@touch $@

run: $(READY)  ## The main job: methods under drift on two streams, a table of each
	$(BIN)/python -m simulations.compare experiment=labels,meanings

test: $(TOOLS)  ## All tests but those of the next three, real Ray included (minutes)
	$(BIN)/python -m pytest -m "not whole and not ray and not devices and not gpu" --numprocesses auto
	$(BIN)/python -m pytest -m "ray and not whole and not gpu" $$(grep -rl --include='*.py' 'mark\.ray' tests)

test-whole: $(TOOLS)  ## Tables of which `make test` runs some rows: all methods, all commands
	$(BIN)/python -m pytest -m "whole and not ray and not gpu" --numprocesses auto
	$(BIN)/python -m pytest -m "whole and ray and not gpu"

test-devices: $(TOOLS)  ## Real SuperNodes over TLS, killed and coming back (10 minutes)
	$(BIN)/python -m pytest -m devices

test-gpu: $(TOOLS)  ## The same numbers on a GPU; skipped where there is none (minutes)
	$(BIN)/python -m pytest -m gpu -rs

test-fast: $(TOOLS)  ## Unit and contract tests, no Ray (three minutes)
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto

test-flwr: $(TOOLS)  ## `flwr run`, Ray and devices' messages with another Flower: FLWR=1.42.0
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/flwr-$(FLWR) \
	  flwr==$(FLWR)
	PYTHONPATH=$(CURDIR)/build/flwr-$(FLWR) $(BIN)/python -m pytest \
	  tests/cfl_flower/config tests/cfl_flower/communication tests/cfl_flower/test_*_app.py \
	  tests/simulations/test_hub.py tests/simulations/test_new.py \
	  tests/simulations/engines/test_superlink.py

test-python: PY = build/python-$(notdir $(PYTHON))
test-python:  ## Methods, engines and messages with another Python: PYTHON=python3.13
	@mkdir -p build
	$(PYTHON) -m venv $(PY)
	$(PY)/bin/python -m pip install --quiet --constraint constraints.txt --editable \
	  '.[data,privacy,tensorboard]' pytest hypothesis
	$(PY)/bin/python -m pytest -m "not slow" \
	  tests/contract tests/cfl_flower/config tests/cfl_flower/communication \
	  tests/cfl_flower/runs tests/cfl_flower/test_*_app.py tests/simulations/engines

check: $(TOOLS)  ## Formatting, lint, imports and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(TOOLS)  ## Rewrite what pages draw from declarations: settings, counts, the scoreboard, the track
	$(BIN)/python -m tests.docs.settings_tables
	$(BIN)/python -m tests.docs.facts
	$(BIN)/python -m tests.docs.scoreboard
	$(BIN)/python -m tests.docs.track

site: $(SITE)  ## Build the documentation into build/site, all links checked
	@mkdir -p build/pages
	@echo "Building the site: a minute or two"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

mutate: $(TOOLS)  ## Wrong lines, and whether tests notice them: TURN=1/30, or the day's (hours)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutate]'
	$(BIN)/python -m tests.mutate $(if $(TURN),--turn $(TURN)) --sample $(or $(SAMPLE),1) $(MODULES)

audit: $(TOOLS)  ## Known vulnerabilities of constraints.txt; needs the network (seconds)
	$(BIN)/python -m pip install --quiet 'pip-audit>=2.7'
	$(BIN)/python -m pip_audit --strict --requirement constraints.txt --no-deps --disable-pip

reproduce-one: $(READY)  ## A run of a published table, whole, and whether it gives what was recorded (minutes)
	$(BIN)/cfl-flower reproduce flexcfl_table3 --rows synthetic_mclr --methods flexcfl --check

benchmark: $(READY)  ## What the framework costs, against a plain loop
	$(BIN)/python -m tests.benchmarks

wheel: $(READY)  ## The package as dist/cfl_flower-*.whl, which pip installs anywhere
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

lock:  ## Renew constraints.txt, what all commands above install, and hashes.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	  --upgrade --no-annotate --quiet \
	  --custom-compile-command 'make lock' --output-file constraints.txt
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
	  --extra data --extra metrics --extra mlflow --extra onnx --extra privacy \
	  --extra tensorboard --extra wandb \
	  --constraint constraints.txt --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "$(HASHES)" --output-file hashes.txt

clean:  ## Remove the environment and caches
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
