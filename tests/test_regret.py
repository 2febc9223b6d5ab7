"""Every notion of regret against loops over rounds and actions.

Symbols: n instances, T rounds, d actions.
"""

from itertools import product

import numpy as np
import pytest
from helpers import assert_mean, draw, fixed_table
from hypothesis import given
from hypothesis import strategies as st

from rmft.environments import (
    RewardTable,
)
from rmft.environments.regret import best_actions, best_fixed_policy, best_mean, earned, regret
from rmft.errors import InputError

SQRT_VARIANCES = np.sqrt([1, 3, 10])


# --- Regret ---


def random_game(root, n=3, horizon=6, d=3):
    """Return a table whose means are unrelated to its rewards, policies (n, T, d) and actions (n, T)."""
    random = np.random.default_rng(root)
    table = RewardTable(*random.uniform(0, 10, (3, n, horizon, d)))
    return table, random.dirichlet(np.ones(d), (n, horizon)), random.integers(d, size=(n, horizon))


def regret_by_loops(notion, comparator, rewards, means, policies, actions):
    """Return Regret(T) of one game by the words of the paper; arrays (T, d), actions (T,)."""
    horizon, d = rewards.shape
    values = means if notion == "pseudo" or comparator == "best mean" else rewards
    if comparator == "hindsight":
        best = max(sum(values[t, a] for t in range(horizon)) for a in range(d))
    else:
        best = sum(max(means[t]) for t in range(horizon))
    earns = {
        "expected": lambda t: sum(policies[t, a] * values[t, a] for a in range(d)),
        "pseudo": lambda t: means[t, actions[t]],
        "dynamic": lambda t: means[t, actions[t]],
        "realized": lambda t: rewards[t, actions[t]],
    }[notion]
    return best - sum(earns(t) for t in range(horizon))


def test_what_a_round_earns_is_drawn_or_a_mean_of_an_action_or_a_policy():
    rewards, means = np.array([[[2.0, 6.0], [1.0, 3.0]]]), np.array([[[3.0, 5.0], [2.0, 4.0]]])
    table = RewardTable(rewards, means, means + 1)
    policies, actions = np.array([[[0.5, 0.5], [1.0, 0.0]]]), np.array([[1, 1]])
    for notion, comparator, pays in (
        ("expected", "hindsight", [4, 1]),
        ("expected", "best mean", [4, 2]),
        ("realized", "hindsight", [6, 3]),
        ("realized", "best mean", [6, 3]),
        ("pseudo", "hindsight", [5, 4]),
        ("dynamic", "best mean", [5, 4]),
    ):
        assert earned(notion, comparator, table, policies, actions).tolist() == [pays], (notion, comparator)
    assert earned("pseudo", "best mean", table, policies, actions, mean="clipped").tolist() == [[6, 5]]


NOTIONS = [
    (notion, comparator)
    for notion, comparator in product(["expected", "pseudo", "realized", "dynamic"], ["hindsight", "best mean"])
    if (notion, comparator) != ("dynamic", "hindsight")
]


@pytest.mark.parametrize(("notion", "comparator"), NOTIONS)
@pytest.mark.parametrize("mean", ["nominal", "clipped"])
def test_regret_at_every_round_is_that_of_the_game_which_ends_there(notion, comparator, mean):
    table, policies, actions = random_game(1)
    means = table.means if mean == "nominal" else table.clipped_means
    curve = regret(notion, comparator, table, policies, actions, mean=mean)
    for i, t in np.ndindex(*curve.shape):
        head = slice(0, t + 1)
        game = (table.rewards[i, head], means[i, head], policies[i, head], actions[i, head])
        assert curve[i, t] == pytest.approx(regret_by_loops(notion, comparator, *game))


@given(root=st.integers(0, 999), rounds=st.integers(1, 6))
def test_later_rounds_do_not_change_the_regret_of_earlier_ones(root, rounds):
    table, policies, actions = random_game(root)
    for notion, comparator in NOTIONS:
        whole = regret(notion, comparator, table, policies, actions)
        head = regret(notion, comparator, table.head(3, rounds), policies[:, :rounds], actions[:, :rounds])
        np.testing.assert_allclose(whole[:, :rounds], head)


@given(root=st.integers(0, 999))
def test_on_the_simplex_no_fixed_policy_beats_the_comparator_and_one_equals_it(root):
    table, _, _ = random_game(root)
    candidates = np.concatenate([np.eye(3), np.random.default_rng(root).dirichlet(np.ones(3), 200)])
    earned = np.einsum("ca,nta->nct", candidates, table.rewards).cumsum(axis=2)
    np.testing.assert_allclose(best_fixed_policy(table.rewards), earned.max(axis=1))


