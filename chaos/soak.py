"""Builds from nothing in a loop in one folder: memory, open files and disk are in the end what they were at first.

All artifacts and journals are deleted, and `snakemake` builds them again, until the time is over. Of each build the
memory of its largest process and the most open files of all its processes together are measured twice a second, and
afterwards the processes, bytes and files that it left in the tree and in the folder for temporary files. The memory of
all processes together would say which jobs ran beside each other, which is chance. Chance also decides whether a short
peak is seen, so single builds are not compared: a measure counts as *flat* where its median over the last third of the
builds is at most a tenth (open files: a fifth, as jobs overlap) above that over the first third. Size: minutes.
"""

import os
import random
import shutil
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from trees import built_once, copy_of, digests, environment

from chaos.counts import Counts
from chaos.kills import at_work

MADE = ("results", "data/rewards", "journal", ".rmft")
ROOM = {  # how many times what it was at first a measure may be in the end
    "memory of the largest process": 1.1,
    "open files": 1.2,
    "processes left": 1.0,
    "bytes in the tree": 1.1,
    "files in the tree": 1.1,
    "temporary files": 1.1,
}
EVERY_SECONDS = 0.5


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Build again and again; return which measures were flat. built: what `trees.built_once` made."""
    counts, until = Counts(), time.monotonic() + 60 * size
    random.seed(seed)
    with TemporaryDirectory(prefix="rmft-") as folder:
        home = built or built_once(Path(os.environ.get("RMFT_BUILT", folder)))
        tree, temporary = copy_of(home, Path(folder) / "home"), Path(folder) / "tmp"
        expected, measured = digests(tree), []
        temporary.mkdir()
        while time.monotonic() < until:
            for made in MADE:
                shutil.rmtree(tree / made, ignore_errors=True)
            measured.append(_measured(tree, temporary))
            if digests(tree) == expected:
                counts.add("artifacts", "identical")
            else:
                counts.fail("artifacts", "other bytes")
    third = max(1, len(measured) // 3)
    for name, room in ROOM.items():
        series = [round(build[name]) for build in measured]
        first, last = statistics.median(series[:third]), statistics.median(series[-third:])
        print(f"{name}: {first:.0f} at first, {last:.0f} in the end; of all builds {series}", flush=True)
        if last <= room * first:
            counts.add(name, "flat")
        else:
            counts.fail(name, f"{first:.0f} at first, {last:.0f} in the end; of all builds {series}")
    return counts


def _measured(tree: Path, temporary: Path) -> dict[str, float]:
    """Build, and return what it took and left."""
    build = psutil.Popen(
        ["snakemake", "--cores", "2"], cwd=tree, env=environment(tree) | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    memory = files = 0.0
    while build.poll() is None:
        family = at_work(tree)
        memory = max([memory, *(_of(process, "uss") for process in family)])
        files = max(files, sum(_of(process, "files") for process in family))
        with suppress(psutil.TimeoutExpired):
            build.wait(EVERY_SECONDS)
    left = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        "memory of the largest process": memory,
        "open files": files,
        "processes left": len(at_work(tree)),
        "bytes in the tree": sum(path.stat().st_size for path in left),
        "files in the tree": len(left),
        "temporary files": len([*temporary.rglob("*")]),
    }


def _of(process: psutil.Process, what: str) -> float:
    """Return the memory of a process that no other one shares, or the number of its open files."""
    with suppress(psutil.Error, OSError):
        return process.memory_full_info().uss if what == "uss" else process.num_fds()
    return 0.0
