#!/usr/bin/env bash
# Snakemake runs this inside the new conda environment: the one lock file, then rmft itself. It makes that environment anew
# where this script has changed, and so with the lock file, whose SHA-256 `make lock` writes here:
# ca0f4e724be981749f128a38a7fb3f0156229488b070cf804bc1f85de6cc920e
set -euo pipefail
pip install --quiet -r requirements.lock
pip install --quiet --no-deps --no-build-isolation -e .
