"""The metrics of results/metrics.json, and those of results/summary.json, which DVC compares between commits.

ks_p is the median over training seeds. paired_p and paired_difference take training seeds and instances as samples (see
`rmft.metrics.comparison`); power is over instances, of the mean over training seeds. by_training_seed tests each seed
alone. The paired_difference of an algorithm is the trained model's regret less the algorithm's. exponent_se,
of the base and the trained model, is over instances, and over several training seeds.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rmft.metrics.comparison import PairedDifference, error_of_mean, paired_difference, paired_p
from rmft.metrics.growth import growth, growth_errors
from rmft.metrics.players import PlayerResults, ks_by_seed, pairs_of_seeds
from rmft.metrics.power import ALPHA, POWER, instances_needed
from rmft.streams import stream

RESAMPLES = 200  # of the exponent's standard error
Players = Mapping[str, PlayerResults]  # by name
Metrics = dict[str, dict[str, dict[str, Any]]]  # by experiment, by evaluation


def all_metrics(evaluations: Iterable[tuple[str, str, Players]], seed: int, floor: float | None) -> Metrics:
    """Return, by experiment and evaluation, the figures of every player and the tests of trained against base.

    evaluations: experiment, evaluation and results by player. floor: see `growth`.
    """
    metrics: Metrics = {}
    for experiment, evaluation, players in evaluations:
        metrics.setdefault(experiment, {})[evaluation] = _of_one((experiment, evaluation), players, seed, floor)
    return metrics


def summarised(metrics: Metrics) -> Metrics:
    """Return for every evaluation the trained model's final regret, growth and invalid replies, and the tests."""
    return {
        experiment: {
            name: {
                "regret": of["trained"]["mean"],
                "exponent": of["trained"]["exponent"],
                "ks_p": of["ks_p"],
                "paired_p": of["paired_p"],
                "invalid_replies": of["invalid_replies"]["trained"],
                "instances_needed": of["power"]["instances_needed"],
            }
            for name, of in evaluations.items()
        }
        for experiment, evaluations in metrics.items()
    }


def against_base(players: Players) -> PairedDifference:
    """Return trained minus base."""
    return paired_difference(players["trained"].final, players["base"].final)


def _of_one(names: tuple[str, str], players: Players, seed: int, floor: float | None) -> dict[str, Any]:
    base, trained = players["base"], players["trained"]
    after, before = trained.by_instance[:, -1], base.by_instance[:, -1]
    paired = against_base(players)
    by_seed = ks_by_seed(trained, base)
    summaries = {name: _summary(played, floor) for name, played in players.items()}
    between = {name: summaries.pop(name) for name in [*summaries] if name.startswith("iteration-")}
    error_of = partial(_exponent_se, seed=seed, floor=floor)
    of_base = summaries.pop("base") | {"exponent_se": error_of((*names, "base"), base)}
    of_trained = summaries.pop("trained") | {"exponent_se": error_of(names, trained)}
    for name, algorithm in summaries.items():
        difference = paired_difference(trained.final, players[name].final)
        algorithm["paired_difference"] = [difference.low, difference.mean, difference.high]
    return {
        "base": of_base,
        "trained": of_trained,
        **({"iterations": between} if between else {}),
        "algorithms": summaries,
        "ks_p": float(np.median(by_seed)),
        "paired_p": paired.p,
        "paired_difference": [paired.low, paired.mean, paired.high],
        "by_training_seed": [
            {"mean": float(of_seed.mean()), "ks_p": p, "paired_p": paired_p(of_seed, of_base)}
            for (of_seed, of_base), p in zip(pairs_of_seeds(trained, base), by_seed, strict=True)
        ],
        "power": _power(before - after),
        "n": len(before),
        "invalid_replies": {"base": int(base.invalid.sum()), "trained": int(trained.invalid.sum())},
    }


def _exponent_se(words: tuple[str, ...], played: PlayerResults, seed: int, floor: float | None) -> float:
    """Return the standard error of the exponent. words: of its random stream."""
    drawn = stream(seed, "bootstrap", "metrics", *words, "exponent")
    return growth_errors(played.regret, RESAMPLES, floor, drawn).exponent


def _power(fall: np.ndarray) -> dict[str, float | int | None]:
    """Return how many instances a paired test needs to see a fall in regret (n,) as large as the one observed."""
    mean, sd = float(fall.mean()), float(fall.std(ddof=1))
    needed = instances_needed(mean / sd) if sd > 1e-9 else None
    return {"difference_sd": sd, "instances_needed": needed, "alpha": ALPHA, "power": POWER}


def _summary(played: PlayerResults, floor: float | None) -> dict[str, float]:
    final, fit = played.final, growth(played.curve, floor)
    return {
        "mean": float(final.mean()),
        "se": error_of_mean(final),
        "max": float(final.max(axis=1).mean()),
        "exponent": fit.exponent,
        "slope": fit.slope,
    }
