"""Runs of Snakemake: one at a time in a folder, and only where jobs can write."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO, TypeVar

from rmft.artifacts.job import this_run
from rmft.errors import InputError, without_workflow
from rmft.package_data import require_clone

LOCK = Path(".snakemake/flock")
DVC_LOCKS, DVC_GUARD = Path(".dvc/tmp/rwlock"), Path(".dvc/tmp/rwlock.lock")  # its list of locks, and who may edit it
DRY_RUN_SECONDS = 60.0  # how long a run waits for dry runs
Result = TypeVar("Result")

_held: list[TextIO] = []  # open until the process ends, by whatever end
_temporary: list[Path] = []  # folders that this process leaves behind where it stops at once


def is_dry_run(arguments: Sequence[str]) -> bool:
    """Return whether the arguments of Snakemake ask for a dry run, also as in `-np`; `-Rsection` is none."""
    return any(re.fullmatch(r"-[Fkfpqt]*n[Fkfpqtn]*|--dry-?run", word) for word in arguments)


def hold_folder(*, dry: bool = False) -> None:
    """Keep other runs out of this folder until this process ends; a dry run keeps out no other dry run.

    A run waits some time for dry runs to end, which take seconds. Raise InputError where another run holds the folder.
    (Snakemake's own lock outlives a killed run.)
    """
    try:
        LOCK.parent.mkdir(exist_ok=True)
        file = LOCK.open("a", encoding="utf-8")
        if dry:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        else:
            _lock_alone(file)
            with suppress(OSError):  # a full disk keeps nobody from `rmft prune`
                os.truncate(file.fileno(), 0)
                os.write(file.fileno(), this_run().encode())  # whom `rmft status` looks for
    except BlockingIOError:
        at_work = "another snakemake is at work in this folder (`rmft status` shows it)"
        raise InputError(f"{at_work}; wait until it ends, or stop it") from None
    except OSError as error:
        raise InputError(f"{LOCK}: cannot be locked: {error.strerror or error}") from None
    _held.append(file)


def _lock_alone(file: TextIO) -> None:
    """Lock a file, and wait while only dry runs hold it. Raise BlockingIOError where another run does."""
    ends = time.monotonic() + DRY_RUN_SECONDS
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # which dry runs share
            fcntl.flock(file, fcntl.LOCK_UN)
            if time.monotonic() > ends:
                raise
            time.sleep(0.1)


def let_wait(scheduler: Any, jobs: int) -> None:  # noqa: ANN401 (Snakemake's, which has no public type)
    """Let so many jobs that take no core wait side by side; Snakemake starts five beyond the cores, and no more."""
    executor = scheduler._executor
    if hasattr(executor, "pool"):  # `snakemake --touch` starts no jobs
        executor.workers += jobs
        executor.pool = ThreadPoolExecutor(executor.workers)


def drop_broken_dvc_locks() -> None:
    """Delete DVC's list of locks where a killed DVC left half of it: DVC would refuse every command until then."""
    # A DVC that is at work holds the guard. It must not be made here: with `core.hardlink_lock` it is the lock itself.
    with suppress(OSError), DVC_GUARD.open("r+", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            json.loads(DVC_LOCKS.read_bytes())
        except ValueError:
            DVC_LOCKS.unlink()


def refuse_own_server(settings: Iterable[str]) -> None:
    """Raise InputError where jobs of a cluster need our own server: it plays for one run, and each is a run of its own.

    settings: the jobs' records, as JSON.
    """
    for record in map(json.loads, settings):
        player = record.get("judge") or record
        if player.get("served"):
            name = player["model_name"]
            cure = (
                f"start `rmft serve` where all nodes reach it; name it in models.{name}.base_urls, in place of serves"
            )
            raise InputError(f"{name}: our own server plays on one machine only; {cure}")


def refuse_read_only(paths: Iterable[str]) -> None:
    """Raise InputError where a file that a job is to write, or a folder for it, would lie in a read-only folder."""
    for folder in dict.fromkeys(Path(path).parent for path in paths):
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not os.access(there, os.W_OK):
            raise InputError(f"{folder}: Permission denied; jobs have to write there")


def or_stop(check: Callable[..., Result], *arguments: object, **options: object) -> Result:
    """Return what a check of the Snakefile returns; where it raises InputError, print its line and exit with code 2.

    Snakemake would print an exception with a traceback.
    """
    try:
        return check(*arguments, **options)
    except InputError as error:
        stop(error)


def stop(error: InputError) -> NoReturn:
    """Print the line of an error and exit with code 2."""
    print(f"rmft: {error}", file=sys.stderr, flush=True)
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(2)


def remove_when_stopped(folder: Path) -> None:
    """Note a temporary folder that `stop` is to remove."""
    _temporary.append(folder)


def why_not(check: Callable[[], object]) -> InputError | None:
    """Return the InputError that a check raises, if it does."""
    try:
        check()
    except InputError as error:
        return error
    return None


def check_installed(library: str) -> None:
    """Raise InputError where a library of the extra `workflow` is not installed."""
    if find_spec(library) is None:
        raise InputError(without_workflow(library))


def run_tool(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake or DVC to its end, in an environment that is activated or not.

    Raise InputError where the program is not installed, or the current folder is no clone of the repository.
    """
    program, *arguments = command
    check_installed(program)
    require_clone()
    beside = Path(sys.executable).with_name(program)
    program = str(beside) if beside.exists() else program
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def ask_snakemake(*arguments: str, audit: Literal["all", "default"] = "all") -> str:
    """Return what Snakemake says of the workflow. Raise InputError with its last line where it fails.

    Snakemake may be at work in this folder at the same time, and the tree need not be in order. audit: whether the
    default target has what is made on request, too, as far as it is there.
    """
    # config: the Snakefile leaves out what would refuse to start on a tree that is not in order.
    answer = run_tool(["snakemake", *arguments, "--nolock", "--config", f"audit={audit}"])
    if answer.returncode:
        line = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"snakemake {arguments[0]} failed: {line.strip().removeprefix('rmft: ')}")
    return answer.stdout


def reasons_to_run(*, by_default: bool = False) -> dict[str, str]:
    """Return for every artifact of the workflow why Snakemake would make it (again), or "" where it would not.

    by_default: leave out what is made on request only. Raise InputError where Snakemake fails.
    """
    reasons, summary = {}, ask_snakemake("--summary", audit="default" if by_default else "all")
    _, _, table = summary.partition("output_file\t")  # an extension may print before it
    for line in table.splitlines()[1:]:
        path, _date, _rule, _log, status, plan = line.split("\t")
        reasons[path] = "" if plan == "no update" else status
    return reasons
