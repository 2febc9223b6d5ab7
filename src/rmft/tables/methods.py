"""Table `qwen-ad-grpo-comparison`, and two of ours of this form: final regret after other ways to train the same model.

The first experiment is the reference. All models play the same instances with the same random numbers, so that
methods are compared game by game.

Symbols: S training seeds, n instances. A difference is a method's final regret less that of the first experiment.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmft.metrics.comparison import (
    PairedDifference,
    error_of_mean,
    paired_difference,
    smallest_sample,
    standard_error,
)
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import (
    Estimation,
    RenderedTable,
    direction_verdict,
    notes_on_comparison,
    tidy_frame,
    value_verdict,
)

TITLES = {
    "qwen-ad-grpo-comparison": "Iterative RMFT beside algorithm distillation and GRPO in bandits",
    "rivals-at-25": "Iterative RMFT beside other methods in bandits, at the horizon of training",
    "real-mab-rivals": "A real language model in bandits, trained by Iterative RMFT and by other methods",
    "selection-scores-mab": "What selects trajectories, in bandits: regret as played, or averaged over new draws",
    "selection-scores-fol": "What selects trajectories, with full information: regret or reward",
}
DECIMALS = 2  # that the paper prints
KEYS = ["experiment", "reward", "method", "instances", "played", "learnt"]
PAPER = ["player", "model", "T", "statistic", "value"]  # columns of the paper's values


@dataclass(frozen=True)
class TrainedBy:
    """How the model of an experiment was trained.

    method: its name in the table. played, learnt: trajectories played for training, and fine-tuned on (None: not
    known). cut: whether the scale gives fewer of them than the method's budget.
    """

    experiment: str
    method: str
    played: int
    learnt: int | None
    cut: bool


@dataclass(frozen=True)
class PaperMean:
    """The paper's mean final regret of a method, the model that played, and its rounds."""

    model: str
    horizon: int
    mean: float


@dataclass(frozen=True)
class MethodRow:
    """The final regret of one method's model (S, n) in one evaluation, beside the paper's.

    experiment: whose evaluation it is. trained: None for the base model. difference: to the first experiment, with a
    95% interval; None for the first experiment itself. paper_difference: the same difference in the paper, if it has
    both. comparable: whether the paper's model has played as many rounds, and
    several training seeds show how far runs differ.
    """

    experiment: str
    reward: str
    trained: TrainedBy | None
    final: np.ndarray
    difference: PairedDifference | None
    paper: PaperMean | None
    paper_difference: float | None
    comparable: bool

    @property
    def method(self) -> str:
        """Return the method's name in the table."""
        return self.trained.method if self.trained else "base model"

    @property
    def _cut(self) -> bool:
        return self.trained is not None and self.trained.cut

    @property
    def error(self) -> float:
        """Return the standard error of the mean over instances and, if there are several, training seeds."""
        return error_of_mean(self.final)

    @property
    def _error_to_paper(self) -> float:
        """Return the standard error of the difference between our mean and the paper's, which is one training's."""
        seeds, n = self.final.shape
        if n < 2 or seeds < 2:
            return math.nan
        return math.hypot(self.error, standard_error(self.final.mean(axis=0)), self.final.mean(axis=1).std(ddof=1))

    @property
    def verdict(self) -> str:
        """Return whether our mean is the paper's."""
        if self.paper is None or not self.comparable or self._cut:
            return ""
        seeds, n = self.final.shape
        sample = smallest_sample(n, seeds)
        return value_verdict(float(self.final.mean()), self._error_to_paper, self.paper.mean, sample, DECIMALS)

    @property
    def difference_verdict(self) -> str:
        """Return whether this method is worse, or better, than the first experiment as it is in the paper."""
        if self.paper_difference is None or self._cut:
            return ""
        sign = -1 if self.paper_difference > 0 else 1
        return direction_verdict(sign * self.difference.mean, self.difference.margin, sign * self.paper_difference)


