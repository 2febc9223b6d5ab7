"""Tables `simplex_table` and `l2ball_table`: how fast regret grows, by reward process and player."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.metrics.growth import Growth, exponent_error, growth, resampled_growth
from rmft.results import PlayerResults, read_variants
from rmft.streams import stream
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
    RenderedTable,
    errors_apart,
    value_verdict,
)
from rmft.workflow.records import TableJob

TITLES = {
    "simplex-table": "Growth of regret on the simplex, trained on T = 25, played to T = 100",
    "l2ball-table": "Growth of regret on the unit ball, trained on T = 25, played to T = 100",
}
INTERCHANGED = (
    "paper inconsistent: ours agrees not with this row of the paper but with that of another process, "
    "so that the two look interchanged."
)
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Row:
    """One player under one reward process: our fits with their errors, and what the paper prints."""

    reward: str
    player: str
    fit: Growth
    slope_error: float
    exponent_error: float
    slope_error_of_one_run: float
    paper_slope: float | None
    paper_p: str | None
    interchanged_slope: float | None = None  # what the paper prints where it seems to have interchanged two rows

    @property
    def difference_error(self) -> float:
        """Return the standard error of the difference between our slope and the paper's.

        Ours is a mean over training runs; the paper's comes from one, on as many instances, and its error is taken to
        be that of one run of ours.
        """
        return math.hypot(self.slope_error, self.slope_error_of_one_run)

    @property
    def apart(self) -> float:
        """Return how far the slope is from the paper's in standard errors of that difference."""
        return errors_apart(self.fit.slope, self.difference_error, self.paper_slope)

    @property
    def _looks_interchanged(self) -> bool:
        other = self.interchanged_slope
        return other is not None and abs(errors_apart(self.fit.slope, self.difference_error, other)) <= AGREEMENT

    @property
    def slope_verdict(self) -> str:
        """Say what became of the paper's β̂; its claim, and so its direction, is growth slower than linear."""
        if self.paper_slope is None:
            return ""
        margin = CONFIDENT * self.exponent_error
        verdict = value_verdict(self.fit.slope, self.difference_error, self.paper_slope)
        if verdict == INCONCLUSIVE:
            return NOT_REPRODUCED if self.fit.exponent - margin > 1 else INCONCLUSIVE
        if verdict == REPRODUCED:
            return REPRODUCED
        if self._looks_interchanged:
            return INCONSISTENT
        return DIRECTION_ONLY if self.fit.exponent + margin < 1 else NOT_REPRODUCED

    @property
    def p_verdict(self) -> str:
        """Say whether both p-values lie on the same side of 0.05."""
        if self.paper_p is None:
            return ""
        paper = float(self.paper_p.removeprefix("<"))
        return REPRODUCED if (self.fit.slope_p < SIGNIFICANT) == (paper < SIGNIFICANT) else NOT_REPRODUCED


def growth_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Fit every player's regret curve and set it beside the paper's."""
    *evaluations, paper = paths
    rows = list(_rows(job, evaluations, paper))
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
        *(f"{ours} is set beside the paper's {theirs}." for ours, theirs in job.table.beside.items()),
        *([job.scale_note] if job.scale_note else []),
    ]
    return RenderedTable(
        TITLES.get(job.label, job.label), pd.concat(map(_tidy, rows), ignore_index=True), _shaped(rows), notes
    )


def _rows(job: TableJob, paths: Sequence[Path], paper: Path) -> Iterator[Row]:
    frame = read_csv(paper, ["reward", "player", "statistic", "value", "interchanged_with"])
    paper_rows = {(row.reward, row.player, row.statistic): row for row in frame.itertuples()}
    for reward, players in read_variants(job.sources, paths).items():
        for player, played in players.items():
            if not player.startswith("base"):
                fit, errors = growth(played.curve, job.floor), _errors(job, played, reward, player)
                printed = _printed(paper_rows, reward, job.table.beside.get(player, player))
                yield Row(reward, player, fit, *errors, *printed)


def _printed(
    rows: dict[tuple[str, str, str], Any], reward: str, player: str
) -> tuple[float | None, str | None, float | None]:
    """Return what the paper prints: slope, p, and the slope of the row that it may have interchanged with this one."""
    slope, p = rows.get((reward, player, "beta_hat")), rows.get((reward, player, "p_reg"))
    if slope is None:
        return None, None, None
    other = rows.get((slope.interchanged_with, player, "beta_hat"))
    return float(slope.value), p.value, float(other.value) if other else None


def _errors(job: TableJob, played: PlayerResults, *names: str) -> tuple[float, float, float]:
    """Return standard errors of slope and exponent, and that of the slope of a single training run.

    A trained model with a single seed has no error that could be known: NaN.
    """
    seeds = len(played.regret)
    if seeds == 1 and names[-1].startswith("trained"):
        return math.nan, math.nan, math.nan
    generator = stream(job.seed, "bootstrap", job.label, *names)
    means, singles = resampled_growth(played.regret, job.resamples, job.floor, generator)
    slopes = [fit.slope for fit in means]
    of_one = np.std([fit.slope for fit in singles], ddof=1) * math.sqrt(seeds / max(seeds - 1, 1))
    return float(np.std(slopes, ddof=1)), exponent_error(means), float(of_one)


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
