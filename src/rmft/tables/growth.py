"""Tables `simplex_table` and `l2ball_table`: how fast regret grows, by reward process and player."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmft.artifacts import read_csv
from rmft.jobs import TableJob
from rmft.metrics.growth import Growth, growth
from rmft.results import Played, read_players
from rmft.streams import stream
from rmft.tables.layout import (
    AGREEMENT,
    DIRECTION_ONLY,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    VALUES,
    Table,
    errors_apart,
)

TITLES = {
    "simplex-table": "Growth of regret on the simplex, trained on T = 25, played to T = 100",
    "l2ball-table": "Growth of regret on the unit ball, trained on T = 25, played to T = 100",
}
RAW = (
    "-raw: the paper's step size on rewards in [0, 10] and not, as its appendix says, on normalised ones; set beside "
    "the same values of the paper, it is what reproduces them on the ball, where FTRL then equals FTL."
)
INTERCHANGED = (
    "paper inconsistent: ours agrees not with this row of the paper but with that of another process, "
    "so that the two look interchanged."
)
SIGNIFICANT = 0.05
RESAMPLES = 200


@dataclass(frozen=True)
class Row:
    """One player under one reward process: our fits with their errors, and what the paper prints."""

    reward: str
    player: str
    fit: Growth
    slope_error: float
    exponent_error: float
    paper_slope: float | None
    paper_p: str | None
    interchanged_slope: float | None = None  # what the paper prints where it seems to have interchanged two rows

    @property
    def apart(self) -> float:
        """Return the slope's distance from the paper's in standard errors of that difference.

        The paper's value comes from as many instances and has an error of its own, taken to be as large as ours.
        """
        return self._apart_from(self.paper_slope)

    def _apart_from(self, value: float) -> float:
        return errors_apart(self.fit.slope, math.sqrt(2) * self.slope_error, value)

    def _agrees_with(self, value: float) -> bool:
        """Say whether the slope equals a value of the paper within its error, if that error is narrow enough."""
        apart, telling = self._apart_from(value), self.slope_error <= abs(value)
        return apart == 0 or (abs(apart) <= AGREEMENT and telling)

    @property
    def slope_verdict(self) -> str:
        """Say what became of the paper's β̂; its claim, and so its direction, is growth slower than linear."""
        if self.paper_slope is None:
            return ""
        if self._agrees_with(self.paper_slope):
            return REPRODUCED
        if self.interchanged_slope is not None and self._agrees_with(self.interchanged_slope):
            return INCONSISTENT
        return DIRECTION_ONLY if self.fit.exponent < 1 and self.fit.exponent_p < SIGNIFICANT else NOT_REPRODUCED

    @property
    def p_verdict(self) -> str:
        """Say whether both p-values lie on the same side of 0.05."""
        if self.paper_p is None:
            return ""
        paper = float(self.paper_p.removeprefix("<"))
        return REPRODUCED if (self.fit.slope_p < SIGNIFICANT) == (paper < SIGNIFICANT) else NOT_REPRODUCED


def growth_table(job: TableJob, paths: Sequence[Path]) -> Table:
    """Fit every player's regret curve and set it beside the paper's."""
    *evaluations, paper = paths
    rows = list(_rows(job, evaluations, paper))
    notes = [
        "slope: of Regret(t) on t, which reproduces the paper's β̂ where nothing is random; "
        "exponent: β̂ of log Regret(t) on log t, as the paper's text defines it.",
        "±: standard error over training seeds and instances, as of one training run. apart: the difference in "
        "standard errors of it, the paper's value having one like ours. "
        f"reproduced: within {AGREEMENT:g} of them where our ± is no larger than the paper's value, or equal to three "
        "decimals. "
        "direction only: apart, but our regret too grows with an exponent below 1.",
        "dropped: rounds with Regret(t) ≤ 0, which a logarithm cannot use.",
        *([INTERCHANGED] if any(row.slope_verdict == INCONSISTENT for row in rows) else []),
        *([RAW] if any(row.player.endswith("-raw") for row in rows) else []),
        f"Size: {job.size}.",
    ]
    return Table(TITLES[job.label], pd.concat(map(_tidy, rows), ignore_index=True), _shaped(rows), notes)


