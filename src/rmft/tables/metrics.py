"""results/metrics.json: what DVC compares between commits and experiments."""

from collections.abc import Sequence
from pathlib import Path

from rmft.jobs import MetricsJob
from rmft.metrics.comparison import paired_difference
from rmft.metrics.growth import growth
from rmft.results import Played, ks_of_seeds, read_players
from rmft.streams import stream


def all_metrics(job: MetricsJob, paths: Sequence[Path]) -> dict[str, dict[str, object]]:
    """Return, by experiment and evaluation, every player's figures and the tests of trained against base."""
    collected = {}
    for (experiment, evaluation), path in zip(job.sources, paths, strict=True):
        collected.setdefault(experiment, {})[evaluation] = _of_one(job, experiment, evaluation, path)
    return collected


def _of_one(job: MetricsJob, experiment: str, evaluation: str, path: Path) -> dict[str, object]:
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
    final, fit = played.by_instance[:, -1], growth(played.curve, floor)
    se = float(final.std(ddof=1) / len(final) ** 0.5)
    largest = float(played.final.max())
    return {"mean": float(final.mean()), "se": se, "max": largest, "exponent": fit.exponent, "slope": fit.slope}
