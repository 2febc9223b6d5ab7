"""Rollouts: Algorithm `ssft-language-model`, "sample L": a chat model plays the games of one shard, batch by batch.

One batch of games is `language.game.play_in_words`.

Symbols: n games, M scenarios, L trajectories each, T rounds, d actions, p features of a context.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmft.environments import ENVIRONMENTS, RewardTable
from rmft.environments.regret import Notion, regret
from rmft.environments.tables import ContextualTable
from rmft.errors import InputError
from rmft.language.game import ChatModel, GameSettings, RandomNumbers, Transcript, play_in_words
from rmft.language.protocol import Scenario


@dataclass(frozen=True)
class Games:
    """The games of a shard.

    ids: (n, 2), scenario and trajectory of each. rewards: (M, T, d), those of all scenarios. scenarios: (M,), the texts
    that games are about; None: actions are mere numbers. seed, words: the names of the random streams. environment,
    notion: how the regret is counted that is reported on the way.
    """

    ids: np.ndarray
    rewards: RewardTable
    settings: GameSettings
    scenarios: Sequence[Scenario] | None
    seed: int
    words: str
    environment: str
    notion: Notion


def games_of_shard(scenarios: int, trajectories: int, shard: int, shards: int) -> np.ndarray:
    """Return scenario and trajectory (n, 2) of the games of a shard, from 1. Raise InputError where it has none."""
    if shard > scenarios:
        raise InputError(f"rollouts.shards: {shards} is more than there are scenarios to share out, {scenarios}")
    own = np.array_split(np.arange(scenarios), shards)[shard - 1]
    return np.stack(np.meshgrid(own, np.arange(trajectories), indexing="ij"), axis=-1).reshape(-1, 2)


def roll_out(
    games: Games,
    open_chat_model: Callable[[np.ndarray], ChatModel],
    batch: int,
    on_round: Callable[[int, int, float], object] = lambda *_: None,
) -> dict[str, list[Any]]:
    """Play all games, `batch` of them at a time, and return the columns of their trajectories.

    open_chat_model: returns a chat model for games (n, 2). on_round: called after each round with the number of games
    that are being played, the tokens since the last round, and the mean regret of these games so far.
    """
    columns: dict[str, list[Any]] = defaultdict(list)
    for start in range(0, len(games.ids), batch):
        ids = games.ids[start : start + batch]
        rewards = games.rewards.rows(ids[:, 0])
        scenarios = None if games.scenarios is None else [games.scenarios[scenario] for scenario in ids[:, 0]]
        tokens = 0

        def report(t: int, transcript: Transcript, rewards: RewardTable = rewards) -> None:
            nonlocal tokens
            on_round(len(rewards.rewards), transcript.tokens - tokens, regret_so_far(games, rewards, transcript, t))
            tokens = transcript.tokens

        transcript = play_in_words(
            open_chat_model(ids),
            rewards.rewards,
            games.settings,
            RandomNumbers(games.seed, games.words, ids),
            report,
            scenarios,
            _contexts(rewards),
        )
        for name, values in _columns(ids, rewards, transcript).items():
            columns[name] += values
    return columns


def regret_so_far(games: Games, rewards: RewardTable, transcript: Transcript, t: int) -> float:
    """Return the mean regret after t rounds."""
    policies, actions = transcript.policies[:t].transpose(1, 0, 2), transcript.actions[:t].T
    comparator = ENVIRONMENTS[games.environment].comparator
    until_now = rewards.head(len(rewards.rewards), t)
    return float(regret(games.notion, comparator, until_now, policies, actions)[:, -1].mean())


def _contexts(rewards: RewardTable) -> np.ndarray | None:
    """Return the contexts (n, T, p) of rewards that have them."""
    return rewards.contexts if isinstance(rewards, ContextualTable) else None


def _columns(ids: np.ndarray, rewards: RewardTable, transcript: Transcript) -> dict[str, list[Any]]:
    n, contexts = len(ids), _contexts(rewards)
    shown = {} if contexts is None else {"contexts": list(contexts.reshape(n, -1))}
    return {
        "scenario": ids[:, 0].tolist(),
        "trajectory": ids[:, 1].tolist(),
        "d": [rewards.shape[2]] * n,
        "rewards": list(rewards.rewards.reshape(n, -1)),
        "means": list(rewards.means.reshape(n, -1)),
        "clipped_means": list(rewards.clipped_means.reshape(n, -1)),
        "prompt": list(map(list, zip(*transcript.prompts, strict=True))),
        "reply": list(map(list, zip(*transcript.replies, strict=True))),
        "policy": list(transcript.policies.transpose(1, 0, 2).reshape(n, -1)),
        "action": list(transcript.actions.T),
        "attempts": list(transcript.attempts.T),
        "fallback": list(transcript.fallback.T),
        "ids": transcript.ids,
        "sampled": transcript.sampled,
        "replied": transcript.replied,
        **shown,
    }
