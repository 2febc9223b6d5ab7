"""RenderedTable `qwen-ad-grpo-comparison`, and ours of its form: what other ways of teaching the same model come to.

The first experiment is the one that the others are compared with. All play the same instances with the same random
numbers, so that they are compared game by game.

Symbols: n instances. A difference is another method's final regret less that of the first experiment.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.metrics.comparison import paired_difference
from rmft.results import PlayerResults, read_players
from rmft.streams import stream
from rmft.tables.layout import DIRECTION_ONLY, INCONCLUSIVE, NOT_REPRODUCED, VALUES, RenderedTable, value_verdict
from rmft.workflow.records import TableJob

TITLES = {
    "qwen-ad-grpo-comparison": "Iterative RMFT beside algorithm distillation and GRPO in bandits",
    "selection-scores-mab": "What selects trajectories, in bandits: their regret, or the part of it that is not luck",
    "selection-scores-fol": "What selects trajectories, with full information: regret or reward",
}
DECIMALS = 2  # that the paper prints
KEYS = ["reward", "method", "instances", "played", "learnt"]


@dataclass(frozen=True)
class Row:
    """What one method comes to in one evaluation.

    final: (S, n), final regrets by training seed and instance. played, learnt: trajectories, None for the base model.
    difference, low, high: to the first experiment, with a 95% interval; NaN of itself. paper, paper_difference: the
    same two of the paper, if it has them, of paper_model.
    """

    reward: str
    method: str
    final: np.ndarray
    played: int | None
    learnt: int | None
    difference: float
    low: float
    high: float
    difference_error: float
    paper_model: str | None
    paper: float | None
    paper_difference: float | None
    cut: bool  # whether it was given less than its budget
    comparable: bool  # whether the paper's model has played as many rounds, and several seeds tell how far runs differ

    @property
    def error(self) -> float:
        """Return the standard error of the mean over instances, and training seeds where there are several."""
        seeds, n = self.final.shape
        over_instances = self.final.mean(axis=0).std(ddof=1) / math.sqrt(n) if n > 1 else math.nan
        over_seeds = self.final.mean(axis=1).std(ddof=1) / math.sqrt(seeds) if seeds > 1 else 0.0
        return math.hypot(over_instances, over_seeds)

    @property
    def verdict(self) -> str:
        """Say of the paper's mean whether it is ours."""
        if self.paper is None or not self.comparable or self.cut:
            return ""
        return value_verdict(float(self.final.mean()), math.sqrt(2) * self.error, self.paper, DECIMALS)

    @property
    def difference_verdict(self) -> str:
        """Say whether this method is worse, or better, than the first experiment as it is in the paper."""
        if self.paper_difference is None or self.cut:
            return ""
        if self.low <= 0 <= self.high:
            return INCONCLUSIVE
        return DIRECTION_ONLY if (self.difference > 0) == (self.paper_difference > 0) else NOT_REPRODUCED


def methods_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Set the mean final regret of each method beside the paper's, with the difference to the first experiment."""
    evaluations, paper = (paths[:-1], paths[-1]) if job.table.beside else (paths, None)
    rows = list(_rows(job, evaluations, _printed(paper) if paper else {}))
    tidy = pd.concat(map(_tidy, rows), ignore_index=True)
    return RenderedTable(TITLES.get(job.label, job.label), tidy, _shaped(rows), _notes(job, rows))


def _printed(path: Path) -> dict[str, tuple[str, int, float]]:
    """Read the paper's mean regret by its own names of methods, with the model that played and the rounds."""
    frame = read_csv(path, ["player", "model", "T", "statistic", "value"])
    return {row.player: (row.model, int(row.T), float(row.value)) for row in frame.itertuples()}


