# `make help` lists the tasks. PYTHON is any Python from 3.11 to 3.14, VENV its environment:
# `make test PYTHON=python3.13 VENV=.venv-3.13`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# The file that pins what the tests use, and the releases of jaxlib that need own environments.
PINS := tests/constraints.txt
PARSER := $(shell sed -n 's/^\#: parser //p' $(PINS))
COMPILERS := $(shell sed -n 's/^\#: gpu-compiler //p' $(PINS))
TPU_COMPILERS := $(shell sed -n 's/^\#: tpu-compiler //p' $(PINS))
# jaxlib 0.11 needs Python 3.12 or later.
PYTHON_OF_XLA ?= $(shell for p in python3.12 python3.13 python3.14 \
	$$(ls -d $$(pyenv root 2>/dev/null)/versions/3.1[234].*/bin/python3 2>/dev/null); \
	do $$p -c '' 2>/dev/null && echo $$p && break; done)
ORACLE := .venv-xla
# XLA's compilers for GPUs and TPUs, which need no chip; made as `hlo-lint capture --jax` makes them.
RELEASES := .venv-releases
MAKE_RELEASE := from sys import argv; from hlo_lint.xla.environments import Platform, environment_of; environment_of(argv[1], platform=Platform[argv[2]])
WITH_ORACLES = HLO_LINT_ORACLES=$$(ls $(CURDIR)/$(ORACLE)/bin/python 2>/dev/null) \
	HLO_LINT_RELEASES=$(CURDIR)/$(RELEASES)

.PHONY: help demo check lint types unit test test-latest test-lowest dist new-rule release docs images extension corpus values fuzz hostile corpora replay bench kills faults clean

help:  ## list the tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

# Environments are made in steps, so that each task installs what it needs and no more.

$(BIN)/hlo-lint: pyproject.toml hunt/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --editable . --editable ./hunt
	@touch $@

$(VENV)/tools: $(PINS) $(BIN)/hlo-lint
	$(BIN)/python $(PIP_INSTALL) --constraint $(PINS) --editable '.[test]' --editable ./hunt
	@touch $@

$(ORACLE)/installed: $(PINS)
ifneq ($(PYTHON_OF_XLA),)
	$(PYTHON_OF_XLA) -m venv $(ORACLE)
	$(ORACLE)/bin/python $(PIP_INSTALL) jaxlib==$(PARSER) click rich lark networkx pathspec
else
	@echo 'no Python 3.12: texts of jax $(PARSER) are not compared with jaxlib $(PARSER)'
	mkdir -p $(ORACLE)
endif
	@touch $@

$(RELEASES)/made: $(PINS) hlo_lint/xla/environments.py | $(VENV)/tools
	@for release in $(COMPILERS); do \
		XDG_CACHE_HOME=$(CURDIR)/$(RELEASES) $(BIN)/python -c '$(MAKE_RELEASE)' $$release GPU \
		|| echo "tests that need the GPU compiler of jax $$release are skipped"; \
	done
	@for release in $(TPU_COMPILERS); do \
		XDG_CACHE_HOME=$(CURDIR)/$(RELEASES) $(BIN)/python -c '$(MAKE_RELEASE)' $$release TPU \
		|| echo "tests that need the TPU compiler of jax $$release are skipped"; \
	done
	@mkdir -p $(RELEASES) && touch $@

demo: $(BIN)/hlo-lint  ## lint, fix and lint again the dump of a real XLA crash
	@sh fixtures/programs/demo.sh $(BIN)/hlo-lint fixtures/dumps/gpu-jax0.10.0/cublaslt_fission_crash

check: $(VENV)/tools  ## the fast lane, before each commit: ruff, mypy --strict, the tests that are not slow
	@$(MAKE) --no-print-directory -j 2 lint types unit

lint: $(VENV)/tools
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: $(VENV)/tools
	@$(BIN)/mypy

unit: $(VENV)/tools
	@$(BIN)/python -m pytest -q -m 'not slow' -n 2

test: lint types $(ORACLE)/installed $(RELEASES)/made  ## all that a change must pass: ruff, mypy --strict, every test, XLA as the judge
	$(WITH_ORACLES) $(BIN)/python -m pytest -q -n auto

test-latest:  ## the same tests with the newest release of everything; may fail where `make test` does not
	$(PYTHON) -m venv .venv-latest
	.venv-latest/bin/python $(PIP_INSTALL) --upgrade --editable '.[test]' --editable ./hunt
	.venv-latest/bin/python -m pytest -q -n auto

test-lowest:  ## the fast tests with the oldest release of everything that pyproject.toml allows
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python $(PIP_INSTALL) uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[test]' --editable ./hunt
	.venv-lowest/bin/python -m pytest -q -m 'not slow' -n auto

