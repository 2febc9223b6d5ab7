"""Measure what is not computation: the start of jobs, and both engines when nothing is to be done.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --fork-server open_mab_qwen numeric_mixture

The first form runs in a checkout in which everything is built (`make reproduce`). It compares the start of all jobs
with the time that the jobs took together, and with the start of jobs that do their own imports, and holds each no-op
against its bound. A job starts when the fork server, which has imported the libraries once, has forked it.

The second form builds experiments at smoke scale in temporary clones of the last commit, with the fork server and
without it, and writes the CPU seconds to benchmarks/results/fork-server.csv.
"""

import argparse
import csv
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from build import jobs
from goals import verdict
from same_bytes import check_out, environment

from rmft.artifacts.job import JOB_OF, this_run
from rmft.workflow import forkserver, handover

MEASURED = Path(__file__).parent / "results/fork-server.csv"
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux
REPEATS = 5
SHARE = 0.15  # of all jobs' time that start-up may take
BOUNDS_SECONDS = {"snakemake": 3.0, "dvc repro": 5.0, "dvc status": 3.0, "rmft lineage --all": 5.0}


def fastest(run: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds: other work on the machine only adds to a run."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def by_command() -> dict[str, list[float]]:
    """Return how long each job of the last build took, in seconds, by sub-command."""
    seconds = defaultdict(list)
    for job in jobs():
        seconds[job.command.split()[1]].append(job.seconds)
    return seconds


def imports(command: str) -> str:
    """Return a program that imports what a stage does."""
    return f"import rmft.cli, rmft.stages.{command}"


def handed_over(commands: list[str]) -> tuple[float, float]:
    """Return the seconds until the fork server of a run has done its first job, and those of each further one."""
    os.environ[JOB_OF] = this_run()
    job = [sys.executable, "-m", "rmft", "gather", "--help"]
    begun = time.perf_counter()
    forkserver.start(commands, {})

    def run() -> None:
        subprocess.run(job, check=True, capture_output=True)

    run()
    first = time.perf_counter() - begun
    each = fastest(run)
    del os.environ[JOB_OF], os.environ[handover.SOCKET]
    return first, each


def measure_start() -> bool:
    """Print both tables; return whether every bound holds."""
    held, built = True, by_command()
    print(f"{'sub-command':<14}{'jobs':>6}{'s a job':>10}{'imports s':>12}")
    total = alone = 0.0
    for command, seconds in sorted(built.items()):
        program = imports(command)
        start = fastest(lambda program=program: subprocess.run([sys.executable, "-c", program], check=True))
        print(f"{command:<14}{len(seconds):>6}{sum(seconds) / len(seconds):>10.2f}{start:>12.2f}")
        total, alone = total + sum(seconds), alone + start * len(seconds)
    number = sum(map(len, built.values()))
    first, each = handed_over([command for command, seconds in built.items() for _ in seconds])
    starting = first + each * number
    held &= starting <= SHARE * total
    print(
        f"start-up: {first:.1f} s once and {each:.2f} s a job; with its own imports each, {alone / starting:.1f} x that"
    )
    share = starting / total
    print(
        f"together {starting:.0f} s of {total:.0f} s, {share:.1%}, {verdict(share <= SHARE)} the bound of {SHARE:.0%}\n"
    )
    for command, bound in BOUNDS_SECONDS.items():
        took = fastest(lambda command=command: subprocess.run(command.split(), check=True, capture_output=True))
        held &= took <= bound
        print(f"{command:<20} with nothing to do: {took:.1f} s, {verdict(took <= bound)} the bound of {bound:.0f} s")
    return held


def measure_fork_server(experiments: Sequence[str]) -> None:
    """Build experiments in clones of the last commit, with the fork server and without it; write what that took."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)  # the fork server's CPU time counts only if this process reaps it
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for experiment in experiments:
            for forked in (True, False):
                folder = Path(temporary) / f"{experiment}-{forked}"
                check_out("HEAD", folder)
                rows.append({"experiment": experiment, "fork_server": forked, **build_anew(folder, experiment, forked)})
                print(rows[-1], flush=True)
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def build_anew(folder: Path, experiment: str, forked: bool) -> dict[str, float]:
    """Build an experiment in a checkout; return its number of jobs, the CPU seconds and the seconds of the clock."""
    variables = environment(folder)
    if not forked:  # no socket fits below such a path, so that each job imports for itself
        variables["TMPDIR"] = str(folder / ("long" * 30))
        Path(variables["TMPDIR"]).mkdir()
    begun, used_before = time.perf_counter(), used_by_children()
    command = ["snakemake", "--cores", "2", f"exp_{experiment}"]
    log = subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True, text=True).stderr
    seconds = time.perf_counter() - begun
    with suppress(ChildProcessError):
        while True:
            os.wait()  # until the fork server has ended too
    started = len(re.findall(r"^Job \d+: ", log, re.MULTILINE))
    return {"jobs": started, "cpu_seconds": round(used_by_children() - used_before, 1), "seconds": round(seconds, 1)}


def used_by_children() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure what the command line asks for; exit with 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description="Measure the start of jobs, and both engines with nothing to do.")
    parser.add_argument("--fork-server", nargs="+", metavar="EXPERIMENT", help="build these with and without it")
    experiments = parser.parse_args().fork_server
    if experiments:
        measure_fork_server(experiments)
    elif Path("params.yaml").exists():
        sys.exit(not measure_start())
    else:
        sys.exit("run this in the root of the repository")


if __name__ == "__main__":
    main()
