"""results/metrics.json, and results/summary.json, which DVC compares between commits and experiments.

paired_p and paired_difference hold for the training seeds that were run: over instances, of the mean over seeds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmft.jobs import MetricsJob
from rmft.metrics.comparison import paired_difference
from rmft.metrics.growth import growth
from rmft.results import Played, ks_of_seeds, read_players
from rmft.streams import stream

Metrics = dict[str, dict[str, dict[str, Any]]]  # by experiment, by evaluation


def all_metrics(job: MetricsJob, paths: Sequence[Path]) -> Metrics:
    """Return, by experiment and evaluation, every player's figures and the tests of trained against base."""
    collected = {}
    for (experiment, evaluation), path in zip(job.sources, paths, strict=True):
        collected.setdefault(experiment, {})[evaluation] = _of_one(job, experiment, evaluation, path)
    return collected


def summarised(metrics: Metrics) -> Metrics:
    """Return of every evaluation the trained model's final regret, its growth exponent, and the tests against base."""
    return {
        experiment: {name: _brief(evaluation) for name, evaluation in evaluations.items()}
        for experiment, evaluations in metrics.items()
    }


def _brief(evaluation: dict[str, Any]) -> dict[str, float]:
    trained = evaluation["trained"]
    tests = {name: evaluation[name] for name in ("ks_p", "paired_p")}
    return {"regret": trained["mean"], "exponent": trained["exponent"], **tests}


def _of_one(job: MetricsJob, experiment: str, evaluation: str, path: Path) -> dict[str, Any]:
    players = read_players(path)
    base, trained = players["base"], players["trained"]
    generator = stream(job.seed, "bootstrap", "metrics", experiment, evaluation)
    paired = paired_difference(trained.by_instance[:, -1], base.by_instance[:, -1], generator)
    summaries = {name: _summary(played, job.floor) for name, played in players.items()}
    return {
        "base": summaries.pop("base"),
        "trained": summaries.pop("trained"),
        "algorithms": summaries,
        "ks_p": ks_of_seeds(trained, base),
        "paired_p": paired.p,
        "paired_difference": [paired.low, paired.mean, paired.high],
        "n": len(base.by_instance),
        "invalid_replies": 0,  # a numeric agent always gives a policy
    }


def _summary(played: Played, floor: float | None) -> dict[str, float]:
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
