"""Stage `tables`: make a table of the paper, beside the values that the paper reports.

Reads evaluations, the minimisers of Theorem 1 or sets of scenarios, and the paper's values. Writes csv, md and tex.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.files import noted
from rmft.language.diversity import read_jargon
from rmft.language.scenarios import read_scenarios
from rmft.results import read_players, read_variants
from rmft.tables import claims, diversity, growth, methods, regret, replicates, sensitivity, theorem
from rmft.tables.entropy import entropy_table
from rmft.tables.layout import Estimation, RenderedTable
from rmft.workflow.records_outputs import TableJob


def run(job: TableJob, inputs: Sequence[Path], stem: Path) -> None:
    """Make the table."""
    make(job, inputs).save(stem)


def make(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Return a table made from the files at `paths`: the job's sources in order, then the paper's values if any."""
    table = _make(job, list(paths))
    if job.scale_note is None or job.table.form == "diversity":  # sets of scenarios have the same size at every scale
        return table
    return replace(table, notes=[*table.notes, job.scale_note])


def _make(job: TableJob, paths: list[Path]) -> RenderedTable:
    estimation = Estimation(job.seed, job.label, job.resamples, job.floor)
    beside, model = job.table.beside, job.models[0] if job.models else ""
    match job.table.form:
        case "growth":
            results, paper = read_variants(job.sources, paths[:-1]), read_csv(paths[-1], growth.PAPER)
            return growth.growth_table(estimation, results, paper, beside)
        case "regret":
            results, paper = read_variants(job.sources, paths[:-1]), read_csv(paths[-1], regret.PAPER)
            return regret.regret_table(estimation, results, paper, beside, model)
        case "theorem":
            return theorem.theorem_table(read_csv(paths[0], theorem.COLUMNS, job.theory_rows))
        case "diversity":
            *files, terms, values = paths
            texts = {
                name: [scenario.text for scenario in read_scenarios(noted(file))]
                for name, file in zip(job.table.scenarios, files, strict=True)
            }
            paper = read_csv(values, diversity.PAPER)
            return diversity.diversity_table(texts, read_jargon(noted(terms)), paper, generated=job.generated)
        case "sensitivity":
            values = [tuple(getattr(loop, name) for name in sensitivity.VARIED) for loop in job.loops]
            played = zip(values, map(read_players, paths[:-1]), strict=True)
            experiments = dict(zip(job.table.experiments, played, strict=True))
            return sensitivity.sensitivity_table(experiments, read_csv(paths[-1], sensitivity.PAPER), model)
        case "replicates":
            paper = read_csv(paths[1], replicates.PAPER)
            return replicates.replicates_table(estimation, read_players(paths[0]), paper, model)
        case "entropy":
            return entropy_table(dict(zip(job.sources, map(read_players, paths), strict=True)))
        case "claims":
            accuracies = {
                source: read_csv(path, claims.COLUMNS) for source, path in zip(job.sources, paths, strict=True)
            }
            return claims.claims_table(accuracies)
        case "methods":
            return _methods(job, estimation, paths)


def _methods(job: TableJob, estimation: Estimation, paths: list[Path]) -> RenderedTable:
    paper: pd.DataFrame | None = None
    if job.table.beside:
        *paths, values = paths
        paper = read_csv(values, methods.PAPER)
    results = dict(zip(job.sources, map(read_players, paths), strict=True))
    trained = [methods.TrainedBy(of.experiment, of.name, of.played, of.learnt, of.cut) for of in job.methods]
    return methods.methods_table(estimation, trained, results, paper, job.table.beside, job.models[0])
