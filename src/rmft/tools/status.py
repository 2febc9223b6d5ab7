"""`rmft status`: what runs in this folder, what is done, and how long the rest will take.

All of it is read from files: the jobs that the run wrote down when it started, Snakemake's records of these jobs, and
the logs of jobs, whose last lines say how far they are.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from rmft.tools.show import CONTROLS
from rmft.tools.terminal import empty_table
from rmft.workflow.failures import OURS, last_line
from rmft.workflow.job_list import JobList, JobTimes, ListedJob, Took, began_at, holder, read_job_list, times_of

if TYPE_CHECKING:
    from rich.console import RenderableType

LEFT = re.compile(r"(?P<seconds>\d+) s left$")  # as `progress` says it
DONE = re.compile(r"(?P<done>\d+)/(?P<total>[1-9]\d*) \w+")
LITTLE = 0.01  # the share of a job that must be done before its progress says how long the rest takes


@dataclass(frozen=True)
class BegunJob:
    """A job that has begun and not finished.

    line: the last one of its log. left: in seconds, where that line says how far the job is. marked: see `JobTimes`.
    """

    job: ListedJob
    seconds: float
    line: str
    left: float | None
    marked: bool


@dataclass(frozen=True)
class TimeLeft:
    """An estimate in seconds. unknown: how many jobs of a stage of which no job has run; they are left out."""

    seconds: float
    unknown: Counter[str]


@dataclass(frozen=True)
class Status:
    """The state of a run at one moment.

    took: the finished jobs. begun: jobs that have not finished, of a run that has ended too.
    """

    run: JobList
    now: float
    took: Sequence[Took]
    begun: Sequence[BegunJob]
    waiting: Sequence[ListedJob]
    last_change: float

    @property
    def running(self) -> list[BegunJob]:
        """Return the jobs that run now."""
        return [of for of in self.begun if of.marked and self.run.runs]

    @property
    def failed(self) -> list[BegunJob]:
        """Return the jobs that failed."""
        return [of for of in self.begun if not of.marked]

    @property
    def left(self) -> TimeLeft:
        """Estimate how long the rest of the run takes.

        A job takes as long as the finished jobs of its rule; else as long as a running one of its rule says; else as
        long as the jobs of its stage. So many jobs run at once as did so far.
        """
        took = [*self.took, *self.run.earlier]
        progress = [Took(of.job.rule, of.job.stage, of.seconds + of.left) for of in self.running if of.left is not None]
        rest = [(of.job.stage, _left(of, expected_seconds(of.job, took, progress))) for of in self.running]
        longest = max((seconds for _, seconds in rest if seconds is not None), default=0.0)
        rest += [(job.stage, expected_seconds(job, took, progress)) for job in self.waiting]
        busy = sum(of.seconds for of in (*self.took, *self.running))
        at_once = max(1.0, busy / max(self.now - self.run.started, 1.0))
        known = sum(seconds for _, seconds in rest if seconds is not None)
        return TimeLeft(max(known / at_once, longest), Counter(stage for stage, seconds in rest if seconds is None))


def _left(begun: BegunJob, whole: float | None) -> float | None:
    """Return how long a job still takes: as its log says, or as others of its kind took in all."""
    if begun.left is not None or whole is None:
        return begun.left
    return max(0.0, whole - begun.seconds)


def expected_seconds(job: ListedJob, took: Sequence[Took], progress: Sequence[Took]) -> float | None:
    """Return the mean seconds of the jobs most like this one; None where there are none.

    took: finished jobs. progress: running jobs whose logs say how long they take.
    """
    for like in (
        [of.seconds for of in took if of.rule == job.rule],
        [of.seconds for of in progress if of.rule == job.rule],
        [of.seconds for of in (*took, *progress) if of.stage == job.stage],
    ):
        if like:
            return mean(like)
    return None


def status_of(run: JobList, now: float) -> Status:
    """Return the state of a run."""
    times = [(job, times_of(job, run)) for job in run.jobs]
    took = [Took(job.rule, job.stage, of.finished - of.began) for job, of in times if of.finished is not None]
    begun = [
        _begun(job, of, now if run.runs else None) for job, of in times if of.began is not None and of.finished is None
    ]
    waiting = [job for job, of in times if of.began is None]
    changes = [
        run.started,
        *(time for _, of in times for time in (of.began, of.logged, of.finished) if time is not None),
    ]
    return Status(run, now, took, begun, waiting, max(changes))


def _begun(job: ListedJob, times: JobTimes, now: float | None) -> BegunJob:
    """Return a job that has begun, with how far it is by its log. now: None where the run has ended."""
    line, left, logged = "", None, times.began
    if job.log and times.logged is not None and times.logged >= times.began:
        line, logged = last_line(Path(job.log)).removeprefix(OURS).rpartition("\r")[2].translate(CONTROLS), times.logged
    seconds = (logged if now is None else now) - times.began
    share = int(says["done"]) / int(says["total"]) if (says := DONE.search(line)) else 0
    if LITTLE <= share <= 1:
        says = LEFT.search(line)
        whole = logged - times.began + float(says["seconds"]) if says else (logged - times.began) / share
        left = max(0.0, whole - seconds)
    return BegunJob(job, seconds, line, left, times.marked)


# --- As text ---


def as_text(now: float) -> "Iterator[RenderableType]":
    """Yield what runs in this folder or, where nothing does, what became of the last run."""
    from rich.text import Text

    at_work, run = holder(), read_job_list()
    if at_work and (run is None or run.process != at_work):
        since = spoken(now - began_at(at_work))
        yield Text(f"A command has held this folder for {since}; it has not begun any job.", "bold")
        yield Text("Snakemake finds out which jobs must run, or only says so (--dry-run).")
    elif run is None:
        yield Text("Nothing runs here, and no run is on record.", "bold")
        yield Text("To see what would run: snakemake --dry-run")
    else:
        state = status_of(run, now)
        yield from _of_running(state) if run.runs else _of_ended(state)


def _of_running(state: Status) -> "Iterator[RenderableType]":
    from rich.table import Table
    from rich.text import Text

    done, total = len(state.took), len(state.run.jobs)
    since = time.strftime("%H:%M", time.localtime(state.run.started))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = {
        "running": state.run.command,
        "since": f"{since}, for {spoken(state.now - state.run.started)}",
        "done": f"{done} of {total} jobs ({done / total:.0%})",
        "waiting": _by_stage(Counter(job.stage for job in state.waiting)),
        "failed": str(len(state.failed)) if state.failed else "",
        "time left": _time_left(state.left) if state.running or state.waiting else "none; Snakemake is about to end",
    }
    for label, value in rows.items():
        if value:
            table.add_row(label, Text(value))
    yield table
    for title, jobs in (("Running now", state.running), ("Failed", state.failed)):
        if jobs:
            yield Text(f"\n{title}", "bold")
            yield _jobs(jobs)


def _of_ended(state: Status) -> "Iterator[RenderableType]":
    from rich.text import Text

    done, total = len(state.took), len(state.run.jobs)
    ago, lasted = spoken(state.now - state.last_change), spoken(state.last_change - state.run.started)
    if done == total:
        yield Text(f"Nothing runs. The last run finished {ago} ago: all {total} jobs in {lasted}.", "bold")
        yield Text(f"It was: {state.run.command}")
        yield Text("To see what would run now: snakemake --dry-run")
        return
    if state.run.ended:
        yield Text(f"Nothing runs. The last run ended {ago} ago. It said:", "bold")
        yield Text(state.run.ended)
    else:
        yield Text(f"Nothing runs. The last run ended {ago} ago, after {done} of {total} jobs.", "bold")
    if state.begun:
        yield Text("\nBegun and not finished", "bold")
        yield _jobs(state.begun)
    yield Text(f"\nTo go on, type it again: {state.run.command}")


def _jobs(jobs: Sequence[BegunJob]) -> "RenderableType":
    """Return a table of jobs that have begun, each with the last line of its log."""
    from rich.text import Text

    table = empty_table("")
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("job", overflow="fold")
    for of in sorted(jobs, key=lambda one: -one.seconds):
        line = re.sub(rf"{of.job.stage} \S+: ", "", of.line, count=1)
        cell = Text(of.job.message)
        if line:
            cell.append(f"\n{line}", "dim")
        table.add_row(spoken(of.seconds), cell)
    return table


def _time_left(left: TimeLeft) -> str:
    """Return the time left, with what it was computed from."""
    if not left.seconds and left.unknown:
        return "unknown, because no job of these stages has finished yet"
    known = "less than a minute" if left.seconds < 60 else f"about {spoken(60 * round(left.seconds / 60))}"
    if left.unknown:
        jobs = f"{left.unknown.total()} job" + "s" * (left.unknown.total() > 1)
        known += f", and {jobs} of stages in which no job has finished ({_by_stage(left.unknown)})"
    return f"{known}; estimated from how long jobs of the same rule or stage took"


def _by_stage(stages: Counter[str]) -> str:
    return ", ".join(f"{count} {stage}" for stage, count in stages.most_common())


def spoken(seconds: float) -> str:
    """Return a duration in words, in seconds below ten minutes."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes < 10:
        return " ".join([f"{minutes} min"] * (minutes > 0) + [f"{rest} s"] * (rest > 0 or not minutes))
    hours, minutes = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))
