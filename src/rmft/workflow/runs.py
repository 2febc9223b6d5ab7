"""What ties a run of Snakemake to its folder and to its jobs: one run at a time, and no job outlives its run."""

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import psutil

from rmft.errors import InputError

LOCK = Path(".snakemake/flock")
CLOCK_SECONDS = 60.0  # by which a clock that is set may move the start of a process
JOB_OF = "RMFT_JOB_OF"  # set by Snakefile for its jobs: `this_run` of the process that runs Snakemake
INTERRUPTED = 130  # the exit code after Ctrl-C

_held: list[TextIO] = []  # open until the process ends, by whatever end
_callers: list[str] = []  # `this_run` of the process that Snakemake started, where that one handed its job over


def hold_folder() -> None:
    """Keep other runs out of this folder until this process ends.

    Raise InputError where another run holds it. (Snakemake's own lock outlives a killed run.)
    """
    try:
        LOCK.parent.mkdir(exist_ok=True)
        file = LOCK.open("w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError("another snakemake is at work in this folder; wait until it ends, or stop it") from None
    except OSError as error:
        raise InputError(f"{LOCK}: cannot be locked: {error.strerror or error}") from None
    _held.append(file)


def refuse_read_only(outputs: Iterable[str]) -> None:
    """Raise InputError if a file that is to be made (again) lies in a folder that cannot be written to."""
    for folder in dict.fromkeys(Path(path).parent for path in outputs):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise InputError(f"{folder}: Permission denied; jobs have to write there")


def this_run(process: int | None = None) -> str:
    """Return a name for a process, this one by default, that no later one can have."""
    found = psutil.Process(process)
    return f"{found.pid}:{found.create_time()}"


def is_job() -> bool:
    """Return whether Snakemake started this process."""
    return JOB_OF in os.environ


def done_for(caller: str) -> None:
    """Note that this process does a job for another one (`this_run`), and is an orphan without it."""
    _callers.append(caller)


def refuse_orphan() -> None:
    """Raise InputError in a job whose run is gone, or gave it up: newer files may have been made already."""
    run = [os.environ[JOB_OF]] if is_job() else []
    if not all(map(running, [*run, *_callers])):
        raise InputError("the snakemake that started this job is gone, or gave it up; nothing is written")


def end_with_run(every_seconds: float = 0.5) -> None:
    """In a job, watch from the background whether its run is still there, and end with it."""

    def watch(run: str) -> None:
        while running(run):
            time.sleep(every_seconds)
        os._exit(1)

    if is_job():
        threading.Thread(target=watch, args=[os.environ[JOB_OF]], daemon=True).start()


def running(run: str) -> bool:
    """Return whether the process of that name (`this_run`) is alive and no zombie."""
    number, started = run.split(":")
    try:
        process = psutil.Process(int(number))
        same = abs(process.create_time() - float(started)) < CLOCK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def process_exists(number: int) -> bool:
    """Return whether there is a process of this number."""
    return psutil.pid_exists(number)


def run_tool(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment to its end. Raise InputError where there is none of its name."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError(f"{command[0]}: not found; activate the environment: source .venv/bin/activate") from None
