"""What Python programs call: `rmft.play` has any player play a Gymnasium environment, `rmft.regret` scores decisions.

Symbols: M instances, L trajectories each, n = M · L games, T rounds, d actions.
"""

import math
import os
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from rmft.algorithms import ALGORITHMS, AlgorithmSettings, check_algorithm, start_on
from rmft.algorithms.players import CheckedPlayer, Player, check_policies
from rmft.environments import ENVIRONMENTS, RewardTable
from rmft.environments.regret import best_actions
from rmft.environments.regret import regret as regret_of
from rmft.environments.tables import one_hot
from rmft.errors import InputError, refuse_options
from rmft.game import action_uniforms
from rmft.game import play as play_rounds
from rmft.gym import STREAM, GameEnv, GamesEnv, check_whole
from rmft.rollouts import games_of_shard
from rmft.selection import TrajectoryColumns

if TYPE_CHECKING:
    from rmft.agents.asked import ReplyFunction


@dataclass(frozen=True)
class PlayedGames:
    """n games that one player has played.

    Attributes:
        environment: "fol", "mab" or "ns-mab".
        table: the rewards (n, T, d), in [0, 10], with their means.
        policies: (n, T, d).
        actions: (n, T), 0-based.
        columns: what a language model wrote, as `artifacts.trajectories` stores it; None for an algorithm.
    """

    environment: str
    table: RewardTable
    policies: np.ndarray
    actions: np.ndarray
    columns: TrajectoryColumns | None = None

    @property
    def regret(self) -> np.ndarray:
        """Return Regret(t) as (n, T), counted as `rmft eval` does: over policies, and in bandits over mean rewards."""
        comparator = ENVIRONMENTS[self.environment].comparator
        return regret_of("expected", comparator, self.table, self.policies, self.actions)

    @property
    def best_actions(self) -> np.ndarray:
        """Return the comparator's action in each round (n, T).

        In bandits it is the action of the highest mean in that round; with full information the best fixed action of
        the whole game, in every round.
        """
        return best_actions(ENVIRONMENTS[self.environment].comparator, self.table)


def regret(
    values: np.ndarray, choices: np.ndarray, comparator: Literal["hindsight", "best mean"] = "hindsight"
) -> np.ndarray:
    """Return Regret(t) as (n, T): what the comparator earned up to round t, less what the player did.

    Args:
        values: (n, T, d), the rewards of all actions; or their means, for pseudo-regret.
        choices: (n, T), 0-based actions; or (n, T, d), policies.
        comparator: "hindsight", the best fixed action of the rounds so far; or "best mean", the best action of each
            round, as in bandits whose means change.

    Raises:
        InputError: for arrays that do not fit.

    Examples:
        >>> regret([[[1.0, 3.0], [0.0, 2.0]]], [[0, 1]])
        array([[2., 2.]])
    """
    try:
        values, choices = np.asarray(values, dtype=float), np.asarray(choices)
    except (TypeError, ValueError):
        raise InputError("regret: values and choices must be arrays of numbers, with rows of one length") from None
    if values.ndim != 3 or choices.shape not in (values.shape, values.shape[:2]):
        raise InputError(f"regret: values {values.shape} must be (n, T, d), and choices {choices.shape} (n, T[, d])")
    if not values.size:
        raise InputError(f"regret: values {values.shape} must have a game, a round and an action at least")
    if not np.isfinite(values).all():
        raise InputError("regret: values must be finite numbers")
    if comparator not in ("hindsight", "best mean"):
        raise InputError(f"regret: comparator: {comparator!r}: must be 'hindsight' or 'best mean'")
    if choices.ndim == 3:
        check_policies("regret", choices)
    else:
        if choices.dtype.kind not in "iu" or not ((choices >= 0) & (choices < values.shape[2])).all():
            raise InputError(f"regret: actions must be whole numbers from 0 to {values.shape[2] - 1}")
        choices = one_hot(choices, values.shape[2])
    return regret_of("expected", comparator, RewardTable(values, values, values), choices, None)


