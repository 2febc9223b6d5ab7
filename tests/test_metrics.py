"""Exploration, growth of regret and comparison of samples, against loops, closed forms and simulation.

Symbols: n replicates, T rounds, d actions.
"""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from rmft.errors import InputError
from rmft.metrics.comparison import expected_largest, holm, ks_p, paired_difference, paired_p
from rmft.metrics.exploration import relative_entropy, scaled_min_frac, suffix_failure
from rmft.metrics.growth import growth, growth_errors, growth_of_each
from rmft.metrics.luck import around_average, lead_of_selected, survival
from rmft.metrics.power import MOST, POWER, instances_needed, paired_sd, power, spread
from rmft.metrics.sequential import confidence_sequence

D = 3
plays = arrays(int, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.integers(0, D - 1))
curves = arrays(float, st.integers(3, 40), elements=st.floats(-50, 50).map(lambda value: round(value, 3)))


# --- Exploration ---


@given(actions=plays, seed=st.integers(0, 99))
def test_suffix_failure_says_whether_the_best_action_is_never_played_again(actions, seed):
    best = np.random.default_rng(seed).integers(D, size=actions.shape)  # it may change, as in NS-MAB
    n, horizon = actions.shape
    failure = suffix_failure(actions, best)
    for i, t in np.ndindex(n, horizon):
        assert failure[i, t] == all(actions[i, s] != best[i, s] for s in range(t, horizon))


@given(actions=plays)
def test_min_frac_is_the_share_of_the_least_played_action_so_far(actions):
    n, horizon = actions.shape
    scaled = scaled_min_frac(actions, D)
    for i, t in np.ndindex(n, horizon):
        shares = [sum(actions[i, s] == a for s in range(t + 1)) / (t + 1) for a in range(D)]
        assert scaled[i, t] == pytest.approx(D * min(shares))


# --- Growth ---


@given(scale=st.floats(0.01, 100), exponent=st.floats(-1, 2), horizon=st.integers(3, 200))
def test_growth_recovers_the_exponent_of_a_power_law(scale, exponent, horizon):
    fit = growth(scale * np.arange(1, horizon + 1) ** exponent)
    assert fit.exponent == pytest.approx(exponent, abs=1e-8)
    assert fit.dropped == 0


@given(intercept=st.floats(-10, 10), slope=st.floats(-5, 5), horizon=st.integers(3, 200))
def test_growth_recovers_the_slope_of_a_line(intercept, slope, horizon):
    assert growth(intercept + slope * np.arange(1, horizon + 1)).slope == pytest.approx(slope, abs=1e-8)


def least_squares(x, y):
    """Return slope and its two-sided p-value by the t statistic with len(x) - 2 degrees of freedom."""
    centred = x - x.mean()
    slope = (centred * y).sum() / (centred**2).sum()
    residuals = y - y.mean() - slope * centred
    error = math.sqrt((residuals**2).sum() / (len(x) - 2) / (centred**2).sum())
    return slope, 2 * stats.t.sf(abs(slope) / error, len(x) - 2)


@pytest.mark.parametrize("horizon", [5, 25, 100])
def test_growth_is_least_squares_with_its_t_test(horizon):
    rounds = np.arange(1.0, horizon + 1)
    curve = np.sqrt(rounds) * np.random.default_rng(0).uniform(0.5, 1.5, horizon)
    fit = growth(curve)
    assert (fit.exponent, fit.exponent_p) == pytest.approx(least_squares(np.log(rounds), np.log(curve)))
    assert (fit.slope, fit.slope_p) == pytest.approx(least_squares(rounds, curve))


@given(curve=curves)
def test_rounds_without_positive_regret_are_counted_and_take_no_part_in_the_exponent(curve):
    fit, kept = growth(curve), [(t, value) for t, value in enumerate(curve, start=1) if value > 0]
    assert fit.dropped == len(curve) - len(kept)
    if len(kept) < 3:
        assert math.isnan(fit.exponent)
        assert math.isnan(fit.exponent_p)
    else:
        x, y = np.log(np.array(kept)).T
        assert fit.exponent == pytest.approx(np.polyfit(x, y, 1)[0], abs=1e-7)


@given(curve=curves, floor=st.floats(0.01, 5))
def test_a_floor_raises_low_regret_for_the_exponent_only(curve, floor):
    floored = growth(curve, floor=floor)
    assert floored.exponent == growth(np.array([max(value, floor) for value in curve])).exponent
    assert floored.slope == growth(curve).slope
    assert floored.dropped == 0


