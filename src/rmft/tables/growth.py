"""Tables `simplex_table` and `l2ball_table`: how fast regret grows, by reward process and player."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmft.metrics.growth import Growth, exponent_error, growth, resampled_growth
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import (
    AGREEMENT,
    CONFIDENT,
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    TOLERANCE,
    VALUES,
    Estimation,
    RenderedTable,
    errors_apart,
    value_verdict,
)

TITLES = {
    "simplex-table": "Growth of regret on the simplex, trained on T = 25, played to T = 100",
    "l2ball-table": "Growth of regret on the unit ball, trained on T = 25, played to T = 100",
}
INTERCHANGED = (
    "paper inconsistent: ours agrees not with this row of the paper but with that of another process, "
    "so that the two look interchanged."
)
SIGNIFICANT = 0.05
PAPER = ["reward", "player", "statistic", "value", "interchanged_with"]  # columns of the paper's values


@dataclass(frozen=True)
class PaperGrowth:
    """The paper's slope and its p-value; interchanged: the slope of the row that it may have swapped with this one."""

    slope: float | None = None
    p: str | None = None
    interchanged: float | None = None


@dataclass(frozen=True)
class GrowthRow:
    """One player under one reward process: our fits with their errors, and the paper's values.

    slope_error_of_one_run: the standard error of the slope of a single training run.
    """

    reward: str
    player: str
    fit: Growth
    slope_error: float
    exponent_error: float
    slope_error_of_one_run: float
    paper: PaperGrowth

    @property
    def difference_error(self) -> float:
        """Return the standard error of the difference between our slope and the paper's.

        Ours is a mean over training runs; the paper's comes from one run on as many instances, whose error is taken to
        be that of one run of ours.
        """
        return math.hypot(self.slope_error, self.slope_error_of_one_run)

    @property
    def apart(self) -> float:
        """Return how far the slope is from the paper's in standard errors of that difference."""
        return errors_apart(self.fit.slope, self.difference_error, self.paper.slope)

    @property
    def _looks_interchanged(self) -> bool:
        other = self.paper.interchanged
        return other is not None and abs(errors_apart(self.fit.slope, self.difference_error, other)) <= AGREEMENT

    @property
    def slope_verdict(self) -> str:
        """Return the verdict on the paper's β̂; its claim, and so its direction, is growth slower than linear."""
        if self.paper.slope is None:
            return ""
        margin = CONFIDENT * self.exponent_error
        verdict = value_verdict(self.fit.slope, self.difference_error, self.paper.slope)
        if verdict == INCONCLUSIVE:
            return NOT_REPRODUCED if self.fit.exponent - margin > 1 else INCONCLUSIVE
        if verdict == REPRODUCED:
            return REPRODUCED
        if self._looks_interchanged:
            return INCONSISTENT
        return DIRECTION_ONLY if self.fit.exponent + margin < 1 else NOT_REPRODUCED

    @property
    def p_verdict(self) -> str:
        """Return whether both p-values lie on the same side of 0.05."""
        if self.paper.p is None:
            return ""
        paper = float(self.paper.p.removeprefix("<"))
        return REPRODUCED if (self.fit.slope_p < SIGNIFICANT) == (paper < SIGNIFICANT) else NOT_REPRODUCED


def growth_table(
    estimation: Estimation,
    results: Mapping[str, Mapping[str, PlayerResults]],
    paper: pd.DataFrame,
    beside: Mapping[str, str],
) -> RenderedTable:
    """Fit every player's regret curve and set it beside the paper's.

    results: by reward process and player. beside: the paper's players by our names for them.
    """
    rows = list(_rows(estimation, results, paper, beside))
    notes = [
        "slope: of Regret(t) on t, which reproduces the paper's β̂ where nothing is random; "
        "exponent: β̂ of log Regret(t) on log t, as the paper's text defines it.",
        "±: standard error over training seeds and instances. apart: the difference in standard errors of it, the "
        "paper's value having that of one training run.",
        f"reproduced: apart by at most {AGREEMENT:g}, and the difference plus {CONFIDENT:g} errors within "
        f"{TOLERANCE:.0%} of the paper's value; or equal to three decimals. inconclusive: apart by no more, but it is "
        "wider. direction only: further apart, but our exponent too lies below 1, by as many errors. not reproduced: "
        "else, or an exponent that lies above 1 by as many errors.",
        "dropped: rounds with Regret(t) ≤ 0, which a logarithm cannot use.",
        *([INTERCHANGED] if any(row.slope_verdict == INCONSISTENT for row in rows) else []),
        *(f"{ours} is set beside the paper's {theirs}." for ours, theirs in sorted(beside.items())),
    ]
    title = TITLES.get(estimation.label, estimation.label)
    return RenderedTable(title, pd.concat(map(_tidy, rows), ignore_index=True), _shaped(rows), notes)


def _rows(
    estimation: Estimation,
    results: Mapping[str, Mapping[str, PlayerResults]],
    paper: pd.DataFrame,
    beside: Mapping[str, str],
) -> Iterator[GrowthRow]:
    values = {(row.reward, row.player, row.statistic): row for row in paper.itertuples()}

    def of_paper(reward: str, player: str) -> PaperGrowth:
        slope = values.get((reward, player, "beta_hat"))
        if slope is None:
            return PaperGrowth()
        other = values.get((slope.interchanged_with, player, "beta_hat"))
        p = values[reward, player, "p_reg"].value
        return PaperGrowth(float(slope.value), p, float(other.value) if other else None)

    for reward, players in results.items():
        for player, played in players.items():
            if not player.startswith("base"):
                fit, errors = growth(played.curve, estimation.floor), _errors(estimation, played, reward, player)
                yield GrowthRow(reward, player, fit, *errors, of_paper(reward, beside.get(player, player)))


def _errors(estimation: Estimation, played: PlayerResults, reward: str, player: str) -> tuple[float, float, float]:
    """Return standard errors of slope and exponent, and that of the slope of a single training run.

    The errors of a trained model with a single seed cannot be known: NaN.
    """
    seeds = len(played.regret)
    if seeds == 1 and player.startswith("trained"):
        return math.nan, math.nan, math.nan
    means, singles = resampled_growth(
        played.regret, estimation.resamples, estimation.floor, estimation.stream(reward, player)
    )
    slopes = [fit.slope for fit in means]
    of_one = np.std([fit.slope for fit in singles], ddof=1) * math.sqrt(seeds / max(seeds - 1, 1))
    return float(np.std(slopes, ddof=1)), exponent_error(means), float(of_one)


def _tidy(row: GrowthRow) -> pd.DataFrame:
    fit = row.fit
    values = [
        ("slope", fit.slope, row.slope_error, row.paper.slope, row.slope_verdict),
        ("slope_p", fit.slope_p, None, row.paper.p, row.p_verdict),
        ("exponent", fit.exponent, row.exponent_error, None, ""),
        ("exponent_p", fit.exponent_p, None, None, ""),
        ("dropped", fit.dropped, None, None, ""),
    ]
    return pd.DataFrame([(row.reward, row.player, *value) for value in values], columns=["reward", "player", *VALUES])


def _shaped(rows: list[GrowthRow]) -> pd.DataFrame:
    def line(row: GrowthRow) -> dict[str, str]:
        known = row.paper.slope is not None
        return {
            "reward": row.reward,
            "player": row.player,
            "paper": f"{row.paper.slope:.3f}" if known else "",
            "paper p": row.paper.p or "",
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
