"""Write the results bundle of an experiment, or of everything, that is built."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from shutil import copyfile
from typing import Any

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.files import sha256
from rmft.artifacts.folders import new_folder
from rmft.artifacts.here import named_apart, without_folders
from rmft.artifacts.json_files import write_json, write_jsonl
from rmft.artifacts.text import write_text
from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.environments.regret import EVALUATED
from rmft.errors import InputError, unknown
from rmft.lineage.crate import as_crate, identity
from rmft.lineage.trace import Trace, trace
from rmft.params import Params
from rmft.recorded.bundle import LINEAGE, SUMMARY, Bundle
from rmft.recorded.summary import built_metrics, summary_of
from rmft.selection import Scoring, final_regrets, table_of
from rmft.workflow import paths, targets
from rmft.workflow.current import refuse_other_parameters
from rmft.workflow.parameters import parameters_of

SHOWN = ("worst", "median", "best")  # games of each player that a bundle holds, by their regret
FIGURE_OF_README = Path("docs/images/tfbandit.png")
ENDINGS = {"figures": ("png", "csv"), "tables": ("csv", "md")}


def record(folder: Path, params: Params, experiment: str) -> Bundle:
    """Write the bundle of an experiment, in place of an earlier one in this folder.

    Raise InputError for an experiment whose games are not played in words, and where one of the experiment's artifacts
    is missing, is not what its job wrote, or was made with other parameters.
    """
    if experiment not in params.experiments:
        raise InputError(f"record: {unknown(experiment, params.experiments)}")
    if not params.experiments[experiment].in_words:
        raise InputError(
            f"record: {experiment}: its games are not played in words; `rmft record --all` records what it gave"
        )
    if folder.exists() and not (folder / paths.BUNDLE).exists():
        raise InputError(f"record: {folder}: holds other things than a bundle of {experiment}; rename the experiment")
    shown = params.only(experiment)
    outputs = [f"results/{name}" for name in _outputs(shown)]
    traced = _built(shown, [*targets.artifacts_of(shown, experiment), *outputs], f"exp_{experiment}")
    with new_folder(folder, replace=True) as whole:
        for source in outputs:
            _copy(source, whole)
        _copy_training(whole, shown, experiment)
        _copy_games(whole, shown, experiment)
        write_json(whole / paths.BUNDLE_METRICS, built_metrics(shown, experiment))
        write_json(whole / SUMMARY, {experiment: summary_of(shown, experiment)})
        _write_lineage(whole, shown, traced)
        return _described(whole, params, shown, traced)


def bundle_folder(params: Params, experiment: str | None) -> Path:
    """Return the folder of an experiment's bundle, or of that of everything: see `rmft.recorded.bundle`."""
    of = params.experiments.get(experiment)
    if of is None or of.scale != "own":
        return Path(paths.RECORDED, params.scale, experiment or "all")
    pretrained = {*paths.made_model_of(params, of.model)} & {*paths.pretrained(params)}
    return Path(paths.RECORDED, "pretrained" if pretrained else "", experiment)


def record_all(folder: Path, params: Params) -> Bundle:
    """Write the bundle of everything that `snakemake` builds by default: metrics, tables, and how the models learnt.

    Raise InputError where an artifact is missing, is not what its job wrote, or was made with other parameters.
    """
    shown = params.by_default
    made = [path for path in targets.everything(shown) if path not in paths.report_of(shown)]
    traced = _built(shown, made, "all")
    with new_folder(folder, replace=True) as whole:
        for name in _outputs(shown):
            if name.startswith("tables/"):
                _copy(f"results/{name}", whole)
        _copy(paths.metrics_of(shown)[0], whole)
        played = [name for name, of in shown.experiments.items() if of.in_words]
        write_json(whole / SUMMARY, {name: summary_of(shown, name) for name in played})
        return _described(whole, params, shown, traced)


def copy_figure_of_readme() -> list[Path]:
    """Copy the figure that README shows from the results, where it is built; return what was written."""
    built = Path("results/figures", FIGURE_OF_README.name)
    if not built.exists():
        return []
    copyfile(built, FIGURE_OF_README)
    return [FIGURE_OF_README]


