"""How many claims are right, by kind: semantic-numerical alignment as a number, with its error over instances.

Symbols: n instances, B resamples.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rmft.reasoning import ALL, DIFFERENCE, KINDS
from rmft.streams import stream

REPLY = ["training_seed", "instance", "t"]  # what tells a player's replies apart
MIDDLE = (2.5, 97.5)  # percentiles: 95% of resamples


def accuracies(
    seed: int, words: Sequence[str], resamples: int, replies: Mapping[str, Any], claims: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Return, by kind of claims and player, how many there are and which share of them is right, and the difference.

    Instances are resampled, the same ones for all players, so that these stay paired. A trained model's training seeds
    are pooled. with_claims: the share of replies that have a claim of the kind.
    """
    told = pd.DataFrame({name: replies[name] for name in ["player", *REPLY]})
    said = pd.DataFrame({name: claims.get(name, []) for name in ["player", *REPLY, "kind", "right"]})
    rows = list(_rows(seed, words, resamples, told, said))
    return {column: [row[column] for row in rows] for column in rows[0]}


def _rows(
    seed: int, words: Sequence[str], resamples: int, replies: pd.DataFrame, claims: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    instances = np.unique(replies["instance"])
    drawn = stream(seed, "bootstrap", *words).integers(len(instances), size=(resamples, len(instances)))
    for kind in (ALL, *KINDS):
        of_kind = claims if kind == ALL else claims[claims["kind"] == kind]
        found = {}
        for player, told in replies.groupby("player", sort=False):
            said = of_kind[of_kind["player"] == player]
            with_claims = len(said.drop_duplicates(REPLY)) / len(told)
            found[player] = _shares(said, instances, drawn)
            about = {"player": player, "kind": kind, "claims": len(said), "with_claims": with_claims}
            yield {**about, **_summary(*found[player])}
        (base, of_base), (trained, of_trained) = found["base"], found["trained"]
        about = {"player": DIFFERENCE, "kind": kind, "claims": None, "with_claims": None}
        yield {**about, **_summary(trained - base, of_trained - of_base)}


def _shares(said: pd.DataFrame, instances: np.ndarray, drawn: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the share of claims that are right, and the same (B,) of the drawn instances (B, n); NaN of none."""
    places = np.searchsorted(instances, said["instance"].astype(instances.dtype))
    counted = np.bincount(places, minlength=len(instances))
    right = np.bincount(places, weights=said["right"].astype(float), minlength=len(instances))
    with np.errstate(invalid="ignore"):  # no claims
        return np.divide(right.sum(), counted.sum()), right[drawn].sum(axis=1) / counted[drawn].sum(axis=1)


def _summary(value: float, resampled: np.ndarray) -> dict[str, float]:
    if not np.isfinite(value):
        return dict.fromkeys(("accuracy", "low", "high", "standard_error"), float("nan"))
    low, high = np.nanpercentile(resampled, MIDDLE)
    return {"accuracy": value, "low": low, "high": high, "standard_error": float(np.nanstd(resampled, ddof=1))}