def _rows(job: TableJob, paths: Sequence[Path], paper: Path) -> Iterator[Row]:
    paper_rows = {(row.reward, row.player, row.statistic): row for row in read_csv(paper).itertuples()}
    files = dict(zip(job.sources, paths, strict=True))
    first = job.table.experiments[0]
    for reward in dict.fromkeys(reward for _, reward in job.sources):
        for experiment in job.table.experiments:
            for name, played in read_players(files[experiment, reward]).items():
                of_variant = experiment != first
                if name == "base" or (of_variant and name != "trained"):
                    continue
                player = experiment.replace(f"{first}_", "trained-") if of_variant else name
                fit = growth(played.curve, job.floor)
                slope_error, exponent_error = _errors(job, played, reward, player)
                yield Row(reward, player, fit, slope_error, exponent_error, *_printed(paper_rows, reward, player))


def _printed(
    rows: dict[tuple[str, str, str], Any], reward: str, player: str
) -> tuple[float | None, str | None, float | None]:
    """Return what the paper prints: slope, p, and the slope of the row that it may have interchanged with this one."""
    name = player.removesuffix("-raw")
    slope, p = rows.get((reward, name, "beta_hat")), rows.get((reward, name, "p_reg"))
    if slope is None:
        return None, None, None
    other = rows.get((slope.interchanged_with, name, "beta_hat"))
    return float(slope.value), p.value, float(other.value) if other else None


def _errors(job: TableJob, played: Played, *names: str) -> tuple[float, float]:
    """Return standard errors of slope and exponent, by resampling one training seed and n instances of it.

    One seed, because the paper's value comes from one training run: the spread between runs is part of the error.
    """
    generator = stream(job.seed, "bootstrap", job.label, *names)
    seeds, n, _ = played.regret.shape
    fits = [
        growth(played.regret[generator.integers(seeds), generator.integers(n, size=n)].mean(axis=0), job.floor)
        for _ in range(RESAMPLES)
    ]
    slopes, exponents = np.array([fit.slope for fit in fits]), np.array([fit.exponent for fit in fits])
    return float(slopes.std(ddof=1)), float(np.nanstd(exponents, ddof=1))


def _tidy(row: Row) -> pd.DataFrame:
    fit, p = row.fit, row.paper_p
    values = [
        ("slope", fit.slope, row.slope_error, row.paper_slope, row.slope_verdict),
        ("slope_p", fit.slope_p, None, p, row.p_verdict),
        ("exponent", fit.exponent, row.exponent_error, None, ""),
        ("exponent_p", fit.exponent_p, None, None, ""),
        ("dropped", fit.dropped, None, None, ""),
    ]
    return pd.DataFrame([(row.reward, row.player, *value) for value in values], columns=["reward", "player", *VALUES])


def _shaped(rows: list[Row]) -> pd.DataFrame:
    def line(row: Row) -> dict[str, str]:
        known = row.paper_slope is not None
        return {
            "reward": row.reward,
            "player": row.player,
            "paper": f"{row.paper_slope:.3f}" if known else "",
            "paper p": row.paper_p or "",
            "slope": f"{row.fit.slope:.3f} ± {row.slope_error:.3f}",
            "p": _p(row.fit.slope_p),
            "apart (s.e.)": f"{row.apart:+.1f}" if known else "",
            "exponent": f"{row.fit.exponent:.3f} ± {row.exponent_error:.3f}",
            "dropped": str(row.fit.dropped),
            "verdict": row.slope_verdict,
        }

    return pd.DataFrame([line(row) for row in rows])


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
