"""Run a stage of the workflow: from a job's record, as the rules do, or by hand from params.yaml.

By hand a stage reads the workflow's own files and writes under scratch/, so that nothing of the workflow is replaced.
"""

import inspect
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

from rmft.artifacts.files import SCRATCH, is_artifact
from rmft.artifacts.job import is_job
from rmft.artifacts.receipts import commit
from rmft.errors import InputError
from rmft.lineage.code import fingerprint
from rmft.workflow.job_list import refuse_unplanned
from rmft.workflow.records import Job


def run_stage(name: str, settings: str | None, options: Mapping[str, object], writes: Collection[str]) -> None:
    """Run a stage.

    settings: the job's record as JSON; None: by hand. options: of the command line, None or empty where not given: the
    files of the stage's `run`, and what names the job in params.yaml. writes: the options for files to write.
    """
    run = import_module(f"rmft.stages.{name}").run
    given = {option: value for option, value in options.items() if value not in (None, [])}
    files = inspect.signature(run).parameters.keys() - {"job"}
    arguments = {option: value for option, value in given.items() if option in files}
    if settings is None:
        keys = {option: value for option, value in given.items() if option not in files}
        settings, arguments = _by_hand(name, keys, arguments, writes)
    for option, parameter in inspect.signature(run).parameters.items():
        if option != "job" and option not in arguments and parameter.default is parameter.empty:
            raise InputError(f"{name}: --settings needs {'files' if option == 'inputs' else f'--{option}'} as well")
    job = get_type_hints(run)["job"].parse(settings)
    if is_job() and job.code:
        commit()  # for receipts: another one may be checked out before the job ends
        refuse_unplanned(settings)
        _refuse_edited_code(name, job)
    run(job, **arguments)


def _refuse_edited_code(name: str, job: Job) -> None:
    """Raise InputError if the stage's code is not the code that Snakemake recorded for this job when its run began."""
    digest, libraries = fingerprint(name, extensions=tuple(job.code.extensions))
    for library, version in libraries.items():
        if (there := job.code.libraries.get(library, version)) != version:
            cure = "install one of the two for both (of conda's environment: rm -r .snakemake/conda)"
            raise InputError(f"{name}: {library} {version} is installed here, and {there} where snakemake runs; {cure}")
    if digest != job.code.digest or not libraries.items() <= job.code.libraries.items():
        raise InputError(f"{name}: its code was edited since this run of snakemake began; run snakemake again")


def _by_hand(
    name: str, keys: Mapping[str, object], given: Mapping[str, object], writes: Collection[str]
) -> tuple[str, dict[str, object]]:
    """Return the record of a job of params.yaml, and all of its files. given: files of the user's own."""
    from rmft.workflow.by_hand import job_of

    settings, files = job_of(name, keys)
    arguments: dict[str, object] = {}
    for option, found in files.items():
        paths = [SCRATCH / path if option in writes else Path(path) for path in found]
        arguments[option] = paths if option == "inputs" else paths[0]
    arguments |= given
    read = _flat(value for option, value in arguments.items() if option not in writes)
    written = _flat(value for option, value in arguments.items() if option in writes)
    for path in read:
        if not path.exists():
            raise InputError(f"{path}: not found; run `snakemake {path}` first")
    _report(f"rmft {name}: reads", read)
    _report(f"rmft {name}: writes", written)
    if own := [path for path in written if is_artifact(path.as_posix())]:
        hint = "no job of Snakemake's writes it, so `rmft lineage --all` will name it"
        print(f"rmft {name}: {own[0]}: {hint}", file=sys.stderr)
    return settings, arguments


def _flat(values: Iterable[object]) -> list[Path]:
    return [path for value in values for path in (value if isinstance(value, list) else [value])]


def _report(what: str, files: list[Path], most: int = 4) -> None:
    if files:
        more = f" and {len(files) - most} more" if len(files) > most else ""
        print(f"{what} {', '.join(map(str, files[:most]))}{more}", file=sys.stderr)
