"""Builds from nothing in a loop in one folder: memory, open files and disk are in the end what they were at first.

All artifacts and journals are deleted, and `snakemake` builds them again, until the time is over. Measured are, of each
build, the memory that its largest process had at its peak and the most files that all its processes had open at once;
and, ten seconds after it at the latest, the processes, bytes and files that it left in the tree and in the folder for
temporary files. The memory of all processes together would say which jobs ran beside each other, which is chance. A
measure counts as *flat* where its median over the last third of the builds is at most a tenth (open files: a fifth, as
jobs overlap by chance) above that over the first third. Size: minutes.
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
SECONDS_TO_END = 10  # that the fork server and our own server have after a build to end


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
    third = len(measured) // 3
    for name, room in ROOM.items() if third else ():  # fewer than three builds show nothing
        series = [round(build[name]) for build in measured]
        first, last = statistics.median(series[:third]), statistics.median(series[-third:])
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
    memory = files = 0
    while build.poll() is None:
        family = at_work(tree)
        memory = max([memory, *map(_peak_memory, family)])
        files = max(files, sum(map(_open_files, family)))
        with suppress(psutil.TimeoutExpired):
            build.wait(EVERY_SECONDS)
    _, still_there = psutil.wait_procs(at_work(tree), timeout=SECONDS_TO_END)
    left = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        "memory of the largest process": memory,
        "open files": files,
        "processes left": len(still_there),
        "bytes in the tree": sum(path.stat().st_size for path in left),
        "files in the tree": len(left),
        "temporary files": len([*temporary.rglob("*")]),
    }


def _peak_memory(process: psutil.Process) -> int:
    """Return the most bytes of memory that a process has had so far, also between two measurements."""
    with suppress(OSError):
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)
    return 0


def _open_files(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.num_fds()
    return 0
