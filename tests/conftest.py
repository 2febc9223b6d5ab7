"""What holds for every test: the same examples on every run, where other libraries are found, how `rmft` is called."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")  # there are more test processes than cores already

import pytest
from hypothesis import settings
from trees import built_once, copy_of
from upstream import Upstream

from rmft.cli import main

if TYPE_CHECKING:
    from endpoint_servers import Server
    from playwright.sync_api import Browser

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable")

sys.path += [str(Path(__file__).parents[1] / "benchmarks"), str(Path(__file__).parents[1])]  # peers.py, and chaos


def pytest_xdist_auto_num_workers() -> int:
    """Return a process more than there are cores: some tests wait for a cluster, or for processes to end."""
    return os.cpu_count() + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes minutes, so that no process is left alone with it at the end.

    One test that needs the built tree comes before all others, so that one process builds the tree meanwhile, and
    those that need it come last, so that nobody waits for it.
    RMFT_LONG=k/n leaves out the long tests but for every n-th, and for those of faults: CI has no time for all.
    """
    if share := os.environ.get("RMFT_LONG"):
        turn, of = map(int, share.split("/"))
        long = [item for item in items if item.get_closest_marker("long") and item.path.name != "test_chaos.py"]
        left_out = {*long} - {*long[turn::of]}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    alone = (item for item in items if "built" in item.fixturenames and not item.get_closest_marker("xdist_group"))
    builds = next(alone, None)
    items.sort(key=lambda item: (item is not builds, not item.get_closest_marker("long"), "built" in item.fixturenames))


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """Return what trees.built_once has built, one for all test processes; copy it before changing anything.

    Whoever writes tests of built trees keeps one from run to run in the folder RMFT_BUILT, and deletes it at need.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return built_once(Path(os.environ.get("RMFT_BUILT", shared)))


@pytest.fixture
def tree(built, tmp_path) -> Path:
    """Return a built checkout of the test's own."""
    return copy_of(built, tmp_path / "home")


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator["Server"]:
    """Return our own endpoint, one for all tests of this process, since starting one takes long."""
    from endpoint_servers import Server

    with Server(tmp_path_factory.mktemp("endpoint") / "state") as one:
        yield one


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Return an endpoint whose responses depend on the request alone."""
    with Upstream() as endpoint:
        yield endpoint


@pytest.fixture
def journal(tmp_path) -> Path:
    """Return the path of a journal that does not exist yet."""
    return tmp_path / "journal.jsonl.zst"


@pytest.fixture
def rmft(monkeypatch, capsys):
    """Return a function that runs `rmft` and gives exit code, output and error output."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rmft", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return (stop.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Return a headless Chromium."""
    from playwright.sync_api import sync_playwright

    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("there is no Chromium here; apt-get install chromium")
    quiet = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-sync", *quiet.split()]
        )
        yield started
        started.close()
