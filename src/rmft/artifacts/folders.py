"""Write a new folder whole or not at all."""

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from rmft.errors import InputError


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder that takes the name `folder` if the block succeeds, and is deleted if the block fails.

    replace: an older folder of that name is deleted then. Raise InputError if `folder` exists and is not to be
    replaced, or where it cannot be written.
    """
    if not replace and (folder.exists() or folder.is_symlink()):
        raise InputError(f"{folder}: exists already; name a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.{os.getpid()}.") as temporary:
            whole = Path(temporary) / folder.name
            whole.mkdir()
            yield whole
            if replace and folder.exists():
                folder.rename(Path(temporary) / "old")
            whole.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted. Links to folders elsewhere are followed: another disk may have them."""
    found, seen, here = [], set(), folder.resolve()
    for root, folders, files in os.walk(folder, followlinks=True):
        for name in sorted(folders):
            place = Path(root, name).resolve()
            # What a link into this folder leads to is found at its own place.
            if Path(root, name).is_symlink() and (place in seen or place.is_relative_to(here)):
                folders.remove(name)
            seen.add(place)
        found += [path for name in files if (path := Path(root, name)).is_file()]
    return sorted(found)


def _sweep(folder: Path) -> None:
    """Delete what killed processes left that were writing `folder`."""
    begin = f".{folder.name}."
    for left in folder.parent.glob(f"{glob.escape(begin)}*.*"):
        process, *rest = left.name.removeprefix(begin).split(".")  # more parts: of a folder with a longer name
        if len(rest) == 1 and process.isdecimal() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
