"""FTL, FTRL and Hedge against their formulas and their guarantees.

Symbols: n replicates, T rounds, d actions.
"""

import math

import numpy as np
import pytest
from helpers import draw, fixed_table, play_full
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from rmft.algorithms import AlgorithmSettings, start
from rmft.environments import AdaptiveRewards
from rmft.environments.regret import regret

reward_sequences = arrays(
    float, st.tuples(st.just(2), st.integers(1, 25), st.integers(2, 4)), elements=st.floats(0, 10)
)


# --- Full information ---


@given(rewards=reward_sequences, algorithm=st.sampled_from(["hedge", "ftrl"]))
def test_hedge_which_is_ftrl_with_entropy_is_the_recursion_of_exponential_weights(rewards, algorithm):
    _, horizon, d = rewards.shape
    eta = math.sqrt(2 * math.log(d) / horizon)
    policies = play_full(start(AlgorithmSettings(algorithm), rewards.shape), fixed_table(rewards)).policies
    for game, played in zip(rewards / 10, policies, strict=True):
        policy = [1 / d] * d
        for t in range(horizon):
            np.testing.assert_allclose(played[t], policy, rtol=1e-9)
            grown = [p * math.exp(eta * reward) for p, reward in zip(policy, game[t], strict=True)]
            policy = [p / sum(grown) for p in grown]


@given(rewards=reward_sequences)
def test_hedge_keeps_its_regret_bound_on_every_reward_sequence(rewards):
    _, horizon, d = rewards.shape
    eta, table = math.sqrt(2 * math.log(d) / horizon), fixed_table(rewards)
    policies = play_full(start(AlgorithmSettings("hedge"), rewards.shape), table).policies
    final = regret("expected", "hindsight", table, policies, None)[:, -1]
    assert final.max() <= 10 * (math.log(d) / eta + eta * horizon / 8) + 1e-9


@pytest.mark.parametrize("horizon", [25, 100, 400])
def test_adaptive_rewards_defeat_ftl_but_not_hedge(horizon):
    d = 3
    final = {}
    for algorithm in ("ftl", "hedge"):
        player = start(AlgorithmSettings(algorithm), (1, horizon, d))
        trajectories = play_full(player, AdaptiveRewards((1, horizon, d)))
        final[algorithm] = regret("expected", "hindsight", trajectories.table, trajectories.policies, None)[0, -1]
    assert final["ftl"] >= 10 * (horizon * (d - 1) / d - 1)  # it earns nothing after the first round
    assert final["hedge"] <= 10 * math.sqrt(2 * math.log(d) * horizon)


def test_hedge_on_alternating_rewards_has_the_regret_that_the_paper_reports():
    table = draw("alternating", 30, 15, 3)
    policies = play_full(start(AlgorithmSettings("hedge"), table.shape), table).policies
    final = regret("expected", "hindsight", table, policies, None)[:, -1]
    assert (round(final.max(), 2), round(final.mean(), 2)) == (6.19, 6.19)


def entropy_objective(total, eta):
    return lambda policy: -(policy @ total - (policy * np.log(np.maximum(policy, 1e-300))).sum() / eta)


def ball_objective(total, eta):
    return lambda policy: -(policy @ total - (policy @ policy) / (2 * eta))


@given(total=arrays(float, 3, elements=st.floats(0, 20)), eta=st.floats(0.05, 0.5))
def test_ftrl_on_the_simplex_maximises_reward_less_regularizer(total, eta):
    player = start(AlgorithmSettings("ftrl", eta=eta), (1, 10, 3))
    player.observe(np.ones((1, 3), dtype=bool), total[None])
    policy, objective = player.policy()[0], entropy_objective(total, eta)
    found = optimize.minimize(
        objective,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda point: point.sum() - 1},
    )
    feasible = found.x.clip(0) / found.x.clip(0).sum()
    assert objective(policy) <= objective(feasible) + 1e-9
    np.testing.assert_allclose(policy, feasible, atol=0.02)


