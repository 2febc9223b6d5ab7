"""The job that this process does: its settings, what it has read, and whether the Snakemake that started it lives."""

import os
import threading
import time
from dataclasses import dataclass, field

import psutil

from rmft.errors import InputError

CLOCK_SECONDS = 60.0  # by which a clock that is set may move the start of a process
ON_CLUSTER = "RMFT_ON_CLUSTER"  # set by Snakefile for its jobs on the nodes of a cluster
JOB_OF = "RMFT_JOB_OF"  # set by Snakefile for its jobs: `this_run` of the process that runs Snakemake

_callers: list[str] = []  # `this_run` of the process that Snakemake started, where that one handed its job over


@dataclass
class JobContext:
    """The settings that this process was given, and what it has read by now.

    read, hub: SHA-256 of files, and of files of models of a hub. responses: SHA-256 of an endpoint's responses, by key.
    ran_with: see `receipts.Receipt`.
    """

    settings: str = ""
    read: dict[str, str] = field(default_factory=dict)
    hub: dict[str, str] = field(default_factory=dict)
    responses: dict[str, str] = field(default_factory=dict)
    ran_with: dict[str, str] = field(default_factory=dict)


JOB_CONTEXT = JobContext()


def is_job() -> bool:
    """Return whether Snakemake started this process."""
    return JOB_OF in os.environ


def this_run(number: int | None = None) -> str:
    """Return a name for a process, this one by default, that no later process can have."""
    process = psutil.Process(number)
    return f"{process.pid}:{process.create_time()}"


def running(run: str) -> bool:
    """Return whether the process of a name that `this_run` gave is alive and no zombie."""
    number, started = run.split(":")
    try:
        process = psutil.Process(int(number))
        same = abs(process.create_time() - float(started)) < CLOCK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def done_for(caller: str) -> None:
    """Note that this process does the job of another one, named by `this_run`, and must not outlive it."""
    _callers.append(caller)


def refuse_orphan() -> None:
    """Raise InputError in a job whose Snakemake is gone, or gave it up: newer files may have been made already."""
    run = [os.environ[JOB_OF]] if is_job() else []
    if not all(map(running, [*run, *_callers])):
        raise InputError("the snakemake that started this job is gone, or gave it up; nothing is written")


def end_with_run(every_seconds: float = 0.5) -> None:
    """In a job, watch from a thread whether its Snakemake still runs, and end with it."""

    def watch(run: str) -> None:
        while running(run):
            time.sleep(every_seconds)
        os._exit(1)

    if is_job():
        threading.Thread(target=watch, args=[os.environ[JOB_OF]], daemon=True).start()
