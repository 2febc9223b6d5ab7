"""Files of the repository that the installed package holds too, so that `rmft eval` works in any folder."""

from pathlib import Path

from rmft.errors import NOT_HERE, InputError

IN_WHEEL = Path(__file__).parent / "files"  # pyproject.toml names what a wheel has there
ROOT = IN_WHEEL if IN_WHEEL.is_dir() else Path(__file__).parents[2]  # in an editable installation, the clone
CLONE = (Path("Snakefile"), Path("outputs.yaml"))  # together only in a clone: other projects have a Snakefile, too


def require_clone() -> None:
    """Raise InputError where the working folder is no clone of the repository."""
    if not CLONE[0].exists():
        raise InputError(f"{CLONE[0]}: {NOT_HERE}")


def find_file(path: str | Path) -> Path:
    """Return where a file or folder of the repository is: in the working folder, or else in the installed package.

    In a clone of the repository only the clone's own files count, so that a job never reads what lineage does not know.
    """
    packaged = ROOT / path
    return (
        packaged if packaged.exists() and not Path(path).exists() and not all(map(Path.exists, CLONE)) else Path(path)
    )
