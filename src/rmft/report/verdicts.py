"""The verdict on each figure and table of the paper, computed by rule from results.

A figure is judged by the paper's claims about it, a table by its values.
"""

from collections.abc import Iterable, Sequence

import pandas as pd

from rmft.report.claims import CheckedClaim, all_hold
from rmft.report.texts import KnownIssue
from rmft.tables.layout import DIRECTION_ONLY, INCONCLUSIVE, INCONSISTENT, NOT_REPRODUCED, REPRODUCED

ILLUSTRATION, OURS = "illustration", "not the paper's"
VERDICTS = (REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, ILLUSTRATION, OURS)
UNJUDGED = "smoke"  # a scale that shows whether everything runs, and measures nothing
WEAKEST_FIRST = (NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, DIRECTION_ONLY, REPRODUCED)


def figure_verdict(claims: Sequence[CheckedClaim], scale_note: str | None, *, in_paper: bool) -> str:
    """Return a figure's verdict. At another size than the paper's, claims that hold show the direction alone."""
    if not in_paper:
        return OURS
    if not claims:
        return ILLUSTRATION
    holds = all_hold(claim.holds for claim in claims)
    if holds is None:
        return INCONCLUSIVE
    return (DIRECTION_ONLY if scale_note else REPRODUCED) if holds else NOT_REPRODUCED


def table_verdict(tidy: pd.DataFrame, *, in_paper: bool) -> str:
    """Return the verdict of a table's weakest value: of its trained models, or of all players if it has none."""
    if not in_paper:
        return OURS
    if "player" in tidy and tidy["player"].str.startswith("trained").any():
        tidy = tidy[tidy["player"].str.startswith("trained")]
    verdicts = set(tidy["verdict"])
    return next((verdict for verdict in WEAKEST_FIRST if verdict in verdicts), INCONCLUSIVE)


def explain(tidy: pd.DataFrame, issues: Iterable[KnownIssue]) -> pd.DataFrame:
    """Return a table with a column for the reason why a value that is not reproduced contradicts the paper itself.

    The verdict of such a value becomes `paper inconsistent`.
    """
    tidy = tidy.assign(verdict=tidy["verdict"].astype(object).fillna(""), reason="")
    for issue in issues:
        columns = {name: values for name, values in issue.rows.items() if name in tidy}
        if columns:
            rows = tidy["verdict"].isin([NOT_REPRODUCED, INCONSISTENT])
            for name, values in columns.items():
                rows &= tidy[name].astype(str).isin(values)
            tidy.loc[rows, ["verdict", "reason"]] = [INCONSISTENT, issue.reason]
    return tidy
