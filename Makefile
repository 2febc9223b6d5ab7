# Every target sets itself up: an environment in .venv, from the one lock file.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help reproduce quick real figures report plots test test-all chaos bench lint lock clean
help:
	@echo "make reproduce   every figure and table, versioned by DVC (results/)"
	@echo "make quick       an experiment of each section, and a picture of their regrets"
	@echo "make real        what is on request: real language models play and learn, in hours; their files must be in models/ (docs/language.md)"
	@echo "make figures     the figures alone"
	@echo "make report      the report: all figures and tables beside the paper's claims (results/report.html)"
	@echo "make plots       training curves and figures as a page (plots/)"
	@echo "make test        the tests, but for those that take half a minute or more"
	@echo "make test-all    all tests: builds are killed, reverted, pulled and sent to a cluster too"
	@echo "make chaos       more kills at random moments, more mutated parameters and command lines than make test-all has"
	@echo "make bench       speed beside other libraries and beside limits; the results go to docs/performance.md"
	@echo "make lint        format and lint, as in CI"

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" \
	    || { echo "rmft needs Python 3.11 or newer; say which with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --quiet --disable-pip-version-check -r requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

reproduce: $(VENV)/.ready
	snakemake
	@echo "Everything is built, and DVC adopts it."
	rmft prune
	dvc repro --quiet --single-item parameters provenance
	dvc commit --quiet --force
	@echo "Figures: results/figures. Tables beside the paper's values: results/tables. Nothing is to be done twice:"
	@echo "run 'make reproduce' again, or edit params.yaml first."

quick: $(VENV)/.ready
	snakemake quick
	rmft results --plot plots/quick.png

real: $(VENV)/.ready
	snakemake on_request

figures: $(VENV)/.ready
	snakemake figures

report: $(VENV)/.ready
	snakemake report

plots: $(VENV)/.ready
	rmft plots

test: $(VENV)/.ready
	pytest -n auto --dist loadgroup --no-loadscope-reorder -m "not long"

test-all: $(VENV)/.ready
	pytest -n auto --dist loadgroup --no-loadscope-reorder

chaos: $(VENV)/.ready
	RMFT_KILLS=$${RMFT_KILLS:-16} pytest tests/test_chaos.py
	RMFT_MUTATIONS=$${RMFT_MUTATIONS:-1000} pytest tests/test_fuzz.py

bench: $(VENV)/.ready
	python benchmarks/record.py
	[ ! -d .snakemake/metadata ] || python benchmarks/record.py overhead

lint: $(VENV)/.ready
	ruff format --check
	ruff check
	snakefmt --check Snakefile workflow
	snakemake --lint
	rmft paper-map --check
	rmft forensics --only check

lock: $(VENV)/.ready
	cp requirements.lock requirements.lock.new 2> /dev/null || true  # what it pins stays; delete requirements.lock first to move everything
	uv pip compile pyproject.toml --extra dev --extra bench --extra gguf --extra workflow --universal --python-version 3.11 --fork-strategy fewest \
	    --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock.new > /dev/null
	grep -v -E '^(nvidia-|triton|cuda-)' requirements.lock.new | sed -E 's/^(torch==[0-9.]+).*/\1/' | uniq > requirements.lock
	rm requirements.lock.new

clean:
	rm -rf $(VENV)
