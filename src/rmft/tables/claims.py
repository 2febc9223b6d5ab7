"""Table `claim-accuracy` (ours): how many claims in replies are right, before and after training."""

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from rmft.metrics.comparison import t_quantile
from rmft.reasoning import ALL, DIFFERENCE
from rmft.tables.layout import RenderedTable, direction_verdict, tidy_frame

KEYS = ["experiment", "evaluation", "kind", "player"]
# Of accuracy.csv
COLUMNS = ["player", "kind", "claims", "with_claims", "accuracy", "low", "high", "standard_error", "sample"]
RISES = -1.0  # the paper's change for `direction_verdict`, sign reversed: accuracy rises by an amount it does not give
NOTES = [
    "Every claim of a reply that can be checked is held against the rewards that were shown before it; the kinds are "
    "explained in docs/language.md. A share is that of right claims; in brackets how many claims there are, and 95% of "
    "resampled instances. The verdict's error is over instances and, of several trainings, over these; after one "
    "training it speaks of that training only.",
    "The paper shows that alignment of words and numbers improves by examples and gives no number. direction only: it "
    "improves here too, over all kinds together.",
    "Where every claim is right, resampling cannot tell how sure that is, and no interval is given.",
]


def claims_table(accuracies: Mapping[tuple[str, str], pd.DataFrame]) -> RenderedTable:
    """Set the accuracy of the trained model's claims beside the base model's, by kind.

    accuracies: accuracy.csv by (experiment, evaluation).
    """
    accuracy = pd.concat(accuracies, names=KEYS[:2]).reset_index(KEYS[:2]).reset_index(drop=True)
    tidy = tidy_frame(KEYS, (line for _, row in accuracy.iterrows() for line in _tidy(row)))
    return RenderedTable("How many claims of replies are right", tidy, pd.DataFrame(_shaped(accuracy)), NOTES)


def _tidy(row: pd.Series) -> Iterator[tuple]:
    """Yield the tidy rows of one player's claims of one kind, or of the difference between players."""
    key = tuple(row[name] for name in KEYS)
    if row["player"] != DIFFERENCE:
        for statistic in ("claims", "with_claims"):
            yield (*key, statistic, float(row[statistic]), None, None, "")
    if math.isnan(row["accuracy"]):
        return
    yield (*key, "accuracy", row["accuracy"], row["standard_error"], None, _verdict(row))
    for statistic in ("low", "high"):
        yield (*key, f"accuracy_{statistic}", row[statistic], None, None, "")


def _verdict(row: pd.Series) -> str:
    """Return whether the accuracy of all claims together rises, as in the paper; other rows have no verdict."""
    if (row["player"], row["kind"]) != (DIFFERENCE, ALL):
        return ""
    return direction_verdict(-row["accuracy"], t_quantile(int(row["sample"])) * row["standard_error"], RISES)


def _shaped(accuracy: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield a line for each kind of claim that a player makes."""
    for (experiment, evaluation, kind), rows in accuracy.groupby(KEYS[:3], sort=False):
        by_player = {row["player"]: row for _, row in rows.iterrows()}
        if not sum(row["claims"] for player, row in by_player.items() if player != DIFFERENCE):
            continue
        line = {"experiment": experiment, "evaluation": evaluation, "claims": kind}
        for player, row in by_player.items():
            line[player] = _cell(row, "+.2%" if player == DIFFERENCE else ".2%")
        yield line | {"verdict": _verdict(by_player[DIFFERENCE])}


def _cell(row: pd.Series, form: str) -> str:
    """Return a share with its interval and, for a player, the number of claims."""
    if math.isnan(row["accuracy"]):
        return "-"
    count = [] if row["player"] == DIFFERENCE else [f"{row['claims']:,.0f}"]
    interval = [f"{row['low']:{form}} to {row['high']:{form}}"] if row["high"] > row["low"] else []
    details = ": ".join(count + interval)
    return f"{row['accuracy']:{form}}" + (f" ({details})" if details else "")
