# `make quickstart` and `make test` each set up everything on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# XGBoost's CPU build unless a GPU is found: the GPU build installs several hundred MB of NCCL
XGB    := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
# one process more than cores, at most 4, as some tests wait; each takes its tests in order, so that few
# fixtures are made twice
WORKERS = $(shell $(BIN)/python -c \
  'from manyseed.slurm.local import available_cores; print(min(4, 1 + available_cores()))')
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 10

.PHONY: quickstart test test-slow lint format docs release bench storm clean

quickstart: $(VENV)/.installed-run
	$(BIN)/manyseed run examples/quickstart.toml --cluster local

test: $(VENV)/.installed-dev browser slurm
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.installed-dev browser slurm
	$(PYTEST) --timeout 1200 -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site, in site/, without network access; a broken link is an error.
docs: $(VENV)/.installed-dev
	$(BIN)/sphinx-build -q -W --keep-going -c docs . site

# Version, changelog, wheel, commit and tag: make release VERSION=0.2.0 (ARGS=--dry-run to rehearse).
release: $(VENV)/.installed-dev
	$(BIN)/python .ci/release $(VERSION) $(ARGS)

bench: $(VENV)/.installed-run
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(XGB),bench]'
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench --quick || exit 1; done

# Half an hour of faults; STORM='--seed 2 --minutes 5' runs another storm.
storm: $(VENV)/.installed-run slurm
	$(BIN)/python -m benchmarks.storm $(STORM)

# The report is tested in a real browser.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 || { echo "The tests need a browser: sudo apt-get install chromium"; exit 1; }; \
	  apt-get update -q && apt-get install -qy --no-install-recommends chromium; }

# Submission is tested on a real SLURM, which the tests start and stop themselves.
SLURM := slurm-wlm munge slurmdbd mariadb-server
.PHONY: slurm
slurm:
	@PATH="$$PATH:/usr/sbin"; for program in slurmctld slurmd munged slurmdbd mariadbd; do \
	  command -v $$program >/dev/null || missing=1; done; test -z "$$missing" || { \
	  test "$$(id -u)" = 0 || { \
	    echo "The tests need SLURM: sudo apt-get install --no-install-recommends $(SLURM)"; exit 1; }; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -qy --no-install-recommends $(SLURM); }

# An environment made with another Python than the requested one is refused.
BASE := -c 'import sys; print(sys.base_prefix, *sys.version_info[:3])'
.PHONY: python
python:
	@test "$(origin PYTHON)" = file || test ! -x $(BIN)/python || { \
	  asked=$$($(PYTHON) $(BASE)) && there=$$($(BIN)/python $(BASE)) || exit 1; \
	  test "$$asked" = "$$there" || { \
	    echo "$(VENV) was made with another Python ($$there) than $(PYTHON): remove it first"; exit 1; }; }

# pip compiles what it installs, but not an editable installation; compileall follows no links
COMPILE := $(BIN)/python -m compileall -q src/manyseed/*.py \
  src/manyseed/analysis src/manyseed/jobs src/manyseed/orchestrator src/manyseed/slurm

$(VENV)/.installed-run: pyproject.toml constraints.txt | python
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(XGB)]'
	$(COMPILE)
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-run
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(XGB),test,lint]'
	touch $@

clean:
	rm -rf $(VENV) quickstart .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
