"""A table in its three forms, and the distance between a value of ours and the paper's."""

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.text import write_text

VALUES = ["statistic", "ours", "standard_error", "paper", "verdict"]
REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE = (
    "reproduced",
    "direction only",
    "not reproduced",
    "paper inconsistent",
    "inconclusive",
)
AGREEMENT = 3.0  # standard errors that two values may be apart and still agree
CONFIDENT = 2.0  # standard errors to be sure of a bound
ROUNDING = 1e-9  # of sums over instances that are all alike
TOLERANCE = 0.5  # share of the paper's value within which a difference must surely lie: without it, noise agrees


@dataclass(frozen=True)
class RenderedTable:
    """tidy: one value a line, key columns and then VALUES. shaped: the paper's shape. notes: lines below it."""

    title: str
    tidy: pd.DataFrame
    shaped: pd.DataFrame
    notes: list[str]

    def save(self, stem: Path) -> None:
        """Write stem.csv, stem.md and stem.tex."""
        csv, md, tex = (stem.with_name(f"{stem.name}.{ending}") for ending in ("csv", "md", "tex"))
        write_csv(csv, self.tidy)
        notes = "".join(f"- {note}\n" for note in self.notes)
        write_text(
            md,
            f"# {self.title}\n\n{self.shaped.to_markdown(index=False, disable_numparse=True)}\n\n{notes}",
        )
        latex = self.shaped.style.hide(axis="index").format(escape="latex").to_latex(hrules=True)
        comments = "".join(f"% {note}\n" for note in (self.title, *self.notes))
        write_text(tex, comments + latex)


def errors_apart(ours: float, error: float, paper: float, decimals: int = 3) -> float:
    """Return (ours - paper) in standard errors; 0 where they agree to the decimals that the paper prints."""
    difference = ours - paper
    if abs(difference) <= 0.5 * 10**-decimals:
        return 0.0
    spread = error > ROUNDING * abs(ours)
    return difference / error if spread else math.copysign(math.inf, difference)


def value_verdict(ours: float, error: float, paper: float, decimals: int = 3) -> str:
    """Say whether a value of ours is the paper's: reproduced, inconclusive or not reproduced.

    error: the standard error of their difference; where it is not known (NaN), inconclusive.
    """
    if math.isnan(error):
        return INCONCLUSIVE
    apart = errors_apart(ours, error, paper, decimals)
    if abs(apart) > AGREEMENT:
        return NOT_REPRODUCED
    widest = abs(ours - paper) + CONFIDENT * error
    return REPRODUCED if widest <= TOLERANCE * abs(paper) or apart == 0 else INCONCLUSIVE


def direction_verdict(ours: float, error: float, paper: float) -> str:
    """Say whether a fall that the paper has (below 0) is one of ours: direction only, not reproduced or inconclusive.

    Empty where the paper has none, so that nothing is claimed.
    """
    if paper >= 0:
        return ""
    if math.isnan(error) or abs(ours) <= max(CONFIDENT * error, ROUNDING):
        return INCONCLUSIVE
    return DIRECTION_ONLY if ours < 0 else NOT_REPRODUCED
