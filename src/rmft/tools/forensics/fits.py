"""How well a reading fits rows of the paper's tables: z-values, one joint test, and what trying many readings costs.

The paper's row is one draw of statistics of n games. We play many groups of n games, which gives the distribution of
these statistics under a reading, and ask whether the paper's row could be one more group.

Symbols: G groups, n games in a group, T rounds, d actions, k values that are compared, m readings.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from rmft.algorithms import AlgorithmSettings, Player, start
from rmft.environments import ENVIRONMENTS, RewardTable
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.regret import best_actions, regret
from rmft.environments.tables import variation
from rmft.game import action_uniforms, play
from rmft.metrics.exploration import LATE, in_round, suffix_failure
from rmft.metrics.growth import growth_of_each
from rmft.streams import stream
from rmft.tools.forensics.questions import Question, Row, row_read
from rmft.tools.forensics.readings import draw

Line = dict[str, Any]  # of fits.jsonl
LEVEL = 0.05  # a reading fits if the joint test does not reject it at this level
CHANCE_ROWS = 20_000  # arbitrary rows, to see how many of them fit some reading


class OnRewardsAsTheyAre:
    """A player that observes rewards in [0, 10] in place of normalised ones."""

    deterministic = False

    def __init__(self, player: Player) -> None:
        self.player = player

    def policy(self) -> np.ndarray:
        """Return the policies (n, d)."""
        return self.player.policy()

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Observe a round on the scale of [0, 10]."""
        self.player.observe(revealed, LOW * revealed + (HIGH - LOW) * rewards)


def answers(name: str, question: Question, groups: int, seed: int, on_reading: Callable[[], object]) -> list[Line]:
    """Try every reading of a question, the documented one first; return a line of fits.jsonl for each.

    ours: the mean of each statistic over groups, (k,). chance: see `chance`, and digest: see `Question.digest`; both
    are the same for all readings.
    """
    values = [value for row in question.rows for value in row.values().values()]
    paper, half_units = np.array(values).T
    readings, regions = list(question.all_readings()), []
    for reading in readings:
        samples = [_statistics(row_read(row, reading), groups, seed) for row in question.rows]
        regions.append(Region(np.concatenate(samples), half_units))
        on_reading()
    by_chance = _short(chance(regions, seed))
    return [
        {
            "question": name,
            "digest": question.digest(groups),
            "reading": reading,
            "p": _short(float(region.p(paper))),
            "ours": [_short(number) for number in region.mean],
            "z": [_short(number) for number in region.z(paper)],
            "chance": by_chance,
        }
        for reading, region in zip(readings, regions, strict=True)
    ]


class Region:
    """Where the statistics of a group lie under a reading. samples: (k, G). half_units: (k,), of the paper's print."""

    def __init__(self, samples: np.ndarray, half_units: np.ndarray) -> None:
        self.k, self.groups = samples.shape
        self.mean = samples.mean(axis=1)
        covariance = np.atleast_2d(np.cov(samples)) + np.diag(half_units**2 / 3)  # a rounding error is uniform
        self.deviations = np.sqrt(covariance.diagonal())
        self.inverse = np.linalg.inv(covariance / np.outer(self.deviations, self.deviations))

    def z(self, values: np.ndarray) -> np.ndarray:
        """Return how many standard deviations values (…, k) lie above the mean."""
        return (values - self.mean) / self.deviations

    def p(self, values: np.ndarray) -> np.ndarray:
        """Return the probability that one more group lies as far out as values (…, k): Hotelling's prediction."""
        z, k, groups = self.z(values), self.k, self.groups
        distance = np.einsum("...i,ij,...j->...", z, self.inverse, z)
        return stats.f.sf(distance * groups * (groups - k) / (k * (groups**2 - 1)), k, groups - k)


def chance(regions: Sequence[Region], seed: int) -> float:
    """Return the share of arbitrary rows that fit some reading: rows uniform in the box that the readings' means span.

    It grows with the number of readings. A fit is evidence only where it is small.
    """
    means = np.array([region.mean for region in regions])
    random = stream(seed, "bootstrap", "forensics")
    rows = random.uniform(means.min(axis=0), means.max(axis=0), (CHANCE_ROWS, means.shape[1]))
    return float((np.max([region.p(rows) for region in regions], axis=0) >= LEVEL).mean())


def _statistics(row: Row, groups: int, seed: int) -> np.ndarray:
    """Return the row's statistics in each group, (k, G), in the order of its values."""
    n = row.instances
    curves, late_failures = _games(row, groups * n, seed)
    of_groups = curves.reshape(groups, n, row.T)
    fits = growth_of_each(of_groups.mean(axis=1))
    found = {
        "mean": of_groups[:, :, -1].mean(axis=1),
        "max": of_groups[:, :, -1].max(axis=1),
        "exponent": getattr(fits, row.growth or "exponent"),
        "beta_hat": getattr(fits, row.growth or "slope"),
    }
    if late_failures is not None:
        found["suff_fail_freq"] = late_failures.reshape(groups, n).mean(axis=1)
    return np.array([found[name] for name in row.values()])


def _games(row: Row, n: int, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Play a row's games; return Regret(t) (n, T), and whether the best action is not played late (n,).

    Players of one table play the same rewards, as in the paper; different tables have rewards of their own.
    """
    environment = ENVIRONMENTS[row.environment]
    sampled = not environment.full_feedback or row.regret != "expected"  # whether actions count
    name = f"{row.table} {row.process} {row.d} {row.T}"
    rewards = draw(seed, name, row.process, (n, row.T, row.d))
    V = variation(rewards.means) if isinstance(rewards, RewardTable) else None
    if row.budget == "V_T²":
        V = V**2 / (HIGH - LOW)  # squared on the scale of normalised rewards
    radius = 1.0 if row.policy_space == "ball" else None
    settings = AlgorithmSettings(row.algorithm, eta=row.eta)
    player = start(settings, rewards.shape, radius=radius, streams=partial(stream, seed, "sampling", name), variation=V)
    played = play(
        player if row.normalise else OnRewardsAsTheyAre(player),
        rewards,
        full_feedback=environment.full_feedback,
        uniforms=action_uniforms(seed, n, name) if sampled else None,
    )
    table, comparator = played.table, environment.comparator
    curves = regret(row.regret, comparator, table, played.policies, played.actions, radius=radius)
    if environment.full_feedback:
        return curves, None
    failures = suffix_failure(played.actions, best_actions(comparator, table))
    return curves, in_round(failures, LATE)


def _short(number: float) -> float:
    """Return a number with four digits, as the data file keeps it."""
    return float(f"{number:.4g}")
