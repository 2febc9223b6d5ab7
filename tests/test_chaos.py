"""What is killed at any moment, loses its power, or finds no room to write, loses nothing and leaves nothing stale.

How many kills: RMFT_KILLS. `make chaos` does many more.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from trees import copy_of, digests, done, run, set_value, snakemake

from chaos import kills, power_cuts

KILLS = int(os.environ.get("RMFT_KILLS", "4"))

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.long]


def test_after_kills_the_next_run_gives_the_bytes_of_an_undisturbed_one(built):
    """Only this test kills a job, an engine or all at any moment, twice over."""
    counts = kills.run(KILLS, 0, built)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.total() == KILLS


def test_a_journal_that_loses_what_was_not_synced_has_every_response_that_was_used():
    counts = power_cuts.cut_journals(20, 0)
    assert not counts.failures, "\n".join(counts.failures)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of a few megabytes; skip the test where that is not allowed."""
    folder.mkdir()
    if not shutil.which("mount"):
        pytest.skip("no mount here")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_with_the_reason_and_loses_nothing(built, tmp_path):
    """Only this test lets a job run out of room in the middle of a file."""
    megabytes = sum(path.lstat().st_size for path in built.rglob("*")) // 1_000_000
    with small_disk(tmp_path / "disk", 2 * megabytes + 20) as disk:
        tree = copy_of(built, disk / "home")
        before, params = digests(tree), (tree / "params.yaml").read_bytes()
        set_value(tree, "rewards.gamma.instances", 1600)  # four times the bytes
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
        os.truncate(filler, filler.stat().st_size - 100_000)
        stopped = run(tree, "snakemake", "--cores", "1")
        assert stopped.returncode != 0
        assert "rmft: data/rewards/gamma.npz: cannot be written: No space left on device" in stopped.stdout
        after = digests(tree)
        assert before.items() - after.items() == {("data/rewards/gamma.npz", before["data/rewards/gamma.npz"])}
        assert after.items() <= before.items()
        filler.unlink()
        (tree / "params.yaml").write_bytes(params)
        snakemake(tree)
        assert digests(tree) == before


def bound_by_permissions(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that the permissions of files bind, even as root."""
    without = "-dac_override,-dac_read_search"
    drop = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"] if os.geteuid() == 0 else []
    return run(tree, *drop, *command)


def test_a_read_only_folder_stops_with_the_reason_and_loses_nothing(tree):
    """Only this test takes away the right to write results."""
    before, folder = digests(tree), tree / "results/experiments/numeric_mixture"
    kills.set_state(tree, "numeric")
    for what, reason in (
        ((), "rmft: results/experiments/numeric_mixture/iteration-0: Permission denied; jobs have to write there"),
        (("--recursive",), "Write-protected output files"),
    ):
        done(tree, "chmod", *what, "a-w", str(folder), str(folder / "iteration-0"))
        stopped = bound_by_permissions(tree, "snakemake", "--cores", "1")
        assert stopped.returncode != 0
        assert reason in stopped.stdout + stopped.stderr
        assert digests(tree) == before
