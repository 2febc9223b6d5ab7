"""Sub-commands of `rmft` about what results were made from: prune, record, lineage, diff. They alone print."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from rmft.errors import InputError
from rmft.suite import FILE as MEASUREMENT

if TYPE_CHECKING:
    from rmft.lineage.audit import Finding
    from rmft.lineage.trace import Trace

TOOLS = "Tools"
app = typer.Typer()
TraceFormat = Literal["text", "json", "mermaid", "rocrate"]


@app.command(rich_help_panel=TOOLS)
def prune(
    path: Annotated[
        Path | None, Argument(help="A file or folder below results or data/rewards; default: both folders.")
    ] = None,
) -> None:
    """Delete artifacts that params.yaml no longer asks for. Files that no job wrote stay."""
    from rmft.artifacts.files import ARTIFACTS, delete
    from rmft.lineage.audit import retired
    from rmft.params import load
    from rmft.workflow.paths import on_demand
    from rmft.workflow.runs import hold_folder
    from rmft.workflow.targets import everything

    params = load().at_scale()
    hold_folder()
    wanted = [*everything(params), *on_demand(params)]
    for folder in [path] if path else map(Path, ARTIFACTS):
        for file in retired(folder, wanted):
            delete(file)
            print(f"deleted {file}, which is no part of the workflow any more")


@app.command(rich_help_panel=TOOLS)
def record(
    experiment: Annotated[str | None, Argument(help="An experiment that is built.")] = None,
    everything: Annotated[bool, Option("--all", help="Record everything that `snakemake` builds instead.")] = False,
) -> None:
    """Write an experiment's results to a bundle for git, and the pages of docs that show recorded results.

    A bundle has figures, tables, metrics, training logs, some games and their lineage; `snakemake exp_NAME` builds all.
    With --all: tables, metrics, what training selected, and README's figure. With neither: the pages alone.
    """
    from rmft.artifacts.text import write_text
    from rmft.package_data import require_clone
    from rmft.params import load
    from rmft.recorded.page import pages
    from rmft.recorded.recording import bundle_folder, copy_figure_of_readme, record_all
    from rmft.recorded.recording import record as record_experiment

    if experiment and everything:
        raise InputError("record: name an experiment, or give --all, and not both")
    require_clone()
    written: list[Path | str] = []
    if experiment or everything:
        sized = load().at_scale()
        folder = bundle_folder(sized, experiment)
        bundle = record_experiment(folder, sized, experiment) if experiment else record_all(folder, sized)
        written.append(f"{folder} ({len(bundle.files)} files)")
    if everything:
        written += copy_figure_of_readme()
    for path, text in pages().items():
        write_text(path, text)
        written.append(path)
    print(f"written: {', '.join(map(str, written))}; commit them")


@app.command(rich_help_panel=TOOLS)
def lineage(
    path: Annotated[
        Path | None, Argument(help="An artifact, say results/figures/parameter.pdf, or what `rmft eval` wrote.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Audit every artifact of the workflow instead.")] = False,
    by_default: Annotated[
        bool, Option("--by-default", help="With --all: leave out what is made on request only.")
    ] = False,
    full: Annotated[
        bool, Option("--full", help="Print every job back to the root seed; with --all, every problem.")
    ] = False,
    as_format: Annotated[TraceFormat, Option("--format", help="How to print it.")] = "text",
    output: Annotated[
        Path | None, Option(help="With --format rocrate: a new folder for the crate with all files in it.")
    ] = None,
) -> None:
    """Print what made an artifact, and verify every hash on the way back to the root seed.

    With --all, audit the whole tree: missing, altered, unrecorded, stale, orphan. Exit code 1 if anything is.
    """
    from rmft.recorded.bundle import bundle_of

    if everything == (path is not None):
        raise InputError("lineage: name one artifact, or say --all" + (", not both" if everything else ""))
    if by_default and not everything:
        raise InputError("--by-default goes with --all, not with an artifact")
    if everything and as_format != "text":
        raise InputError("--format goes with an artifact, not with --all")
    if output is not None and as_format != "rocrate":
        raise InputError("--output belongs to --format rocrate; for others: > FILE")
    if everything:
        _print_problems(_audit(by_default=by_default), full=full)
        return
    if (path / MEASUREMENT).is_file():
        path /= MEASUREMENT
    bundle, measured = bundle_of(path), path.name == MEASUREMENT
    if (bundle or measured) and (as_format != "text" or full):
        raise InputError(f"{path}: --format and --full go with artifacts of the workflow, not with recorded results")
    if measured:
        _print_measurement(path)
    elif bundle:
        _print_recorded(path, bundle)
    else:
        problems = _print_trace(path, as_format, output, full=full)
        _print_problems(problems, named=[problem.path for problem in problems], full=full)


def _audit(*, by_default: bool) -> "Sequence[Finding]":
    """Return the problems of all artifacts, or of those that are made by default; print how many there are."""
    from rmft.lineage.audit import audit
    from rmft.params import load
    from rmft.workflow.paths import on_demand
    from rmft.workflow.runs import reasons_to_run
    from rmft.workflow.targets import requested

    reasons, params = reasons_to_run(by_default=by_default), load().at_scale()
    problems = audit(reasons, requested(params) if by_default else on_demand(params))
    print(f"{len(reasons)} artifacts, {len(problems) or 'no'} problems")
    return problems


def _print_trace(path: Path, as_format: TraceFormat, output: Path | None, *, full: bool) -> "Sequence[Finding]":
    """Print what an artifact was made from, or write its crate; return the problems found on the way."""
    from rmft.lineage.text import as_text, as_tree
    from rmft.lineage.trace import trace

    traced = trace(path)
    if as_format == "text":
        print("\n".join((as_tree if full else as_text)(traced, shutil.get_terminal_size((120, 24)).columns)))
    else:
        _export(traced, as_format, output)
    return traced.problems


def _print_problems(problems: "Sequence[Finding]", *, named: Sequence[str] = (), full: bool) -> None:
    """Print problems, each with the command that mends it. Exit with code 1 where there are any.

    named: files that a command is to name where they are few, as it names artifacts that are made on request only.
    """
    from rmft.artifacts.files import is_artifact
    from rmft.lineage.audit import MANY, as_lines, naming_targets
    from rmft.params import load
    from rmft.workflow.targets import requested

    if not problems:
        return
    targets = set(filter(is_artifact, named)) if len(named) <= MANY else set()
    with suppress(InputError):  # in params.yaml, which an artifact's past does not depend on
        targets.update(requested(load().at_scale()))
    problems = naming_targets(problems, targets)
    for line in as_lines(problems, full=full):
        print(line, file=sys.stderr)
    raise typer.Exit(1)


def _print_recorded(path: Path, folder: Path) -> None:
    """Print what made a file of a results bundle. Exit with code 1 where a file of the bundle is another one."""
    from rmft.recorded.bundle import altered, as_text, read_bundle

    if not path.exists():
        raise InputError(f"{path}: no such file")
    bundle = read_bundle(folder)
    problems = list(altered(folder, bundle))
    verified = f"verified: {len(bundle.files)} hashes of this bundle's files"
    _print_verified(problems or [*as_text(path, folder, bundle), verified], problems)


def _print_measurement(path: Path) -> None:
    """Print what an eval.json was made from. Exit with code 1 where one of its files is not what was measured."""
    from rmft.suite.results import altered, as_text, read_result

    result = read_result(path)
    problems = list(altered(path, result))
    _print_verified(problems or as_text(path, result), problems)


def _print_verified(lines: Iterable[str], problems: Sequence[str]) -> None:
    """Print lines. Exit with code 1 where there are problems."""
    print("\n".join(lines))
    if problems:
        raise typer.Exit(1)


def _export(traced: "Trace", as_format: TraceFormat, output: Path | None) -> None:
    """Print a trace for another program, or write its crate; an artifact with problems has no crate."""
    from rmft.lineage.crate import as_crate, write_crate
    from rmft.lineage.export import as_json, as_mermaid

    if as_format == "json":
        print(json.dumps(as_json(traced), indent=2))
    elif as_format == "mermaid":
        print(as_mermaid(traced), end="")
    elif traced.problems:
        print("rmft: no crate was written, because of the problems below", file=sys.stderr)
    elif output is None:
        print(json.dumps(as_crate(traced).metadata.generate(), indent=2))
    else:
        write_crate(output, as_crate(traced))


@app.command(rich_help_panel=TOOLS)
def diff(
    a: Annotated[
        str, Argument(metavar="A", help="A commit, a DVC experiment, workspace, or an experiment of params.yaml.")
    ] = "HEAD",
    b: Annotated[
        str, Argument(metavar="B", help="The same; an experiment of params.yaml goes with another one.")
    ] = "workspace",
    as_json: Annotated[bool, Option("--json", help="Print JSON, in which nothing is shortened.")] = False,
) -> None:
    """Say which parameters, code, inputs and results differ between two commits or experiments.

    Example: `rmft diff numeric_mab numeric_mab_logits_normalised`
    """
    from rmft.tools.diff.revisions import compare
    from rmft.tools.diff.table import as_text

    found = compare(a, b)
    print(json.dumps(found.as_json()) if as_json else as_text(found))