def _rows(job: TableJob, paths: Sequence[Path], printed: dict[str, tuple[str, int, float]]) -> Iterator[Row]:
    """Yield, evaluation by evaluation, the base model, the other methods in their order, and last the first one."""
    by_source = dict(zip(job.sources, map(read_players, paths), strict=True))
    first, *others = job.methods
    budgets = {of.experiment: of for of in job.methods}
    for reward in dict.fromkeys(evaluation for _, evaluation in job.sources):
        ours = by_source[first.experiment, reward]
        players = {"base": ours["base"]}
        players |= {of.experiment: by_source[of.experiment, reward]["trained"] for of in (*others, first)}
        theirs = {name: printed.get(job.table.beside.get(name, "")) for name in players}
        for name, played in players.items():
            budget, of_paper, first_of_paper = budgets.get(name), theirs[name], theirs[first.experiment]
            itself = name == first.experiment
            model, rounds, mean = of_paper or (None, None, None)
            yield Row(
                reward,
                budget.name if budget else "base model",
                played.final,
                budget.played if budget else None,
                budget.learnt if budget else None,
                *((math.nan,) * 4 if itself else _difference(job, reward, name, played, ours["trained"])),
                model,
                mean,
                mean - first_of_paper[2] if of_paper and first_of_paper and not itself else None,
                bool(budget and budget.cut),
                (model, rounds) == (job.models[0], played.regret.shape[2]) and len(played.final) > 1,
            )


def _difference(
    job: TableJob, reward: str, name: str, played: PlayerResults, first: PlayerResults
) -> tuple[float, float, float, float]:
    """Return the mean difference on common instances, its 95% interval, and its standard error."""
    pair = played.by_instance[:, -1], first.by_instance[:, -1]
    found = paired_difference(*pair, stream(job.seed, "bootstrap", job.label, reward, name))
    return found.mean, found.low, found.high, float(np.std(pair[0] - pair[1], ddof=1) / math.sqrt(len(pair[0])))


def _tidy(row: Row) -> pd.DataFrame:
    key = (row.reward, row.method, row.final.shape[1], row.played, row.learnt)
    lines = [(*key, "mean", float(row.final.mean()), row.error, row.paper, row.verdict)]
    if not math.isnan(row.difference):
        compared = (row.difference_error, row.paper_difference, row.difference_verdict)
        lines.append((*key, "difference", row.difference, *compared))
        lines += [
            (*key, f"difference_{end}", value, None, None, "") for end, value in (("low", row.low), ("high", row.high))
        ]
    return pd.DataFrame(lines, columns=[*KEYS, *VALUES])


def _shaped(rows: list[Row]) -> pd.DataFrame:
    several = len({row.reward for row in rows}) > 1
    printed = any(row.paper is not None for row in rows)

    def line(row: Row) -> dict[str, str]:
        known = not math.isnan(row.difference)
        interval = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]" if known else ""
        theirs = {"paper": f"{row.paper:.2f}" if row.paper is not None else ""}
        verdicts = dict.fromkeys(filter(None, (row.verdict, row.difference_verdict)))
        return {
            **({"reward": row.reward} if several else {}),
            "method": row.method,
            "played": f"{row.played:,}" if row.played is not None else "",
            "learnt": f"{row.learnt:,}" if row.learnt is not None else "",
            **(theirs if printed else {}),
            "regret": f"{row.final.mean():.2f} ± {row.error:.2f}",
            "difference [95%]": interval,
            **({"verdict": "; ".join(verdicts)} if printed else {}),
        }

    return pd.DataFrame([line(row) for row in rows])


def _notes(job: TableJob, rows: list[Row]) -> list[str]:
    n, runs = rows[0].final.shape[1], max(len(row.final) for row in rows)
    swapped = {row.paper_model for row in rows if row.paper_model} - {job.models[0]}
    return [
        f"regret: mean at the last round over the same {n} instances, ± its standard error"
        f"{', over training seeds too' if runs > 1 else ', of one training run'}.",
        f"difference: to {rows[-1].method}, game by game on the same instances, with a 95% bootstrap interval; above 0 "
        "the other method is worse.",
        "played, learnt: trajectories that were played for training, by the model or by a teacher, and those that were "
        "fine-tuned on.",
        *(
            [
                "Values are compared where the paper's model plays and several training seeds are run. Else the sign "
                "of the difference is: direction only where it is the paper's, not reproduced where it is the other, "
                "inconclusive where the interval has 0 in it, none where a method was given less than its budget (cut)."
            ]
            if job.table.beside
            else []
        ),
        *(f"{job.models[0]} plays where the paper has {model}." for model in sorted(swapped)),
        *([job.scale_note] if job.scale_note else []),
    ]
