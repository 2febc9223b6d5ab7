"""Where a build's time goes: by rule, by experiment, on the longest chain of jobs, and on what is made twice.

Run this in a checkout in which everything is built (`make reproduce`). CPU is what a job's processes used, from its
receipt; what our own server computes for jobs that wait for it is in no job's. Seconds are those of Snakemake's
records, from the start of a job to its end; other work on the machine is part of them. An interval longer than a minute
without a job ends a run, and the table has all runs of which artifacts are left. The longest chain is what a build
would take on endless cores. Made twice: trajectories of the same bytes, without the job that took longest.

The last line multiplies matrices on one CPU, and then on two at once. Two CPUs that are threads of one core slow each
other, and a build; two cores hardly do.
"""

import graphlib
import json
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rmft.artifacts.receipts import read_receipt
from rmft.instructions import use_avx2_only
from rmft.lineage.records import METADATA, artifact_of

BETWEEN_RUNS_SECONDS = 60.0
MOST_ROWS = 12
SHORT_SECONDS = 10.0  # of a job that the longest chain leaves out
SIZE = 4096  # of the matrices, so large that products of two threads overlap


@dataclass
class BuiltJob:
    """A job of the last build. inputs, outputs: paths. cpu_seconds: of its processes; 0 where no receipt says so."""

    rule: str
    command: str
    start: float
    end: float
    inputs: list[str]
    outputs: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Return how long the job took."""
        return self.end - self.start


def jobs() -> list[BuiltJob]:
    """Return the jobs that made the artifacts of this checkout, from Snakemake's records."""
    found: dict[str, BuiltJob] = {}
    for file in METADATA.rglob("*"):
        if file.is_file() and (path := artifact_of(file)).exists():
            record = json.loads(file.read_text(encoding="utf-8"))
            command = record["shellcmd"]
            job = BuiltJob(record["rule"], command, record["starttime"], record["endtime"], record["input"])
            job = found.setdefault(command, job)
            job.outputs.append(path.as_posix())
            if (receipt := read_receipt(path)) and receipt.cpu_seconds:
                job.cpu_seconds = max(job.cpu_seconds, receipt.cpu_seconds)
    return list(found.values())


def concurrency(built: Iterable[BuiltJob]) -> Counter[int]:
    """Return for how many seconds of all runs so many jobs were at work at once."""
    changes = sorted(change for job in built for change in ((job.start, 1), (job.end, -1)))
    seconds, at_work, before = Counter(), 0, changes[0][0]
    for moment, change in changes:
        if at_work or moment - before < BETWEEN_RUNS_SECONDS:
            seconds[at_work] += moment - before
        at_work, before = at_work + change, moment
    return seconds


def longest_chain(built: list[BuiltJob]) -> list[BuiltJob]:
    """Return the jobs, one after another, each of which needs the one before, that take longest together."""
    maker = {path: number for number, job in enumerate(built) for path in job.outputs}
    needs = {number: {maker[path] for path in job.inputs if path in maker} for number, job in enumerate(built)}
    took: dict[int, float] = {}
    before: dict[int, int | None] = {}
    for number in graphlib.TopologicalSorter(needs).static_order():
        before[number] = max(needs[number], key=took.__getitem__, default=None)
        took[number] = built[number].seconds + (took[before[number]] if before[number] is not None else 0.0)
    chain, number = [], max(took, key=took.__getitem__)
    while number is not None:
        chain.append(built[number])
        number = before[number]
    return chain[::-1]


def made_again(built: Iterable[BuiltJob]) -> list[BuiltJob]:
    """Return the jobs that made trajectories which another job, one that took longer, made too."""
    first, again = set(), []
    for job in sorted(built, key=lambda job: -job.seconds):
        receipt = read_receipt(Path(job.outputs[0])) if job.outputs[0].endswith(".parquet") else None
        if receipt and job.rule in ("rollouts_shard", "held_out"):
            if receipt.sha256 in first:
                again.append(job)
            first.add(receipt.sha256)
    return again


def share_out(what: str, built: list[BuiltJob], names: Iterable[str]) -> None:
    """Print the share of the jobs' CPU that those of each name used, and their seconds. names: one for each job."""
    cpu, seconds, number, longest = Counter(), Counter(), Counter(), Counter()
    for name, job in zip(names, built, strict=True):
        cpu[name] += job.cpu_seconds
        seconds[name] += job.seconds
        number[name] += 1
        longest[name] = max(longest[name], job.seconds)
    print(f"{what:<38}{'jobs':>5}{'CPU s':>8}{'share':>8}{'seconds':>9}{'longest':>9}")
    for name, used in cpu.most_common(MOST_ROWS):
        share = used / (cpu.total() or 1.0)
        print(f"{name:<38}{number[name]:>5}{used:>8.0f}{share:>8.1%}{seconds[name]:>9.0f}{longest[name]:>9.0f}")
    print(f"{len(cpu) - MOST_ROWS} more\n" if len(cpu) > MOST_ROWS else "")


def operations_a_second(at_once: int) -> float:
    """Return the floating-point operations a second of each of so many threads that multiply matrices at once."""
    use_avx2_only()  # as jobs do
    import torch
    from machine import reached

    torch.set_num_threads(1)
    matrix, unused = torch.rand(SIZE, SIZE), torch.ones(1)
    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lambda _: reached(matrix, unused, time.perf_counter)[0], range(at_once))) / at_once


def of_experiment(job: BuiltJob) -> str:
    """Return the experiment that a job belongs to; that of no experiment is named so."""
    parts = Path(job.outputs[0]).parts
    return parts[2] if parts[:2] == ("results", "experiments") else "no single experiment"


def main() -> None:
    """Print where the time of this checkout's build went."""
    built = jobs()
    if not built:
        raise SystemExit("nothing is built here; `make reproduce` first")
    total, at_once = sum(job.seconds for job in built), concurrency(built)
    share_out("rule", built, (job.rule for job in built))
    share_out("experiment", built, map(of_experiment, built))
    cpu = sum(job.cpu_seconds for job in built)
    print(f"{len(built)} jobs took {total:.0f} s and used {cpu:.0f} s of CPU, in {at_once.total():.0f} s of the clock;")
    print("; ".join(f"{number} at once: {at_once[number] / at_once.total():.1%}" for number in sorted(at_once)))
    again = made_again(built)
    seconds = sum(job.seconds for job in again)
    print(f"made twice: {len(again)} jobs, {seconds:.0f} s, {seconds / total:.1%}")
    chain = longest_chain(built)
    print(f"\nlongest chain: {sum(job.seconds for job in chain):.0f} s")
    for job in chain:
        if job.seconds >= SHORT_SECONDS:
            print(f"{job.seconds:>6.0f} s  {job.outputs[0]}")
    alone, beside = operations_a_second(1), operations_a_second(2)
    share = f"{beside / 1e9:.0f} on each, {beside / alone:.0%} of that"
    print(f"\nmatrices: {alone / 1e9:.0f} GFLOP/s on one CPU; on two at once {share}")


if __name__ == "__main__":
    main()
