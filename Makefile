# Everything that is done with this repository, one verb each. `make` alone lists them.
#
# Nothing but Python ≥ 3.11 with pip, and make, is needed beforehand; nothing outside the clone is written but pip's cache.
# What is about Horovod also needs CMake and a C++ compiler, and keeps a wheel in ~/.cache/petastore/wheels.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# The first Python on PATH that is new enough; `make setup PYTHON=/path/to/python` overrides it. Looked for only when needed.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v "$$name" && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP_VERSION := 26.3
PIP_OF = $(1)/bin/python -m pip --disable-pip-version-check
INSTALL := $(call PIP_OF,$(VENV)) install -qq --no-compile --constraint constraints.txt

# Dated files inside the virtual environment say what it holds, so that deleting it forgets them too.
BARE := $(VENV)/.holds-pip-$(PIP_VERSION)
ENOUGH_FOR_DEMO := $(VENV)/.holds-demo
ALL := $(VENV)/.holds-all
ALL_TESTS := $(VENV)/.holds-all-tests

# The engines that petastore feeds (Horovod, Ray, JAX, Lightning, …), in an environment of their own.
NEIGHBOURS := .neighbours
NEIGHBOURS_BARE := $(NEIGHBOURS)/.holds-pip-$(PIP_VERSION)
NEIGHBOURS_BUT_HOROVOD := $(NEIGHBOURS)/.holds-neighbours
NEIGHBOURS_ALL := $(NEIGHBOURS)/.holds-all

# Many images set this; then each of hundreds of test processes would compile petastore again.
unexport PYTHONDONTWRITEBYTECODE

# The docs theme prints a notice of its own about mkdocs 2, which `constraints.txt` does not install.
export NO_MKDOCS_2_WARNING := 1

# What a command line of the user's may add: `make test T=tests/plan`, `make demo A=--help`, `make against C=main`,
# `make pythons PYTHONS=3.13`.
T ?=
A ?=
C ?=
PYTHONS ?=

.PHONY: help
help: ## list the verbs
	@echo 'petastore: make VERB'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1 \2/p' $(firstword $(MAKEFILE_LIST)) \
		| while read -r verb rest; do printf '  %-15s %s\n' "$$verb" "$$rest"; done

.PHONY: demo
demo: $(ENOUGH_FOR_DEMO) ## digits: Spark → Parquet → two ranks of torch → a test accuracy (A=… passes options)
	@$(BIN)/python -m examples.digits $(A)

.PHONY: setup
setup: $(ALL) ## make .venv with everything that check, test, docs and examples need

.PHONY: check
check: $(ALL) ## what CI runs except the tests: format, lint, types, import contracts, wording, docs
	@echo 'check: format (ruff format)'
	@$(BIN)/ruff format --check --quiet . || { echo 'check: these files are not formatted; .venv/bin/ruff format .'; \
		$(BIN)/ruff format --check .; }
	@echo 'check: lint (ruff check)'
	@$(BIN)/ruff check --quiet .
	@echo 'check: types (mypy, strict, source and tests)'
	@$(BIN)/mypy --no-error-summary
	@echo 'check: import contracts (lint-imports)'
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }
	@echo 'check: wording (counts of phrases to avoid may only fall)'
	@$(BIN)/python -m tests.wording
	@echo 'check: docs (mkdocs build --strict)'
	@# Not --quiet: it hides warnings from --strict too.
	@out=$$($(BIN)/mkdocs build --strict 2>&1) || { echo "$$out"; exit 1; }
	@echo 'check: all is well'

# Files start in the order of tests/durations.json, longest first, not by how many tests they have.
# One process more than there are processors: tests wait for servers, Spark and other processes.
WORKERS := $(shell processors=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 3); echo $$((processors < 4 ? processors + 1 : 4)))
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test
test: $(ALL) ## test every guarantee, quickly, in at most four processes (T=tests/plan runs some)
	@$(PYTEST) $(T)

.PHONY: test-all
test-all: $(ALL_TESTS) ## run all tests at full size: slow ones, all Hypothesis examples (T=tests/plan runs some, TESTS_ORDER=7 shuffles files)
	@PETASTORE_TESTS=all $(PYTEST) $(T)

# A checkout of https://github.com/apache/parquet-testing; nothing of it is kept here.
CORPUS ?= $(or $(PETASTORE_PARQUET_TESTING),../shared/fixtures/parquet-testing)

.PHONY: corpus
corpus: corpus-folder $(ALL) ## read Apache's parquet-testing (CORPUS=its checkout) and every writer's files as Arrow reads them
	@PETASTORE_TESTS=corpus PETASTORE_PARQUET_TESTING='$(abspath $(CORPUS))' $(PYTEST) --dist load tests/corpus

