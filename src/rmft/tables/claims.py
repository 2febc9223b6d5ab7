"""RenderedTable `claim-accuracy` (ours): how many claims of replies are right, before and after training."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.reasoning import ALL, DIFFERENCE
from rmft.tables.layout import VALUES, RenderedTable, direction_verdict
from rmft.workflow.records import TableJob

KEYS = ["experiment", "evaluation", "kind", "player"]
COLUMNS = ["player", "kind", "claims", "with_claims", "accuracy", "low", "high", "standard_error"]
RISES = -1.0  # what `direction_verdict` reads as a fall: the paper has alignment improve, and gives no number
NOTES = [
    "Every claim of a reply that can be checked is held against the rewards that were shown before it; the kinds are "
    "explained in docs/language.md. A share is that of right claims; in brackets how many claims there are, and 95% of "
    "resampled instances.",
    "The paper shows that alignment of words and numbers improves by examples and gives no number. direction only: it "
    "improves here too, over all kinds together.",
    "Where every claim is right, resampling cannot tell how sure that is, and no interval is given.",
]


def claims_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Set the accuracy of the trained model's claims beside that of the base model's, by kind."""
    found = [
        read_csv(path, COLUMNS).assign(experiment=experiment, evaluation=evaluation)
        for (experiment, evaluation), path in zip(job.sources, paths, strict=True)
    ]
    everything = pd.concat(found, ignore_index=True)
    lines = [line for _, row in everything.iterrows() for line in _tidy(row)]
    notes = [*NOTES, *([job.scale_note] if job.scale_note else [])]
    tidy = pd.DataFrame(lines, columns=[*KEYS, *VALUES])
    return RenderedTable("How many claims of replies are right", tidy, pd.DataFrame(_shaped(everything)), notes)


def _tidy(row: pd.Series) -> Iterator[tuple]:
    """Yield the lines of one player's claims of a kind, or of the difference between players."""
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
    """Say whether all claims together get better, as in the paper; empty of anything else."""
    if (row["player"], row["kind"]) != (DIFFERENCE, ALL):
        return ""
    return direction_verdict(-row["accuracy"], row["standard_error"], RISES)


def _shaped(everything: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield a line a kind of claims that anybody makes."""
    for (experiment, evaluation, kind), rows in everything.groupby(KEYS[:3], sort=False):
        by_player = {row["player"]: row for _, row in rows.iterrows()}
        if not sum(row["claims"] for player, row in by_player.items() if player != DIFFERENCE):
            continue
        line = {"experiment": experiment, "evaluation": evaluation, "claims": kind}
        for player, row in by_player.items():
            line[player] = _cell(row, "+.2%" if player == DIFFERENCE else ".2%")
        yield line | {"verdict": _verdict(by_player[DIFFERENCE])}


def _cell(row: pd.Series, form: str) -> str:
    """Return a share with its interval and, of a player, the number of claims."""
    if math.isnan(row["accuracy"]):
        return "-"
    count = [] if row["player"] == DIFFERENCE else [f"{row['claims']:,.0f}"]
    interval = [f"{row['low']:{form}} to {row['high']:{form}}"] if row["high"] > row["low"] else []
    about = ": ".join(count + interval)
    return f"{row['accuracy']:{form}}" + (f" ({about})" if about else "")
