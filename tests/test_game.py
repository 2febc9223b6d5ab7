"""The game: who sees what, and how policies become actions.

Symbols: n replicates, T rounds, d actions.
"""

import numpy as np
import pytest
from helpers import assert_mean, draw, play_algorithm, play_full, uniforms
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rmft.algorithms import AlgorithmSettings
from rmft.environments import AdaptiveRewards
from rmft.environments.tables import one_hot
from rmft.game import play, sample_actions
from rmft.streams import stream

FULL = ("ftl", "ftrl", "hedge", "uniform")
BANDIT = ("ucb", "exp3", "rexp3", "greedy", "thompson-sampling", "uniform")
GAMES = [(name, "fol", "bernoulli") for name in FULL] + [
    (name, environment, process)
    for name in BANDIT
    for environment, process in (("mab", "bernoulli"), ("ns-mab", "gradual-variation"))
]


class Spy:
    """Plays fixed policies (T, n, d) and keeps what it observes."""

    deterministic = False

    def __init__(self, policies: np.ndarray) -> None:
        self.coming = list(policies)
        self.seen = []

    def policy(self) -> np.ndarray:
        """Return the next policies."""
        return self.coming.pop(0)

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Keep everything."""
        self.seen.append((revealed, rewards))


@pytest.mark.parametrize("full_feedback", [True, False])
def test_a_player_sees_normalised_rewards_and_with_bandit_feedback_only_that_of_its_action(full_feedback):
    n, horizon, d = 5, 4, 3
    table = draw("uniform", n, horizon, d)
    spy = Spy(np.random.default_rng(0).dirichlet(np.ones(d), (horizon, n)))
    actions = play(spy, table, full_feedback=full_feedback, uniforms=uniforms(n)).actions
    for t, (revealed, rewards) in enumerate(spy.seen):
        for i, a in np.ndindex(n, d):
            assert revealed[i, a] == (full_feedback or a == actions[i, t])
            assert rewards[i, a] == (pytest.approx(table.rewards[i, t, a] / 10) if revealed[i, a] else 0)


def test_an_action_is_where_the_random_number_of_its_round_falls_in_the_policy():
    n, horizon, d = 5, 4, 3
    policies = np.random.default_rng(0).dirichlet(np.ones(d), (horizon, n))
    numbers = np.random.default_rng(1).random((horizon, n))
    actions = play(
        Spy(policies), draw("uniform", n, horizon, d), full_feedback=False, uniforms=numbers.__getitem__
    ).actions
    for i, t in np.ndindex(n, horizon):
        assert actions[i, t] == np.searchsorted(policies[t, i].cumsum(), numbers[t, i], side="right")


def test_actions_are_drawn_from_the_policy():
    policy = np.array([0.1, 0.0, 0.6, 0.3, 0.0])
    actions = sample_actions(np.tile(policy, (40_000, 1)), stream(0, "action").random(40_000))
    assert_mean(one_hot(actions, 5), policy)


@given(
    policy=arrays(float, 4, elements=st.sampled_from([0.0, 1.0, 2.0])).filter(np.any),
    uniform=st.one_of(st.just(0.0), st.floats(0, 1, exclude_max=True)),
)
def test_an_action_of_probability_zero_is_never_drawn(policy, uniform):
    policy = policy / policy.sum()
    if uniform < policy.cumsum()[-1]:  # beyond it there is only rounding
        assert policy[sample_actions(policy[None], np.array([uniform]))[0]] > 0


def test_adaptive_rewards_answer_the_policies_that_were_played():
    n, horizon, d = 4, 6, 3
    spy = Spy(np.random.default_rng(0).dirichlet(np.ones(d), (horizon, n)))
    trajectories = play_full(spy, AdaptiveRewards((n, horizon, d)))
    least = trajectories.table.rewards.argmin(axis=2)
    np.testing.assert_array_equal(least, trajectories.policies.argmax(axis=2))
    np.testing.assert_array_equal(np.sort(trajectories.table.rewards, axis=2), np.tile([0, 10, 10], (n, horizon, 1)))


@pytest.mark.parametrize(("algorithm", "environment", "process"), GAMES)
def test_an_algorithm_plays_distributions_and_its_actions_have_positive_probability(algorithm, environment, process):
    table = draw(process, 20, 30, 3)
    trajectories = play_algorithm(AlgorithmSettings(algorithm), table, environment)
    np.testing.assert_allclose(trajectories.policies.sum(axis=2), 1)
    assert trajectories.policies.min() >= 0
    assert (trajectories.policies[one_hot(trajectories.actions, 3)] > 0).all()


@pytest.mark.parametrize(("algorithm", "environment", "process"), GAMES)
def test_a_game_is_the_same_whatever_other_games_are_played_beside_it(algorithm, environment, process):
    table = draw(process, 12, 25, 3)
    settings = AlgorithmSettings(algorithm)
    together, alone = (play_algorithm(settings, part, environment) for part in (table, table.head(1, 25)))
    np.testing.assert_array_equal(together.policies[:1], alone.policies)
    np.testing.assert_array_equal(together.actions[:1], alone.actions)
