"""How artifacts are named: relative to the current folder, as Snakemake names them."""

from pathlib import Path


def from_here(path: Path) -> Path:
    """Return a path relative to the current folder, however it is written: absolute, with `..`, or through a link.

    A path to another place is returned as it is.
    """
    here = Path.cwd()
    for whole in (path.absolute(), path.resolve()):  # artifacts may be links to another disk: do not follow them first
        if ".." not in whole.parts and whole.is_relative_to(here):
            return whole.relative_to(here)
    return path
