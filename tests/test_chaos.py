"""What is killed at any moment, or finds no room to write, loses nothing and leaves nothing stale.

How many kills: RMFT_KILLS. `make test-all` does a few, `make chaos` 16.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from trees import copy_of, digests, done, environment, run, set_value, snakemake

KILLS = int(os.environ.get("RMFT_KILLS", "4"))
LONGEST_SECONDS = 5.0  # about what the build takes that is killed
STATES = {  # two sets of parameters, between which rounds change
    "as built": {},
    "edited": {"experiments.numeric_mixture.rmft.selected": 2},
}
ENGINES = {"snakemake": ["snakemake", "--cores", "2"], "dvc": ["dvc", "repro"]}

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.long]


@pytest.fixture(scope="module")
def undisturbed(built, tmp_path_factory) -> tuple[Path, dict[str, dict[str, str]]]:
    """Return a checkout, and the bytes of undisturbed builds of it in both states."""
    tree, edited = (copy_of(built, tmp_path_factory.mktemp("chaos") / name) for name in ("home", "edited"))
    set_state(edited, "edited")
    snakemake(edited)
    expected = {"as built": digests(tree), "edited": digests(edited)}
    shutil.rmtree(edited.parent)
    assert expected["edited"] != expected["as built"]
    return tree, expected


def set_state(tree: Path, state: str) -> None:
    done(tree, "git", "checkout", "--quiet", "params.yaml")
    for key, value in STATES[state].items():
        set_value(tree, key, value)


def start(tree: Path, engine: str) -> psutil.Popen:
    return psutil.Popen(
        ENGINES[engine], cwd=tree, env=environment(tree), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def named(process: psutil.Process, name: str) -> bool:
    """Return whether a process runs a program of this name."""
    with suppress(psutil.Error):
        return any(Path(word).name == name for word in process.cmdline()[:2])
    return False


def kill(top: psutil.Popen, victim: str, rng: random.Random) -> bool:
    """Kill a job, Snakemake, DVC or everything; return whether there was such a process."""
    family = [top, *top.children(recursive=True)]
    if victim != "everything":
        family = [process for process in family if named(process, {"job": "rmft"}.get(victim, victim))]
        family = rng.sample(family, min(1, len(family)))
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    return bool(family)


def wait_for_snakemake(family: list[psutil.Process]) -> None:
    """Wait, as a user would, until the run has ended that goes on without the DVC that started it."""
    psutil.wait_procs([process for process in family if named(process, "snakemake")])


def start_and_kill(tree: Path, rng: random.Random) -> None:
    """Start a build, and after a random time kill a part of it, or all: what there is to kill by then."""
    engine = rng.choice(list(ENGINES))
    victim = rng.choice(["job", engine, "snakemake", "everything"])
    top = start(tree, engine)
    with suppress(psutil.TimeoutExpired):
        top.wait(rng.uniform(0.0, LONGEST_SECONDS))
    while top.poll() is None and not kill(top, victim, rng):
        with suppress(psutil.TimeoutExpired):
            top.wait(0.05)  # until there is one
    family = [top, *top.children(recursive=True)] if top.poll() is None else []
    wait_for_snakemake(family)
    top.wait()


@pytest.mark.parametrize("number", range(KILLS // 2))
def test_after_two_kills_the_next_run_gives_the_bytes_of_an_undisturbed_one(undisturbed, number):
    """Only these tests kill a job, an engine or all at any moment, twice over."""
    tree, expected = undisturbed
    rng = random.Random(number)
    state = list(STATES)[number % 2]
    (tree / "results/metrics.json").unlink()  # there is something to do, whatever the state
    set_state(tree, state)
    start_and_kill(tree, rng)
    if rng.random() < 0.3:  # change your mind before the next run
        state = rng.choice(list(STATES))
        set_state(tree, state)
    start_and_kill(tree, rng)
    done(tree, *ENGINES["dvc" if number % 4 == 3 else "snakemake"])
    assert digests(tree) == expected[state]
    done(tree, "rmft", "lineage", "--all")


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
    set_state(tree, "edited")
    for what, reason in (
        ((), "rmft: results/experiments/numeric_mixture/iteration-0: Permission denied; jobs have to write there"),
        (("--recursive",), "Write-protected output files"),
    ):
        done(tree, "chmod", *what, "a-w", str(folder), str(folder / "iteration-0"))
        stopped = bound_by_permissions(tree, "snakemake", "--cores", "1")
        assert stopped.returncode != 0
        assert reason in stopped.stdout + stopped.stderr
        assert digests(tree) == before
