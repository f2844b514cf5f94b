# `make` alone lists all targets.
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
DEPENDENCIES ?= newest
READY   := $(VENV)/.installed-$(DEPENDENCIES)
FSBENCH := $(VENV)/.installed-fsbench
TAG     ?=

BACKBONE ?=
DATASET  ?=
FEATURES ?=
ALPHA    ?= 2
SETTING  ?= unbalanced
TASKS    ?= 10000
ARGS     ?=
DATA     ?= data
SMALL    := --lr 0.1 --no-rotation --no-mixup --seed 0 --device cpu --eval-every 6 --force
TASKS_OF := --seed 0 --device cpu --force
REAL     := --seed 0 --device cpu --force --data-dir $(DATA)

.DEFAULT_GOAL := help
.PHONY: help setup test fast lint format types unit demo bench reference benchmarks figures trust build docs chromium extract scatter solve compare weights clean

help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables:      BACKBONE=wrn DATASET=mini FEATURES=file.h5 SETTING=balanced ALPHA=2 TASKS=1000 ARGS='--quiet'"

setup: $(READY)  ## create .venv and install fsbench with its development tools

$(READY): pyproject.toml
	@echo "Installing fsbench and its development tools into $(VENV): takes minutes, and 6 GB with the CUDA build of torch."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(DEPENDENCIES),lowest)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --resolution lowest-direct --editable '.[dev]'
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev]'
endif
	@rm -f $(VENV)/.installed-*
	@touch $@ $(FSBENCH)

$(FSBENCH): pyproject.toml  # without development tools
	@echo "Installing fsbench into $(VENV): takes minutes, and 6 GB with the CUDA build of torch."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

test: lint types unit  ## lint, type-check and test: what CI runs

lint: $(READY)  ## check style, format and the order of the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: $(READY)  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## check types (mypy, strict)
	$(BIN)/mypy

fast: $(READY)  ## run the tests that are not marked heavy: minutes on two cores
	$(BIN)/pytest -n 2 -q -m "not slow and not heavy" $(ARGS)

unit: $(READY)  ## run all tests [DEPENDENCIES=lowest: the oldest versions that pyproject.toml allows]
	$(BIN)/pytest -n 2 -q $(if $(filter lowest,$(DEPENDENCIES)),-W ignore::DeprecationWarning) $(ARGS)

demo: $(FSBENCH)  ## run the full pipeline on the built-in data set, offline
	$(BIN)/fsbench demo $(ARGS)

bench: $(READY)  ## measure speed, as ratios within one run, and fail where a bound is missed
	$(BIN)/python -m tests.bench --check $(ARGS)

reference: $(READY)  ## write docs/reference.md from the declarations of all options
	$(BIN)/python -m tests.reference

benchmarks: $(READY)  ## write the tables of docs/benchmarks.md from results/, computing what is missing [ARGS=folder of feature files]
	$(BIN)/python -m tests.benchmarks $(ARGS)

figures: $(FSBENCH)  ## make the article's tables and figures on the built-in data set, into results/
	$(BIN)/fsbench compare --tasks 1000 $(ARGS)
	$(BIN)/fsbench reproduce table2 --tasks 1000 $(ARGS)
	$(BIN)/fsbench tune --shots 1 --tasks 300 $(ARGS)
	for figure in 3 4 5; do $(BIN)/fsbench reproduce figure$$figure --tasks 500 $(ARGS) || exit; done
	$(BIN)/fsbench plot spectrum --out results/spectrum.png $(ARGS)
	$(BIN)/fsbench plot dots --out results/dots.png $(ARGS)
	$(BIN)/fsbench report --out results/report.html $(ARGS)

trust: $(READY)  ## run the long tests: kills, full disks, damaged files, random command lines (ten minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -q --timeout 3600 $(ARGS)

docs: $(READY)  ## build the documentation into site/; a broken link is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

chromium:  ## install Chromium with apt, for the tests of the report in a browser, unless there is one
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name && exit; done; \
	$$(test "$$(id -u)" = 0 || echo sudo) apt-get install --yes --no-install-recommends chromium

