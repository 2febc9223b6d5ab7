"""Results bundles: folders below data/recorded with results that take long to rebuild, and where they came from.

data/recorded/NAME is an experiment at its own size, which docs/real-models.md and the report show;
data/recorded/pretrained/NAME is one whose model is pre-trained here, and data/recorded/SCALE/NAME one at a scale.

`bundle.json` names the experiments with all their parameters, the models' weights, the commits, the machines, the time
that all jobs took, and the SHA-256 of every other file of the bundle.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts.files import altered_files
from rmft.artifacts.here import from_here, move_away
from rmft.artifacts.json_files import read_json
from rmft.errors import InputError
from rmft.workflow.paths import BUNDLE, RECORDED

SUMMARY, LINEAGE = "summary.json", "lineage"


@dataclass(frozen=True)
class Bundle:
    """What bundle.json says.

    experiments: all parameters, by name. figures, tables: labels. weights: SHA-256 of the files of the models, by path
    or by id@revision/name on the hub. commits, machines: of the jobs. began, ended: of the first and of the last job,
    ISO 8601. job_hours: of all jobs, added up. files: SHA-256 of the bundle's other files, by path in the bundle.
    """

    experiments: dict[str, Any]
    figures: list[str]
    tables: list[str]
    weights: dict[str, str]
    commits: list[str]
    machines: list[str]
    began: str
    ended: str
    job_hours: float
    files: dict[str, str]


def read_bundle(folder: Path) -> Bundle:
    """Return what a bundle says of itself. Raise InputError where its bundle.json is missing or malformed."""
    path = folder / BUNDLE
    try:
        return Bundle(**read_json(path))
    except TypeError as error:
        raise InputError(f"{path}: not the description of a results bundle ({error}); restore it from git") from None


def bundles(root: Path = Path(RECORDED)) -> list[Path]:
    """Return the folders of all bundles."""
    return sorted(path.parent for path in root.rglob(BUNDLE))


def bundle_of(path: Path, root: Path = Path(RECORDED)) -> Path | None:
    """Return the bundle that a file belongs to; None for a file of no bundle."""
    path = from_here(path)
    return next((folder for folder in bundles(root) if path.is_relative_to(folder)), None)


def altered(folder: Path, bundle: Bundle) -> Iterator[str]:
    """Yield a line for each file in a bundle's folder that is missing, was not recorded, or is not as recorded."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.relative_to(folder).as_posix() not in (*bundle.files, BUNDLE):
            yield f"unrecorded: {file} is no file of this bundle; run `{move_away(file)}`"
    for path, line in altered_files(folder, bundle.files, "recorded"):
        yield f"{line}; run `git checkout {path}`"


def as_text(path: Path, folder: Path, bundle: Bundle) -> Iterator[str]:
    """Yield what made a recorded file, in a few lines."""
    yield f"{path}"
    experiments = list(bundle.experiments)
    again = f"snakemake exp_{experiments[0]}" if len(experiments) == 1 else "make reproduce"
    yield f"  recorded, not rebuilt here: `{again}` builds it anew"
    yield f"  experiments {', '.join(experiments)}"
    yield f"  jobs        {bundle.began} to {bundle.ended}, {bundle.job_hours:.1f} hours in all"
    yield f"  machine     {'; '.join(bundle.machines)}"
    yield f"  code        commit {', '.join(bundle.commits)}"
    for name, digest in bundle.weights.items():
        yield f"  weights     {name}, sha256 {digest}"
    every_job = f"; every job back to the root seed: {folder / LINEAGE}" if (folder / LINEAGE).is_dir() else ""
    yield f"  parameters  in {folder / BUNDLE}{every_job}"
