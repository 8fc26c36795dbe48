# `make help` lists the tasks. PYTHON is any Python from 3.11 to 3.13.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CRASH := fixtures/dumps/gpu-jax0.10.0/cublaslt_fission_crash
# Texts of jax 0.11 are also held against jaxlib 0.11.2, which needs Python 3.12 or later.
PYTHON_OF_XLA ?= $(shell for p in python3.12 python3.13 \
	$$(ls -d $$(pyenv root 2>/dev/null)/versions/3.1[23].*/bin/python3 2>/dev/null); \
	do $$p -c '' 2>/dev/null && echo $$p && break; done)
ORACLE := .venv-xla0.11
# XLA's GPU compilers, which need no GPU; made as `hlo-lint capture --jax` makes them.
RELEASES := .venv-releases
MAKE_RELEASE := from sys import argv; from hlo_lint.apps.jax.capture.environments import environment_of; environment_of(argv[1])

.PHONY: help demo test check corpus corpora bench docs clean

help:  ## list the tasks
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/hlo-lint: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(ORACLE)/installed: Makefile
ifneq ($(PYTHON_OF_XLA),)
	$(PYTHON_OF_XLA) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check jaxlib==0.11.2 click rich lark networkx pathspec
else
	@echo 'no Python 3.12: texts of jax 0.11 are not held against jaxlib 0.11.2'
	mkdir -p $(ORACLE)
endif
	@touch $@

$(RELEASES)/made: $(BIN)/hlo-lint hlo_lint/apps/jax/capture/environments.py
	@for release in 0.10.0 0.11.2; do \
		XDG_CACHE_HOME=$(CURDIR)/$(RELEASES) $(BIN)/python -c '$(MAKE_RELEASE)' $$release \
		|| echo "what needs the GPU compiler of jax $$release is not tested"; \
	done
	@mkdir -p $(RELEASES) && touch $@

demo: $(BIN)/hlo-lint  ## lint, fix and lint again the dump of a real XLA crash
	@sh fixtures/programs/demo.sh $(BIN)/hlo-lint $(CRASH)

test: $(BIN)/hlo-lint $(ORACLE)/installed $(RELEASES)/made  ## everything a change must pass: ruff, mypy --strict, pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) \
	HLO_LINT_RELEASES=$(CURDIR)/$(RELEASES) \
		$(BIN)/python -m pytest -q

check: test

docs: $(BIN)/hlo-lint  ## write what is generated in docs/, run what its pages show, build the site: build/site/index.html
	$(BIN)/python -m tests.docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site

corpus: $(BIN)/hlo-lint $(ORACLE)/installed  ## check and convert every dump of ARCHIVES, hold them and DUMPS against XLA; change them; writes benchmarks/CORPUS.md, CONVERT.md, MUTATIONS.md, AGREEMENT.md
	$(BIN)/python -m benchmarks.corpus $(ARCHIVES)
	HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) \
		$(BIN)/python -m benchmarks.convert $(ARCHIVES)
	HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) \
		$(BIN)/python -m benchmarks.mutations fixtures/dumps $(ARCHIVES)
	HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) $(BIN)/python -m benchmarks.agreement \
		--state $(VENV)/agreement.jsonl --archives $(ARCHIVES) $(DUMPS)

corpora: $(BIN)/hlo-lint  ## check the texts of CORPORA, which others wrote; writes benchmarks/CORPORA.md
	$(BIN)/python -m benchmarks.corpora $(CORPORA)

bench: $(BIN)/hlo-lint $(ORACLE)/installed  ## speed and memory beside XLA's parser on DUMP, and BIG; writes benchmarks/RESULTS.md
	$$(ls $(ORACLE)/bin/python $(BIN)/python 2>/dev/null | head -n 1) -m benchmarks.bench $(DUMP) $(addprefix --big=,$(BIG))

clean:  ## remove the environments
	rm -rf $(VENV) $(ORACLE) $(RELEASES)
