"""Evaluation: base model, trained model and reference algorithms on common instances.

All players have the same rewards, so that any two can be compared instance by instance. Numeric models and algorithms
also share the random numbers that turn policies into actions; language models share theirs with each other only.

Symbols: n instances, T rounds, d actions.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmft.agents.numeric import LinearAttention, NumericAgent
from rmft.algorithms import AlgorithmSettings, start_on
from rmft.algorithms.players import Player
from rmft.environments import ENVIRONMENTS, Rewards, RewardTable
from rmft.environments.regret import EVALUATED, Mean, best_actions, regret
from rmft.errors import InputError
from rmft.game import action_uniforms, play
from rmft.selection import TrajectoryColumns, invalid_replies, table_of

Columns = dict[str, list[Any]]  # one value for each player, training seed and instance


@dataclass(frozen=True)
class Instances:
    """The instances that all players play, and how their regret is counted.

    rewards: (n, T, d). name: of the reward set, which with the seed names the random streams. mean: that regret counts.
    radius: of the ball, None on the simplex.
    """

    rewards: Rewards
    name: str
    seed: int
    environment: str
    mean: Mean
    radius: float | None = None


def first_instances(rewards: Rewards, name: str, shape: tuple[int, int, int]) -> Rewards:
    """Return the first instances and rounds of a reward set, (n, T, d); raise InputError where it holds too little."""
    first = rewards.head(*shape[:2])
    if first.shape != shape:
        has, needs = ("{} instances of {} rounds with {} actions".format(*size) for size in (rewards.shape, shape))
        raise InputError(f"reward set {name}: has {has}, and the evaluation needs {needs}")
    return first


def evaluate(
    instances: Instances,
    models: Mapping[str, LinearAttention],
    algorithms: Mapping[str, AlgorithmSettings],
    *,
    normalise: bool,
) -> Columns:
    """Play numeric models and algorithms; return the columns of an evaluation.

    models: by player name, with training seeds along the first axis. normalise: whether models see rewards in [0, 1].
    Raise InputError where a model has another number of actions.
    """
    n, _, d = instances.rewards.shape
    parts = []
    for name, model in models.items():
        if model.V.shape[-1] != d:
            raise InputError(f"model {name}: was made for d = {model.V.shape[-1]}, not {d}")
        for seed in range(len(model.V)):
            agent = NumericAgent(model.of_seed(seed), n, normalise=normalise, radius=instances.radius)
            parts.append(_rows(name, seed, _play(instances, agent, in_words=False)))
    return _joined([*parts, *_algorithms(instances, algorithms, in_words=False)])


def evaluate_in_words(
    instances: Instances,
    games: Iterable[tuple[str, int, TrajectoryColumns]],
    algorithms: Mapping[str, AlgorithmSettings],
) -> Columns:
    """Score the games that language models have played, and play algorithms; return the columns of an evaluation.

    games: player name, training seed (of the base model: replicate) and trajectories, on at least these instances.
    Raise InputError where the rewards of the games are others.
    """
    rewards, parts = instances.rewards, []
    for name, seed, played in games:
        order = np.argsort(played["scenario"])[: rewards.shape[0]]
        table = table_of(played).rows(order)
        if table.shape != rewards.shape or not np.array_equal(table.rewards, rewards.rewards):
            raise InputError(f"{name}: was not played on {instances.name}; move its games away and run again")
        policies = np.array(played["policy"])[order].reshape(rewards.shape)
        actions = np.array(played["action"], dtype=int)[order]
        in_words = {
            "policy": list(policies.reshape(len(policies), -1)),
            "invalid": invalid_replies(played)[order].tolist(),
        }
        parts.append(_rows(name, seed, _scored(instances, rewards, policies, actions) | in_words))
    return _joined([*parts, *_algorithms(instances, algorithms, in_words=True)])


def _algorithms(
    instances: Instances, algorithms: Mapping[str, AlgorithmSettings], *, in_words: bool
) -> Iterable[Columns]:
    for name, settings in algorithms.items():
        player = start_on(instances.seed, instances.name, settings, instances.rewards, instances.radius)
        yield _rows(name, 0, _play(instances, player, in_words=in_words))


def _play(instances: Instances, player: Player, *, in_words: bool) -> Columns:
    """Return the columns of a player's games. in_words: whether policies are kept, as those of language models are."""
    n, full_feedback = instances.rewards.shape[0], ENVIRONMENTS[instances.environment].full_feedback
    uniforms = None if instances.radius is not None else action_uniforms(instances.seed, n, instances.name)
    played = play(player, instances.rewards, full_feedback=full_feedback, uniforms=uniforms)
    policies = list(played.policies.reshape(n, -1)) if in_words else [None] * n
    scored = _scored(instances, played.table, played.policies, played.actions)
    return scored | {"policy": policies, "invalid": [0] * n}


def _scored(instances: Instances, table: RewardTable, policies: np.ndarray, actions: np.ndarray | None) -> Columns:
    """Return regret curves and actions."""
    comparator, n = ENVIRONMENTS[instances.environment].comparator, len(policies)
    curves = regret(EVALUATED, comparator, table, policies, actions, mean=instances.mean, radius=instances.radius)
    return {
        "instance": list(range(n)),
        "d": [table.shape[2]] * n,
        "regret": list(curves),
        "action": [None] * n if actions is None else list(actions),
        "best_action": [None] * n if actions is None else list(best_actions(comparator, table, instances.mean)),
    }


def _rows(name: str, training_seed: int, games: Columns) -> Columns:
    n = len(games["instance"])
    return {"player": [name] * n, "training_seed": [training_seed] * n, **games}


def _joined(parts: Iterable[Columns]) -> Columns:
    columns = defaultdict(list)
    for part in parts:
        for column, values in part.items():
            columns[column] += values
    return columns