build: $(READY)  ## build the wheel and the source archive into dist/ [TAG=v1.2.3 must be the version]
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	test -z '$(TAG)' || ls dist | grep -qxF 'fsbench-$(TAG:v%=%).tar.gz'

weights: export OMP_NUM_THREADS := 1  # sums depend on the number of threads in their last bits
weights: $(READY)  ## train the weights that ship with fsbench, for glyphs and the data sets under [DATA]
	$(BIN)/fsbench train --dataset glyphs --backbone rn12 --width 12 --epochs 24 $(SMALL)
	$(BIN)/fsbench train --dataset glyphs --backbone rn18 --width 8 --epochs 24 $(SMALL)
	$(BIN)/fsbench train --dataset glyphs --backbone wrn --width 1 --epochs 12 $(SMALL)
	$(BIN)/fsbench train --recipe maml --dataset glyphs --width 16 --epochs 6 --eval-every 2 $(TASKS_OF)
	$(BIN)/fsbench train --recipe maml:transductive --dataset glyphs --width 16 --epochs 6 --eval-every 2 $(TASKS_OF)
	$(BIN)/fsbench train --recipe versa --dataset glyphs --width 16 --epochs 12 --eval-every 4 $(TASKS_OF)
	test ! -d $(DATA)/cifarfs || $(BIN)/fsbench train --recipe maml --dataset cifarfs --width 32 --epochs 12 --eval-every 3 --data-dir $(DATA) $(TASKS_OF)
	test ! -d $(DATA)/cifarfs || $(BIN)/fsbench train --recipe versa --dataset cifarfs --width 32 --epochs 30 --data-dir $(DATA) $(TASKS_OF)
	test ! -d $(DATA)/cifarfs || $(BIN)/fsbench train --dataset cifarfs --backbone rn12 --width 32 --epochs 30 --lr 0.1 $(REAL)
	test ! -d $(DATA)/cifarfs || $(BIN)/fsbench train --dataset cifarfs --backbone rn18 --width 16 --epochs 6 --lr 0.05 $(REAL)
	test ! -d $(DATA)/cifarfs || $(BIN)/fsbench train --dataset cifarfs --backbone wrn --width 1 --epochs 4 --lr 0.05 $(REAL)
	test ! -d $(DATA)/cub || $(BIN)/fsbench train --dataset cub --backbone rn12 --width 16 --image-size 64 --epochs 40 --lr 0.1 $(REAL)
	test ! -d $(DATA)/fc100 || $(BIN)/fsbench train --dataset fc100 --backbone rn12 --width 24 --image-size 32 --epochs 10 --lr 0.1 $(REAL)
	test ! -d $(DATA)/mini || $(BIN)/fsbench train --dataset mini --backbone rn12 --width 32 --image-size 64 --epochs 16 --lr 0.1 --precision bf16 $(REAL)

extract: $(FSBENCH)  ## run a backbone over image folders [BACKBONE DATASET]
	$(BIN)/fsbench extract $(if $(BACKBONE),--backbone $(BACKBONE)) $(if $(DATASET),--dataset $(DATASET)) $(ARGS)

scatter: $(FSBENCH)  ## compute S_w of the base features [FEATURES]
	$(BIN)/fsbench scatter $(FEATURES) $(ARGS)

solve: $(FSBENCH)  ## run one method [FEATURES SETTING ALPHA TASKS]
	$(BIN)/fsbench solve $(FEATURES) --$(SETTING) $(if $(filter unbalanced,$(SETTING)),--alpha $(ALPHA)) --tasks $(TASKS) $(ARGS)

compare: $(FSBENCH)  ## compare methods on the same tasks [FEATURES ALPHA TASKS]
	$(BIN)/fsbench compare $(FEATURES) --alpha $(ALPHA) --tasks $(TASKS) $(ARGS)

clean:  ## remove the environment and everything generated by tools, never data, features or results
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
