# Every target makes what it needs: a Python environment in .venv with wiresum and its dependencies.
#   make demo ARGS="--workers 2 --loss 0.05"     make test ARGS="-k faults"     make PYTHON=python3.12 test

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

# On a plain Linux machine `pip install torch` takes a CUDA build of several gigabytes. PyTorch keeps CPU builds on an
# index of its own, whose 2.13.0+cpu pip prefers to 2.13.0. Where that index cannot be reached pip would retry for
# minutes, so ask once, for a few seconds, and otherwise take what the configured index (or a local wheel) has.
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PROBE_CPU_INDEX = import urllib.request as u; u.urlopen(u.Request("$(TORCH_CPU_INDEX)/torch/", method="HEAD"), timeout=4)

# By default a script in the folder that holds a clone named wiresum would take the clone for the package.
AS_PATH := --config-settings editable_mode=compat

# The folder of the tour that make mininet has just made, unless it was told another.
TOUR = $(if $(filter --out% --name%,$(ARGS)),RUN,$$(ls -td runs/*-tour* | head -n 1))

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench mininet clean

help:
	@echo "make demo    train a small network on real data through the software switch, and again with Gloo"
	@echo "make test    lint, type check and run the tests"
	@echo "make lint    lint and type check only"
	@echo "make format  let ruff lay out the code and mend what it can"
	@echo "make mininet train over links of 100 Mbit/s between namespaces, with loss, and capture it (as root)"
	@echo "make bench   compare wiresum with Gloo on this machine"
	@echo "make clean   remove .venv and everything else that these targets made"

demo: $(VENV)/.demo
	@$(BIN)/wiresum demo $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo 'The layout differs: run "make format".' >&2; exit 1; }
	@$(BIN)/mypy
	@out=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$out" >&2; exit 1; }

# Two at a time: most tests wait for processes of their own, and some would disturb each other if there were more.
test: lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

format: $(VENV)/.dev
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

mininet: $(VENV)/.dev
	@$(BIN)/wiresum mininet --hosts 4 --rate 100 --loss 0.01 --pcap --name tour $(ARGS) -- \
	$(BIN)/python examples/train_ddp.py wiresum
	@run=$(TOUR); size=$$(du -sh $$run 2>/dev/null | cut -f1); \
	echo "To look into $$run$${size:+, which has $$size}; docs/look.md says more:"; \
	echo "  $(BIN)/wiresum trace $$run/*.pcap --slot 0"; \
	echo "  tshark -X lua_script:protocol/wireshark/wiresum.lua -r $$run/h1.pcap wiresum"

bench: $(VENV)/.demo
	@$(BIN)/python -m benchmarks.allreduce $(ARGS)

clean:
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.demo $(VENV)/.dev: $(VENV)/.%: pyproject.toml $(VENV)/.python
	@echo "Installing wiresum and what \"$*\" needs into $(VENV); the first time takes a minute or two ..."
	@index=; if $(BIN)/python -c '$(PROBE_CPU_INDEX)' 2>/dev/null; then index='--extra-index-url $(TORCH_CPU_INDEX)'; \
	else echo "$(TORCH_CPU_INDEX) does not answer; taking torch from pip's own index."; fi; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$index $(AS_PATH) --editable '.[$*]'
	@echo "Compiling the kernels of host and switch ..."
	@$(BIN)/python -m host.prepare && $(BIN)/python -m switch.prepare
	@touch $@

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo 'There is no "$(PYTHON)" here. wiresum needs Python 3.11 or newer;' \
	'name one with "make PYTHON=/path/to/python3".' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "wiresum needs Python 3.11 or newer, and" \
	"$(PYTHON) is $$($(PYTHON) -V 2>&1). Name another with \"make PYTHON=/path/to/python3\"." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: its venv" \
	"module is not complete. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo 'If $(VENV) is left from another Python, run "make clean" first.' >&2; exit 1; }
	@touch $@