@given(
    total=arrays(float, 3, elements=st.floats(-20, 20)),
    eta=st.floats(0.02, 0.5),
    radius=st.floats(0.5, 3),
)
def test_ftrl_on_the_ball_maximises_reward_less_regularizer(total, eta, radius):
    player = start(AlgorithmSettings("ftrl", eta=eta), (1, 10, 3), radius=radius)
    player.observe(np.ones((1, 3), dtype=bool), total[None])
    policy, objective = player.policy()[0], ball_objective(total, eta)
    assert np.linalg.norm(policy) <= radius + 1e-9
    found = optimize.minimize(
        objective,
        np.zeros(3),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda point: radius**2 - point @ point},
    )
    feasible = found.x * radius / max(radius, np.linalg.norm(found.x))
    assert objective(policy) <= objective(feasible) + 1e-9
    np.testing.assert_allclose(policy, feasible, atol=0.02)


@given(rewards=reward_sequences)
def test_ftl_plays_an_action_that_would_have_earned_the_most_so_far(rewards):
    policies = play_full(start(AlgorithmSettings("ftl"), rewards.shape), fixed_table(rewards)).policies
    np.testing.assert_allclose(policies[:, 0], 1 / rewards.shape[2])
    earned = rewards.cumsum(axis=1)[:, :-1]
    np.testing.assert_allclose((policies[:, 1:] * earned).sum(axis=2), earned.max(axis=2), atol=1e-9)


@given(rewards=reward_sequences, radius=st.floats(0.5, 3))
def test_ftl_on_the_ball_points_to_the_total_reward(rewards, radius):
    table = fixed_table(rewards)
    policies = play_full(start(AlgorithmSettings("ftl"), rewards.shape, radius=radius), table).policies
    np.testing.assert_array_equal(policies[:, 0], 0)
    earned = rewards.cumsum(axis=1)[:, :-1]
    np.testing.assert_allclose((policies[:, 1:] * earned).sum(axis=2), radius * np.linalg.norm(earned, axis=2))


def test_ftl_plays_a_game_without_rewards_as_it_would_alone():
    rewards = np.zeros((2, 2, 3))
    rewards[1] = 5.0
    together = play_full(start(AlgorithmSettings("ftl"), (2, 2, 3)), fixed_table(rewards)).policies
    alone = play_full(start(AlgorithmSettings("ftl"), (1, 2, 3)), fixed_table(rewards[:1])).policies
    np.testing.assert_array_equal(together[:1], alone)


@pytest.mark.parametrize(("radius", "constant"), [(None, 1 / 3), (2.0, 2 / 3**0.5)])
def test_uniform_gives_every_action_the_same_weight(radius, constant):
    table = draw("gaussian", 4, 9, 3)
    policies = play_full(start(AlgorithmSettings("uniform"), table.shape, radius=radius), table).policies
    np.testing.assert_array_equal(policies, constant)


# --- Step sizes ---


@pytest.mark.parametrize(
    ("eta", "expected"),
    [
        (None, lambda _: math.sqrt(2 * math.log(3) / 40)),
        (0.3, lambda _: 0.3),
        ("T=25", lambda _: math.sqrt(2 * math.log(3) / 25)),
        ("anytime", lambda t: math.sqrt(2 * math.log(3) / t)),
    ],
)
def test_hedge_has_the_step_size_that_its_settings_name(eta, expected):
    rewards = np.random.default_rng(0).random((1, 39, 3))
    player = start(AlgorithmSettings("hedge", eta=eta), (1, 40, 3))
    for t in range(1, 40):
        weights = np.exp(expected(t) * rewards[0, : t - 1].sum(axis=0))
        np.testing.assert_allclose(player.policy()[0], weights / weights.sum())
        player.observe(np.ones((1, 3), dtype=bool), rewards[:, t - 1])


@pytest.mark.parametrize(
    ("settings", "eta", "gamma"),
    [
        (AlgorithmSettings("exp3"), math.sqrt(2 * math.log(3) / (3 * 40)), None),
        (AlgorithmSettings("exp3", eta="T=25"), math.sqrt(2 * math.log(3) / (3 * 25)), None),
        (AlgorithmSettings("exp3", eta=0.2), 0.2, None),
        (AlgorithmSettings("exp3", eta=0.9), 0.9, 1.0),
        (AlgorithmSettings("exp3", eta=0.2, gamma=0.1), 0.2, 0.1),
    ],
)
def test_exp3_has_the_step_size_and_exploration_that_its_settings_name(settings, eta, gamma):
    player = start(settings, (1, 40, 3))
    assert player.eta == pytest.approx(eta)
    assert player.gamma == pytest.approx(eta * 3 / 2 if gamma is None else gamma)