def _built(shown: Params, made: list[str], target: str) -> Trace:
    """Return what made some artifacts. target: of Snakemake's, builds them."""
    for path in made:
        if not Path(path).exists():
            raise InputError(f"record: {path} is not there yet; `snakemake {target}` builds all that is recorded")
    traced = trace(*map(Path, made))
    if traced.problems:
        raise InputError(f"record: {traced.problems[0]}")
    refuse_other_parameters("record", shown, made, target)
    return traced


def _outputs(shown: Params) -> Iterator[str]:
    """Yield the names of the files of all figures and tables."""
    for kind, labels in (("figures", shown.figures.drawn), ("tables", shown.tables)):
        yield from (f"{kind}/{label}.{ending}" for label in labels for ending in ENDINGS[kind])


def _copy(source: str, folder: Path) -> None:
    """Copy a file of results to its place in the bundle."""
    target = folder / Path(source).relative_to("results")
    target.parent.mkdir(parents=True, exist_ok=True)
    copyfile(source, target)


def _copy_training(folder: Path, shown: Params, experiment: str) -> None:
    """Copy the log of each iteration's fine-tuning, and which games it learnt from."""
    for path in map(Path, targets.training_of(shown, experiment)):
        if path.name == "training-log.csv":
            _copy(str(path), folder)
        if path.name == "selection.parquet":
            target = folder / path.relative_to("results").with_suffix(".csv")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_csv(target, read_selection(path))


def _copy_games(folder: Path, shown: Params, experiment: str) -> None:
    """Write some games of each player in each evaluation, as JSON lines."""
    chosen = shown.experiments[experiment]
    for evaluation in chosen.evaluations:
        for path in map(Path, paths.held_out_of(shown, experiment, evaluation).values()):
            write_jsonl(
                folder / path.relative_to("results").with_suffix(".jsonl"), _some_games(path, shown, experiment)
            )


def _some_games(path: Path, shown: Params, experiment: str) -> Iterator[dict[str, Any]]:
    """Yield the worst, the median and the best game of a player, each with its place and its regret."""
    chosen = shown.experiments[experiment]
    games = read_trajectories(path, tokens=False)
    scoring = Scoring(chosen.environment, EVALUATED, shown.evaluation.mean)
    regrets = final_regrets(games, table_of(games), scoring)
    order = (-regrets).argsort(kind="stable")
    for place, row in zip(SHOWN, (order[0], order[len(order) // 2], order[-1]), strict=True):
        columns = ("scenario", "d", "rewards", "prompt", "reply", "action", "attempts", "fallback")
        yield {"place": place, "regret": float(regrets[row]), **{name: games[name][row] for name in columns}}


def _write_lineage(folder: Path, shown: Params, traced: Trace) -> None:
    """Write the crate of each figure and table: every job and every file's hash, back to the root seed."""
    for kind, labels in (("figures", shown.figures.drawn), ("tables", shown.tables)):
        for label in labels:
            crate = as_crate(traced.part(f"results/{kind}/{label}.csv"))
            path = folder / LINEAGE / kind / label / "ro-crate-metadata.json"
            write_text(path, json.dumps(crate.metadata.generate(), indent=1) + "\n")


def _described(folder: Path, params: Params, shown: Params, traced: Trace) -> Bundle:
    """Write bundle.json, and return what it says."""
    records = [ancestor.record for ancestor in traced.ancestors.values() if ancestor.record]
    jobs = {identity(record): record for record in records}.values()  # jobs on other weights may share their settings
    ends = [record.started + timedelta(seconds=record.wall_seconds) for record in jobs]
    given = {path: of.sha256 for path, of in traced.ancestors.items() if of.record is None}
    weights = {path: digest for path, digest in given.items() if path.endswith((".gguf", ".safetensors"))}
    for record in jobs:
        weights |= record.receipt.hub
    bundle = Bundle(
        experiments={name: without_folders(parameters_of(params, name)) for name in shown.experiments},
        figures=list(shown.figures.drawn),
        tables=list(shown.tables),
        weights={named_apart(path): digest for path, digest in sorted(weights.items())},
        commits=sorted({str(record.receipt.commit) for record in jobs}),
        machines=sorted({record.receipt.machine for record in jobs}),
        began=min(record.started for record in jobs).isoformat(timespec="seconds"),
        ended=max(ends).isoformat(timespec="seconds"),
        job_hours=round(sum(record.wall_seconds for record in jobs) / 3600, 2),
        files={
            file.relative_to(folder).as_posix(): sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()
        },
    )
    write_json(folder / paths.BUNDLE, asdict(bundle))
    return bundle
