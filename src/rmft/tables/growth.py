"""Tables `simplex_table` and `l2ball_table`: how fast regret grows, by reward process and player."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rmft.metrics.comparison import smallest_sample, t_quantile
from rmft.metrics.growth import LESS, Growth, growth, growth_errors, is_sublinear, linear_exponent
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import (
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    RULE,
    Estimation,
    RenderedTable,
    errors_apart,
    notes_on_comparison,
    tidy_frame,
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

    slope_error_of_one_run: the standard error of the slope of a single training. sample: see `smallest_sample`.
    linear: see `linear_exponent`.
    """

    reward: str
    player: str
    fit: Growth
    slope_error: float
    exponent_error: float
    slope_error_of_one_run: float
    paper: PaperGrowth
    sample: int
    linear: float | None = 1.0

    @property
    def difference_error(self) -> float:
        """Return the standard error of the difference between our slope and the paper's.

        Ours is a mean over trainings; the paper's comes from one run on as many instances, whose error is taken to
        be that of one run of ours.
        """
        return math.hypot(self.slope_error, self.slope_error_of_one_run)

    def apart(self, slope: float) -> float:
        """Return how far our slope is from one of the paper's in standard errors of that difference."""
        return errors_apart(self.fit.slope, self.difference_error, slope)

    @property
    def slope_verdict(self) -> str:
        """Return the verdict on the paper's β̂. Of trained models it claims growth slower than linear: a direction."""
        if self.paper.slope is None:
            return ""
        interchanged, trained = self.paper.interchanged, self.player.startswith("trained")
        quantile = t_quantile(self.sample)
        sublinear = is_sublinear(self.fit.exponent, quantile * self.exponent_error, self.linear)
        verdict = value_verdict(self.fit.slope, self.difference_error, self.paper.slope, self.sample)
        if verdict == NOT_REPRODUCED and interchanged is not None and abs(self.apart(interchanged)) <= quantile:
            return INCONSISTENT
        if verdict == REPRODUCED or not trained:
            return verdict
        if sublinear is not False and (verdict == INCONCLUSIVE or self.linear is None):
            return INCONCLUSIVE
        return DIRECTION_ONLY if sublinear else NOT_REPRODUCED


def growth_table(
    estimation: Estimation,
    results: Mapping[str, Mapping[str, PlayerResults]],
    paper: pd.DataFrame,
    beside: Mapping[str, str],
) -> RenderedTable:
    """Fit every player's regret curve and set it beside the paper's.

    results: by reward process and player. beside: the paper's players by our names for them.
    """
    of_paper = _read(paper)
    rows = [
        _row(estimation, reward, player, players, of_paper.get((reward, beside.get(player, player)), PaperGrowth()))
        for reward, players in results.items()
        for player in players
        if not player.startswith("base")
    ]
    notes = [
        "slope: of Regret(t) on t, which reproduces the paper's β̂ where nothing is random; "
        "exponent: β̂ of log Regret(t) on log t, as the paper's text defines it.",
        "±: standard error over training seeds and instances. apart: the difference in standard errors of it, the "
        "paper's value having that of one training.",
        f"{RULE}A value that is equal to three decimals is reproduced, too. Of a trained model, direction only: the "
        "interval does not contain 0, but our exponent too lies significantly below that of linear growth: its 95% "
        f"interval is more than {LESS} below 1, or below uniform play's exponent where that is lower; inconclusive: "
        "the interval does not contain 0, and uniform play's exponent is below 1/2: its regret is not linear either; "
        "not reproduced: an exponent whose 95% interval is above 1. not reproduced: else.",
        "p: of slope 0 by least squares, as the paper prints it. A small p says that regret grows, not that it grows "
        "slowly; and since errors of a cumulative curve are correlated, it is no valid test. So it has no verdict.",
        "dropped: rounds without regret, which a logarithm cannot use.",
        *([INTERCHANGED] if any(row.slope_verdict == INCONSISTENT for row in rows) else []),
        *notes_on_comparison(beside),
    ]
    return RenderedTable(
        TITLES.get(estimation.label, estimation.label),
        tidy_frame(["reward", "player"], [line for row in rows for line in _tidy(row)]),
        pd.DataFrame(map(_shaped, rows)),
        notes,
    )


def _read(paper: pd.DataFrame) -> dict[tuple[str, str], PaperGrowth]:
    """Return the paper's values by reward process and player."""
    values = {(row.statistic, row.reward, row.player): row for row in paper.itertuples()}
    slopes = {key: float(row.value) for key, row in values.items() if key[0] == "beta_hat"}
    return {
        (reward, player): PaperGrowth(
            slope,
            p=values["p_reg", reward, player].value,
            interchanged=slopes.get(("beta_hat", values["beta_hat", reward, player].interchanged_with, player)),
        )
        for (_, reward, player), slope in slopes.items()
    }


def _row(
    estimation: Estimation, reward: str, player: str, players: Mapping[str, PlayerResults], paper: PaperGrowth
) -> GrowthRow:
    """Return the row of a player; the errors of a trained model with a single seed cannot be known: NaN."""
    played, uniform = players[player], players.get("uniform")
    fit, seeds = growth(played.curve, estimation.floor), len(played.regret)
    linear = linear_exponent(growth(uniform.curve, estimation.floor).exponent if uniform else None)
    sample = smallest_sample(played.regret.shape[1], seeds)
    if seeds == 1 and player.startswith("trained"):
        return GrowthRow(reward, player, fit, math.nan, math.nan, math.nan, paper, sample, linear)
    errors = growth_errors(played.regret, estimation.resamples, estimation.floor, estimation.stream(reward, player))
    return GrowthRow(reward, player, fit, errors.slope, errors.exponent, errors.slope_of_one_run, paper, sample, linear)


def _tidy(row: GrowthRow) -> list[tuple]:
    fit, key = row.fit, (row.reward, row.player)
    return [
        (*key, "slope", fit.slope, row.slope_error, row.paper.slope, row.slope_verdict),
        (*key, "slope_p", fit.slope_p, None, row.paper.p, ""),
        (*key, "exponent", fit.exponent, row.exponent_error, None, ""),
        (*key, "exponent_p", fit.exponent_p, None, None, ""),
        (*key, "dropped", fit.dropped, None, None, ""),
    ]


def _shaped(row: GrowthRow) -> dict[str, str]:
    fit, slope = row.fit, row.paper.slope
    return {
        "reward": row.reward,
        "player": row.player,
        "paper": "" if slope is None else f"{slope:.3f}",
        "paper p": row.paper.p or "",
        "slope": f"{fit.slope:.3f} ± {row.slope_error:.3f}",
        "p": "<0.001" if fit.slope_p < 0.001 else f"{fit.slope_p:.3f}",
        "apart (s.e.)": "" if slope is None else f"{row.apart(slope):+.1f}",
        "exponent": f"{fit.exponent:.3f} ± {row.exponent_error:.3f}",
        "dropped": str(fit.dropped),
        "verdict": row.slope_verdict,
    }
