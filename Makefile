# Every target makes .venv on first use and installs what it needs, at the versions in constraints.txt.

PYTHON      ?= python3
PYTEST_ARGS ?=
# One process per core; the tests of a file stay together, because they share what they train, and files in their order.
PARALLEL    ?= -n auto --dist loadfile --no-loadscope-reorder
VENV        := .venv
BIN         := $(VENV)/bin
# Python compiles modules when they are first imported, which is a small part of what the packages hold, and keeps them.
export PYTHONDONTWRITEBYTECODE :=
PIP         := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt
# Runs a command and shows what it prints only if it fails, then all of it. pip warns about each archive on some machines.
quietly = @said=$$($(1) 2>&1) || { status=$$?; printf '%s\n' "$$said" >&2; exit $$status; }

# What each target installs besides the library, as extras of pyproject.toml; and which ones need the laboratory too.
EXTRAS_demo  := [cli]
EXTRAS_test  := [test]
EXTRAS_coverage := [test]
EXTRAS_check := [dev]
EXTRAS_docs  := [docs]
EXTRAS_bench :=
EXTRAS_integrations := [lightning,mlflow,ray,tensorboard,test,transformers]
LAB_test     := yes
LAB_coverage := yes
LAB_check    := yes
LAB_docs     := yes
LAB_bench    := yes
LAB_integrations := yes

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo data test test-lab coverage check check-code check-docs docs bench integrations format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo  ## tell four stories on data of scikit-learn, and write the report to demo/
	$(BIN)/selbo demo --out demo

data: $(VENV)/.installed-test  ## make real data present for the tests, in .data/
	@.ci/data

# Every core has a process already: more threads in each would only wait for one another.
test test-lab coverage: export OMP_NUM_THREADS ?= 1
# torch's compiler writes code without vector instructions, which takes it half of the time.
test test-lab coverage: export TORCHINDUCTOR_VEC_ISA_OK ?= 0

# What a change of the library should pass, in minutes: its unit tests and properties, and a smoke ring of the laboratory.
# Coverage makes tests half as long again. So it is measured where it is a condition, in summary/, by the tests of it. What
# trains, simulates or compiles for seconds belongs to the slow ring, whose tests run once, under a random seed: the
# folders of SLOW, and tests elsewhere that are marked `slow`.
SMOKE := lab/tests/unit/studies lab/tests/unit/cli
SLOW := tests/end_to_end tests/statistical tests/test_examples.py tests/test_site.py
# Files of a minute or so, which would leave one core idle if they came last.
LONG := tests/end_to_end tests/test_examples.py lab/tests/end_to_end lab/tests/unit/schedule
MEASURED := tests/unit/summary

test: $(VENV)/.installed-test  ## run the library's unit tests and a smoke ring of the laboratory
	@rm -f .coverage .coverage.*
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow' --measure=selbo.summary=$(MEASURED) src tests $(SMOKE) $(patsubst %,--ignore=%,$(SLOW)) $(PYTEST_ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --include='src/selbo/summary/*' --fail-under=95

# Under a seed that is another one each time; of the tests that `make test` runs with seed 0, those that take one; and
# those that it leaves out.
test-lab: $(VENV)/.installed-test  ## run the other tests, and those that draw random numbers with a random seed: end to end, examples, the laboratory
	@seed=$${SELBO_TEST_SEEDS:-$$($(BIN)/python -c 'import random; print(random.randint(1, 99))')}; \
	echo "With a random seed. To repeat this run: make test-lab SELBO_TEST_SEEDS=$$seed"; \
	SELBO_TEST_SEEDS=$$seed $(BIN)/python -m pytest $(PARALLEL) $(SLOW) lab/src lab/tests tests/unit \
	    $(patsubst %,--first=%,$(LONG)) $(patsubst %,--only-stochastic=%,tests/unit $(SMOKE)) $(PYTEST_ARGS)

coverage: $(VENV)/.installed-coverage  ## run all tests and say which lines of the library they miss
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term $(PYTEST_ARGS)

check: $(VENV)/.installed-check  ## check format, lint, types, and that the documentation builds without a warning
	@$(MAKE) --no-print-directory --jobs=2 check-code check-docs

check-code: $(VENV)/.installed-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-docs: $(VENV)/.installed-check
	@echo "$(BIN)/python docs/tools/build.py"
	$(call quietly,$(BIN)/python docs/tools/build.py)

docs: $(VENV)/.installed-docs  ## build the documentation into site/, with notebooks
	$(call quietly,$(BIN)/python docs/tools/build.py --notebooks)
	@echo "Open site/index.html in a browser."

bench: $(VENV)/.installed-bench  ## run every script in benchmarks/
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

integrations: $(VENV)/.installed-integrations  ## test with Lightning, transformers, Ray, MLflow and TensorBoard themselves
	$(BIN)/python -m pytest tests/unit/integrations tests/end_to_end/test_adapted_processes.py tests/end_to_end/test_ray.py tests/test_examples.py $(PYTEST_ARGS)

format: $(VENV)/.installed-format  ## format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove everything made here, except .venv
	rm -rf site demo build dist htmlcov .coverage .coverage.* .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find src tests lab docs examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- installation: one stamp per target, newer than both pyproject.toml and constraints.txt ---

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "selbo needs Python 3.10 or newer, but '$(PYTHON)' is not: choose another with 'make PYTHON=python3.12 ...'."; exit 1; } >&2
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.build-tools: $(VENV)/.created pyproject.toml lab/pyproject.toml constraints.txt
	$(call quietly,$(PIP) hatchling editables)
	@touch $@

$(VENV)/.installed-format: $(VENV)/.created constraints.txt
	$(call quietly,$(PIP) ruff)
	@touch $@

# `make check` installs everything that these need, so after it there is nothing left to install.
ifneq ($(wildcard $(VENV)/.installed-check),)
$(foreach name,test coverage docs demo bench,$(VENV)/.installed-$(name)): $(VENV)/.installed-check
	@touch $@
endif

$(VENV)/.installed-%: $(VENV)/.build-tools
	@echo "Installing selbo$(EXTRAS_$*) into $(VENV), once; the first time takes a few minutes ..."
	$(call quietly,$(PIP) --no-build-isolation -e '.$(EXTRAS_$*)')
	$(if $(LAB_$*),$(call quietly,$(PIP) --no-build-isolation -e ./lab))
	@touch $@
