"""What holds for every test: the same examples on every run, and where the other libraries are found."""

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # peers.py
