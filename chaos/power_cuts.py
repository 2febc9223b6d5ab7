"""Power cuts: what was written lately and not synced to the disk is cut at a random byte, or is zeros from there on.

A build is killed as a whole at a random moment. Then half of the files that it wrote (artifacts, receipts, Snakemake's
records and all other files of the run, though not DVC's own and not git's) lose their end, as on a file system that had
not written it yet; journals, which are synced, keep what was synced. The next `snakemake` builds, or refuses in a line
and names the command that mends the tree; the harness types that command. In the end every artifact has the bytes of an
undisturbed build. A journal is cut in the same way while responses are recorded: no response that was used is lost.
Size: power cuts of a build; a hundred times as many of a journal.
"""

import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from trees import copy_of, digests, environment
from trees import run as run_in

from chaos.counts import Counts, time_left
from chaos.kills import Undisturbed, at_work, set_state, tree_to_harm
from rmft.endpoint import journal_file
from rmft.endpoint.journal import Journal

FEW = 3  # cuts; what is changed for fewer builds in seconds
JOURNALS = 100  # cuts of a journal for one of a build
UNSYNCED = ("results", "data/rewards", "logs", ".snakemake", ".rmft")
MOST_COMMANDS = 30  # until the tree is mended


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Cut the power of builds and of journals; return what came of it. built: what `trees.built_once` made."""
    counts, chance = Counts(), random.Random(seed)
    with tree_to_harm(built, few=size <= FEW) as (tree, expected):
        sound = copy_of(tree.parent, tree.parent.with_name("sound"))
        for _ in range(size):
            if time_left() and not _cut_a_build(tree, expected, chance, counts):
                shutil.rmtree(tree.parent)  # the next cut harms a sound tree again
                copy_of(sound.parent, tree.parent)
    return cut_journals(JOURNALS * size, seed, counts)


def cut_journals(size: int, seed: int, counts: Counts | None = None) -> Counts:
    """Cut journals while responses are recorded; return what came of it, beside what is in `counts`."""
    counts, chance = counts or Counts(), random.Random(seed)
    with TemporaryDirectory(prefix="rmft-") as folder:
        for _ in range(size):
            _cut_a_journal(Path(folder) / "journal.jsonl.zst", chance, counts)
    return counts


def _cut_a_build(tree: Path, expected: dict[str, Undisturbed], chance: random.Random, counts: Counts) -> bool:
    """Cut the power of a build, and count what came of it; return whether the tree is sound again."""
    state = chance.choice(list(expected))
    (tree / "results/metrics.json").unlink(missing_ok=True)  # there is something to do, whatever the state
    set_state(tree, state)
    start = time.time()
    top = psutil.Popen(
        ["snakemake", "--cores", "2"], cwd=tree, env=environment(tree), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with suppress(psutil.TimeoutExpired):
        top.wait(chance.uniform(0.0, expected[state].seconds))
    while family := at_work(tree):
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
    top.wait()
    written = [
        path
        for part in UNSYNCED
        for path in (tree / part).rglob("*")
        if path.is_file() and path.stat().st_ctime >= start - 1
    ]
    harm = f"build, {state}"
    lost = [path for path in written if chance.random() < 0.5]
    for path in lost:
        _lose_end(path, 0, chance)
    commands, problem = _mend(tree)
    if problem:
        counts.fail(harm, f"{len(lost)} files cut; {problem}")
    elif digests(tree) != expected[state].artifacts:
        counts.fail(harm, f"{len(lost)} files cut; other bytes")
    elif (audit := run_in(tree, "rmft", "lineage", "--all")).returncode:
        counts.fail(harm, f"lineage: {audit.stderr[:500]}")
    else:
        counts.add(harm, f"identical after {commands} command{'s' * (commands > 1)}" if commands else "identical")
        return True
    return False


def _mend(tree: Path) -> tuple[int, str]:
    """Build, and do what refusals say; return the number of their commands, and the output of a build that failed."""
    for commands in range(MOST_COMMANDS):
        finished = run_in(tree, "snakemake", "--cores", "2")
        if finished.returncode == 0:
            return commands, ""
        line = (finished.stderr.strip().splitlines() or [""])[-1]
        remedy = re.search(r"`(mkdir [^`]+);", line) or re.search(r"`(mv [^;`]+);", line)  # of all files, or of one
        if not line.startswith("rmft: ") or remedy is None:
            return commands, f"{finished.stdout[-1000:]} {finished.stderr[-500:]}"
        run_in(tree, "bash", "-c", remedy[1])
        shutil.rmtree(tree / "old", ignore_errors=True)
    return MOST_COMMANDS, f"not mended: {line}"


def _lose_end(path: Path, synced: int, chance: random.Random) -> None:
    """Cut a file at a random byte behind what was synced, or make it zeros from there on."""
    size = path.stat().st_size
    at = chance.randint(min(synced, size), size)
    with path.open("r+b") as file:
        file.truncate(at)
        if chance.random() < 0.3:
            file.truncate(size)


def _cut_a_journal(path: Path, chance: random.Random, counts: Counts) -> None:
    path.unlink(missing_ok=True)
    answers = {f"{chance.getrandbits(256):064x}": {"usage": {}, "text": "x" * chance.randrange(200)} for _ in range(8)}
    used, synced = chance.randrange(len(answers)), 0
    with Journal.open(path) as journal:
        for number, (key, answer) in enumerate(answers.items()):
            journal.record(key, {"model": "m", "messages": [{"role": "user", "content": key}]}, answer)
            if number == used:
                synced = path.stat().st_size
    _lose_end(path, synced, chance)
    try:
        with Journal.open(path) as journal:
            kept = [journal.response(key) == answer for key, answer in answers.items()]
            journal.record("f" * 64, {"model": "m"}, {"usage": {}})
    except Exception as error:
        counts.fail("journal", f"{type(error).__name__}: {error}")
        return
    if not all(kept[: used + 1]) or journal_file.read_from(path) == b"":
        counts.fail("journal", f"lost a response that was used: {kept}, {used}")
    else:
        counts.add("journal", "no response that was used is lost")
