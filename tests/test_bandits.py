"""UCB, greedy, EXP3, Rexp3 and Thompson sampling against their formulas.

Symbols: n replicates, T rounds, d actions, the paper's K.
"""

import math
from functools import partial

import numpy as np
import pytest
from helpers import assert_mean, draw, fixed_table, play_algorithm, uniforms
from scipy import integrate, stats

from rmft.algorithms import AlgorithmSettings, start
from rmft.environments.tables import one_hot, variation
from rmft.game import play
from rmft.streams import stream

# --- Bandits: index policies ---


@pytest.mark.parametrize("algorithm", ["ucb", "greedy"])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_an_index_policy_plays_every_action_once_before_any_twice(algorithm, d):
    actions = play_algorithm(AlgorithmSettings(algorithm), draw("gaussian", 50, 20, d), "mab").actions
    np.testing.assert_array_equal(np.sort(actions[:, :d], axis=1), np.tile(np.arange(d), (50, 1)))


def index_by_loops(rewards, bonus):
    """Return the actions of one game (T, d) of the index policy with a bonus (rounds, plays) → float."""
    horizon, d = rewards.shape
    earned, actions = [[] for _ in range(d)], []
    for t in range(horizon):
        indices = [np.mean(known) + bonus(t, len(known)) if known else math.inf for known in earned]
        actions.append(int(np.argmax(indices)))
        earned[actions[-1]].append(rewards[t, actions[-1]])
    return actions


@pytest.mark.parametrize(
    ("algorithm", "bonus"),
    [("ucb", lambda t, plays: math.sqrt(2 * math.log(t) / plays)), ("greedy", lambda *_: 0.0)],
)
@pytest.mark.parametrize("process", ["uniform", "gamma"])
def test_an_index_policy_plays_the_best_average_plus_its_bonus(algorithm, bonus, process):
    table = draw(process, 20, 60, 3)
    actions = play_algorithm(AlgorithmSettings(algorithm), table, "mab").actions
    assert actions.tolist() == [index_by_loops(game / 10, bonus) for game in table.rewards]


# --- Bandits: exponential weights ---


def exp3_by_loops(rewards, actions, eta, gamma, batch=math.inf):
    """Return the distributions (T, d) of EXP3 over the actions it played, starting afresh every `batch` rounds."""
    horizon, d = rewards.shape
    distributions = []
    for t in range(horizon):
        if t == 0 or t % batch == 0:
            weights = [1.0] * d
        distributions.append([(1 - gamma) * weight / sum(weights) + gamma / d for weight in weights])
        estimate = rewards[t, actions[t]] / distributions[-1][actions[t]]
        weights[actions[t]] *= math.exp(eta * estimate)
    return distributions


@pytest.mark.parametrize("d", [2, 3, 5])
def test_exp3_is_the_recursion_of_the_paper(d):
    table = draw("gaussian", 10, 50, d)
    trajectories = play_algorithm(AlgorithmSettings("exp3"), table, "mab")
    eta = math.sqrt(2 * math.log(d) / (d * 50))
    for game, actions, played in zip(table.rewards / 10, trajectories.actions, trajectories.policies, strict=True):
        np.testing.assert_allclose(played, exp3_by_loops(game, actions, eta, min(1, eta * d / 2)))


def rexp3_tuning(d, horizon, budget):
    """Return Δ_T and γ for a variation budget on [0, 1], by the paper."""
    batch = min(horizon, math.ceil((d * math.log(d) / budget) ** (1 / 3) * horizon ** (2 / 3)))
    return batch, min(1.0, math.sqrt(d * math.log(d) / ((math.e - 1) * batch)))


@pytest.mark.parametrize("budget", [None, 40.0, 700.0])  # each game's own V_T; one for all; one that makes γ = 1
def test_rexp3_is_exp3_started_afresh_every_batch(budget):
    horizon, d = 100, 3
    table = draw("gradual-variation", 10, horizon, d)
    trajectories = play_algorithm(AlgorithmSettings("rexp3", variation=budget), table, "ns-mab")
    budgets = variation(table.means) if budget is None else np.full(10, budget)
    for i, own in enumerate(budgets):
        batch, gamma = rexp3_tuning(d, horizon, own / 10)
        expected = exp3_by_loops(table.rewards[i] / 10, trajectories.actions[i], gamma / d, gamma, batch)
        np.testing.assert_allclose(trajectories.policies[i], expected)


def test_rexp3_forgets_at_the_end_of_a_batch_and_at_no_other_time():
    table = draw("gradual-variation", 5, 100, 3)
    policies = play_algorithm(AlgorithmSettings("rexp3", variation=200.0), table, "ns-mab").policies
    batch, _ = rexp3_tuning(3, 100, 20.0)
    afresh = np.isclose(policies, 1 / 3).all(axis=2).all(axis=0)
    assert np.flatnonzero(afresh).tolist() == list(range(0, 100, batch))
    assert batch < 50


def test_rexp3_without_variation_is_one_batch():
    player = start(AlgorithmSettings("rexp3"), (2, 60, 3), variation=np.zeros(2))
    np.testing.assert_array_equal(player.batch, 60)


# --- Bandits: Thompson sampling ---


def test_thompson_sampling_counts_successes_and_plays_of_two_valued_rewards():
    rewards = 10.0 * (np.random.default_rng(0).random((8, 40, 3)) < [0.2, 0.5, 0.8])
    player = start(AlgorithmSettings("thompson-sampling"), (8, 40, 3), streams=partial(stream, 0, "sampling"))
    actions = play(player, fixed_table(rewards), full_feedback=False, uniforms=uniforms(8)).actions
    played = one_hot(actions, 3)
    np.testing.assert_array_equal(player.plays, played.sum(axis=1))
    np.testing.assert_array_equal(player.successes, (played * (rewards == 10)).sum(axis=1))


def thompson_after(history, n):
    """Return n Thompson samplers that have seen (action, normalised reward) pairs."""
    player = start(AlgorithmSettings("thompson-sampling"), (n, 9, 2), streams=partial(stream, 0, "sampling"))
    for action, reward in history:
        revealed = one_hot(np.full(n, action), 2)
        player.policy()
        player.observe(revealed, revealed * reward)
    return player


def test_thompson_sampling_plays_an_action_as_often_as_its_posterior_is_the_best():
    policies = thompson_after([(0, 1.0), (0, 0.0), (0, 1.0), (1, 1.0), (1, 0.0)], 20_000).policy()
    first, second = stats.beta(1 + 2, 1 + 1), stats.beta(1 + 1, 1 + 1)
    best, _ = integrate.quad(lambda x: first.pdf(x) * second.cdf(x), 0, 1)
    assert_mean(policies, [best, 1 - best])


def test_to_thompson_sampling_a_reward_is_a_success_with_its_own_probability():
    player = thompson_after([(0, 0.3), (1, 0.9)], 20_000)
    assert_mean(player.successes, [0.3, 0.9])
    assert set(np.unique(player.successes)) == {0.0, 1.0}


def test_coins_and_posterior_draws_of_thompson_sampling_are_independent_within_and_between_rounds():
    together = []
    nothing, first = np.array([[False, False]]), np.array([[True, False]])
    for game in range(3000):
        player = start(AlgorithmSettings("thompson-sampling"), (1, 9, 2), streams=partial(stream, 0, "sampling", game))
        before = player.policy()[0, 0] == 1
        player.observe(nothing, nothing * 0.0)
        after = player.policy()[0, 0] == 1
        player.observe(first, first * 0.5)
        together.append([before == after, after == player.successes[0, 0]])
    assert_mean(np.array(together), 1 / 2)
