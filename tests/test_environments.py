"""Reward processes against App. `reward_dist`, and every notion of regret against loops.

Symbols: n instances, T rounds, d actions. DEFINITIONS has each process a second time, one number after the
other and straight from the paper.
"""

from itertools import pairwise, product

import numpy as np
import pytest
from helpers import assert_mean, draw
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from rmft.environments import (
    ADAPTIVE,
    ENVIRONMENTS,
    PROCESSES,
    AdaptiveRewards,
    check_processes,
    draw_rewards,
)
from rmft.environments.clipping import gamma_mean, gaussian_mixture_mean
from rmft.environments.processes import TABULAR
from rmft.environments.tables import variation
from rmft.errors import InputError

SQRT_VARIANCES = np.sqrt([1, 3, 10])
GAUSSIANS = {  # their means and standard deviations
    "gaussian": (stats.norm(5, 1), SQRT_VARIANCES),
    "gaussian-unit": (stats.norm(5, 1), [1]),
    "gaussian-wide-unit": (stats.uniform(0, 10), [1]),
    "gaussian-wide-mixed": (stats.uniform(0, 10), [1, 3, 10]),
}


# --- The processes, one number after the other: a game is (rewards, nominal means), each (T, d) ---


def clip(reward):
    return min(max(reward, 0.0), 10.0)


def uniform(random, horizon, d):
    ends = [sorted((random.uniform(0, 10), random.uniform(0, 10))) for _ in range(d)]
    rewards = [[random.uniform(low, high) for low, high in ends] for _ in range(horizon)]
    return rewards, [[(low + high) / 2 for low, high in ends]] * horizon


def gaussian_round(random, means):
    sigma = SQRT_VARIANCES[random.integers(3)]
    return [clip(random.normal(mean, sigma)) for mean in means]


def gaussian(random, horizon, d):
    means = [random.normal(5, 1) for _ in range(d)]
    return [gaussian_round(random, means) for _ in range(horizon)], [means] * horizon


def gaussian_unit(random, horizon, d):
    means = [random.normal(5, 1) for _ in range(d)]
    return [[clip(random.normal(mean, 1)) for mean in means] for _ in range(horizon)], [means] * horizon


def gaussian_wide_unit(random, horizon, d):
    means = [random.uniform(0, 10) for _ in range(d)]
    return [[clip(random.normal(mean, 1)) for mean in means] for _ in range(horizon)], [means] * horizon


def gaussian_wide_mixed(random, horizon, d):
    means = [random.uniform(0, 10) for _ in range(d)]
    sigmas = [(1, 3, 10)[random.integers(3)] for _ in range(horizon)]
    return [[clip(random.normal(mean, sigma)) for mean in means] for sigma in sigmas], [means] * horizon


def gamma(random, horizon, d):
    parameters = [(random.uniform(0, 10), random.uniform(0, 2)) for _ in range(d)]
    rewards = [[clip(random.gamma(shape, scale)) for shape, scale in parameters] for _ in range(horizon)]
    return rewards, [[shape * scale for shape, scale in parameters]] * horizon


def bernoulli(random, horizon, d):
    low, high = sorted((random.uniform(0, 10), random.uniform(0, 10)))
    probabilities = [random.uniform() for _ in range(d)]
    rewards = [[high if random.uniform() < p else low for p in probabilities] for _ in range(horizon)]
    return rewards, [[p * high + (1 - p) * low for p in probabilities]] * horizon


def sine_trend(random, horizon, d):
    waves = [(random.uniform(0, 10), random.uniform(0, 10)) for _ in range(d)]
    rewards = [[5 * (1 + np.sin(x * t + y)) for x, y in waves] for t in range(1, horizon + 1)]
    return rewards, rewards


def alternating(random, horizon, d):
    shift = random.integers(d)
    rewards = [[10.0 if a == (t + shift) % d else 0.0 for a in range(d)] for t in range(1, horizon + 1)]
    return rewards, rewards


def noisy_alternating(random, horizon, d):
    shift = random.integers(d)
    turns = [[a == (t + shift) % d for a in range(d)] for t in range(1, horizon + 1)]
    fading = [min(25 / (t + 1), 10) for t in range(1, horizon + 1)]
    rewards = [
        [value if turn else random.uniform(9, 10) for turn in row] for row, value in zip(turns, fading, strict=True)
    ]
    return rewards, [[value if turn else 9.5 for turn in row] for row, value in zip(turns, fading, strict=True)]


