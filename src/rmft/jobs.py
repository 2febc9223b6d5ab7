"""What each job depends on, its code included, as one record a job.

Snakemake sees it as one canonical JSON text, the job reads it back. A job is given nothing of params.yaml but its
record, so nothing can matter to it that Snakemake does not compare.
"""

from typing import Literal, Self, TypeVar

from rmft.lineage.code import fingerprint
from rmft.lineage.receipts import WORK
from rmft.params import (
    Algorithm,
    Evaluation,
    Figure,
    Model,
    Params,
    Problem,
    RewardSet,
    Section,
    Style,
    Table,
    Theory,
    Training,
)

COMMANDS = ("rewards", "training", "evaluation", "theory", "figures", "tables", "metrics")  # that jobs run
Kind = TypeVar("Kind", bound=Section)


class Code(Section):
    """What a job runs, see `lineage.code`: a digest, and the versions of libraries by name."""

    digest: str
    libraries: dict[str, str]


class Job(Section):
    """All that a job depends on, besides the files it reads."""

    code: Code | None = None  # None: run by hand

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `canonical` back, and note it for the receipts of what this process writes.

        Raise InputError with the dotted key.
        """
        WORK.settings = text
        return super().parse(text)


class RewardsJob(Job):
    """All that `rmft rewards` depends on."""

    seed: int
    name: str
    rewards: RewardSet


class TrainingJob(Job):
    """All that `rmft training` depends on."""

    seed: int
    training: Training
    model: Model


class EvaluationJob(Job):
    """All that `rmft evaluation` depends on, besides the files it reads."""

    seed: int
    problem: Problem
    evaluation: Evaluation
    mean: Literal["nominal", "clipped"]
    algorithms: dict[str, Algorithm]


class TheoryJob(Job):
    """All that `rmft theory` depends on."""

    seed: int
    theory: Theory


class FigureJob(Job):
    """All that `rmft figures` depends on, besides the files it reads. log_rows: of each experiment's training log."""

    label: str
    figure: Figure
    style: Style
    log_rows: list[int]
    scale_note: str | None


class TableJob(Job):
    """All that `rmft tables` depends on, besides the files it reads. theory_rows: of the file of minimisers."""

    seed: int
    label: str
    table: Table
    sources: list[tuple[str, str]]
    floor: float | None
    resamples: int
    theory_rows: int
    scale_note: str | None


class MetricsJob(Job):
    """All that `rmft metrics` depends on, besides the files it reads."""

    seed: int
    floor: float | None
    sources: list[tuple[str, str]]


def _part(kind: type[Kind], whole: Section) -> Kind:
    """Return the fields that `kind` has of a record that extends it."""
    return kind.model_validate({name: getattr(whole, name) for name in kind.model_fields})


def _code(command: str) -> Code:
    digest, libraries = fingerprint(command)
    return Code(digest=digest, libraries=libraries)


def rewards_job(params: Params, name: str) -> RewardsJob:
    """Return what the job that draws a reward set depends on."""
    return RewardsJob(code=_code("rewards"), seed=params.seed, name=name, rewards=params.rewards[name])


def training_job(params: Params, experiment: str) -> TrainingJob:
    """Return what an experiment's training depends on."""
    chosen = params.experiments[experiment]
    return TrainingJob(
        code=_code("training"), seed=params.seed, training=_part(Training, chosen), model=params.models[chosen.model]
    )


def evaluation_job(params: Params, experiment: str, evaluation: str) -> EvaluationJob:
    """Return what one evaluation of an experiment depends on, besides its models and rewards."""
    chosen = params.experiments[experiment]
    asked = chosen.evaluations[evaluation]
    algorithms = {name: params.evaluation.algorithms[name] for name in asked.algorithms}
    return EvaluationJob(
        code=_code("evaluation"),
        seed=params.seed,
        problem=_part(Problem, chosen),
        evaluation=asked,
        mean=params.evaluation.mean,
        algorithms=algorithms,
    )


def theory_job(params: Params) -> TheoryJob:
    """Return what the check of Theorem 1 depends on."""
    return TheoryJob(code=_code("theory"), seed=params.seed, theory=params.theory)


def figure_job(params: Params, label: str, scale_note: str | None) -> FigureJob:
    """Return what a figure depends on, besides its evaluations or training logs."""
    figure, style = params.figures.drawn[label], params.figures.style
    loops = [params.experiments[name].rmft for name in figure.experiments]
    rows = [] if figure.evaluations else [loop.iterations * loop.training_seeds for loop in loops]
    return FigureJob(
        code=_code("figures"), label=label, figure=figure, style=style, log_rows=rows, scale_note=scale_note
    )


def table_job(params: Params, label: str, scale_note: str | None) -> TableJob:
    """Return what a table depends on, besides its evaluations and the paper's values."""
    grid = params.theory
    table, measures = params.tables[label], params.evaluation
    sources = _evaluations_of(params, table.experiments)
    return TableJob(
        code=_code("tables"),
        seed=params.seed,
        label=label,
        table=table,
        sources=sources,
        floor=measures.floor,
        resamples=measures.resamples,
        theory_rows=0 if sources else len(grid.d) * len(grid.T) * len(grid.radius),
        scale_note=scale_note,
    )


def metrics_job(params: Params) -> MetricsJob:
    """Return what metrics.json depends on, besides all evaluations."""
    sources = _evaluations_of(params, list(params.experiments))
    return MetricsJob(code=_code("metrics"), seed=params.seed, floor=params.evaluation.floor, sources=sources)


def _evaluations_of(params: Params, experiments: list[str]) -> list[tuple[str, str]]:
    return [(name, evaluation) for name in experiments for evaluation in params.experiments[name].evaluations]
