"""The report's question, does training on games of low regret lower regret, and its answer by rule from metrics.json.

An answer counts evaluations: lower or higher where the whole 95% interval of the paired difference is on one side of 0.
Its headline is about those of which p is below .05, too, after Holm's correction for all evaluations.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rmft.metrics.comparison import LEVEL, below_zero, two_sided_by_holm
from rmft.report.claims import Metrics
from rmft.report.evidence import final_regrets
from rmft.workflow.records_outputs import ReportJob

Row = dict[str, Any]  # final regrets of an evaluation, as `final_regrets` returns them
TAIL = 0.025  # the chance that an interval lies on a given side of 0 although nothing has changed


@dataclass(frozen=True)
class Count:
    """How many of some evaluations have significantly lower regret after training, significantly higher, or neither."""

    lower: int
    higher: int
    unsure: int

    @property
    def all(self) -> int:
        """Return the number of evaluations."""
        return self.lower + self.higher + self.unsure


def count(rows: Iterable[Row]) -> Count:
    """Count evaluations by the sign of their difference."""
    return _count(below_zero(row["interval"]) for row in rows)


def _count(signs: Iterable[bool | None]) -> Count:
    number = Counter(signs)
    return Count(number[True], number[False], number[None])


@dataclass(frozen=True)
class Group:
    """The evaluations of one environment, model and kind of agent.

    as_trained, other: by their reward processes. stands_for: the paper's models, where they are other ones.
    """

    environment: str
    model: str
    as_trained: list[Row]
    other: list[Row]
    stands_for: set[str]

    @property
    def rows(self) -> list[Row]:
        """Return all evaluations."""
        return [*self.as_trained, *self.other]


@dataclass(frozen=True)
class Answer:
    """What the evaluations of one kind of agent say. groups: by environment and model."""

    numeric: bool
    groups: list[Group]

    @cached_property
    def rows(self) -> list[Row]:
        """Return all evaluations."""
        return [row for group in self.groups for row in group.rows]

    @property
    def models(self) -> list[str]:
        """Return the models that play, with those of the paper that they stand for."""
        stand_for = {group.model: set() for group in self.groups}
        for group in self.groups:
            stand_for[group.model] |= group.stands_for
        return [f"{name} in place of {' and '.join(sorted(of))}" if of else name for name, of in stand_for.items()]

    @property
    def count(self) -> Count:
        """Return the count of all evaluations."""
        return count(self.rows)

    @property
    def corrected(self) -> Count:
        """Return the count of all evaluations after Holm's correction."""
        p_values = two_sided_by_holm([row["p"] for row in self.rows])
        return _count(
            below_zero(row["interval"]) if p is not None and p < LEVEL else None
            for row, p in zip(self.rows, p_values, strict=True)
        )

    @property
    def by_chance(self) -> float:
        """Return how many evaluations would look lower, on average, if training had changed nothing."""
        return TAIL * len(self.rows)

    @property
    def headline(self) -> str:
        """Return the answer in words."""
        found = self.corrected
        if found.lower == found.all:
            return "yes, in every evaluation"
        if found.unsure == found.all:
            return "one cannot tell from this build"
        if found.higher > found.lower:
            return "no, it more often raises regret"
        share = "most" if found.lower > found.all / 2 else "some"
        return f"yes in {share} evaluations{f'; in {found.higher} it raises regret' if found.higher else ''}"

    @property
    def change(self) -> tuple[float, float, float]:
        """Return the median, the lowest and the highest change of mean regret, as a share of the base model's."""
        shares = [share for row in self.rows if (share := change(row)) is not None]
        return (float(np.median(shares)), min(shares), max(shares)) if shares else (np.nan, np.nan, np.nan)

    @property
    def extremes(self) -> tuple[Row, Row] | None:
        """Return the evaluations with the largest fall and the largest rise (or smallest fall) in share, if any."""
        ranked = sorted((row for row in self.rows if change(row) is not None), key=change)
        return (ranked[0], ranked[-1]) if ranked else None

    def span(self, key: str) -> str:
        """Return the smallest and the largest number of instances (n) or of trainings of an evaluation."""
        low, high = (find(row[key] for row in self.rows) for find in (min, max))
        return f"{low}" if low == high else f"{low} to {high}"


def change(row: Row) -> float | None:
    """Return the change of mean regret as a share of the base model's; None where that is not above 0."""
    return (row["trained"] - row["base"]) / row["base"] if row["base"] > 0 else None


def read_answers(job: ReportJob, metrics: Metrics) -> list[Answer]:
    """Return the answers of language models and of agents that see numbers, if there are any."""
    return [
        Answer(numeric, groups) for numeric in (False, True) if (groups := list(_groups(job, metrics, numeric=numeric)))
    ]


def _groups(job: ReportJob, metrics: Metrics, *, numeric: bool) -> Iterator[Group]:
    trained = {name: of for name, of in job.trained.items() if of.numeric == numeric and name in metrics}
    keys = dict.fromkeys((of.environment, job.models[name]) for name, of in trained.items())
    for environment, model in keys:
        names = [name for name, of in trained.items() if (of.environment, job.models[name]) == (environment, model)]
        rows: dict[bool, list[Row]] = {True: [], False: []}
        for name in names:
            for evaluation, found in metrics[name].items():
                rows[evaluation in trained[name].as_trained].append(final_regrets(name, evaluation, found))
        stands_for = {trained[name].stands_for for name in names} - {model}
        yield Group(environment, model, rows[True], rows[False], stands_for)