dist: $(VENV)/tools  ## wheels and sdists of hlo-lint and hlo-lint-hunt, the same bytes from the same commit, and the SBOM of what hlo-lint installs: dist/
	rm -rf dist build/sbom
	for project in . ./hunt; do \
		SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build --no-isolation --outdir dist $$project || exit; \
	done
	$(PYTHON) -m venv build/sbom/tool && build/sbom/tool/bin/python $(PIP_INSTALL) --constraint $(PINS) cyclonedx-bom
	$(PYTHON) -m venv build/sbom/env && build/sbom/env/bin/python $(PIP_INSTALL) dist/hlo_lint-*.whl
	build/sbom/tool/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --mc-type application -o dist/hlo-lint.cdx.json build/sbom/env/bin/python

new-rule: $(BIN)/hlo-lint  ## begin a rule, with an example that is red: make new-rule NAME=my-rule FAMILY=layout
	@$(BIN)/hlo-lint new-rule $(NAME) --family $(FAMILY)

release: $(VENV)/tools  ## make the dumps and pass lists of a new release of jax, ask its parser, print what differs: make release JAX=0.13.0
	@XDG_CACHE_HOME=$(CURDIR)/$(RELEASES) $(BIN)/python -m tests.release $(JAX)

docs: $(VENV)/tools  ## write what is generated in docs/, run what its pages show, build the site: build/site/index.html
	$(BIN)/python -m tests.docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site

images: $(VENV)/tools  ## draw the pictures of the docs from the real report, with Chromium
	$(BIN)/python -m tests.images

extension:  ## build the extension for VS Code: build/hlo-lint.vsix (needs npm)
	@rm -rf build/vscode && mkdir -p build && cp -r editors/vscode build/vscode
	@cd build/vscode && npm install --no-audit --no-fund --silent && npm run --silent package
	@mv build/vscode/hlo-lint.vsix build/ && rm -rf build/vscode

corpus: $(VENV)/tools $(ORACLE)/installed  ## check every dump of ARCHIVES, compare them and DUMPS with XLA; change them; writes benchmarks/*.md
	$(BIN)/python -m benchmarks.corpus $(ARCHIVES)
	$(BIN)/python -m benchmarks.proof $(ARCHIVES)
	$(WITH_ORACLES) $(BIN)/python -m benchmarks.mutations fixtures/dumps $(ARCHIVES)
	$(WITH_ORACLES) $(BIN)/python -m benchmarks.agreement \
		--state $(VENV)/agreement.jsonl --archives $(ARCHIVES) $(DUMPS)

values: $(BIN)/hlo-lint  ## run every step of the dumps of ARCHIVES, then errors and rewrites that are planted in them and in CORPORA; writes benchmarks/VALUES.md, PLANTED.md
	$(BIN)/python -m benchmarks.values --archives $(ARCHIVES) $(wildcard fixtures/dumps/*)
	$(BIN)/python -m benchmarks.planted --seed 26 --archives $(ARCHIVES) $(addprefix --corpora=,$(CORPORA)) $(wildcard fixtures/dumps/*)

fuzz: $(VENV)/tools  ## fuzz each change of each example, FUZZ_GRAPHS (5000) mutated graphs, FUZZ_STEPS (5000) mutated steps, every target by bytes for FUZZ_SECONDS (60); what was found is in build
	$(BIN)/python $(PIP_INSTALL) --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz.graphs --every
	$(BIN)/python -m tests.fuzz.graphs --count $(or $(FUZZ_GRAPHS),5000) fixtures
	$(BIN)/python -m tests.fuzz.steps --count $(or $(FUZZ_STEPS),5000)
	$(BIN)/python -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),60) --cases $(or $(FUZZ_CASES),300) $(addprefix --output ,$(FUZZ_OUTPUT))

hostile: $(VENV)/tools  ## time and memory of hostile inputs; writes benchmarks/HOSTILE.md
	$(BIN)/python -m tests.hostile

corpora: $(BIN)/hlo-lint  ## check the texts of CORPORA, which others wrote; writes benchmarks/CORPORA.md
	$(BIN)/python -m benchmarks.corpora $(CORPORA)

replay: $(BIN)/hlo-lint  ## run the bugs of COMMITS (JSON lines with diffs) on the releases before and after them; writes benchmarks/REPLAY.md
	$(BIN)/python -m benchmarks.replay $(COMMITS)

bench: $(VENV)/tools $(ORACLE)/installed $(RELEASES)/made  ## what commands cost beside compiles and beside XLA's parser: half an hour on 2 cores; a run that was stopped goes on; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.bench build/bench --parser $(ORACLE)/bin/python $(addprefix --target=,$(TARGETS)) $(addprefix --program=,$(PROGRAMS))

faults: $(BIN)/hlo-lint  ## kill -9 of `fix` at 1,000 moments; writes benchmarks/FAULTS.md
	$(BIN)/python -m benchmarks.faults --trials 1000

kills: $(VENV)/tools  ## kill 500 runs while they write the cache: none may leave a wrong finding
	HLO_LINT_KILLS=500 $(BIN)/python -m pytest -q --timeout 0 tests/engine/cache -k killed

clean:  ## remove the environments
	rm -rf $(VENV) .venv-latest .venv-lowest $(ORACLE) $(RELEASES)
