"""A table in its three forms, and the distance between a value of ours and the paper's."""

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmft.artifacts import write_csv, write_text

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
TOLERANCE = 0.5  # share of the paper's value within which a difference must surely lie: without it, noise agrees


@dataclass(frozen=True)
class Table:
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
    spread = error > 1e-9 * abs(ours)  # less is the rounding of a sum over instances that are all alike
    return difference / error if spread else math.copysign(math.inf, difference)
