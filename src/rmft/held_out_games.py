"""Held-out games by player and instance, as `rmft compare` and the trajectory viewer set them side by side.

Symbols: n instances, T rounds, d actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MODELS = ("base", "trained")
Columns = dict[str, np.ndarray | None]  # of an evaluation


@dataclass(frozen=True)
class PlayedGame:
    """A player's game.

    regret, actions (0-based), best (the comparator's actions): (T,). policies: (T, d), None where none were stated.
    replies: T, None where there are none to show.
    """

    player: str
    regret: np.ndarray
    actions: np.ndarray
    best: np.ndarray
    policies: np.ndarray | None
    invalid: int
    replies: Sequence[str] | None = None

    @property
    def decided(self) -> bool:
        """Return whether the player's policy was its action in every round."""
        return self.policies is None or bool(self.policies.max(axis=1).min() == 1)


def rows_by_player(columns: Columns) -> dict[str, np.ndarray]:
    """Return the rows (n,) of each player's games, by instance.

    A model's name ends with its training seed, as in trained-0; base is that of training seed 0.
    """
    names = columns["player"]
    algorithms = [name for name in dict.fromkeys(names) if name not in MODELS and not name.startswith("iteration-")]
    found: dict[str, list[int]] = {}
    for row, (name, seed) in enumerate(zip(names, columns["training_seed"], strict=True)):
        alone = name in algorithms or (name, seed) == ("base", 0)
        found.setdefault(name if alone else f"{name}-{seed}", []).append(row)
    return {player: np.array(of)[np.argsort(columns["instance"][of])] for player, of in found.items()}


def differs_most(columns: Columns, first: np.ndarray, second: np.ndarray) -> int:
    """Return the instance on which the final regrets of two players differ most. first, second: rows (n,)."""
    return int(np.abs(columns["regret"][first, -1] - columns["regret"][second, -1]).argmax())


def game_of(columns: Columns, player: str, row: int, replies: Sequence[str] | None) -> PlayedGame:
    """Return the game in a row of an evaluation."""
    policies, d = columns["policy"], columns["d"][row]
    return PlayedGame(
        player,
        columns["regret"][row],
        columns["action"][row].astype(int),
        columns["best_action"][row].astype(int),
        None if policies is None else policies[row].reshape(-1, d),
        int(columns["invalid"][row]),
        replies,
    )
