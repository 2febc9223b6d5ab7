"""What holds for every test: the same examples on every run, and where the other libraries are found."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from trees import built_once, copy_of

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # peers.py


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """Return what trees.built_once has built, one for all test processes; copy it before changing anything."""
    base = tmp_path_factory.getbasetemp()
    return built_once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def tree(built, tmp_path) -> Path:
    """Return a built checkout of the test's own."""
    return copy_of(built, tmp_path / "home")
