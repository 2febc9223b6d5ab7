# Every target sets itself up: an environment in .venv, from the one lock file.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help reproduce quick real figures report plots site test test-long test-all chaos audit bench lint lock clean
help:
	@echo "make reproduce   every figure and table, versioned by DVC (results/); deletes artifacts that params.yaml no longer asks for"
	@echo "make quick       an experiment of each section, and a picture of their regrets"
	@echo "make real        experiments that are built only when you ask: real language models, half a day or more; their files must be in models/ (docs/language.md)"
	@echo "make figures     only the figures"
	@echo "make report      the report: all figures and tables beside the paper's claims (results/report.html)"
	@echo "make plots       training curves and figures as a page (plots/)"
	@echo "make site        the docs with search and a Python reference as a site, its links checked (site/index.html)"
	@echo "make test        the tests, but for the long ones"
	@echo "make test-long   the long ones: they kill builds, restore results with DVC and submit Slurm jobs"
	@echo "make test-all    all tests, for half an hour or more"
	@echo "make chaos       randomised fault injection, for hours: kills, damaged files, hostile text and clients; the counts go to docs/reliability.md"
	@echo "make audit       known vulnerabilities of the libraries in the lock (needs the network)"
	@echo "make bench       speed beside other libraries and beside limits; the results go to docs/performance.md"
	@echo "make lint        format and lint, as in CI"

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" \
	    || { echo "rmft needs Python 3.11 or newer; say which with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the libraries of requirements.lock into $(VENV), once: some minutes"
	$(VENV)/bin/pip install --quiet --quiet --disable-pip-version-check --no-compile -r requirements.lock
	@$(VENV)/bin/python -m compileall -q -j 0 $(VENV)/lib > /dev/null || true  # on all cores, where pip takes one; some files are templates
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
	snakemake first
	rmft results --plot plots/quick.png
	@echo "The picture will be drawn again with experiments of the other sections, which are built now."
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

site: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 mkdocs build
	@echo "Open site/index.html; no server is needed."

test: $(VENV)/.ready
	pytest -n auto --dist loadgroup --no-loadscope-reorder -m "not long"

test-long: $(VENV)/.ready
	pytest -n auto --dist loadgroup --no-loadscope-reorder -m long

test-all: $(VENV)/.ready
	pytest -n auto --dist loadgroup --no-loadscope-reorder

chaos: $(VENV)/.ready  # hours; one check with `python -m chaos NAME`, docs/reliability.md
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --editable ".[chaos]"
	python -m chaos

audit: $(VENV)/.ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --editable ".[chaos]"
	pip-audit --requirement requirements.lock --no-deps --disable-pip --strict

bench: $(VENV)/.ready
	python benchmarks/record.py
	[ ! -d .snakemake/metadata ] || python benchmarks/record.py build overhead

lint: $(VENV)/.ready
	ruff format --check
	ruff check
	snakefmt --check Snakefile workflow
	snakemake --lint
	rmft paper-map --check
	rmft forensics --only check

lock: $(VENV)/.ready
	[ -n "$(ALL)" ] || cp requirements.lock requirements.lock.new  # what it pins stays, but with `make lock ALL=1`
	uv pip compile pyproject.toml --extra dev --extra docs --extra bench --extra gguf --extra workflow --universal --python-version 3.11 --fork-strategy fewest \
	    --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock.new > /dev/null
	grep -v -E '^(nvidia-|triton|cuda-)' requirements.lock.new | sed -E 's/^(torch==[0-9.]+).*/\1/' | uniq > requirements.lock.whole
	rm requirements.lock.new
	mv requirements.lock.whole requirements.lock
	hash=$$(sha256sum requirements.lock | cut --bytes 1-64) && sed -i -E "s/^# [0-9a-f]{64}$$/# $$hash/" workflow/envs/rmft.post-deploy.sh

clean:
	rm -rf $(VENV)