# Checked before anything is set up.
.PHONY: corpus-folder
corpus-folder:
	@test -d '$(CORPUS)/data' || { echo 'corpus: there is no folder $(CORPUS)/data; git clone' \
		'https://github.com/apache/parquet-testing, then make corpus CORPUS=/path/to/parquet-testing' >&2; exit 1; }

.PHONY: pythons
pythons: $(ALL) ## the core's tests on each Python of this machine, from the wheel (PYTHONS='3.12 /path/to/python3.14' names some)
	@$(BIN)/python -m tests.pythons $(PYTHONS) $(addprefix --only ,$(T))

# The files that take longest are begun first.
NEIGHBOURS_FIRST := $(addprefix neighbours/,horovod/test_elastic.py torch/test_restarts.py torch/test_restarts_of_ray.py \
	spark/test_clusters.py test_docs.py keras/test_backends.py horovod/test_docs.py horovod/test_estimators.py)

.PHONY: neighbours
neighbours: $(NEIGHBOURS_ALL) ## test with the engines that petastore feeds, as real processes, in .neighbours (T=neighbours/ray runs some)
	@# A process for each file: engines start threads, and another's workers are forked. One more at a time than there are
	@# processors: ranks and clusters wait for each other. awk leaves out the second mention of a file. What failed is
	@# said again at the end.
	@: >$(NEIGHBOURS)/.failed; printf '%s\n' $(or $(T),$(NEIGHBOURS_FIRST) neighbours/*/test_*.py neighbours/test_*.py) \
		| awk '!seen[$$0]++' | xargs -P "$$(($$(nproc) + 1))" -I PART bash -c ' \
		output=$$($(NEIGHBOURS)/bin/python -m pytest -q --no-header PART 2>&1) && code=0 || code=$$?; \
		printf "neighbours: %s (%d s)\n%s\n" PART $$SECONDS "$$output"; \
		if ((code)); then printf "neighbours: PART failed (exit %d)\n%s\n" $$code "$$(tail -n 60 <<<"$$output")" \
			>>$(NEIGHBOURS)/.failed; fi'
	@cat $(NEIGHBOURS)/.failed; test ! -s $(NEIGHBOURS)/.failed

.PHONY: horovod
horovod: $(NEIGHBOURS_ALL) ## build and keep Horovod's wheel, then train the digits with it on two ranks (A=… passes options)
	@PATH="$(CURDIR)/$(NEIGHBOURS)/bin:$$PATH" horovodrun --gloo --network-interfaces lo -np 2 \
		$(NEIGHBOURS)/bin/python -m examples.horovod_digits $(A)

.PHONY: laws
laws: $(ALL) ## try the laws of plans for long, on other examples each time (PETASTORE_LAWS=25 times as many as test)
	@HYPOTHESIS_PROFILE=dev PETASTORE_TESTS=all PETASTORE_LAWS=$${PETASTORE_LAWS:-25} $(BIN)/python -m pytest --timeout=0 tests/plan/test_laws.py $(T)

MUTANTS := .bench/mutants
MUTANTS_VENV := .bench/venvs/mutants

.PHONY: mutants
mutants: $(ALL_TESTS) $(MUTANTS_VENV)/.made ## mutation tests: change the source in 220 places, one at a time; hours (A='--each 5' draws fewer)
	@rm -rf $(MUTANTS)/tree && git clone -q . $(MUTANTS)/tree
	@$(MUTANTS_VENV)/bin/python -m tests.mutants.draw $(MUTANTS)/mutants.json $(A)
	@PYTHONPATH='$(CURDIR)/$(MUTANTS)/site' $(BIN)/python -m tests.mutants.run $(MUTANTS)/mutants.json \
		$(MUTANTS)/results.jsonl --tree $(MUTANTS)/tree

# cosmic-ray changes the source; coverage tells which tests reach a line. Neither is installed beside petastore.
$(MUTANTS_VENV)/.made: $(BARE)
	@$(BIN)/python -m venv --clear --without-pip $(MUTANTS_VENV)
	@$(call PIP_OF,$(VENV)) --python $(MUTANTS_VENV)/bin/python install -qq cosmic-ray==8.7.0
	@$(call PIP_OF,$(VENV)) install -qq --no-deps --upgrade --target $(MUTANTS)/site coverage==7.17.4 pytest-cov==7.1.0
	@touch $@

FUZZ := .bench/fuzz

.PHONY: fuzz
fuzz: $(ALL) $(FUZZ)/.made ## fuzz tests of all that reads foreign bytes, A=SECONDS in all (600): no crash, hang or foreign exception
	@PYTHONPATH='$(CURDIR)/$(FUZZ)/site' $(BIN)/python -m tests.fuzz.run $(or $(A),600) $(T)

# Not installed in .venv: tests do without it.
$(FUZZ)/.made: $(BARE)
	@$(call PIP_OF,$(VENV)) install -qq --no-deps --upgrade --target $(FUZZ)/site atheris==3.0.0
	@touch $@

.PHONY: endurance
endurance: $(ALL) ## 100 epochs, 100 readers, with each pool and torch: memory flat, nothing left (PETASTORE_ENDURANCE=4 times as many)
	@PETASTORE_ENDURANCE=$${PETASTORE_ENDURANCE:-1} $(BIN)/python -m pytest --timeout=0 tests/readers/test_endurance.py $(T)

.PHONY: soak
soak: $(ALL) ## four ranks on failing storage, killed and resumed, A=SECONDS (1800): each row once, memory and handles flat
	@$(BIN)/python -m tests.soak --seconds $(or $(A),1800)

.PHONY: many-files
many-files: $(ALL) ## 10,000 files of 100 rows beside pyarrow.dataset, in turns; a few minutes (A=1000 writes fewer)
	@$(BIN)/python -m benchmarks.many_files $(A)

.PHONY: tiny-row-groups
tiny-row-groups: $(ALL) ## 20,000 row groups of 50 rows beside pyarrow.dataset, in turns; two minutes (A=2000 writes fewer)
	@$(BIN)/python -m benchmarks.tiny_row_groups $(A)

.PHONY: huge-row-groups
huge-row-groups: $(ALL) ## a row group of 2 GB in 256 MB beside pyarrow's iter_batches, in turns; two minutes (A=500 writes fewer MB)
	@$(BIN)/python -m benchmarks.huge_row_groups $(A)

.PHONY: tune-against-grid
tune-against-grid: $(ALL) ## what `petastore tune` chooses beside a full grid of settings, and a slow store; 15 minutes (A=images runs some)
	@$(BIN)/python -m benchmarks.tuning $(A)

.PHONY: format
format: $(ALL) ## rewrite the files as check wants them
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

.PHONY: notebooks
notebooks: $(ALL) ## run the notebooks of examples/, and keep in them what they show
	@$(BIN)/python -m tests.examples.notebooks

.PHONY: docs
docs: $(ALL) ## serve the site at http://127.0.0.1:8000 and rebuild it on every change
	@$(BIN)/mkdocs serve

.PHONY: look
look: $(ALL) ## pictures of the site and the README in a browser, wide and narrow, in .look (A='home readme' takes some)
	@$(BIN)/python docs/look.py $(A)

.PHONY: bench
bench: $(ALL) ## all loaders side by side, an hour and more; writes the page (A='--workloads images' runs some)
	@$(BIN)/python -m benchmarks.bench --publish $(A)

.PHONY: bench-quick
bench-quick: $(ALL) ## the main workloads with petastore, Petastorm and the limits; minutes, prints only
	@$(BIN)/python -m benchmarks.bench --quick $(A)

.PHONY: bench-storage
bench-storage: $(ALL) ## far files, the disk cache, bad lines: what each must show; 20 minutes (A='--only hit half' runs some)
	@$(BIN)/python -m benchmarks.storage --publish $(A)

.PHONY: bench-writing
bench-writing: $(ALL) ## each way of writing beside Petastorm's, in turns; ten minutes (A=--publish writes the page)
	@$(BIN)/python -m benchmarks.writing $(A)

.PHONY: accelerators
accelerators: $(NEIGHBOURS_BUT_HOROVOD) ## simulated accelerators of MLPerf Storage: do they wait? 25 minutes (A=--publish writes the page)
	@$(NEIGHBOURS)/bin/python -m benchmarks.accelerators $(A)

.PHONY: against
against: $(ALL) ## this tree beside commit C, in turns: rates, CPU, memory; a quarter of an hour (A='--workloads images' less)
	@$(BIN)/python -m benchmarks.against $(C) $(A)

# `make bench` and `make bench-quick` install Petastorm here.
PETASTORM ?= .bench/venvs/petastorm

.PHONY: defects
defects: ## what Petastorm itself gets wrong, check by check (A=NAME runs one, PETASTORM=venv says where it is)
	@test -x '$(PETASTORM)/bin/python' || { echo 'defects: no Petastorm in $(PETASTORM); make bench-quick installs it there,' \
		'docs/explanation/petastorm-compatibility.md anywhere: make defects PETASTORM=/path/to/venv' >&2; exit 1; }
	@'$(PETASTORM)/bin/python' -m tests.interop.defects.checks $(A)

# A checkout of https://github.com/uber/petastorm at v0.13.1; nothing of it is kept here.
PETASTORM_SOURCE ?=

.PHONY: petastorm-tests
petastorm-tests: petastorm-source $(ALL) ## Petastorm's own tests through the switch; minutes (PETASTORM_SOURCE=its checkout, A='--only test_ngram')
	@$(BIN)/python -m tests.interop.petastorm_suite.run '$(PETASTORM_SOURCE)' $(A)

# Asked for before anything is set up.
.PHONY: petastorm-source
petastorm-source:
	@test -n '$(PETASTORM_SOURCE)' || { echo 'petastorm-tests: where is Petastorm? git clone --branch v0.13.1' \
		'https://github.com/uber/petastorm, then make petastorm-tests PETASTORM_SOURCE=/path/to/petastorm' >&2; exit 1; }

.PHONY: clean
clean: ## remove .venv, .neighbours and everything that was built
	@rm -rf $(VENV) $(NEIGHBOURS) site dist .bench .demo .look .pythons .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Debian Python has no ensurepip; there the machine's pip puts a pip into the new environment.
$(BARE) $(NEIGHBOURS_BARE): FOLDER = $(@D)
$(BARE) $(NEIGHBOURS_BARE):
	@test -n '$(PYTHON)' || { echo 'setup: no Python ≥ 3.11 on PATH; name one: make setup PYTHON=/path/to/python' >&2; exit 1; }
	@echo "setup: $(FOLDER) with $$('$(PYTHON)' --version) of $(PYTHON)"
	@if '$(PYTHON)' -c 'import ensurepip' 2>/dev/null; \
		then '$(PYTHON)' -m venv --clear $(FOLDER); $(call PIP_OF,$(FOLDER)) install -qq pip==$(PIP_VERSION); \
		else '$(PYTHON)' -m venv --clear --without-pip $(FOLDER); \
			'$(PYTHON)' -m pip --disable-pip-version-check --python $(FOLDER)/bin/python install -qq pip==$(PIP_VERSION); fi
	@touch $@

$(ENOUGH_FOR_DEMO): $(BARE) pyproject.toml constraints.txt
	@echo 'setup: petastore and what the demo needs: Spark, torch, a Java (minutes, once)'
	@$(INSTALL) --editable '.[spark,torch,image]' --group demo
	@touch $@

$(ALL): $(BARE) pyproject.toml constraints.txt
	@echo 'setup: petastore and all that its extras, checks, tests and docs need (minutes, once)'
	@$(INSTALL) --editable '.[spark,spark-connect,torch,keras,image,deflate,cli,plot,view,metrics]' --group dev
	@$(BIN)/python -m tests.java_options
	@touch $(ENOUGH_FOR_DEMO) $@

$(ALL_TESTS): $(ALL) $(wildcard tests/servers/azurite/*.json)
	@echo 'setup: servers that only test-all starts, and examples of Petastorm (a minute, once)'
	@$(BIN)/python -m tests.servers.install_azurite
	@$(BIN)/python -m tests.servers.install_hadoop
	@# Outside sys.path: tests run its examples, which import petastore under its name.
	@$(call PIP_OF,$(VENV)) install -qq --no-deps --upgrade --target $(VENV)/petastorm petastorm==0.13.1
	@touch $@

# dlio-benchmark asks for a library that only NVIDIA's index has. What it needs of the rest is beside it, or in the group.
# TensorFlowOnSpark's own demand of a Python is written in a way that pip warns of.
UNDECLARED := dlio-benchmark mpi4py mpich pydftracer tensorflowonspark
NEIGHBOURS_INSTALL := $(call PIP_OF,$(NEIGHBOURS)) install -qq --no-compile --constraint constraints-neighbours.txt

$(NEIGHBOURS_BUT_HOROVOD): $(NEIGHBOURS_BARE) pyproject.toml constraints-neighbours.txt
	@echo 'neighbours: petastore and the engines that it feeds (minutes, once)'
	@$(NEIGHBOURS_INSTALL) torch
	@$(NEIGHBOURS_INSTALL) --editable '.[torch,tf,image,spark]' --group neighbours
	@$(NEIGHBOURS_INSTALL) --no-deps $(UNDECLARED)
	@$(NEIGHBOURS)/bin/python -m tests.java_options
	@touch $@

$(NEIGHBOURS_ALL): $(NEIGHBOURS_BUT_HOROVOD) neighbours/horovod/build_wheel.py
	@wheel=$$($(NEIGHBOURS)/bin/python neighbours/horovod/build_wheel.py) && \
		$(call PIP_OF,$(NEIGHBOURS)) install -qq --no-deps --force-reinstall "$$wheel"
	@touch $@