def gradual_variation(random, horizon, d):
    means = [[random.uniform(0, 10) for _ in range(d)]]
    for t in range(1, horizon):
        means.append([mean + random.uniform(-1 / np.sqrt(t), 1 / np.sqrt(t)) for mean in means[-1]])
    return [gaussian_round(random, row) for row in means], means


DEFINITIONS = {
    "uniform": uniform,
    "gaussian": gaussian,
    "gaussian-unit": gaussian_unit,
    "gaussian-wide-unit": gaussian_wide_unit,
    "gaussian-wide-mixed": gaussian_wide_mixed,
    "gamma": gamma,
    "bernoulli": bernoulli,
    "sine-trend": sine_trend,
    "alternating": alternating,
    "noisy-alternating": noisy_alternating,
    "gradual-variation": gradual_variation,
}


def aspects(rewards, means):
    """Return numbers (n,) whose distributions tell apart what is shared between rounds and between actions."""
    noise = rewards - means
    return {
        "a reward": rewards[:, 2, 0],
        "two rounds of one action": rewards[:, 0, 0] - rewards[:, 2, 0],
        "two actions in one round": rewards[:, 1, 0] - rewards[:, 1, 1],
        "the noise of two actions in one round": np.abs(noise[:, 0, 0]) - np.abs(noise[:, 0, 1]),
        "the noise of two rounds of one action": np.abs(noise[:, 0, 0]) - np.abs(noise[:, 1, 0]),
        "a mean": means[:, 0, 1],
        "a mean's change": means[:, 2, 1] - means[:, 1, 1],
        "two actions' means": means[:, 2, 0] - means[:, 2, 1],
    }


@pytest.mark.parametrize("process", TABULAR)
def test_a_process_has_the_distribution_that_the_paper_gives_it(process):
    n, horizon, d = 4000, 3, 3
    random = np.random.default_rng(0)
    games = [DEFINITIONS[process](random, horizon, d) for _ in range(n)]
    expected = aspects(*(np.array(part, dtype=float) for part in zip(*games, strict=True)))
    table = draw(process, n, horizon, d)
    for aspect, sample in aspects(table.rewards, table.means).items():
        # Rounded, so that values equal but for their last digit are ties.
        p = stats.ks_2samp(sample.round(9), expected[aspect].round(9)).pvalue
        assert p > 1e-4, f"{aspect}: p = {p}"


@given(process=st.sampled_from(sorted(TABULAR)), root=st.integers(0, 99), d=st.integers(2, 5))
def test_rewards_stay_in_their_known_range(process, root, d):
    rewards = draw(process, 20, 20, d, root=root).rewards
    assert rewards.min() >= 0
    assert rewards.max() <= 10


# --- Means ---


@pytest.mark.parametrize("process", TABULAR)
def test_draws_average_to_their_true_mean_whatever_that_is(process):
    table = draw(process, 6000, 5, 3)
    noise = table.rewards - table.clipped_means
    for power in (0, 1, 2):
        assert_mean(noise * (table.clipped_means - 5) ** power, 0.0, standard_errors=4.5)  # 45 means in all


@pytest.mark.parametrize("process", sorted(set(TABULAR) - {*GAUSSIANS, "gamma", "gradual-variation"}))
def test_where_nothing_is_clipped_the_nominal_mean_is_the_true_one(process):
    table = draw(process, 20, 5, 3)
    np.testing.assert_array_equal(table.means, table.clipped_means)


def test_a_nominal_mean_can_be_where_no_reward_is():
    assert draw("gamma", 500, 1, 3).means.max() > 10
    drifting = draw("gradual-variation", 500, 50, 3).means
    assert drifting.min() < 0
    assert drifting.max() > 10


@pytest.mark.parametrize("deviations", [SQRT_VARIANCES, [1.0], [1.0, 3.0, 10.0]], ids=str)
def test_the_mean_of_clipped_gaussian_mixture_draws_is_the_integral_of_their_upper_tail(deviations):
    means = np.array([-40, -3, 0, 0.5, 2, 5, 7.7, 10, 13, 50])

    def tail(x, mean):
        return stats.norm.sf(x, mean, deviations).mean()

    expected = [integrate.quad(tail, 0, 10, args=(mean,), points=[min(max(mean, 0), 10)])[0] for mean in means]
    np.testing.assert_allclose(gaussian_mixture_mean(means, np.square(deviations)), expected, atol=1e-9)


