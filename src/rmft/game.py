"""The game: one player on one reward table, all n instances at once. For games in words see `language.game`.

Symbols: n instances, T rounds, d actions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmft.algorithms.players import ContextualPlayer, Player
from rmft.environments import Rewards, RewardTable
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.sampling import sample_actions
from rmft.environments.tables import ContextualTable, one_hot, zeros
from rmft.streams import stream

Uniforms = Callable[[int], np.ndarray]  # round t = 0..T-1 → (n,) numbers in [0, 1)


@dataclass(frozen=True)
class Trajectories:
    """The policies, actions and rewards of n games.

    policies: (n, T, d). actions: (n, T), 0-based, or None where a policy is no distribution (the ball). table: the
    rewards, in [0, 10], with their means.
    """

    policies: np.ndarray
    actions: np.ndarray | None
    table: RewardTable


def action_uniforms(root: int, n: int, *words: str | int) -> Uniforms:
    """Return the uniforms that sample actions from policies; the words name their stream, common to all players."""
    return lambda t: stream(root, "action", *words, t).random(n)


def play(
    player: Player,
    rewards: Rewards,
    *,
    full_feedback: bool,
    uniforms: Uniforms | None,
    on_round: Callable[[], object] | None = None,
) -> Trajectories:
    """Play T rounds and return the trajectories.

    uniforms: the random numbers that sample actions from policies; None on the ball, which has no actions.
    The player observes rewards normalised to [0, 1] (App. `appendix_baseline`); `Trajectories.table` is not normalised.
    on_round: called after every round, for a progress bar.
    """
    n, horizon, d = rewards.shape
    adaptive = not isinstance(rewards, RewardTable)
    policies, drawn = zeros(n, horizon, d), zeros(n, horizon, d) if adaptive else None
    actions = None if uniforms is None else zeros(n, horizon, dtype=np.int64)
    everything = np.ones((n, d), dtype=bool)
    contextual = isinstance(rewards, ContextualTable) and isinstance(player, ContextualPlayer)
    for t in range(horizon):
        if contextual:
            player.see(rewards.contexts[:, t])
        policies[:, t] = policy = player.policy()
        reward = rewards.at(t, policy)
        if adaptive:
            drawn[:, t] = reward
        if actions is not None:
            # In the middle, since a policy of one action may give others a rounding error's probability.
            actions[:, t] = action = sample_actions(policy, 0.5 if player.deterministic else uniforms(t))
        revealed = everything if full_feedback else one_hot(action, d)
        player.observe(revealed, revealed * ((reward - LOW) / (HIGH - LOW)))
        if on_round:
            on_round()
    return Trajectories(policies, actions, RewardTable(drawn, drawn, drawn) if adaptive else rewards)
