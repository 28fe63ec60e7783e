# `make` lists the targets; each does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
READY_FOR_SERVICES := $(VENV)/.ready-for-services
READY_FOR_HF := $(VENV)/.ready-for-hf

.PHONY: help setup demo planted copy smollm2 test test-full test-services check figures clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(READY)  ## install into .venv; PIP_ARGS="..." passes arguments to pip

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "txlbench needs Python 3.11 or newer: make setup PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[sample]'
	@touch $@

$(READY_TO_TEST): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[sample,dev]'
	@touch $@

$(READY_FOR_SERVICES): $(READY_TO_TEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[sample,dev,browser]'
	@touch $@

$(READY_FOR_HF): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[sample,hf]'
	@touch $@

demo: $(READY)  ## train the paper's ablation in small on Wikipedia text; table and plots
	$(BIN)/txlbench ablate experiments/quick.yaml

planted: $(READY)  ## RECL held against the truth on a made corpus (half an hour on two cores)
	$(BIN)/txlbench ablate experiments/planted.yaml
	$(BIN)/txlbench truth results/planted

copy: $(READY)  ## recall by memory length, on a made corpus (under ten minutes on two cores)
	$(BIN)/txlbench ablate experiments/copy.yaml
	$(BIN)/txlbench probe --models "copy/memory 32,copy/no memory,copy/LSTM" --probes forgetting --own-memory \
	  --lengths 4,8,12,16,24,32,40 --out results/copy-recall

smollm2: $(READY_FOR_HF)  ## how much context SmolLM2 135M uses (under 20 minutes on two cores)
	$(BIN)/txlbench models prepare smollm2-135m
	$(BIN)/txlbench recl --models smollm2-135m --corpus enwiki-sample --contexts 64:1024:64 --tokens 500 --out results/smollm2

test: $(READY_TO_TEST)  ## the tests, under 6 minutes on two cores
	$(BIN)/python -m pytest -n auto -q

test-full: $(READY_TO_TEST)  ## the long tests, under 35 minutes
	status=0; \
	$(BIN)/python -m pytest -q -m "full and not alone" -n 2 || status=1; \
	$(BIN)/python -m pytest -q -m "full and alone" || status=1; \
	exit $$status

test-services: $(READY_FOR_SERVICES)  ## tests with a real Slurm and Chromium, installed as root; 12 minutes
	tests/services/install.sh
	$(BIN)/python -m pytest -q -m services

check: $(READY_TO_TEST)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

figures: $(READY)  ## every table and figure of results/ again, without training
	$(BIN)/txlbench figures

clean:  ## remove what was built, never results/
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
