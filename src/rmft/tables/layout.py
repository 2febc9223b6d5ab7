"""What tables share: the three formats, the resampling behind errors, and verdicts on our value beside the paper's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.text import write_text
from rmft.metrics.comparison import t_quantile
from rmft.streams import stream

GLOSSARY = "Words: docs/glossary.md"  # below every table
VALUES = ["statistic", "ours", "standard_error", "paper", "verdict"]
REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE = "reproduced", "not reproduced", "inconclusive"
DIRECTION_ONLY, INCONSISTENT = "direction only", "paper inconsistent"
CONFIDENT = 2.0  # a bound on a share counts if it holds with a margin of so many standard errors
ROUNDING = 1e-9  # relative error of sums over instances that are all alike
NEAR = 0.1  # a reproduced value differs by at most this share of the paper's
TOLERANCE = 0.5  # and significantly, with its errors, by at most this share: noise alone never agrees
RULE = (
    "reproduced: the 95% interval of ours minus the paper's value (Student's t; the paper's may be off by half of its "
    f"last digit) contains 0, ours is within {NEAR:.0%} of the paper's and, with half of the interval more, within "
    f"{TOLERANCE:.0%} of it. inconclusive: the interval contains 0, but ours is not as near. "
)


@dataclass(frozen=True)
class RenderedTable:
    """A finished table.

    tidy: one value a row, key columns and then VALUES. shaped: the paper's layout, as text. notes: lines below it.
    """

    title: str
    tidy: pd.DataFrame
    shaped: pd.DataFrame
    notes: list[str]

    def save(self, stem: Path) -> None:
        """Write stem.csv, stem.md and stem.tex."""
        csv, md, tex = (stem.with_name(f"{stem.name}.{ending}") for ending in ("csv", "md", "tex"))
        write_csv(csv, self.tidy)
        notes = "".join(f"- {note}\n" for note in self.notes)
        escaped = self.shaped.map(_cell).rename(columns=_cell)
        markdown = escaped.to_markdown(index=False, disable_numparse=True)
        write_text(md, f"# {self.title}\n\n{markdown}\n\n{notes}\n{GLOSSARY}\n")
        styled = self.shaped.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis=1)
        latex = styled.to_latex(hrules=True)
        comments = "".join(f"% {note}\n" for note in (self.title, *self.notes))
        write_text(tex, comments + latex)


def _cell(text: object) -> str:
    """Return the text of a cell or header of Markdown, in which a bare | would begin another cell."""
    return str(text).replace("|", "\\|")


def notes_on_comparison(beside: Mapping[str, str], model: str = "", models: Iterable[str] = ()) -> list[str]:
    """Return notes on what stands beside the paper's values.

    beside: the paper's players by our names for them. model: ours. models: those that play in the paper.
    """
    others = sorted({*models} - {model})
    return [
        *(f"{model} plays where the paper has {other}." for other in others),
        *(f"{ours} is set beside the paper's {theirs}." for ours, theirs in sorted(beside.items())),
    ]


def tidy_frame(keys: Sequence[str], lines: Iterable[tuple]) -> pd.DataFrame:
    """Return lines of keys and VALUES as a frame."""
    return pd.DataFrame(list(lines), columns=[*keys, *VALUES])


@dataclass(frozen=True)
class Estimation:
    """How the statistics of one table and their errors by resampling are estimated.

    label: the table's, which names its random streams. floor: of regret in log-log fits, as in `metrics.growth`.
    """

    seed: int
    label: str
    resamples: int
    floor: float | None = None

    def stream(self, *names: str) -> np.random.Generator:
        """Return the random numbers for a part of the table, such as (reward process, player)."""
        return stream(self.seed, "bootstrap", self.label, *names)


def errors_apart(ours: float, error: float, paper: float, decimals: int = 3) -> float:
    """Return how many standard errors lie between ours and the nearest value that rounds to what the paper prints."""
    difference = ours - paper
    excess = abs(difference) - 0.5 * 10**-decimals
    if excess <= 0:
        return 0.0
    return math.copysign(excess / error if error > ROUNDING * abs(ours) else math.inf, difference)


def value_verdict(ours: float, error: float, paper: float, sample: int, decimals: int = 3) -> str:
    """Return whether our value is the paper's: reproduced, inconclusive or not reproduced.

    error: the standard error of their difference; if it is unknown (NaN), the verdict is inconclusive. sample: the
    instances or trainings that it comes from, see `smallest_sample`.
    """
    if math.isnan(error):
        return INCONCLUSIVE
    apart, quantile = errors_apart(ours, error, paper, decimals), t_quantile(sample)
    if abs(apart) > quantile:
        return NOT_REPRODUCED
    difference = abs(ours - paper)
    near = difference <= NEAR * abs(paper) and difference + quantile * error <= TOLERANCE * abs(paper)
    return REPRODUCED if near or apart == 0 else INCONCLUSIVE


def direction_verdict(ours: float, margin: float, paper: float) -> str:
    """Return whether our difference is below 0 as the paper's is: direction only, not reproduced or inconclusive.

    margin: half of the 95% interval of ours. Return no verdict if the paper's difference is not below 0.
    """
    if paper >= 0:
        return ""
    if math.isnan(margin) or abs(ours) <= max(margin, ROUNDING):
        return INCONCLUSIVE
    return DIRECTION_ONLY if ours < 0 else NOT_REPRODUCED
