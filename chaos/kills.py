"""Builds that are killed at random moments, several times over: run again, they give the bytes of an undisturbed one.

A round changes parameters, starts `snakemake` or `dvc repro`, and after a random time kills one job, Snakemake, DVC or
all processes, by SIGKILL, SIGTERM or Ctrl-C; it does so five times, sometimes changes its mind about the parameters in
between, and lets the last run end. A kill counts as *identical* when, at the end of its round, every artifact has the
bytes of a build that nobody disturbed, and `rmft lineage --all` finds nothing lost, stale or altered. Where DVC says
that a kill cut its own list of locks short, the list is deleted before the next run, as docs/workflow.md advises; how
often is not counted. Size: kills.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from trees import built_once, copy_of, digests, done, environment, set_value, snakemake
from trees import run as run_in

from chaos.counts import Counts, time_left
from rmft.workflow.runs import DVC_LOCKS

KILLS = 5  # of a round
FEW = 20  # kills; what is changed for fewer builds in seconds
HANG_SECONDS, LEFT_SECONDS = 600.0, 30.0
STATES = {  # sets of parameters, between which rounds change
    "as built": {},
    "numeric": {"experiments.numeric_mixture.rmft.selected": 2},
    "in words": {f"experiments.{name}.rmft.temperature": 0.9 for name in ("open_mab_gemma", "closed_mab")},
}
ENGINES = {"snakemake": ["snakemake", "--cores", "2"], "dvc": ["dvc", "repro"]}
PROGRAMS = {  # words of the command of each kind of process
    "job": r"(^|/)rmft ",
    "snakemake": r"(^|/)snakemake ",
    "dvc": r"(^|/)dvc ",
    "fork server": r"serve_jobs",
    "endpoint": r"from rmft\.cli import main",
}
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Kill builds; return what came of it. built: what `trees.built_once` made."""
    counts, chance = Counts(), random.Random(seed)
    with tree_to_harm(built, few=size <= FEW) as (tree, expected):
        killed = 0
        while killed < size and time_left():
            kills = min(KILLS, size - killed)
            kill_and_finish(tree, expected, kills, chance, counts)
            killed += kills
    return counts


class WentWrongError(Exception):
    """What went wrong with a build that was killed before."""


@dataclass(frozen=True)
class Undisturbed:
    """A build that nobody disturbed. artifacts: their hashes. seconds: what it took, or a build back to this state."""

    artifacts: dict[str, str]
    seconds: float


@contextmanager
def tree_to_harm(built: Path | None, *, few: bool) -> Iterator[tuple[Path, dict[str, Undisturbed]]]:
    """Yield a built tree, and what builds of it give that nobody disturbs, by state.

    built: what `trees.built_once` made. few: without the states whose builds take minutes.
    """
    with TemporaryDirectory(prefix="rmft-") as folder:
        home = built or built_once(Path(os.environ.get("RMFT_BUILT", folder)))
        tree = copy_of(home, Path(folder) / "home")
        yield tree, undisturbed(home, Path(folder), ["as built", "numeric"] if few else list(STATES))


def undisturbed(home: Path, folder: Path, states: list[str]) -> dict[str, Undisturbed]:
    """Return undisturbed builds by state."""
    builds = {}
    for state in states:
        tree = copy_of(home, folder / state.replace(" ", "-"))
        set_state(tree, state)
        start = time.monotonic()
        snakemake(tree)
        builds[state] = Undisturbed(digests(tree), time.monotonic() - start)
    changed = max(build.seconds for build in builds.values())
    return builds | {"as built": Undisturbed(builds["as built"].artifacts, changed)}


def set_state(tree: Path, state: str) -> None:
    """Change the parameters of a tree."""
    done(tree, "git", "checkout", "--quiet", "params.yaml")
    for key, value in STATES[state].items():
        set_value(tree, key, value)


def kill_and_finish(
    tree: Path, expected: dict[str, Undisturbed], kills: int, chance: random.Random, counts: Counts
) -> None:
    """Kill builds of a tree, let the last one end, and compare the tree with an undisturbed one."""
    victims, problem = Counter(), ""
    try:
        state = kill_builds(tree, expected, kills, chance, victims)
        finish(tree, expected[state].artifacts, chance)
    except WentWrongError as error:
        problem = f"{error}"
    for (harm, name), times in victims.items():
        counts.add(harm, f"{name}: went wrong" if problem else f"{name}: identical", times)
    if problem:
        counts.say(f"after {dict(victims)}: {problem}")