@pytest.mark.parametrize("floor", [None, 0.5])
@pytest.mark.parametrize("horizon", [2, 4, 30])
def test_growth_of_many_curves_is_the_growth_of_each(horizon, floor):
    curves = np.random.default_rng(0).normal(2, 3, size=(50, horizon)).cumsum(axis=1) - 3
    one_by_one, at_once = [growth(curve, floor) for curve in curves], growth_of_each(curves, floor)
    assert {fit.dropped > 0 for fit in one_by_one} == ({True, False} if floor is None else {False})
    for name in ("exponent", "dropped", "slope"):
        np.testing.assert_allclose(getattr(at_once, name), [getattr(fit, name) for fit in one_by_one], atol=1e-12)


def test_errors_of_growth_are_those_of_resampled_instances_and_seeds():
    regret, generator = np.random.default_rng(0).normal(1, 1, (3, 20, 10)).cumsum(axis=2), np.random.default_rng(1)
    errors = growth_errors(regret, 50, None, np.random.default_rng(1))
    resampled, over_instances = [], []
    for _ in range(50):
        games = regret[:, generator.integers(20, size=20)]
        resampled.append(growth(games[generator.integers(3, size=2)].mean(axis=(0, 1))))
        over_instances.append(growth(games.mean(axis=(0, 1))).slope)
    larger = math.sqrt(20 / 19)
    assert errors.exponent == pytest.approx(np.std([fit.exponent for fit in resampled], ddof=1) * larger)
    assert errors.slope == pytest.approx(np.std([fit.slope for fit in resampled], ddof=1) * larger)
    over_seeds = np.std([growth(of_seed.mean(axis=0)).slope for of_seed in regret], ddof=1)
    of_one_run = math.hypot(np.std(over_instances, ddof=1) * larger, over_seeds)
    assert errors.slope_of_one_run == pytest.approx(of_one_run)
    assert math.isnan(growth_errors(regret[:, :1], 5, None, generator).slope)


def test_the_slope_of_the_mean_curve_is_the_mean_of_the_replicates_slopes():
    each = np.random.default_rng(0).normal(0.3, 1.0, (40, 60)).cumsum(axis=1)
    assert growth(each.mean(axis=0)).slope == pytest.approx(np.mean([growth(curve).slope for curve in each]))


def test_the_exponent_of_the_mean_curve_is_not_the_mean_of_the_replicates_exponents():
    rounds = np.arange(1, 61)
    each = np.array([rounds**0.2, rounds**1.0])
    assert growth(each.mean(axis=0)).exponent > np.mean([growth(curve).exponent for curve in each]) + 0.05


# --- Comparison ---


def rise_above(trained, base):
    """Return sup_x F_trained(x) - F_base(x) over every value that either sample takes."""
    return max(np.mean(trained <= x) - np.mean(base <= x) for x in np.concatenate([trained, base]))


@pytest.mark.parametrize("seed", range(5))
def test_the_ks_statistic_is_how_far_the_trained_distribution_function_rises_above_the_base(seed):
    random = np.random.default_rng(seed)
    trained, base = random.normal(0, 1, 40), random.normal(0.3, 2, 60)
    expected = stats.ks_2samp(trained, base, alternative="greater")
    assert expected.statistic == pytest.approx(rise_above(trained, base))
    assert ks_p(trained, base) == expected.pvalue


def test_ks_p_is_the_share_of_ways_to_split_the_values_that_rise_as_far():
    trained, base = np.array([1.0, 2.0, 5.0]), np.array([3.0, 4.0, 6.0, 7.0])
    values = np.concatenate([trained, base])
    splits = [np.isin(np.arange(7), list(chosen)) for chosen in combinations(range(7), 3)]
    as_far = [rise_above(values[split], values[~split]) >= rise_above(trained, base) - 1e-12 for split in splits]
    assert ks_p(trained, base) == pytest.approx(np.mean(as_far))


def test_ks_p_is_small_where_the_trained_regret_is_lower_and_not_where_it_is_higher():
    base = np.random.default_rng(0).normal(20, 3, 100)
    assert ks_p(base - 3, base) < 1e-4
    assert ks_p(base + 3, base) > 0.9
    assert ks_p(base, base) > 0.9