def play(
    player: "str | AlgorithmSettings | Player | ReplyFunction",
    env: GameEnv | GamesEnv,
    *,
    seed: int = 0,
    trajectories: int = 1,
    reasoning: bool = False,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    weights: Path | None = None,
    revision: str | None = None,
    device: str | None = None,
) -> PlayedGames:
    """Have a player play the games that `env.reset(seed=seed)` begins, and return them.

    Args:
        player: the name of an algorithm ("ucb") or its settings; a model that plays on this machine ("embedded", a
            folder, a hub repository); a function from the messages of a conversation to the reply, which may ask any
            model; or an object with the methods of `algorithms.Player`.
        env: what `make` or `make_vec` returned, without a wrapper.
        seed: of the games, and of all that the player draws.
        trajectories: how often each instance is played.
        reasoning: whether a model may reason before its decision.
        temperature: of a model that plays on this machine; a function is not told it.
        max_tokens: of a model's reply; None for what its form needs.
        weights: the file of a fine-tuned model.
        revision: a commit of a hub repository; None for the newest.
        device: that a model computes on, such as "cuda"; None for the CPU.

    Raises:
        InputError: for a wrong argument.

    Examples:
        >>> games = play("ucb", make_vec("mab", num_envs=100), seed=0)
        >>> games.regret[:, -1].mean()
    """
    if not isinstance(env, GameEnv | GamesEnv):
        raise InputError("play: env: must be what rmft.make or rmft.make_vec returned, without a wrapper")
    limit = 1 if max_tokens is None else max_tokens
    for name, value, least in (("seed", seed, 0), ("trajectories", trajectories, 1), ("max_tokens", limit, 1)):
        check_whole(f"play: {name}", value, least)
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise InputError(f"play: temperature: {temperature!r}: must be a number of at least 0")
    env.reset(seed=int(seed))
    episodes = env.games
    ids = games_of_shard(episodes.n, trajectories, 1, 1)
    table = episodes.table.rows(ids[:, 0])
    if isinstance(player, str) and player in ALGORITHMS:
        player = AlgorithmSettings(player)
    if isinstance(player, AlgorithmSettings):
        check_algorithm(player, episodes.environment)
        player = start_on(seed, STREAM, player, table, None)
    elif isinstance(player, type):
        raise InputError(
            f"play: player: {player.__name__} is a class; pass an object of it, such as {player.__name__}()"
        )
    elif isinstance(player, Player):
        player = CheckedPlayer("play: player", player, (len(ids), table.shape[2]))
    if isinstance(player, Player):
        of_models = {"weights": weights, "revision": revision, "device": device, "max_tokens": max_tokens}
        of_models |= {"reasoning": reasoning or None, "temperature": None if temperature == 1 else temperature}
        refuse_options(
            {f"play: {name}": value for name, value in of_models.items()}, "goes with a model, not with an algorithm"
        )
        full, uniforms = ENVIRONMENTS[episodes.environment].full_feedback, action_uniforms(seed, len(ids), STREAM)
        played = play_rounds(player, table, full_feedback=full, uniforms=uniforms)
        return PlayedGames(episodes.environment, table, played.policies, played.actions)
    from rmft.api_in_words import ModelSource, ReplySettings, play_in_words  # slow

    if weights is not None and not (isinstance(weights, str | os.PathLike) and Path(weights).is_file()):
        raise InputError(f"play: weights: {weights!r} is no file; name a .safetensors file that fine-tuning wrote")
    weights = None if weights is None else Path(weights)
    reply = ReplySettings(ReplySettings.form(reasoning=reasoning), max_tokens, temperature)
    columns = play_in_words(player, ModelSource(weights, revision, device), episodes, ids, seed, reply)
    policies, actions = np.array(columns["policy"]).reshape(table.shape), np.array(columns["action"])
    return PlayedGames(episodes.environment, table, policies, actions, columns)