def kill_builds(
    tree: Path, expected: dict[str, Undisturbed], kills: int, chance: random.Random, victims: Counter
) -> str:
    """Kill builds of a tree so many times, count the victims, and return the state of the parameters at the end."""
    while True:
        (tree / "results/metrics.json").unlink(missing_ok=True)  # there is something to do, whatever the state
        set_state(tree, state := chance.choice(list(expected)))
        while killed := start_and_kill(tree, expected[state].seconds, chance):
            victims[killed] += 1
            if victims.total() == kills:
                return state
            if chance.random() < 0.15:
                set_state(tree, state := chance.choice(list(expected)))


def finish(tree: Path, artifacts: dict[str, str], chance: random.Random) -> None:
    """Let a build end. Raise WentWrongError if it fails, or leaves anything else than these artifacts."""
    last = ENGINES[chance.choice(["snakemake", "snakemake", "snakemake", "dvc"])]
    finished = run_in(tree, *last)
    if mended(tree, finished.stderr):
        finished = run_in(tree, *last)
    if finished.returncode:
        raise WentWrongError(f"{' '.join(last)}: {finished.stdout[-500:]}{finished.stderr[-500:]}")
    if different := {path for path, _ in digests(tree).items() ^ artifacts.items()}:
        raise WentWrongError(f"other bytes: {', '.join(sorted(different)[:5])}")
    if (audit := run_in(tree, "rmft", "lineage", "--all")).returncode:
        raise WentWrongError(f"lineage: {audit.stderr[:500]}")
    if left := psutil.wait_procs(at_work(tree), LEFT_SECONDS)[1]:
        raise WentWrongError(f"still at work: {left}")


def start_and_kill(tree: Path, longest: float, chance: random.Random) -> tuple[str, str] | None:
    """Start a build and do harm after a random time; return what was killed, by which signal; None where it had ended.

    Then wait, as a user would, until the run has ended that goes on without the DVC that started it. Raise
    WentWrongError if a build fails that nobody has harmed, or hangs.
    """
    engine, name = chance.choice(list(ENGINES)), chance.choice(list(SIGNALS))
    output = tree.parent / "output.txt"
    with output.open("w", encoding="utf-8") as file:
        top = psutil.Popen(
            ENGINES[engine], cwd=tree, env=environment(tree), start_new_session=True, stdout=file, stderr=file
        )
    with suppress(psutil.TimeoutExpired):
        if code := top.wait(chance.uniform(0.0, longest)):
            text = output.read_text(encoding="utf-8")
            if mended(tree, text):
                return start_and_kill(tree, longest, chance)
            raise WentWrongError(f"{engine} ended with {code}: {text[-1000:]}")
        return None
    victim = kill(tree, SIGNALS[name], chance)
    waiting = [top, *(process for process in at_work(tree) if _is(process, "snakemake"))]
    if psutil.wait_procs(waiting, HANG_SECONDS)[1]:
        raise WentWrongError(f"{engine} hangs after {name} to {victim}")
    return victim, name


def mended(tree: Path, output: str) -> bool:
    """Delete DVC's list of locks where DVC says that it is cut short, as docs/workflow.md advises; return whether."""
    if "Unable to read RWLock-file" not in output:
        return False
    (tree / DVC_LOCKS).unlink(missing_ok=True)
    return True


def kill(tree: Path, how: signal.Signals, chance: random.Random) -> str:
    """Send a signal to a process of one of the kinds that are at work, or to everything; return to what."""
    family = at_work(tree)
    of_kind = {name: [process for process in family if _is(process, name)] for name in PROGRAMS}
    kinds = [name for name, processes in of_kind.items() if processes]
    kind = chance.choice([*kinds, "everything", *["job"] * (2 * ("job" in kinds))])
    victims = family if kind == "everything" else [chance.choice(of_kind[kind])]
    stage = _stage(victims[0]) if kind == "job" else ""
    for process in victims:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    return f"{kind} {stage}".strip()


def at_work(tree: Path) -> list[psutil.Process]:
    """Return the processes that work in a folder, whoever started them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(tree) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _is(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.Error):
        return bool(re.search(PROGRAMS[program], " ".join([*process.cmdline()[:3], ""])))
    return False


def _stage(job: psutil.Process) -> str:
    """Return the stage of a process of rmft's."""
    with suppress(psutil.Error):
        words = job.cmdline()
        return next((words[at + 1] for at, word in enumerate(words[:-1]) if Path(word).name == "rmft"), "")
    return ""
