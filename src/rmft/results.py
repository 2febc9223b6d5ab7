"""Evaluations as arrays by player: the form in which every figure, table and metric reads them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmft.artifacts.evaluations import read_evaluation
from rmft.metrics.comparison import ks_p
from rmft.params.outputs import variant_name


@dataclass(frozen=True)
class PlayerResults:
    """One player's games in one evaluation.

    regret: (S, n, T), Regret(t) by training seed (S = 1 for reference algorithms), instance, round.
    actions, best_actions: (S, n, T), 0-based, or None on the ball. d: the number of actions.
    policies: (S, n, T, d) where games were told in words, else None. invalid: (S, n), replies without a valid decision.
    """

    d: int
    regret: np.ndarray
    actions: np.ndarray | None
    best_actions: np.ndarray | None
    policies: np.ndarray | None
    invalid: np.ndarray

    @property
    def curve(self) -> np.ndarray:
        """Return the mean regret (T,) over training seeds and instances."""
        return self.regret.mean(axis=(0, 1))

    @property
    def by_instance(self) -> np.ndarray:
        """Return the regret (n, T) averaged over training seeds."""
        return self.regret.mean(axis=0)

    @property
    def final(self) -> np.ndarray:
        """Return the final regret (S, n)."""
        return self.regret[:, :, -1]


def read_players(path: Path) -> dict[str, PlayerResults]:
    """Read an evaluation: its players in the order in which they played."""
    columns = read_evaluation(path)
    return {player: _played(columns, columns["player"] == player) for player in dict.fromkeys(columns["player"])}


def ks_by_seed(trained: PlayerResults, base: PlayerResults) -> list[float]:
    """Return the KS p-value of every training seed's trained model against its base model.

    NaN where all instances are alike, as under adaptive rewards: n copies of one game are a sample of one.
    """
    pairs = pairs_of_seeds(trained, base)
    return [math.nan if np.ptp(after) < 1e-9 else ks_p(after, before) for after, before in pairs]


def pairs_of_seeds(trained: PlayerResults, base: PlayerResults) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the final regrets (n,) of each training seed's trained model, and of the base model that it started from.

    Language models all start from the same one, which has played once.
    """
    return zip(trained.final, np.broadcast_to(base.final, trained.final.shape), strict=True)


def read_variants(sources: Sequence[tuple[str, str]], paths: Sequence[Path]) -> dict[str, dict[str, PlayerResults]]:
    """Read the evaluations of several experiments, sources being their (experiment, evaluation): players by evaluation.

    The first experiment gives all of its players; a further one, which is a variant of it, its models, under the
    names base-<variant> and trained-<variant>.
    """
    found: dict[str, dict[str, PlayerResults]] = {}
    first = sources[0][0]
    for (experiment, evaluation), path in zip(sources, paths, strict=True):
        players = read_players(path)
        if experiment != first:
            players = {f"{name}-{variant_name(first, experiment)}": players[name] for name in ("base", "trained")}
        found.setdefault(evaluation, {}).update(players)
    return found


def _played(columns: dict[str, np.ndarray | None], of_player: np.ndarray) -> PlayerResults:
    """Return one player's rows (a mask) by training seed and instance."""
    order = np.lexsort((columns["instance"][of_player], columns["training_seed"][of_player]))
    seeds = len(np.unique(columns["training_seed"][of_player]))

    def stacked(column: str) -> np.ndarray | None:
        if columns[column] is None:
            return None
        values = columns[column][of_player][order]
        return values.reshape(seeds, len(values) // seeds, -1)

    d = int(columns["d"][of_player][0])
    regret, policies = stacked("regret"), stacked("policy")
    if policies is not None:
        policies = policies.reshape(*regret.shape, d)
    return PlayerResults(d, regret, stacked("action"), stacked("best_action"), policies, stacked("invalid")[..., 0])
