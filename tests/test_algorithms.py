"""Reference algorithms of App. `appendix_baseline` against their formulas, their guarantees and other libraries.

Symbols: n replicates, T rounds, d actions.
"""

import math
from functools import partial

import numpy as np
import pytest
from helpers import assert_mean, draw, fixed_table, play_algorithm, uniforms
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, optimize, stats

from rmft.algorithms import ALGORITHMS, AlgorithmSettings, Player, check_algorithm, start
from rmft.algorithms.bandits import Greedy, UpperConfidenceBound
from rmft.environments import ENVIRONMENTS, AdaptiveRewards, RewardTable, variation
from rmft.environments.regret import regret
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.rollouts import play, sample_actions
from rmft.streams import stream

FULL = ("ftl", "ftrl", "hedge", "uniform")
BANDIT = ("ucb", "exp3", "rexp3", "greedy", "thompson-sampling", "uniform")
GAMES = [(name, "fol", "bernoulli") for name in FULL] + [
    (name, environment, process)
    for name in BANDIT
    for environment, process in (("mab", "bernoulli"), ("ns-mab", "gradual-variation"))
]

reward_sequences = arrays(
    float, st.tuples(st.just(2), st.integers(1, 25), st.integers(2, 4)), elements=st.floats(0, 10)
)


def play_full(player: Player, table: RewardTable | AdaptiveRewards):
    return play(player, table, full_feedback=True, uniforms=uniforms(table.shape[0], "full"))


# --- The game ---


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


@pytest.mark.parametrize(("radius", "constant"), [(None, 1 / 3), (2.0, 0.0)])
def test_uniform_stays_at_the_middle_of_its_policies(radius, constant):
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


def assert_never_leaves_a_leader(algorithm):
    """Hold an algorithm to greed: where the first action always pays 6 and the others 5, it plays these once."""
    table = fixed_table(np.tile([6.0, 5.0, 5.0], (1, 100, 1)))
    actions = play_algorithm(AlgorithmSettings(algorithm), table, "mab").actions[0]
    assert np.bincount(actions, minlength=3).tolist() == [98, 1, 1]


def test_greedy_never_leaves_a_leader():
    assert_never_leaves_a_leader("greedy")


def test_a_greedy_that_keeps_the_bonus_of_ucb_would_be_caught(monkeypatch):
    monkeypatch.setattr(Greedy, "bonus", UpperConfidenceBound.bonus)
    with pytest.raises(AssertionError):
        assert_never_leaves_a_leader("greedy")


def test_ucb_plays_every_action_again_and_again():
    table = fixed_table(np.tile([9.0, 1.0], (1, 2000, 1)))
    actions = play_algorithm(AlgorithmSettings("ucb"), table, "mab").actions[0]
    for rounds in (slice(0, 200), slice(200, 2000)):
        assert np.bincount(actions[rounds], minlength=2).min() >= 2


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


# --- Refusals ---


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_is_refused_where_it_lacks_its_feedback(algorithm, environment):
    if algorithm in (FULL if environment == "fol" else BANDIT):
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


def two_valued(n, horizon, d):
    """Return a table of rewards 0 and 10, which all three libraries treat alike in Thompson sampling."""
    random = np.random.default_rng(0)
    means = np.broadcast_to(random.uniform(0, 10, (n, 1, d)), (n, horizon, d))
    return RewardTable(10.0 * (random.uniform(0, 10, (n, horizon, d)) < means), means, means)


def pseudo_regret(table, actions):
    return regret("pseudo", "best mean", table, None, actions)[:, -1]


@pytest.mark.parametrize("library", ["SMPyBandits", "MABWiser"])
@pytest.mark.parametrize("algorithm", ["ucb", "greedy"])
@pytest.mark.parametrize(("process", "d"), [("gaussian", 3), ("gaussian", 4), ("bernoulli", 3), ("gamma", 3)])
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
@pytest.mark.parametrize("algorithm", ["ucb", "greedy", "exp3", "thompson-sampling"])
def test_mean_regret_agrees_with_smpybandits(peers, algorithm, process, d):
    table = draw(process, 400, 100, d)
    tuning = {"eta": 0.3 / d, "gamma": 0.3} if algorithm == "exp3" else {}
    start_peer = (lambda d: peers.exp3(d, 0.3)) if algorithm == "exp3" else peers.PEERS[algorithm]["SMPyBandits"]
    ours = play_algorithm(AlgorithmSettings(algorithm, **tuning), table, "mab").actions
    theirs = peers.play_peer(start_peer, table.rewards / 10)
    assert_mean(pseudo_regret(table, ours) - pseudo_regret(table, theirs), 0.0, standard_errors=3)


@pytest.mark.parametrize("d", [3, 4])
def test_mean_regret_of_thompson_sampling_agrees_with_mabwiser_on_two_valued_rewards(peers, d):
    table = two_valued(200, 100, d)
    ours = play_algorithm(AlgorithmSettings("thompson-sampling"), table, "mab").actions
    theirs = peers.play_peer(peers.PEERS["thompson-sampling"]["MABWiser"], table.rewards / 10)
    assert_mean(pseudo_regret(table, ours) - pseudo_regret(table, theirs), 0.0, standard_errors=3)


@pytest.mark.parametrize("pair", [("ucb", "greedy"), ("ucb", "thompson-sampling"), ("greedy", "exp3")])
def test_mean_regret_tells_different_algorithms_apart(pair):
    table = draw("gaussian", 200, 60, 3)
    one, other = (pseudo_regret(table, play_algorithm(AlgorithmSettings(name), table, "mab").actions) for name in pair)
    with pytest.raises(AssertionError):
        assert_mean(one - other, 0.0, standard_errors=3)