@pytest.mark.parametrize("n", [5, 60])
def test_the_paired_interval_covers_the_true_difference_95_times_in_100(n):
    random, covered = np.random.default_rng(0), []
    for _ in range(1000):
        base = random.normal(20, 8, n)
        found = paired_difference(base - 1 + random.normal(0, 2, n), base)
        covered.append(found.low <= -1 <= found.high)
    assert 0.925 <= np.mean(covered) <= 0.975  # a bootstrap of five covers it 85 times


def test_paired_p_is_the_t_test_of_the_differences_for_a_lower_mean():
    random = np.random.default_rng(0)
    base = random.normal(20, 8, 50)
    trained = base + random.normal(-0.5, 2, 50)
    difference = trained - base
    found = paired_difference(trained, base)
    statistic = difference.mean() / (difference.std(ddof=1) / math.sqrt(50))
    assert found.mean == pytest.approx(difference.mean())
    assert found.p == pytest.approx(stats.t.cdf(statistic, 49))


def test_pairing_finds_a_difference_that_the_spread_of_instances_hides():
    random = np.random.default_rng(0)
    base = random.normal(20, 8, 60)
    trained = base - 1 + random.normal(0, 1, 60)
    assert paired_difference(trained, base).p < 1e-6
    assert ks_p(trained, base) > 0.05


def test_the_interval_over_trainings_and_instances_covers_the_true_difference():
    random, covered = np.random.default_rng(0), 0
    for _ in range(400):
        of_training, of_instance = random.normal(0, 3, (3, 1)), random.normal(0, 5, (1, 20))
        trained = -1 + of_training + of_instance + random.normal(0, 4, (3, 20))
        found = paired_difference(trained, np.zeros((1, 20)))
        covered += found.low < -1 < found.high
    assert 0.93 < covered / 400 < 0.99  # over instances alone: two thirds


def test_trainings_of_the_same_seed_are_pairs():
    random = np.random.default_rng(0)
    base = random.normal(0, 30, (5, 1)) + random.normal(50, 5, (1, 40))  # models differ much from seed to seed
    trained = base - 3 + random.normal(0, 1, (5, 40))
    found = paired_difference(trained, base)
    assert found.high < 0
    by_seed = (trained - base).mean(axis=1)
    assert found.error >= by_seed.std(ddof=1) / math.sqrt(5)
    assert paired_difference(trained, base[:3]).high > 0  # without pairs


def test_regrets_of_other_instances_cannot_be_paired():
    with pytest.raises(InputError, match="regrets of 3 and 4 instances cannot be paired"):
        paired_difference(np.arange(3.0), np.arange(4.0))


def test_equal_differences_say_nothing_about_other_instances():
    found = paired_difference(np.array([10.0, 20.0]), np.array([20.0, 30.0]))
    assert found.mean == -10
    assert np.isnan([found.low, found.high, found.p]).all()


def test_copies_of_one_difference_are_a_sample_of_one_and_have_no_p_value():
    same = np.arange(5.0)
    found = paired_difference(same, same)
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert np.isnan(found.p)
    assert np.isnan(paired_p(same, same))


@pytest.mark.parametrize("trained", [[[1.0]], [[1.0], [1.2]]])
def test_one_instance_is_never_significant_however_many_trainings_play_it(trained):
    found = paired_difference(np.array(trained), np.full((len(trained), 1), 3.0))
    assert found.mean < 0
    assert np.isnan([found.low, found.high, found.p, found.error]).all()


# --- Power ---


def test_power_is_how_often_the_paired_test_sees_the_difference():
    n, effect = 16, 1.0
    differences = np.random.default_rng(0).normal(-effect, 1, (20000, n))
    seen = stats.ttest_1samp(differences, 0, axis=1, alternative="less").pvalue < 0.01
    assert power(n, effect) == pytest.approx(seen.mean(), abs=4 * math.sqrt(0.25 / 20000))


@given(effect=st.floats(0.02, 5), alpha=st.sampled_from([0.001, 0.01, 0.05]), wanted=st.sampled_from([0.5, 0.8, 0.9]))
def test_no_fewer_instances_than_needed_would_do(effect, alpha, wanted):
    n = instances_needed(effect, alpha, wanted)
    assert power(n, effect, alpha) >= wanted
    assert n == 2 or power(n - 1, effect, alpha) < wanted


