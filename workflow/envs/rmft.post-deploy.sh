#!/usr/bin/env bash
# Snakemake runs this inside the new conda environment: the one lock file, then rmft itself.
set -euo pipefail
pip install --quiet -r requirements.lock
pip install --quiet --no-deps --no-build-isolation -e .
