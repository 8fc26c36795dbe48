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
# The release whose XLA:GPU dies where later ones do not.
OLDER := .venv-xla0.10
# XLA's GPU compiler, which needs no GPU; there are wheels for Linux alone.
gpu_compiler = $(if $(filter Linux,$(shell uname -s)),jax-cuda12-plugin==$(1) jax-cuda12-pjrt==$(1))

.PHONY: help demo test check corpus bench docs clean

help:  ## list the tasks
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/hlo-lint: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(ORACLE)/installed: Makefile
ifneq ($(PYTHON_OF_XLA),)
	$(PYTHON_OF_XLA) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check \
		jax==0.11.2 jaxlib==0.11.2 $(call gpu_compiler,0.11.2) click rich lark networkx pathspec
else
	@echo 'no Python 3.12: texts of jax 0.11 are not held against jaxlib 0.11.2'
	mkdir -p $(ORACLE)
endif
	@touch $@

$(OLDER)/installed: Makefile
	$(PYTHON) -m venv $(OLDER)
	$(OLDER)/bin/python -m pip install --quiet --disable-pip-version-check \
		jax==0.10.0 jaxlib==0.10.0 $(call gpu_compiler,0.10.0)
	@touch $@

demo: $(BIN)/hlo-lint  ## lint, fix and lint again the dump of a real XLA crash
	@sh fixtures/programs/demo.sh $(BIN)/hlo-lint $(CRASH)

test: $(BIN)/hlo-lint $(ORACLE)/installed $(OLDER)/installed  ## everything a change must pass: ruff, mypy --strict, pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) \
	HLO_LINT_GPU_PYTHONS=$(CURDIR)/$(OLDER)/bin/python:$(CURDIR)/$(ORACLE)/bin/python \
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

bench: $(BIN)/hlo-lint $(ORACLE)/installed  ## speed and memory beside XLA's parser on DUMP, and BIG; writes benchmarks/RESULTS.md
	$$(ls $(ORACLE)/bin/python $(BIN)/python 2>/dev/null | head -n 1) -m benchmarks.bench $(DUMP) $(addprefix --big=,$(BIG))

clean:  ## remove the environments
	rm -rf $(VENV) $(ORACLE) $(OLDER)