def test_the_most_instances_are_tried_before_none_are_said_to_suffice():
    assert power(n := instances_needed(0.0012), 0.0012) >= POWER > power(n - 1, 0.0012)
    assert power(MOST, 0.0011) < POWER
    assert instances_needed(0.0011) is None


@pytest.mark.parametrize("effect", [0.02, 0.05, 0.1])
def test_of_many_instances_the_formula_of_the_normal_distribution_holds(effect):
    quantiles = stats.norm.ppf([0.99, 0.9])
    formula = (quantiles.sum() / effect) ** 2 + quantiles[0] ** 2 / 2  # with its first correction
    assert instances_needed(effect) == pytest.approx(formula, abs=1.5)


def test_power_of_two_samples_is_how_often_their_test_sees_the_difference():
    n, effect, rng = 16, 0.8, np.random.default_rng(1)
    base, trained = rng.normal(0, 1, (20000, n)), rng.normal(-effect, 1, (20000, n))
    seen = stats.ttest_ind(trained, base, axis=1, alternative="less").pvalue < 0.05
    assert power(n, effect, 0.05, paired=False) == pytest.approx(seen.mean(), abs=4 * math.sqrt(0.25 / 20000))


@pytest.mark.parametrize(("paired", "times", "correction"), [(True, 1, 1 / 2), (False, 2, 1 / 4)])
def test_the_papers_remark_in_closed_form(paired, times, correction):
    effect = (27.30 - 23.13) / 25  # standard deviations over tasks, as its table has them
    quantiles = stats.norm.ppf([0.95, 0.8])
    formula = times * (quantiles.sum() / effect) ** 2 + correction * quantiles[0] ** 2
    assert instances_needed(effect, 0.05, 0.8, paired=paired) == pytest.approx(formula, abs=1.5)