@given(root=st.integers(0, 999), radius=st.floats(0.1, 10))
def test_on_the_ball_no_fixed_policy_beats_the_comparator_and_one_nearly_equals_it(root, radius):
    rewards = np.random.default_rng(root).uniform(-10, 10, (3, 6, 2))
    angles = np.linspace(0, 2 * np.pi, 2000)
    candidates = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    earned = np.einsum("ca,nta->nct", candidates, rewards).cumsum(axis=2).max(axis=1)
    np.testing.assert_allclose(best_fixed_policy(rewards, radius), earned, rtol=(np.pi / 2000) ** 2)


def test_on_the_ball_expected_regret_is_against_the_whole_ball():
    table = fixed_table([[[3.0, 4.0], [0.0, -5.0]]])
    policies = np.array([[[0.0, 0.0], [0.6, 0.8]]])
    curve = regret("expected", "hindsight", table, policies, None, radius=2.0)
    np.testing.assert_allclose(curve, [[2 * 5, 2 * np.hypot(3, -1) + 4]])


@given(root=st.integers(0, 999))
def test_where_means_do_not_change_the_best_arm_sequence_is_the_best_arm(root):
    means = draw("gaussian", 4, 9, 3, root=root).means
    np.testing.assert_allclose(best_mean(means), best_fixed_policy(means))
    np.testing.assert_allclose(best_mean(means), np.arange(1, 10) * means[:, 0].max(axis=1, keepdims=True))


@given(root=st.integers(0, 999))
def test_where_means_change_the_best_arm_sequence_earns_no_less_than_any_fixed_arm(root):
    means = draw("gradual-variation", 4, 30, 3, root=root).means
    assert (best_mean(means) >= best_fixed_policy(means) - 1e-9).all()


@pytest.mark.parametrize("comparator", ["hindsight", "best mean"])
@pytest.mark.parametrize("mean", ["nominal", "clipped"])
def test_the_best_actions_are_those_against_which_regret_is_nil_at_the_end(comparator, mean):
    table, _, _ = random_game(4, n=30, horizon=9)
    best = best_actions(comparator, table, mean)
    notion = "realized" if comparator == "hindsight" else "pseudo"
    np.testing.assert_allclose(regret(notion, comparator, table, None, best, mean=mean)[:, -1], 0, atol=1e-9)
    if comparator == "hindsight":
        np.testing.assert_array_equal(best, best[:, :1].repeat(9, axis=1))


def repeated(table, times):
    return table.rows(np.zeros(times, dtype=int))


@pytest.mark.parametrize("comparator", ["hindsight", "best mean"])
def test_expected_regret_is_the_mean_over_sampled_actions(comparator):
    table, policies, _ = random_game(2, n=1, horizon=8)
    times = 4000
    shares = policies[0].cumsum(axis=1)
    actions = (np.random.default_rng(0).random((times, 8, 1)) > shares).sum(axis=2)
    sampled = regret(
        "realized" if comparator == "hindsight" else "pseudo", comparator, repeated(table, times), None, actions
    )
    assert_mean(sampled, regret("expected", comparator, table, policies, None)[0])


@pytest.mark.parametrize("process", ["gaussian", "gamma", "bernoulli", "gradual-variation"])
def test_realized_regret_is_on_average_the_pseudo_regret_on_true_means(process):
    table = draw(process, 3000, 10, 3)
    actions = np.random.default_rng(0).integers(3, size=(3000, 10))
    realized, pseudo = (
        regret(notion, "best mean", table, None, actions, mean="clipped") for notion in ("realized", "pseudo")
    )
    assert_mean(realized - pseudo, 0.0)


def test_realized_regret_is_not_on_average_the_pseudo_regret_on_nominal_means_of_gamma():
    table = draw("gamma", 3000, 10, 3)
    actions = np.zeros((3000, 10), dtype=int)
    realized, pseudo = (regret(notion, "best mean", table, None, actions) for notion in ("realized", "pseudo"))
    with pytest.raises(AssertionError):
        assert_mean(realized - pseudo, 0.0)


@pytest.mark.parametrize("notion", ["pseudo", "realized", "dynamic"])
def test_a_regret_of_actions_is_refused_on_the_ball_where_there_are_none(notion):
    table, policies, _ = random_game(3)
    with pytest.raises(InputError, match="ball"):
        regret(notion, "hindsight", table, policies, None, radius=1.0)


def test_dynamic_regret_is_refused_in_full_information():
    table, policies, actions = random_game(3)
    with pytest.raises(InputError, match="dynamic"):
        regret("dynamic", "hindsight", table, policies, actions)
