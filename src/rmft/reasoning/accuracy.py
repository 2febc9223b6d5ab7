"""The share of claims that are right, by kind: semantic-numerical alignment, with its error over instances.

Symbols: n instances, B resamples.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmft.reasoning import ALL, DIFFERENCE, KINDS
from rmft.reasoning.replies import Rows
from rmft.streams import stream

REPLY = ["training_seed", "instance", "t"]  # columns that identify a player's reply
MIDDLE = (2.5, 97.5)  # percentiles: 95% of resamples


def accuracies(seed: int, words: Sequence[str], resamples: int, replies: Rows, claims: Rows) -> Rows:
    """Return, by kind of claims and player, the number of claims and the share of right ones, and the difference.

    Instances are resampled, the same ones for all players, so that players stay paired. A trained model's training
    seeds are pooled. with_claims: the share of replies that have a claim of the kind. words: name the random stream.
    """
    all_replies = pd.DataFrame(replies, columns=["player", *REPLY])
    all_claims = pd.DataFrame(claims, columns=["player", *REPLY, "kind", "right"])
    rows = []
    instances = np.unique(all_replies["instance"])
    draws = stream(seed, "bootstrap", *words).integers(len(instances), size=(resamples, len(instances)))
    for kind in (ALL, *KINDS):
        of_kind = all_claims if kind == ALL else all_claims[all_claims["kind"] == kind]
        shares = {}
        for player, of_player in all_replies.groupby("player", sort=False):
            own = of_kind[of_kind["player"] == player]
            with_claims = len(own.drop_duplicates(REPLY)) / len(of_player)
            shares[player] = _shares(own, instances, draws)
            counts = {"player": player, "kind": kind, "claims": len(own), "with_claims": with_claims}
            rows.append({**counts, **_summary(*shares[player])})
        (base, base_resampled), (trained, trained_resampled) = shares["base"], shares["trained"]
        counts = {"player": DIFFERENCE, "kind": kind, "claims": None, "with_claims": None}
        rows.append({**counts, **_summary(trained - base, trained_resampled - base_resampled)})
    return rows


def _shares(claims: pd.DataFrame, instances: np.ndarray, draws: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the share of right claims, and the same (B,) on the drawn instances (B, n); NaN without claims."""
    places = np.searchsorted(instances, claims["instance"].astype(instances.dtype))
    counted = np.bincount(places, minlength=len(instances))
    right = np.bincount(places, weights=claims["right"].astype(float), minlength=len(instances))
    with np.errstate(invalid="ignore"):  # no claims
        return np.divide(right.sum(), counted.sum()), right[draws].sum(axis=1) / counted[draws].sum(axis=1)


def _summary(value: float, resampled: np.ndarray) -> dict[str, float]:
    if not np.isfinite(value):
        return dict.fromkeys(("accuracy", "low", "high", "standard_error"), float("nan"))
    low, high = np.nanpercentile(resampled, MIDDLE)
    return {"accuracy": value, "low": low, "high": high, "standard_error": float(np.nanstd(resampled, ddof=1))}
