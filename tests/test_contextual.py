"""Contextual bandits: the process, LinUCB against others, regret by context, and games in words.

Symbols: n instances, T rounds, d actions, p features.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_mean, uniforms
from mabwiser.mab import MAB, LearningPolicy

from rmft.algorithms import AlgorithmSettings, start_on
from rmft.algorithms.contextual import LinUCB
from rmft.artifacts.rewards import read_rewards, write_rewards
from rmft.artifacts.trajectories import join_trajectories, read_trajectories, write_trajectories
from rmft.environments import RewardTable, draw_rewards
from rmft.environments.processes import linear_contextual
from rmft.environments.regret import best_actions, regret
from rmft.environments.tables import ContextualTable
from rmft.errors import InputError
from rmft.game import play
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round
from rmft.params.evaluation import RewardSet
from rmft.streams import BLOCK, stream

ROOT = Path(__file__).parents[1]
PARTS = ("rewards", "means", "clipped_means", "contexts")


def contextual(n: int, horizon: int, d: int = 3, p: int = 2, *, root: int = 0) -> ContextualTable:
    """Return the first n instances of the process."""
    return draw_rewards(root, "test", ["linear-contextual"], (n, horizon, d), p)


# --- The process ---


def test_contexts_are_uniform_on_the_simplex():
    contexts = contextual(2000, 2, p=3).contexts[:, 0]
    np.testing.assert_allclose(contexts.sum(axis=1), 1)
    assert contexts.min() > 0
    assert_mean(contexts[:, 0], 1 / 3)
    assert_mean(contexts[:, 0] ** 2, 1 / 6)  # of Dirichlet(1, 1, 1): 2 / (3 · 4)
    assert_mean(contexts[:, 0] * contexts[:, 1], 1 / 12)


def test_means_are_linear_in_the_context_with_weights_of_each_action_and_instance_in_the_range_of_rewards():
    table = contextual(30, 40, p=3)
    for instance in range(30):
        weights, residuals, *_ = np.linalg.lstsq(table.contexts[instance], table.means[instance], rcond=None)
        np.testing.assert_allclose(residuals, 0, atol=1e-18)
        assert weights.min() >= 0
        assert weights.max() <= 10
        assert np.ptp(weights, axis=1).min() > 1e-3  # no two actions alike
    assert 0 <= table.means.min() <= table.means.max() <= 10


def test_rewards_scatter_around_their_clipped_means_and_stay_in_range():
    table = contextual(2000, 3)
    assert table.rewards.min() >= 0
    assert table.rewards.max() <= 10
    noise = table.rewards - table.clipped_means
    assert_mean(noise[:, 0, 0], 0.0)
    assert_mean(noise[:, 2, 1] * (table.clipped_means[:, 2, 1] - 5), 0.0)


@pytest.mark.parametrize(("n", "horizon"), [(1, 3), (7, 1), (7, 9)])
def test_an_instance_is_the_same_whatever_the_number_of_instances_and_of_rounds(n, horizon):
    whole, part = contextual(BLOCK + 5, 9, p=3), contextual(n, horizon, p=3)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(whole.head(n, horizon), name), getattr(part, name))


def test_a_stored_set_has_its_contexts_and_others_have_none(tmp_path):
    table = contextual(6, 5)
    write_rewards(tmp_path / "cb.npz", table)
    found = read_rewards(tmp_path / "cb.npz")
    assert type(found) is ContextualTable
    for name in PARTS:
        np.testing.assert_array_equal(getattr(found, name), getattr(table, name))
    write_rewards(tmp_path / "mab.npz", draw_rewards(0, "test", ["gaussian"], (6, 5, 3)))
    assert type(read_rewards(tmp_path / "mab.npz")) is RewardTable
    with np.load(tmp_path / "mab.npz") as file:
        assert "contexts" not in file


@pytest.mark.parametrize(
    ("process", "features", "says"),
    [("linear-contextual", None, "needs the number of features"), ("gaussian", 2, "has no contexts")],
)
def test_a_reward_set_says_how_many_features_there_are_where_there_are_any(process, features, says):
    with pytest.raises(ValueError, match=says):
        RewardSet(process=[process], d=3, features=features, T=5, instances=5)


# --- Regret ---


def test_regret_is_against_the_best_action_for_each_context():
    table = contextual(8, 12)
    best = table.means.max(axis=2)
    actions = np.zeros((8, 12), dtype=int)
    policies = np.broadcast_to([1.0, 0.0, 0.0], table.shape)
    for notion, earned in (("pseudo", table.means), ("realized", table.rewards), ("expected", table.means)):
        found = regret(notion, "best mean", table, policies, actions)
        np.testing.assert_allclose(found, (best - earned[:, :, 0]).cumsum(axis=1))
    followed = best_actions("best mean", table)
    assert (followed[:, 1:] != followed[:, :-1]).any()  # the best action changes with the context
    one_hot = followed[:, :, None] == np.arange(3)
    np.testing.assert_allclose(regret("pseudo", "best mean", table, one_hot.astype(float), followed), 0, atol=1e-12)


# --- LinUCB ---


def played_by_hand(table: ContextualTable, alpha: float) -> np.ndarray:
    """Return the actions (n, T) of LinUCB as in Li et al. (2010), Algorithm 1, one instance after the other."""
    n, horizon, d = table.shape
    p = table.contexts.shape[2]
    actions = np.zeros((n, horizon), dtype=int)
    for i in range(n):
        designs, targets = [np.eye(p) for _ in range(d)], [np.zeros(p) for _ in range(d)]
        for t, x in enumerate(table.contexts[i]):
            bounds = []
            for A, b in zip(designs, targets, strict=True):
                inverse = np.linalg.inv(A)
                bounds.append(inverse @ b @ x + alpha * np.sqrt(x @ inverse @ x))
            actions[i, t] = a = int(np.argmax(np.round(bounds, 9)))  # of equal ones the first, rounding aside
            designs[a] += np.outer(x, x)
            targets[a] += table.rewards[i, t, a] / 10 * x
    return actions


def linucb(table: ContextualTable, alpha: float) -> np.ndarray:
    """Return our actions (n, T)."""
    player = start_on(0, "test", AlgorithmSettings("linucb", alpha=alpha), table, None)
    return play(player, table, full_feedback=False, uniforms=uniforms(len(table.rewards), "cb")).actions


@pytest.mark.parametrize("alpha", [0.1, 1.0, 2.5])
@pytest.mark.parametrize(("d", "p"), [(2, 1), (3, 2), (5, 6)])
def test_linucb_plays_as_its_published_algorithm_step_by_step(alpha, d, p):
    table = contextual(20, 60, d, p)
    np.testing.assert_array_equal(linucb(table, alpha), played_by_hand(table, alpha))


def test_linucb_plays_as_mabwiser_does():
    table = contextual(10, 60, 3, 3)
    ours = linucb(table, 0.8)
    for i in range(10):
        mab = MAB([0, 1, 2], LearningPolicy.LinUCB(alpha=0.8, l2_lambda=1.0))
        mab.fit([0], [0.0], [[0.0] * 3])  # nothing: it has to be fitted before it predicts
        for t, x in enumerate(table.contexts[i]):
            assert ours[i, t] == mab.predict([x.tolist()])
            mab.partial_fit([int(ours[i, t])], [table.rewards[i, t, ours[i, t]] / 10], [x.tolist()])


def test_linucb_after_one_step_is_the_ridge_estimate_in_closed_form():
    x, reward, alpha = np.array([[0.6, 0.8]]), 0.5, 2.0  # of length 1, so A⁻¹ = I - x xᵀ / 2
    player = LinUCB(1, 2, 2, alpha)
    player.see(x)
    np.testing.assert_array_equal(player.policy(), [[1, 0]])
    player.observe(np.array([[True, False]]), np.array([[reward, 0.0]]))
    np.testing.assert_allclose(player.inverses[0, 0], np.eye(2) - np.outer(x, x) / 2)
    np.testing.assert_allclose(player.inverses[0, 1], np.eye(2))
    # Again x: the bound of the first is reward / 2 + α √(1/2), of the second α.
    np.testing.assert_array_equal(player.policy(), [[0, 1]])
    assert reward / 2 + alpha * np.sqrt(0.5) < alpha
    player.alpha = 0.8  # and now 0.25 + 0.566 > 0.8
    np.testing.assert_array_equal(player.policy(), [[1, 0]])


def test_linucb_learns_what_context_blind_algorithms_cannot():
    table = contextual(200, 100)
    final = {}
    for name in ("linucb", "ucb", "greedy", "uniform"):
        player = start_on(0, "test", AlgorithmSettings(name), table, None)
        played = play(player, table, full_feedback=False, uniforms=uniforms(200, name))
        final[name] = regret("pseudo", "best mean", table, played.policies, played.actions)[:, -1].mean()
    assert final["linucb"] < 0.75 * final["greedy"]
    assert final["linucb"] < 0.5 * final["ucb"] < final["uniform"]


def test_linucb_without_contexts_is_refused():
    with pytest.raises(InputError, match="contexts"):
        start_on(0, "test", AlgorithmSettings("linucb"), draw_rewards(0, "test", ["gaussian"], (2, 3, 3)), None)


def test_simulate_plays_contextual_bandits(rmft, tmp_path):
    game = ["--environment", "cb", "--process", "linear-contextual", "--algorithm", "linucb", "--replicates", "30"]
    wide, narrow = (
        json.loads(rmft("simulate", *game, "--alpha", alpha, "--json")[1])["min_frac"][-1] for alpha in ("3", "0.01")
    )
    assert narrow < wide  # α explores
    assert rmft("simulate", *game, "--features", "1", "--plot", tmp_path / "cb")[0] == 0
    assert (tmp_path / "cb.png").stat().st_size
    code, _, error = rmft("simulate", *game, "--features", "0")
    assert (code, error) == (2, "rmft: features must be 1 or more, not 0\n")


# --- In words ---

PROMPTS = Prompts.load(ROOT / "data/prompts/plain")


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
@pytest.mark.parametrize("output", ["action", "distribution"])
def test_every_round_tells_its_context_before_it_asks_and_a_summary_tells_those_of_the_past(interaction, output):
    protocol = Protocol(interaction, output, "bandit", "with-reasoning", 2, features=2)
    policy = (0.5, 0.5) if output == "distribution" else None
    past = [Round(1, 1, policy, (1.0, 2.0), (0.11, 0.89)), Round(2, 0, policy, (3.0, 4.0), (0.22, 0.78))]
    opening = PROMPTS.message(protocol, [], (0.11, 0.89))
    assert "its context: 2 numbers" in opening
    assert opening.splitlines()[-1].startswith("Round 1. Context: 0.11, 0.89. ")
    later = PROMPTS.message(protocol, past, (0.33, 0.67))
    assert later.splitlines()[-1].startswith("Round 3. Context: 0.33, 0.67. ")
    if interaction == "summary":
        assert "Round 1, context 0.11, 0.89: action 2 paid **2.00**.\nRound 2, context 0.22, 0.78: action 1" in later
    else:
        assert "0.11" not in later


def test_without_contexts_prompts_do_not_speak_of_them():
    protocol = Protocol("summary", "action", "bandit", "with-reasoning", 2)
    assert "ontext" not in PROMPTS.message(protocol, [Round(1, 1, None, (1.0, 2.0))])


def test_games_keep_the_contexts_that_were_shown(tmp_path):
    games = {
        "scenario": [0], "trajectory": [0], "d": [2], "rewards": [[1.0] * 4], "means": [[1.0] * 4],
        "clipped_means": [[1.0] * 4], "prompt": [["a", "b"]], "reply": [["c", "d"]], "policy": [[1.0, 0.0] * 2],
        "action": [[0, 0]], "attempts": [[1, 1]], "fallback": [[False] * 2], "ids": [[[1]]],
        "sampled": [[[True]]], "replied": [[[True]]],
    }  # fmt: skip
    write_trajectories(tmp_path / "mab.parquet", games)
    assert "contexts" not in read_trajectories(tmp_path / "mab.parquet")
    write_trajectories(tmp_path / "cb.parquet", {**games, "contexts": [[0.3, 0.7, 0.4, 0.6]]})
    join_trajectories(tmp_path / "both.parquet", [tmp_path / "cb.parquet"] * 2, 2)
    assert read_trajectories(tmp_path / "both.parquet")["contexts"] == [[0.3, 0.7, 0.4, 0.6]] * 2


def test_weights_and_contexts_come_from_streams_of_their_own():
    opened = []

    def streams(*words):
        opened.append(words)
        return stream(0, "environment", "test", *words)

    linear_contextual(streams, 2, 2, 2, 2)
    assert len(set(opened)) == len(opened)
    first, again = linear_contextual(streams, 2, 2, 2, 2), linear_contextual(streams, 2, 2, 2, 2)
    np.testing.assert_array_equal(first.rewards, again.rewards)
