"""Reference algorithms: which can play where, and agreement with other libraries.

Symbols: n replicates, T rounds, d actions.
"""

import math

import numpy as np
import pytest
from helpers import assert_mean, draw, play_algorithm

from rmft.algorithms import ALGORITHMS, AlgorithmSettings, check_algorithm
from rmft.environments import ENVIRONMENTS
from rmft.environments.regret import regret
from rmft.errors import InputError

FULL = ("ftl", "ftrl", "hedge", "uniform")
BANDIT = ("ucb", "exp3", "rexp3", "greedy", "thompson-sampling", "uniform")


# --- Refusals ---


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_is_refused_where_it_lacks_its_feedback_or_contexts(algorithm, environment):
    if algorithm in {"fol": FULL, "cb": (*BANDIT, "linucb")}.get(environment, BANDIT):
        check_algorithm(AlgorithmSettings(algorithm, variation=1.0 if algorithm == "rexp3" else None), environment)
    else:
        with pytest.raises(InputError, match=algorithm):
            check_algorithm(AlgorithmSettings(algorithm), environment)


@pytest.mark.parametrize(
    ("settings", "environment", "policy_space", "words"),
    [
        (AlgorithmSettings("ucb1"), "mab", "simplex", "unknown algorithm 'ucb1'"),
        (AlgorithmSettings("hedge"), "fol", "ball", "ftrl"),
        (AlgorithmSettings("ucb", eta=0.1), "mab", "simplex", "eta belongs to"),
        (AlgorithmSettings("hedge", gamma=0.1), "fol", "simplex", "gamma belongs to exp3"),
        (AlgorithmSettings("exp3", variation=1.0), "ns-mab", "simplex", "variation belongs to rexp3"),
        (AlgorithmSettings("hedge", eta=0.0), "fol", "simplex", "eta must be a positive number"),
        (AlgorithmSettings("exp3", gamma=-0.5), "mab", "simplex", r"gamma must be in \(0, 1\]"),
        (AlgorithmSettings("exp3", gamma=1.5), "mab", "simplex", r"gamma must be in \(0, 1\]"),
        (AlgorithmSettings("rexp3", variation=math.nan), "ns-mab", "simplex", "variation must be a positive"),
        (AlgorithmSettings("hedge", eta=math.inf), "fol", "simplex", "eta must be a positive number"),
        (AlgorithmSettings("hedge", eta="T=0"), "fol", "simplex", "T=ROUNDS"),
        (AlgorithmSettings("hedge", eta="25"), "fol", "simplex", "T=ROUNDS"),
        (AlgorithmSettings("exp3", eta="anytime"), "mab", "simplex", "anytime"),
        (AlgorithmSettings("ucb", alpha=0.5), "mab", "simplex", "alpha belongs to linucb"),
        (AlgorithmSettings("ftrl", normalise=0), "fol", "simplex", "normalise must be true or false"),
        (AlgorithmSettings("linucb", alpha=-1.0), "cb", "simplex", "alpha must be a positive number"),
        (AlgorithmSettings("ucb", options={"epsilon": 0.1}), "mab", "simplex", "options belong to"),
    ],
)
def test_impossible_settings_are_refused_in_words(settings, environment, policy_space, words):
    with pytest.raises(InputError, match=words):
        check_algorithm(settings, environment, policy_space)


@pytest.mark.parametrize("settings", [AlgorithmSettings("exp3", gamma=-1), AlgorithmSettings("exp3", eta=-1)])
def test_tuning_outside_its_interval_is_refused_in_whole_numbers_too(settings):
    with pytest.raises(InputError):
        check_algorithm(settings, "mab")


# --- Other libraries ---


@pytest.fixture(scope="module")
def peers():
    return pytest.importorskip("peers", reason="the extra `bench` is not installed")


def pseudo_regret(table, actions):
    return regret("pseudo", "best mean", table, None, actions)[:, -1]


@pytest.mark.parametrize("library", ["SMPyBandits", "MABWiser"])
@pytest.mark.parametrize("algorithm", ["ucb", "greedy"])
@pytest.mark.parametrize(("process", "d"), [("gaussian", 4), ("bernoulli", 3)])
def test_index_policies_play_the_very_actions_of_other_libraries(peers, monkeypatch, library, algorithm, process, d):
    monkeypatch.setattr(np.random, "choice", lambda best: best[0])  # SMPyBandits' ties, the first actions included
    table = draw(process, 10, 60, d)
    theirs = peers.play_peer(peers.PEERS[algorithm][library], table.rewards / 10)
    np.testing.assert_array_equal(play_algorithm(AlgorithmSettings(algorithm), table, "mab").actions, theirs)


@pytest.mark.parametrize("d", [2, 4])
def test_exp3_has_the_very_distributions_of_smpybandits(peers, d):
    table, gamma = draw("gaussian", 5, 60, d), 0.3
    trajectories = play_algorithm(AlgorithmSettings("exp3", eta=gamma / d, gamma=gamma), table, "mab")
    for game, actions, policies in zip(table.rewards / 10, trajectories.actions, trajectories.policies, strict=True):
        peer = peers.exp3(d, gamma)
        for t, action in enumerate(actions):
            np.testing.assert_allclose(policies[t], peer.policy.trusts)
            peer.learn(action, game[t, action])


@pytest.mark.parametrize(("process", "d"), [("gaussian", 3), ("bernoulli", 4)])
def test_mean_regret_of_thompson_sampling_agrees_with_smpybandits(peers, process, d):
    table = draw(process, 400, 100, d)
    ours = play_algorithm(AlgorithmSettings("thompson-sampling"), table, "mab").actions
    theirs = peers.play_peer(peers.thompson_sampling, table.rewards / 10)
    assert_mean(pseudo_regret(table, ours) - pseudo_regret(table, theirs), 0.0, standard_errors=3)


@pytest.mark.parametrize("pair", [("ucb", "greedy"), ("ucb", "thompson-sampling"), ("greedy", "exp3")])
def test_mean_regret_tells_different_algorithms_apart(pair):
    table = draw("gaussian", 200, 60, 3)
    one, other = (pseudo_regret(table, play_algorithm(AlgorithmSettings(name), table, "mab").actions) for name in pair)
    with pytest.raises(AssertionError):
        assert_mean(one - other, 0.0, standard_errors=3)
