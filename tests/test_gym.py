"""The environments as Gymnasium environments."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeAwareObservation

import rmft
from rmft.environments.regret import best_actions, regret
from rmft.environments.tables import one_hot
from rmft.errors import InputError


@pytest.mark.parametrize(
    ("environment", "process"), [("mab", "bernoulli"), ("fol", "sine-trend"), ("ns-mab", "gradual-variation")]
)
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checker_finds_nothing(environment, process):
    check_env(rmft.make(environment, process, T=7), skip_render_check=True)


def test_the_regret_is_the_best_action_less_what_was_played():
    env = rmft.make("fol", ["gaussian", "uniform"], d=4, T=9)
    observation, info = env.reset(seed=3)
    assert (observation == 0).all()
    shown, earned = [], 0.0
    for t in range(9):
        observation, reward, terminated, truncated, info = env.step(t % 4)
        shown.append(observation)
        earned += reward
        assert reward == observation[t % 4]
        totals = np.sum(shown, axis=0)
        assert info["regret"] == pytest.approx(totals.max() - earned)
        assert info["best_action"] == totals.argmax()
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize(
    ("environment", "process"), [("fol", "gaussian"), ("mab", "gamma"), ("ns-mab", "gradual-variation")]
)
def test_the_regret_of_each_round_is_that_of_the_whole_game_up_to_there(environment, process):
    envs, random = rmft.make_vec(environment, process, num_envs=4, T=6), np.random.default_rng(0)
    envs.reset(seed=0)
    actions = random.integers(3, size=(6, 4))
    infos = [envs.step(chosen)[-1] for chosen in actions]
    table, comparator = envs.games.table, envs.games.settings.comparator
    curve = regret("expected", comparator, table, one_hot(actions.T, 3), actions.T)
    np.testing.assert_allclose([info["regret"] for info in infos], curve.T, atol=1e-9)
    for t, info in enumerate(infos, start=1):
        np.testing.assert_array_equal(info["best_action"], best_actions(comparator, table.head(4, t))[:, -1])


def test_a_wrapper_can_ask_for_the_number_of_rounds():
    env = TimeAwareObservation(rmft.make("mab", T=3), flatten=True, normalize_time=False)
    assert env.reset(seed=0)[0].shape == (2,)


def test_a_bandit_shows_one_reward_and_counts_regret_by_means():
    envs = rmft.make_vec("mab", "gaussian", num_envs=50, T=6)
    observation, _ = envs.reset(seed=1)
    actions = envs.action_space.sample()
    for t in range(1, 7):
        observation, paid, _, truncated, info = envs.step(actions)
        assert (observation[:, 0] == paid).all()
        means = envs.games.table.means[:, 0]
        assert info["regret"] == pytest.approx(t * (means.max(axis=1) - means[np.arange(50), actions]))
    assert truncated.all()
    again, paid, _, truncated, info = envs.step(actions)  # new games, in place of a round
    assert (again.any(), paid.any(), truncated.any(), info) == (False, False, False, {})


def test_what_is_done_to_rewards_changes_no_observation():
    envs = rmft.make_vec("mab", "gaussian", num_envs=3, T=4)
    envs.reset(seed=0)
    observation, rewards, *_ = envs.step(np.zeros(3, dtype=int))
    rewards -= 1
    assert (observation[:, 0] == rewards + 1).all()


def test_a_seed_names_a_game():
    def played(seed: int) -> list[float]:
        env = rmft.make("mab")
        env.reset(seed=seed)
        return [env.step(0)[1] for _ in range(25)]

    assert played(4) == played(4) != played(5)


def test_what_is_not_offered_is_refused():
    with pytest.raises(InputError, match="does not belong in mab"):
        rmft.make("mab", "sine-trend")
    with pytest.raises(InputError, match="fol, adaptive: not offered"):
        rmft.make("fol", "adaptive")
    with pytest.raises(InputError, match="process: 5: must be the name of a reward process, or several names"):
        rmft.make("mab", 5)
    with pytest.raises(InputError, match=r"environment: .*must be the name of an environment"):
        rmft.make(["mab"])


def test_importing_rmft_imports_nothing_large():
    code = "import sys, rmft; sys.exit(any(name in sys.modules for name in ('numpy', 'gymnasium', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_action_that_is_none_and_a_round_after_the_last_are_refused():
    env = rmft.make("mab", T=1)
    env.reset(seed=0)
    for action in (-1, 3):
        with pytest.raises(InputError, match="actions are 0 to 2"):
            env.step(action)
    env.step(0)
    with pytest.raises(InputError, match="the game is over after 1 rounds"):
        env.step(0)


@pytest.mark.parametrize("environment", ["mab", "fol"])
@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([[0], [1], [2]], r"shape \(3,\), one for each game, not int64 of shape \(3, 1\)"),
        ([0, 1], r"shape \(3,\), one for each game, not int64 of shape \(2,\)"),
        (1, r"not int64 of shape \(\)"),
        ([0.0, 1.0, 2.0], r"whole numbers .* not float64 of shape \(3,\)"),
        ([[0], [1, 2], [0]], "whole numbers, one for each game, not"),
        ([True, False, True], r"whole numbers .* not bool of shape \(3,\)"),
    ],
)
def test_actions_of_another_shape_or_type_are_refused_and_play_no_round(environment, actions, words):
    envs = rmft.make_vec(environment, num_envs=3)
    envs.reset(seed=0)
    with pytest.raises(InputError, match=words):
        envs.step(actions)
    _, paid, _, _, _ = envs.step(np.array([0, 1, 2], dtype=np.uint64))
    assert (paid.shape, envs.games.t) == ((3,), 1)


def test_a_game_takes_a_number_not_a_list():
    env = rmft.make("mab")
    env.reset(seed=0)
    for action in ([0], 1.0, [0, [1]]):
        with pytest.raises(InputError, match="actions must be whole numbers"):
            env.step(action)


def test_seeds_of_numpy_are_seeds():
    for make in (lambda: rmft.make_vec("mab", num_envs=2), lambda: rmft.make("mab")):
        ours, theirs = make(), make()
        ours.reset(seed=3)
        theirs.reset(seed=np.int64(3))
        np.testing.assert_array_equal(ours.games.table.rewards, theirs.games.table.rewards)
        with pytest.raises(InputError, match="seed"):
            ours.reset(seed=-1)


def test_a_step_before_the_first_reset_is_refused():
    for env, action in ((rmft.make("mab"), 0), (rmft.make_vec("fol", num_envs=2), [0, 1])):
        with pytest.raises(InputError, match="no game has begun: call reset before step"):
            env.step(action)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"T": 0}, "T: 0: must be a whole number of at least 1"),
        ({"T": 2.5}, "T: 2.5: must be a whole number of at least 1"),
        ({"d": 1}, "d: 1: must be a whole number of at least 2"),
        ({"num_envs": 0}, "num_envs: 0: must be a whole number of at least 1"),
    ],
)
def test_a_game_needs_two_actions_and_a_round(wrong, words):
    with pytest.raises(InputError, match=words):
        rmft.make_vec("mab", **{"num_envs": 3, **wrong})
    if "num_envs" not in wrong:
        with pytest.raises(InputError, match=words):
            rmft.make("mab", **wrong)