@pytest.mark.parametrize("process", GAUSSIANS)
def test_gaussian_rewards_have_the_share_of_tens_that_their_means_and_deviations_give(process):
    """P(R = 10) = E[1 - Φ((10 - μ) / σ)] over the means and deviations, by quadrature."""
    means, deviations = GAUSSIANS[process]
    low, high = means.ppf([1e-9, 1 - 1e-9])
    tens = integrate.quad(lambda mu: means.pdf(mu) * stats.norm.sf((10 - mu) / np.array(deviations)).mean(), low, high)
    assert_mean((draw(process, 20_000, 1, 2).rewards == 10).mean(axis=(1, 2)), tens[0])


@given(shape=st.floats(1e-6, 10), scale=st.floats(1e-6, 2))
def test_the_mean_of_clipped_gamma_draws_is_the_integral_of_their_upper_tail(shape, scale):
    tail = stats.gamma(shape, scale=scale).sf
    middle, end = np.log(shape * scale), np.log(10)
    # In u = log x the integrand is smooth, and most of it lies around the logarithm of the mean.
    ends = [middle - 40, *(u for u in (middle - 3, middle, middle + 3, middle + 20) if u < end), end]
    expected = sum(integrate.quad(lambda u: tail(np.exp(u)) * np.exp(u), *piece)[0] for piece in pairwise(ends))
    np.testing.assert_allclose(gamma_mean(np.array([shape]), np.array([scale])), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("shape", [1e-300, 1e-12, 0.01, 1, 10])
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 0.01])
def test_gamma_draws_too_small_to_be_clipped_keep_their_nominal_mean(shape, scale):
    np.testing.assert_allclose(gamma_mean(np.array([shape]), np.array([scale])), shape * scale, atol=1e-12)


# --- What is exact ---


def test_a_round_of_the_gaussian_process_has_one_variance_for_all_actions_each_of_three_equally_often():
    table = draw("gaussian", 5, 60, 2000)
    below, above = np.quantile(table.rewards - table.means, [0.25, 0.75], axis=2)  # no quartile is clipped much
    sigma = (above - below) / (2 * stats.norm.ppf(0.75))
    nearest = np.abs(sigma[..., None] - SQRT_VARIANCES).argmin(axis=-1)
    np.testing.assert_allclose(sigma, SQRT_VARIANCES[nearest], rtol=0.25)
    assert_mean(nearest.ravel()[:, None] == np.arange(3), 1 / 3)


@given(root=st.integers(0, 99), d=st.integers(2, 5))
def test_sine_rewards_lie_on_a_sine(root, d):
    wave = draw("sine-trend", 5, 12, d, root=root).rewards / 5 - 1
    # sin(x(t + 1) + y) + sin(x(t - 1) + y) = 2 cos(x) sin(xt + y), so that any four rounds tell of the same cos(x).
    sums = wave[:, 2:] + wave[:, :-2]
    np.testing.assert_allclose(sums[:, 1:] * wave[:, 1:-2], sums[:, :-1] * wave[:, 2:-1], atol=1e-9)


@given(root=st.integers(0, 99), d=st.integers(2, 5), horizon=st.integers(2, 30))
def test_alternating_pays_10_to_one_action_after_the_other_and_0_to_the_rest(root, d, horizon):
    rewards = draw("alternating", 8, horizon, d, root=root).rewards
    np.testing.assert_array_equal(np.sort(rewards, axis=2)[:, :, :-1], 0)
    paid = rewards.argmax(axis=2)
    np.testing.assert_array_equal(rewards.max(axis=2), 10)
    np.testing.assert_array_equal(paid[:, 1:], (paid[:, :-1] + 1) % d)


