"""How files are named: artifacts relative to the current folder, as Snakemake names them; others by their last name."""

import hashlib
import shlex
from pathlib import Path, PurePath
from typing import Any


def from_here(path: Path) -> Path:
    """Return a path relative to the current folder, however it is written: absolute, with `..`, or through a link.

    A path to another place is returned as it is.
    """
    here = Path.cwd()
    for whole in (path.absolute(), path.resolve()):  # artifacts may be links to another disk: do not follow them first
        if ".." not in whole.parts and whole.is_relative_to(here):
            return whole.relative_to(here)
    return path


def is_outside(path: str) -> bool:
    """Return whether a path leads out of the current folder, as that of a model of one's own may."""
    return PurePath(path).is_absolute() or ".." in PurePath(path).parts


def without_folder(path: str) -> str:
    """Return a path as results show it that others read: of one that leads out of the current folder, the last name."""
    return PurePath(path).name if is_outside(path) else path


def named_apart(path: str) -> str:
    """Return a path as `without_folder` does, with a hash of it where it leads out, so that two stay two."""
    return f"{without_folder(path)} ({hashlib.sha256(path.encode()).hexdigest()[:8]})" if is_outside(path) else path


def without_folders(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Return a JSON value with `without_folder` of every text in it that could be a path."""
    if isinstance(value, dict):
        return {name: without_folders(of) for name, of in value.items()}
    if isinstance(value, list):
        return [without_folders(of) for of in value]
    return without_folder(value) if isinstance(value, str) else value


def move_away(path: Path | str) -> str:
    """Return the command that moves a file out of the workflow: into the current folder, under a name of its own."""
    return shlex.join(["mv", str(path), str(path).strip("/").replace("/", "-")])
