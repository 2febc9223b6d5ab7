"""The share of claims that are right, by kind: semantic-numerical alignment, with its error over instances.

Symbols: n instances, B resamples.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmft.metrics.comparison import bootstrap_error, sd_of_numbers, smallest_sample
from rmft.reasoning import ALL, DIFFERENCE, KINDS
from rmft.reasoning.replies import Rows
from rmft.streams import stream

REPLY = ["training_seed", "instance", "t"]  # columns that identify a player's reply
MIDDLE = (2.5, 97.5)  # percentiles: 95% of resamples


def accuracies(seed: int, words: Sequence[str], resamples: int, replies: Rows, claims: Rows) -> Rows:
    """Return, by kind of claims and player, the number of claims and the share of right ones, and the difference.

    Instances are resampled, the same ones for all players, so that players stay paired. A trained model's training
    seeds are pooled; the standard error is over instances and, of several trainings, over these. sample: the n whose
    `t_quantile` it has. with_claims: the share of replies that have a claim of the kind. words: name the random stream.
    """
    all_replies = pd.DataFrame(replies, columns=["player", *REPLY])
    all_claims = pd.DataFrame(claims, columns=["player", *REPLY, "kind", "right"])
    rows = []
    instances = np.unique(all_replies["instance"])
    n = len(instances)
    draws = stream(seed, "bootstrap", *words).integers(n, size=(resamples, n))
    for kind in (ALL, *KINDS):
        of_kind = all_claims if kind == ALL else all_claims[all_claims["kind"] == kind]
        shares, over_trainings, trainings = {}, {}, {}
        for player, of_player in all_replies.groupby("player", sort=False):
            own = of_kind[of_kind["player"] == player]
            with_claims = len(own.drop_duplicates(REPLY)) / len(of_player)
            shares[player] = _shares(own, instances, draws)
            by_training = own.groupby("training_seed")["right"].mean()
            trainings[player] = of_player["training_seed"].nunique()
            over_trainings[player] = _error_over(by_training) if trainings[player] > 1 else 0.0
            counts = {"player": player, "kind": kind, "claims": len(own), "with_claims": with_claims}
            sample = smallest_sample(n, trainings[player])
            rows.append({**counts, **_summary(*shares[player], n, over_trainings[player]), "sample": sample})
        (base, base_resampled), (trained, trained_resampled) = shares["base"], shares["trained"]
        counts = {"player": DIFFERENCE, "kind": kind, "claims": None, "with_claims": None}
        error, sample = math.hypot(*over_trainings.values()), smallest_sample(n, *trainings.values())
        difference = _summary(trained - base, trained_resampled - base_resampled, n, error)
        rows.append({**counts, **difference, "sample": sample})
    return rows


def _error_over(by_training: pd.Series) -> float:
    """Return the standard error of the mean of trainings; NaN where one alone has claims, which shows no error."""
    return sd_of_numbers(by_training) / math.sqrt(len(by_training)) if len(by_training) > 1 else math.nan


def _shares(claims: pd.DataFrame, instances: np.ndarray, draws: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the share of right claims, and the same (B,) on the drawn instances (B, n); NaN without claims."""
    places = np.searchsorted(instances, claims["instance"].astype(instances.dtype))
    counted = np.bincount(places, minlength=len(instances))
    right = np.bincount(places, weights=claims["right"].astype(float), minlength=len(instances))
    with np.errstate(invalid="ignore"):  # no claims
        return np.divide(right.sum(), counted.sum()), right[draws].sum(axis=1) / counted[draws].sum(axis=1)


def _summary(value: float, resampled: np.ndarray, n: int, over_trainings: float) -> dict[str, float]:
    if not np.isfinite(value):
        return dict.fromkeys(("accuracy", "low", "high", "standard_error"), float("nan"))
    low, high = np.nanpercentile(resampled, MIDDLE)
    error = math.hypot(bootstrap_error(resampled, n), over_trainings)
    return {"accuracy": value, "low": low, "high": high, "standard_error": error}
