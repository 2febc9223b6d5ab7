"""Base model, trained model and reference algorithms on common instances.

Everyone meets the same rewards and, to turn policies into actions, the same random numbers, so that any two
players can be compared instance by instance.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rmft.agents.numeric import LinearAttention, NumericAgent
from rmft.algorithms import start_on
from rmft.algorithms.players import Player
from rmft.environments import ENVIRONMENTS, Rewards
from rmft.environments.regret import best_actions, regret
from rmft.errors import InputError
from rmft.jobs import EvaluationJob
from rmft.rollouts import action_uniforms, play

Players = Iterator[tuple[str, int, Player]]  # name, training seed, player at the start of its games


def evaluate(
    job: EvaluationJob,
    models: dict[str, LinearAttention],
    rewards: Rewards,
) -> Mapping[str, list[Any]]:
    """Play everyone on the first instances and rounds of a reward set; return the columns of an evaluation.

    models: by player name, with training seeds along the first axis.
    Raises InputError where models and rewards are not what the job says.
    """
    table, asked = rewards.head(job.evaluation.instances, job.evaluation.T), job.evaluation
    if table.shape != (asked.instances, asked.T, job.problem.d):
        raise InputError(f"reward set {asked.rewards}: holds (n, T, d) = {rewards.shape}, too little for {asked}")
    for name, model in models.items():
        if model.V.shape[-1] != job.problem.d:
            raise InputError(f"model {name}: was made for d = {model.V.shape[-1]}, not {job.problem.d}")
    columns = defaultdict(list)
    for name, training_seed, player in _players(job, models, table):
        games = {"player": [name] * asked.instances, "training_seed": [training_seed] * asked.instances}
        for column, values in {**games, **_games_of(job, player, table)}.items():
            columns[column] += values
    return columns


def _players(job: EvaluationJob, models: dict[str, LinearAttention], table: Rewards) -> Players:
    n, radius = table.shape[0], job.problem.radius
    for name, model in models.items():
        for training_seed in range(len(model.V)):
            of_seed = model.of_seed(training_seed)
            yield name, training_seed, NumericAgent(of_seed, n, normalise=job.problem.normalise, radius=radius)
    for name in job.evaluation.algorithms:
        yield name, 0, start_on(job.seed, job.evaluation.rewards, job.algorithms[name], table, radius)


def _games_of(job: EvaluationJob, player: Player, table: Rewards) -> dict[str, list[Any]]:
    environment, radius, n = ENVIRONMENTS[job.problem.environment], job.problem.radius, table.shape[0]
    on_ball = radius is not None
    uniforms = None if on_ball else action_uniforms(job.seed, n, job.evaluation.rewards)
    played = play(player, table, full_feedback=environment.full_feedback, uniforms=uniforms)
    # A policy is the agent's distribution over actions, so regret is expected over it (App. `regret-instantitaion`).
    met, comparator = played.table, environment.comparator
    curves = regret("expected", comparator, met, played.policies, played.actions, mean=job.mean, radius=radius)
    return {
        "instance": list(range(n)),
        "d": [table.shape[2]] * n,
        "regret": list(curves),
        "action": [None] * n if on_ball else list(played.actions),
        "best_action": [None] * n if on_ball else list(best_actions(comparator, met, job.mean)),
    }