def games_of_three_replicates(n: int, tau: float, common: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return (3, n) of base and trained: replicates of sd 8 and 6, a gain of 4 that varies by tau over instances.

    common: sd of what a replicate's random numbers do to both, as a part of those.
    """
    rng = np.random.default_rng(2)
    task, gain, both = rng.normal(30, 20, n), rng.normal(4, tau, n), rng.normal(0, common, (3, n))
    own = [rng.normal(0, math.sqrt(sd**2 - common**2), (3, n)) for sd in (8, 6)]
    return task + both + own[0], task - gain + both + own[1]


def test_the_spread_of_replicates_and_that_of_tasks_are_told_apart():
    found = spread(games_of_three_replicates(40000, 0)[0])
    assert found.mean == pytest.approx(30, abs=0.5)
    assert found.replicate_sd == pytest.approx(8, rel=0.02)
    assert found.setting_sd == pytest.approx(8 * math.sqrt(math.pi) / 2, rel=0.02)  # of three, an sd is too small
    assert found.task_sd == pytest.approx(math.hypot(20, 8), rel=0.02)
    assert found.between_sd == pytest.approx(20, rel=0.02)
    assert found.replicate_above_between == pytest.approx(8 - 20, rel=0.04)


@pytest.mark.parametrize("replicates", [1, 3, 10])
@pytest.mark.parametrize(("tau", "common"), [(0, 0), (5, 0), (5, 5)])
def test_replicates_wear_down_all_but_the_difference_between_instances(replicates, tau, common):
    expected = math.sqrt(tau**2 + (8**2 + 6**2 - 2 * common**2) / replicates)
    assert paired_sd(*games_of_three_replicates(40000, tau, common), replicates) == pytest.approx(expected, rel=0.03)


def test_what_a_training_run_does_to_all_instances_is_no_spread_of_games():
    base, trained = games_of_three_replicates(50, 5)
    runs = np.array([[10.0], [0.0], [-10.0]])
    assert paired_sd(base, trained + runs, 3) == pytest.approx(paired_sd(base, trained, 3))
    assert spread(trained + runs).between_sd == pytest.approx(spread(trained).between_sd)


@pytest.mark.parametrize("effect", [0.0, -1.0, math.nan, math.inf, 1e-6])
def test_no_number_of_instances_shows_what_is_no_effect(effect):
    assert instances_needed(effect) is None


# --- The largest of some instances ---


@given(values=arrays(float, st.integers(1, 8), elements=st.floats(-50, 50)), data=st.data())
def test_the_expected_largest_is_the_mean_over_all_ways_to_take_some(values, data):
    of = data.draw(st.integers(1, len(values)))
    largest = [max(chosen) for chosen in combinations(values, of)]
    assert expected_largest(values, of) == pytest.approx(np.mean(largest), abs=1e-9)


def test_the_expected_largest_of_many_is_a_finite_number():
    assert expected_largest(np.arange(100_000.0), 1000) == pytest.approx(1000 / 1001 * 100_000, abs=2)


# --- Entropy ---


def test_entropy_is_1_for_the_uniform_policy_and_0_for_a_sure_action_whatever_d():
    for d in (2, 3, 10):
        policies = np.stack([np.full(d, 1 / d), np.eye(d)[0]])
        np.testing.assert_allclose(relative_entropy(policies), [1, 0], atol=1e-12)
    assert relative_entropy(np.array([0.9, 0.1])) == pytest.approx(stats.entropy([0.9, 0.1], base=2))


# --- Luck in hindsight ---


def best_of(regret: np.ndarray, rerolled: np.ndarray) -> dict[str, np.ndarray]:
    """Return a selection of the lowest regret (M, L) of each scenario."""
    scenario, _ = np.indices(regret.shape)
    best = regret == regret.min(axis=1, keepdims=True)
    columns = {"scenario": scenario, "regret": regret, "rerolled": rerolled, "selected": best}
    return {name: values.ravel() for name, values in columns.items()}


def test_regret_is_looked_at_around_the_average_of_its_scenario():
    selection = best_of(np.array([[1.0, 3.0], [10.0, 30.0]]), np.array([[2.0, 4.0], [30.0, 10.0]]))
    assert around_average(selection, "regret").tolist() == [-1, 1, -10, 10]
    assert lead_of_selected(selection) == (5.5, (1 - 10) / 2)


def test_all_of_the_advantage_survives_if_it_is_skill_and_nothing_if_it_is_luck():
    regret, other = np.random.default_rng(0).normal(20, 3, (2, 400, 8))
    assert survival(best_of(regret, regret)) == (pytest.approx(1), pytest.approx(0, abs=1e-6))
    share, error = survival(best_of(regret, other))
    assert abs(share) < 4 * error < 0.2


def test_the_share_that_survives_is_that_of_skill_in_the_variance_and_its_error_covers_it():
    covered = []
    for seed in range(60):
        skill, luck, again = np.random.default_rng(seed).normal(0, 1, (3, 50, 6))
        share, error = survival(best_of(skill + luck, skill + again))
        covered.append(abs(share - 0.5) <= 2 * error)
    assert np.mean(covered) > 0.85


def test_nothing_survives_where_nothing_was_better():
    share, error = survival(best_of(np.full((3, 4), 7.0), np.random.default_rng(0).normal(size=(3, 4))))
    assert np.isnan(share)
    assert np.isnan(error)


def test_holm_corrects_the_smallest_p_as_bonferroni_does_and_never_changes_the_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


# --- Stopping early ---


@pytest.mark.parametrize("chance", [0.5, 0.1])  # of the larger of two values: symmetric and skewed
def test_who_looks_after_every_value_is_misled_by_a_t_interval_and_not_by_a_confidence_sequence(chance):
    generator, runs, n = np.random.default_rng(0), 120, 100
    mean = 20 * chance - 10
    values = np.where(generator.random((runs, n)) < chance, 10.0, -10.0)
    bounds = np.stack([confidence_sequence(each, -10, 10) for each in values])
    missed = ((bounds[..., 0] > mean) | (bounds[..., 1] < mean)).any(axis=1)
    assert missed.sum() <= stats.binom.ppf(0.999, runs, 0.05)
    count = np.arange(1, n + 1)
    so_far = values.cumsum(axis=1) / count
    margin = 1.96 * np.sqrt(((values**2).cumsum(axis=1) / count - so_far**2) / count)
    assert (abs(so_far - mean) > margin)[:, 20:].any(axis=1).mean() > 0.15


def test_a_confidence_sequence_narrows_to_the_mean_and_hears_no_later_value():
    values = np.random.default_rng(1).beta(2, 5, 400)
    bounds = confidence_sequence(values, 0, 1)
    assert (np.diff(bounds[:, 0]) >= 0).all()
    assert (np.diff(bounds[:, 1]) <= 0).all()
    assert bounds[-1, 0] < 2 / 7 < bounds[-1, 1]
    assert np.ptp(bounds[-1]) < 0.1
    assert np.array_equal(confidence_sequence(values[:50], 0, 1), bounds[:50])
