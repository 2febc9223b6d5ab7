"""Write a file whole or not at all, with a receipt in a job of Snakemake's; turn failures to read into one line."""

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from zipfile import BadZipFile

import psutil

from rmft.artifacts.job import JOB_CONTEXT, is_job, refuse_orphan
from rmft.artifacts.receipts import receipt, receipt_path
from rmft.errors import InputError

ARTIFACTS = ("results", "data/rewards")  # every file below these folders is an artifact
SCRATCH = Path("scratch")  # where stages that are run by hand write what their jobs write to ARTIFACTS

SHORT = 12  # digits of a hash that are shown


def is_artifact(path: str) -> bool:
    """Return whether a path is one that only jobs write to."""
    return path.startswith(tuple(f"{folder}/" for folder in ARTIFACTS))


@contextmanager
def artifact(path: Path) -> Iterator[Path]:
    """Yield a temporary path as `atomic` does; in a job of Snakemake's, write a receipt as well.

    The receipt is written before the artifact takes its name, so that no artifact is without one.
    """
    with atomic(path) as temporary:
        yield temporary
        if is_job():
            text = receipt(path, sha256(temporary)).as_json()
            refuse_orphan()
            with atomic(receipt_path(path)) as file:
                file.write_text(text, encoding="utf-8")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` if the block succeeds and deleted if it fails.

    Raise InputError where the file cannot be written.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}{path.suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _sweep(path: Path) -> None:
    """Delete the temporary files of killed processes that were writing `path`."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*{glob.escape(path.suffix)}"):
        process = temporary.name.removeprefix(f".{path.name}.").removesuffix(path.suffix)
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            temporary.unlink(missing_ok=True)


@contextmanager
def reading(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Note for the job's receipts that `path` is read, and raise InputError, one line, where reading fails.

    An InputError of the block passes unchanged. errors: exceptions of the library that reads the file.
    """
    try:
        if is_job():
            JOB_CONTEXT.read[path.as_posix()] = _digest(path)
        yield
    except InputError:
        raise
    except FileNotFoundError:
        remedy = f"; `snakemake {path}` makes it" if is_artifact(path.as_posix()) else ""
        raise InputError(f"{path}: no such file{remedy}") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, RecursionError, MemoryError, *errors) as error:
        reason = " ".join(str(error).split())[:160]
        remedy = f"; `rmft lineage {path}` says how to make it again" if is_artifact(path.as_posix()) else ""
        raise InputError(f"{path}: unreadable or truncated ({reason}){remedy}") from None


def note_reading(paths: Iterable[Path]) -> None:
    """Note, for the receipts of a job, files that a library reads."""
    for path in paths:
        with reading(path):
            pass


def noted(path: Path) -> Path:
    """Return a path after noting, for the receipts of a job, that a library reads this file."""
    note_reading([path])
    return path


def note_hub(name: str, files: Iterable[Path]) -> None:
    """Note, for the receipts of a job, files of a hub's model that a library reads. name: id@revision."""
    if is_job():
        JOB_CONTEXT.hub.update({f"{name}/{file.name}": sha256(file) for file in files})


def note_response(key: str, response: object) -> None:
    """Note, for the receipts of a job, a response of an endpoint, new or from a journal. key: that of its request."""
    if is_job():
        text = json.dumps(response, sort_keys=True)
        JOB_CONTEXT.responses[key] = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def note_ran_with(name: str, version: str) -> None:
    """Note, for the receipts of a job, the version of a program that it runs besides its libraries."""
    if is_job():
        JOB_CONTEXT.ran_with[name] = version


def sha256(path: Path) -> str:
    """Return the file's SHA-256 in hexadecimal. Raise InputError where it cannot be read."""
    try:
        return _digest(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def altered_files(folder: Path, files: Mapping[str, str], done: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of a folder that is missing, or has another hash than it should, with a line about it.

    files: SHA-256 by path in the folder. done: what was done to the files, for the line.
    """
    for name, digest in files.items():
        path = folder / name
        if not path.is_file():
            yield path, f"missing: {path}"
        elif sha256(path) != digest:
            yield path, f"altered: {path} is not what was {done}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete(path: Path) -> None:
    """Delete an artifact, its receipt, and the folders that become empty."""
    for file in (path, receipt_path(path)):
        file.unlink(missing_ok=True)
        with suppress(OSError):  # until a folder is not empty
            for folder in file.parents:
                folder.rmdir()
