"""The jobs of a run of Snakemake, which it writes down when it starts, and what became of each of them by now.

Snakemake marks the outputs of a job that runs, and writes metadata of each output when the job has ended. Whoever reads
these files needs no lock, and disturbs no run.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rmft.artifacts.files import atomic
from rmft.artifacts.job import ON_CLUSTER, running, this_run
from rmft.artifacts.receipts import job_id
from rmft.errors import InputError
from rmft.lineage.records import METADATA, UNFINISHED, file_of
from rmft.workflow.runs import LOCK

JOB_LIST = Path(".snakemake/jobs.json")


@dataclass(frozen=True)
class ListedJob:
    """A job of a run. message: what Snakemake prints when the job starts. log: None where the job keeps none."""

    rule: str
    stage: str
    message: str
    log: str | None
    outputs: tuple[str, ...]


class Took(NamedTuple):
    """How long a job of a rule and a stage took."""

    rule: str
    stage: str
    seconds: float


@dataclass(frozen=True)
class JobList:
    """The jobs of a run that have commands.

    process: `this_run` of the run's Snakemake. started: in seconds, as time.time() gives them. earlier: the jobs that
    need not run again, because an earlier run did them with the same settings. planned: `job_id` of all these jobs.
    ended: why the run ended early, where it could say so.
    """

    process: str
    command: str
    started: float
    jobs: tuple[ListedJob, ...]
    earlier: tuple[Took, ...] = ()
    planned: tuple[str, ...] = ()
    ended: str = ""

    @property
    def runs(self) -> bool:
        """Return whether the run's process is alive."""
        return running(self.process)


def stage_of(job: Any) -> str:  # noqa: ANN401 (Snakemake's, which has no public type)
    """Return the stage that a job of Snakemake's runs."""
    return job.shellcmd.split()[1]  # rmft <stage> …


def write_job_list(to_do: Collection[Any], up_to_date: Collection[Any]) -> None:
    """Write down the jobs (Snakemake's) that the run of this process is about to do, and how long the others took."""
    if not to_do:
        return
    command = shlex.join(["snakemake", *sys.argv[1:]])
    earlier = [
        Took(job.rule, job.stage, recorded[1] - recorded[0])
        for job in map(_listed, up_to_date)
        if (recorded := _recorded(job))
    ]
    planned = tuple(job_id(job.params.settings) for job in (*to_do, *up_to_date))
    _write(JobList(this_run(), command, time.time(), tuple(map(_listed, to_do)), tuple(earlier), planned))


def refuse_unplanned(settings: str) -> None:
    """Raise InputError in a job on a cluster whose settings its run did not plan.

    Such a job reads params.yaml and the code when it begins, which may be days after its run began.
    """
    if ON_CLUSTER not in os.environ:
        return
    run = read_job_list()
    if run is not None and job_id(settings) not in run.planned:
        raise InputError(
            "params.yaml or code was edited, or another run began, since this job was planned; run snakemake again"
        )


def _listed(job: Any) -> ListedJob:  # noqa: ANN401 (Snakemake's, which has no public type)
    log, outputs = next(map(str, job.log), None), tuple(map(str, job.output))
    return ListedJob(job.rule.name, stage_of(job), job.message or job.rule.name, log, outputs)


def note_end(why: str) -> None:
    """Write down why the run of this process ends early."""
    jobs = read_job_list()
    if jobs is not None and jobs.process == this_run():
        _write(replace(jobs, ended=why))


def _write(jobs: JobList) -> None:
    with atomic(JOB_LIST) as temporary:
        temporary.write_text(json.dumps(asdict(jobs)), encoding="utf-8")


def read_job_list() -> JobList | None:
    """Return the jobs of the last run that had any; None where no run has written them down."""
    try:
        raw = json.loads(JOB_LIST.read_text(encoding="utf-8"))
        running(raw["process"])  # raises ValueError where this names no process
        jobs = tuple(ListedJob(**{**job, "outputs": tuple(job["outputs"])}) for job in raw["jobs"])
        earlier, planned = tuple(Took(*of) for of in raw["earlier"]), tuple(raw["planned"])
        return JobList(**{**raw, "jobs": jobs, "earlier": earlier, "planned": planned})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def holder() -> str | None:
    """Return `this_run` of the process that holds this folder; None where none does."""
    try:
        process = LOCK.read_text(encoding="utf-8").strip()
        return process if running(process) else None
    except (OSError, ValueError):
        return None


def began_at(process: str) -> float:
    """Return when a process of this name (`this_run`) began, in seconds, as time.time()."""
    return float(process.partition(":")[2])


@dataclass(frozen=True)
class JobTimes:
    """When a job began, wrote to its log last, and finished, in seconds, as time.time(); None where it has not.

    marked: whether Snakemake's mark of a job that runs is there. A job that failed, or that Ctrl-C stopped, has begun
    and has no mark; where Snakemake itself was killed, the mark stays.
    """

    began: float | None = None
    logged: float | None = None
    finished: float | None = None
    marked: bool = False


def times_of(job: ListedJob, run: JobList) -> JobTimes:
    """Return when a job of a run began and finished."""
    # The marks come first: of a job that finishes in between, the metadata are there when the mark is gone.
    marks = [mark for output in job.outputs if (mark := _modified(file_of(UNFINISHED, output), run.started))]
    logged = _modified(Path(job.log), run.started) if job.log else None
    written = [_modified(file_of(METADATA, output), run.started) for output in job.outputs]
    # Snakemake writes metadata of a failed job as well, and then deletes its outputs.
    if all(written) and all(map(os.path.exists, job.outputs)) and (recorded := _recorded(job)):
        return JobTimes(recorded[0], logged, recorded[1])
    return JobTimes(min(marks, default=logged), logged, None, bool(marks))


def _recorded(job: ListedJob) -> tuple[float, float] | None:
    """Return when a job began and finished, as Snakemake recorded it with the last output; None where it did not."""
    with suppress(OSError, ValueError, KeyError, IndexError):
        record = json.loads(file_of(METADATA, job.outputs[-1]).read_text(encoding="utf-8"))
        return record["starttime"], record["endtime"]
    return None


def _modified(path: Path, since: float) -> float | None:
    """Return when a file was written; None where it is not there, or older than a run."""
    with suppress(OSError):
        written = path.stat().st_mtime
        return written if written >= since - 1 else None
    return None