def methods_table(
    estimation: Estimation,
    trained: Sequence[TrainedBy],
    results: Mapping[tuple[str, str], Mapping[str, PlayerResults]],
    paper: pd.DataFrame | None,
    beside: Mapping[str, str],
    model: str,
) -> RenderedTable:
    """Set the mean final regret of each method beside the paper's, with the difference to the first experiment.

    trained: the experiments, the first one being the reference. results: by (experiment, evaluation) and player.
    beside: the paper's names of methods by experiment, and of the base model by `base`. model: the one that plays.
    """
    of_paper = {}
    if paper is not None:
        of_paper = {row.player: PaperMean(row.model, int(row.T), float(row.value)) for row in paper.itertuples()}
    paper_means = {ours: of_paper[theirs] for ours, theirs in beside.items() if theirs in of_paper}
    rows = list(_rows(trained, results, paper_means, model))
    return RenderedTable(
        TITLES.get(estimation.label, estimation.label),
        tidy_frame(KEYS, (line for row in rows for line in _tidy(row))),
        _shaped(rows),
        _notes(rows, model, compared=bool(beside)),
    )


def _rows(
    trained: Sequence[TrainedBy],
    results: Mapping[tuple[str, str], Mapping[str, PlayerResults]],
    paper: Mapping[str, PaperMean],
    model: str,
) -> Iterator[MethodRow]:
    """Yield, evaluation by evaluation, the base model, the other methods in their order, and the first one last."""
    first, *others = trained
    for reward in dict.fromkeys(evaluation for _, evaluation in results):
        reference = results[first.experiment, reward]["trained"]
        models = {"base": (None, results[first.experiment, reward]["base"])}
        models |= {of.experiment: (of, results[of.experiment, reward]["trained"]) for of in (*others, first)}
        for name, (of, played) in models.items():
            itself, mean, first_mean = of is first, paper.get(name), paper.get(first.experiment)
            yield MethodRow(
                of.experiment if of else first.experiment,
                reward,
                of,
                played.final,
                None if itself else paired_difference(played.final, reference.final),
                mean,
                mean.mean - first_mean.mean if mean and first_mean and not itself else None,
                mean is not None
                and (mean.model, mean.horizon) == (model, played.regret.shape[2])
                and len(played.final) > 1,
            )


def _tidy(row: MethodRow) -> Iterator[tuple]:
    budget = (row.trained.played, row.trained.learnt) if row.trained else ("", "")  # so that numbers stay whole
    key = (row.experiment, row.reward, row.method, row.final.shape[1], *budget)
    difference = row.difference
    yield (*key, "mean", float(row.final.mean()), row.error, row.paper.mean if row.paper else None, row.verdict)
    if difference is not None:
        compared = (difference.error, row.paper_difference, row.difference_verdict)
        yield (*key, "difference", difference.mean, *compared)
        yield (*key, "difference_low", difference.low, None, None, "")
        yield (*key, "difference_high", difference.high, None, None, "")


def _shaped(rows: list[MethodRow]) -> pd.DataFrame:
    several = len({row.reward for row in rows}) > 1
    compared = any(row.paper is not None for row in rows)

    def line(row: MethodRow) -> dict[str, str]:
        interval = row.difference
        verdicts = dict.fromkeys(filter(None, (row.verdict, row.difference_verdict)))
        return {
            **({"reward": row.reward} if several else {}),
            "method": row.method,
            "played": f"{row.trained.played:,}" if row.trained else "",
            "learnt": "" if row.trained is None else "–" if row.trained.learnt is None else f"{row.trained.learnt:,}",
            "trainings": str(len(row.final)) if row.trained else "",
            "n": str(row.final.shape[1]),
            **({"paper": f"{row.paper.mean:.2f}" if row.paper else ""} if compared else {}),
            "regret": f"{row.final.mean():.2f} ± {row.error:.2f}",
            "difference [95%]": f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]" if interval else "",
            **({"verdict": "; ".join(verdicts)} if compared else {}),
        }

    return pd.DataFrame([line(row) for row in rows])


def _notes(rows: list[MethodRow], model: str, *, compared: bool) -> list[str]:
    if_compared = [
        "Values are compared where the paper's model plays and several training seeds are run. Else the sign "
        "of the difference is: direction only where it is the paper's, not reproduced where it is the other, "
        "inconclusive where the interval has 0 in it, none where a method was given less than its budget (cut)."
    ]
    return [
        "regret: mean at the last round over the same n instances, ± its standard error over instances and, of several "
        "trainings, over these.",
        f"difference: to {rows[-1].method}, the last row, game by game on the same instances, with a 95% interval; "
        "above 0 the other method is worse.",
        "played, learnt: trajectories that were played for training, by the model or by a teacher, and those that were "
        "chosen to learn from (one without a valid reply teaches nothing); –: a method of an extension chooses among "
        "those that were played.",
        *(if_compared if compared else []),
        *notes_on_comparison({}, model, (row.paper.model for row in rows if row.paper)),
    ]
