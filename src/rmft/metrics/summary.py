"""results/metrics.json, and results/summary.json, which DVC compares between commits and experiments.

ks_p is the median over training seeds.
paired_p, paired_difference and power hold for the training seeds that were run: over instances, of the mean over seeds.
by_training_seed has the same tests of each seed alone. An algorithm's paired_difference is the trained model's regret
less its own. exponent_se is over instances, and training seeds where there are several.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmft.metrics.comparison import paired_difference, paired_p
from rmft.metrics.growth import exponent_error, growth, resampled_growth
from rmft.metrics.power import ALPHA, POWER, instances_needed
from rmft.results import PlayerResults, ks_by_seed, pairs_of_seeds, read_players
from rmft.streams import stream
from rmft.workflow.records import MetricsJob

RESAMPLES = 200  # of the exponent's standard error
Metrics = dict[str, dict[str, dict[str, Any]]]  # by experiment, by evaluation


def all_metrics(job: MetricsJob, paths: Sequence[Path]) -> Metrics:
    """Return, by experiment and evaluation, every player's figures and the tests of trained against base."""
    collected = {}
    for (experiment, evaluation), path in zip(job.sources, paths, strict=True):
        collected.setdefault(experiment, {})[evaluation] = _of_one(job, experiment, evaluation, path)
    return collected


def summarised(metrics: Metrics) -> Metrics:
    """Return of every evaluation the trained model's final regret, growth and invalid replies, and the tests."""
    return {
        experiment: {name: _brief(evaluation) for name, evaluation in evaluations.items()}
        for experiment, evaluations in metrics.items()
    }


def _brief(evaluation: dict[str, Any]) -> dict[str, float]:
    trained = evaluation["trained"]
    tests = {name: evaluation[name] for name in ("ks_p", "paired_p")}
    return {
        "regret": trained["mean"],
        "exponent": trained["exponent"],
        **tests,
        "invalid_replies": evaluation["invalid_replies"]["trained"],
        "instances_needed": evaluation["power"]["instances_needed"],
    }


def _of_one(job: MetricsJob, experiment: str, evaluation: str, path: Path) -> dict[str, Any]:
    players = read_players(path)
    base, trained = players["base"], players["trained"]
    words = ("metrics", experiment, evaluation)
    after, before = trained.by_instance[:, -1], base.by_instance[:, -1]
    paired = paired_difference(after, before, stream(job.seed, "bootstrap", *words))
    fits, _ = resampled_growth(trained.regret, RESAMPLES, job.floor, stream(job.seed, "bootstrap", *words, "exponent"))
    by_seed = ks_by_seed(trained, base)
    summaries = {name: _summary(played, job.floor) for name, played in players.items()}
    between = {name: summaries.pop(name) for name in [*summaries] if name.startswith("iteration-")}
    of_base, of_trained = summaries.pop("base"), summaries.pop("trained")
    for name, algorithm in summaries.items():
        than = paired_difference(after, players[name].by_instance[:, -1], stream(job.seed, "bootstrap", *words, name))
        algorithm["paired_difference"] = [than.low, than.mean, than.high]
    return {
        "base": of_base,
        "trained": of_trained | {"exponent_se": exponent_error(fits)},
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


def _power(fall: np.ndarray) -> dict[str, float | int | None]:
    """Return how many instances a paired test needs to see a fall in regret (n,) as large as the one observed."""
    mean, sd = float(fall.mean()), float(fall.std(ddof=1))
    needed = instances_needed(mean / sd) if sd > 1e-9 else None
    return {"difference_sd": sd, "instances_needed": needed, "alpha": ALPHA, "power": POWER}


def _summary(played: PlayerResults, floor: float | None) -> dict[str, float]:
    final, fit = played.final, growth(played.curve, floor)
    mean, largest = float(final.mean()), float(final.max())
    return {
        "mean": mean,
        "se": _standard_error(final),
        "max": largest,
        "exponent": fit.exponent,
        "slope": fit.slope,
    }


def _standard_error(final: np.ndarray) -> float:
    """Return that of the mean of final regrets (S, n), of which training seeds and instances are both samples."""
    parts = [means.var(ddof=1) / len(means) for means in (final.mean(axis=0), final.mean(axis=1)) if len(means) > 1]
    return float(sum(parts) ** 0.5)