@given(root=st.integers(0, 99), d=st.integers(2, 5), horizon=st.integers(2, 30))
def test_noisy_alternating_fades_where_the_turn_is_and_pays_9_to_10_elsewhere(root, d, horizon):
    rewards = draw("noisy-alternating", 8, horizon, d, root=root).rewards
    fading = np.array([min(25 / (t + 1), 10) for t in range(1, horizon + 1)])
    turns = rewards == fading[:, None]
    np.testing.assert_array_equal(turns.sum(axis=2), 1)
    np.testing.assert_array_equal(turns.argmax(axis=2)[:, 1:], (turns.argmax(axis=2)[:, :-1] + 1) % d)
    others = rewards[~turns]
    assert others.min() >= 9
    assert others.max() <= 10


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("process", ["alternating", "noisy-alternating"])
def test_every_shift_is_equally_likely(process, d):
    rewards = draw(process, 3000, 4, d).rewards[:, 3]
    turn = rewards == (10.0 if process == "alternating" else 5.0)
    assert_mean(turn, 1 / d)


@given(root=st.integers(0, 999), d=st.integers(2, 5))
def test_against_adaptive_rewards_the_likeliest_action_earns_nothing_and_all_others_10(root, d):
    policies = np.random.default_rng(root).dirichlet(np.ones(d), size=7)
    rewards = AdaptiveRewards((7, 3, d)).at(1, policies)
    for policy, reward in zip(policies, rewards, strict=True):
        assert reward.tolist() == [0.0 if a == np.argmax(policy) else 10.0 for a in range(d)]


def test_against_adaptive_rewards_the_first_of_equally_likely_actions_earns_nothing():
    np.testing.assert_array_equal(AdaptiveRewards((1, 1, 3)).at(0, np.array([[0.2, 0.4, 0.4]])), [[10, 0, 10]])


# --- V_T ---


@given(root=st.integers(0, 99), horizon=st.integers(1, 12), d=st.integers(2, 4))
def test_variation_adds_up_the_largest_change_of_a_mean_each_round(root, horizon, d):
    means = draw("gradual-variation", 3, horizon, d, root=root).means
    expected = [sum(max(abs(row[t] - row[t - 1])) for t in range(1, horizon)) for row in means]
    np.testing.assert_allclose(variation(means), expected)


@pytest.mark.parametrize("horizon", [25, 100, 400])
@pytest.mark.parametrize("d", [2, 3])
def test_the_variation_of_gradual_variation_grows_as_the_root_of_the_horizon(horizon, d):
    # The largest of d steps uniform on ±1/√t is d / (d + 1) / √t on average, and Σ 1/√t is about 2√T.
    expected = d / (d + 1) * sum(t**-0.5 for t in range(1, horizon))
    assert expected == pytest.approx(2 * d / (d + 1) * np.sqrt(horizon), rel=0.2)
    assert_mean(variation(draw("gradual-variation", 500, horizon, d).means), expected)


def test_stationary_means_have_no_variation():
    np.testing.assert_array_equal(variation(draw("gamma", 5, 9, 3).means), 0)


# --- Which process belongs where ---


BELONGS = {
    "fol": set(PROCESSES) - {"gradual-variation", "linear-contextual"},
    "mab": {"uniform", *GAUSSIANS, "gamma", "bernoulli"},
    "ns-mab": {"gradual-variation"},
    "cb": {"linear-contextual"},
}


@pytest.mark.parametrize(("environment", "process"), [*product(ENVIRONMENTS, PROCESSES)])
def test_a_process_is_refused_where_it_does_not_belong(environment, process):
    if process in BELONGS[environment]:
        check_processes(environment, [process])
    else:
        with pytest.raises(InputError, match=process):
            check_processes(environment, [process])


@pytest.mark.parametrize(
    ("environment", "processes"),
    [
        ("fol", ["adaptive", "gaussian"]),  # its rewards are no table that could be mixed
        ("mab", ["gaussian", "sine-trend"]),
        ("ns-mab", ["gradual-variation", "gaussian"]),
        ("fol", ["gausian"]),
    ],
)
def test_a_mixture_is_refused_for_one_process_that_does_not_belong(environment, processes):
    with pytest.raises(InputError, match=r"adaptive|sine-trend|gaussian|gausian"):
        check_processes(environment, processes)


def test_adaptive_rewards_are_no_table():
    assert draw_rewards(0, "test", [ADAPTIVE], (4, 5, 3)) == AdaptiveRewards((4, 5, 3))
    assert AdaptiveRewards((4, 5, 3)).head(2, 9) == AdaptiveRewards((2, 5, 3))
