"""What is not computation: starting the jobs of a full build, and both engines when nothing is to be done.

Run in a checkout in which everything is built (`make reproduce`). Start-up is what the fork server imports, once, and
what it takes to hand a job over to it. It is held against the time that the jobs took together, and set beside what it
would be if each did its own imports. Each no-op is held against its bound.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rmft.artifacts.job import JOB_OF, this_run
from rmft.lineage.records import METADATA
from rmft.workflow import forkserver

REPEATS = 5
SHARE = 0.15  # of all jobs' time that start-up may take
BOUNDS_SECONDS = {"snakemake": 3.0, "dvc repro": 5.0, "dvc status": 3.0, "rmft lineage --all": 5.0}


def fastest(run: Callable[[], object]) -> float:
    """Return the least of several times, in seconds: what others do on the machine only adds."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def jobs() -> dict[str, list[float]]:
    """Return how long each job of the last build took, in seconds, by sub-command."""
    seconds, seen = defaultdict(list), set()
    for file in METADATA.rglob("*"):
        if file.is_file():
            record = json.loads(file.read_text(encoding="utf-8"))
            if record["shellcmd"] not in seen:
                seen.add(record["shellcmd"])
                seconds[record["shellcmd"].split()[1]].append(record["endtime"] - record["starttime"])
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
    del os.environ[JOB_OF], os.environ[forkserver.SOCKET]
    return first, each


def main() -> None:
    """Print both tables; exit with 1 where a bound does not hold."""
    held, built = True, jobs()
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
    print(f"together {starting:.0f} s of {total:.0f} s, {starting / total:.1%} (bound {SHARE:.0%})\n")
    for command, bound in BOUNDS_SECONDS.items():
        took = fastest(lambda command=command: subprocess.run(command.split(), check=True, capture_output=True))
        held &= took <= bound
        print(f"{command:<20} with nothing to do: {took:.1f} s (bound {bound:.0f} s)")
    sys.exit(not held)


if __name__ == "__main__":
    if not Path("params.yaml").exists():
        sys.exit("run this in the root of the repository")
    main()
