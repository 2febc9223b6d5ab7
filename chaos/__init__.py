"""Harm, at random and in numbers: what happens to a build, a file, a reader or a server when something goes wrong.

A module for each kind of harm, each with a function `run(size, seed)` that returns counts of the outcomes; `python -m
chaos` runs them, keeps the counts in chaos/results and renders docs/reliability.md from them. The tests run the same
functions with few cases.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # trees.py
