"""Tables and metrics: the right numbers beside the right names, and honest verdicts.

Symbols: S training seeds, R replicates, n instances, T rounds.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmft.metrics.comparison import paired_difference
from rmft.metrics.growth import Growth, growth
from rmft.metrics.players import PlayerResults
from rmft.metrics.summary import all_metrics, summarised
from rmft.params import load
from rmft.tables.entropy import entropy_table
from rmft.tables.growth import GrowthRow, PaperGrowth, growth_table
from rmft.tables.layout import (
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    VALUES,
    Estimation,
    RenderedTable,
    direction_verdict,
    errors_apart,
    value_verdict,
)
from rmft.tables.measured import late_failures, regret_statistics
from rmft.tables.methods import TrainedBy, methods_table
from rmft.tables.regret import regret_table
from rmft.tables.replicates import replicates_table
from rmft.tables.sensitivity import sensitivity_table
from rmft.workflow.plan_outputs import table_job

PAPER_FOLDER = Path(__file__).parents[1] / "data/paper"
ROUNDS = np.arange(1, 31)


def linear(
    slopes: dict[str, float], n: int = 12, runs: dict[str, int] | None = None, invalid: int = 0
) -> dict[str, PlayerResults]:
    """Return results in which each player's regret grows by its slope, a little differently in each instance.

    runs: how many training seeds a player has, where it is not one; a later one grows a little faster. invalid: replies
    of a trained model in each game.
    """
    runs = {"base": 2, "trained": 2} if runs is None else runs
    instances = 1 + 0.01 * (np.arange(n) - (n - 1) / 2)
    results = {}
    for player, slope in slopes.items():
        seeds = 1 + 0.001 * np.arange(runs.get(player, 1))
        regret = slope * seeds[:, None, None] * instances[:, None] * ROUNDS
        results[player] = results_of(regret, invalid if player == "trained" else 0)
    return results


def results_of(regret: np.ndarray, invalid: int = 0) -> PlayerResults:
    """Return results of regret (S, n, T) without actions and policies."""
    return PlayerResults(3, regret, None, None, None, np.full(regret.shape[:2], invalid))


def paper_values(header: str, *lines: str) -> pd.DataFrame:
    """Return the paper's values, from lines of a csv."""
    return pd.read_csv(io.StringIO("\n".join([header, *lines])), dtype={"value": str})


def metrics_of(**evaluations: dict[str, PlayerResults]) -> dict:
    """Return the metrics of evaluations of one experiment, mab, by name."""
    return all_metrics([("mab", name, players) for name, players in evaluations.items()], seed=0, floor=None)


def test_metrics_put_every_figure_under_its_experiment_evaluation_and_player():
    first = linear({"base": 3.0, "trained": 2.0, "ucb": 1.0})
    second = linear({"base": 5.0, "trained": 4.0, "ucb": 6.0})
    metrics = metrics_of(gaussian=first, gamma=second)["mab"]
    found = {
        name: [of["base"]["slope"], of["trained"]["slope"], of["algorithms"]["ucb"]["slope"]]
        for name, of in metrics.items()
    }
    assert found == {"gaussian": pytest.approx([3.0015, 2.001, 1]), "gamma": pytest.approx([5.0025, 4.002, 6])}
    assert metrics["gaussian"]["trained"]["mean"] == pytest.approx(2.001 * 30)
    assert metrics["gaussian"]["trained"]["exponent"] == pytest.approx(1)
    assert metrics["gaussian"]["ks_p"] < 0.001
    assert metrics["gaussian"]["n"] == 12


def test_the_growth_table_is_tidy_and_sets_each_row_beside_the_papers():
    results = {"gaussian": linear({"base": 3.0, "trained": 0.665, "ftl": 1.0}, runs={"trained": 2})}
    paper = paper_values(
        "reward,player,statistic,value,interchanged_with",
        "gaussian,trained,beta_hat,0.665,",
        "gaussian,trained,p_reg,<0.001,",
    )
    tidy = growth_table(Estimation(0, "simplex-table", 50), results, paper, {}).tidy
    assert list(tidy.columns) == ["reward", "player", *VALUES]
    slope = tidy[(tidy.player == "trained") & (tidy.statistic == "slope")].iloc[0]
    assert (slope.ours, slope.paper, slope.verdict) == (pytest.approx(0.665, rel=1e-3), 0.665, REPRODUCED)
    assert set(tidy.player) == {"trained", "ftl"}


@pytest.mark.parametrize(("exponent", "verdict"), [(0.7, INCONCLUSIVE), (1.1, INCONCLUSIVE), (1.2, NOT_REPRODUCED)])
def test_where_uniform_plays_regret_is_not_linear_no_exponent_shows_slow_growth(exponent, verdict):
    fit = Growth(exponent, 1e-9, 0, 0.6, 1e-9)
    assert (
        GrowthRow("x", "trained", fit, 0.03, 0.06, 0.03, PaperGrowth(0.332, None, None), 1000, None).slope_verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("slope", "error", "exponent", "paper", "interchanged", "verdict"),
    [
        (0.3324, 0.0, 0.7, 0.332, None, REPRODUCED),
        (0.36, 0.03, 0.7, 0.332, None, REPRODUCED),
        (0.38, 0.03, 0.7, 0.332, None, INCONCLUSIVE),  # farther than a tenth of the paper's value
        (0.60, 0.03, 0.7, 0.332, None, DIRECTION_ONLY),
        (0.60, 0.03, 0.88, 0.332, None, NOT_REPRODUCED),  # not below .95 by two standard errors
        (0.60, 0.03, 1.1, 0.332, None, NOT_REPRODUCED),
        (0.60, 0.50, 0.7, 0.332, None, INCONCLUSIVE),
        (0.60, 0.50, 1.2, 0.332, None, NOT_REPRODUCED),  # grows faster than linearly, whatever the slope
        (0.60, 0.03, 0.7, 0.332, 0.61, INCONSISTENT),
        (0.60, 0.03, 0.7, 0.332, 0.90, DIRECTION_ONLY),
        (0.60, 0.03, 0.7, None, None, ""),
    ],
)
def test_a_verdict_says_what_became_of_the_papers_value(slope, error, exponent, paper, interchanged, verdict):
    fit = Growth(exponent, 1e-9, 0, slope, 1e-9)
    row = GrowthRow("gaussian", "trained", fit, error, 0.05, error, PaperGrowth(paper, None, interchanged), 1000)
    assert row.slope_verdict == verdict
    reference = replace(row, player="ftl")  # of which the paper does not claim that its regret grows slowly
    assert reference.slope_verdict == (NOT_REPRODUCED if verdict == DIRECTION_ONLY else reference.slope_verdict)


def test_the_error_of_a_mean_final_regret_counts_training_seeds_and_instances():
    regret = np.array([[[1.0, 0.0]] * 4, [[1.0, 10.0]] * 4])  # two seeds; the instances are alike
    metrics = metrics_of(adaptive={"base": results_of(regret), "trained": results_of(regret)})["mab"]["adaptive"]
    assert metrics["trained"]["se"] == pytest.approx(5)


def test_a_difference_without_spread_is_infinitely_many_standard_errors():
    assert errors_apart(0.5, 1e-17, 0.4) == np.inf
    assert errors_apart(0.3324, 0.0, 0.332) == 0
    assert errors_apart(0.5, 0.05, 0.4) == pytest.approx(1.99)  # 0.4 may be 0.4005, rounded


# --- Language models: one base model, one or several training seeds ---


def test_every_training_seed_is_compared_with_the_one_base_model():
    metrics = metrics_of(gamma=linear({"base": 3.0, "trained": 2.0}, runs={"trained": 3}, invalid=2))
    found = metrics["mab"]["gamma"]
    assert [of["mean"] for of in found["by_training_seed"]] == pytest.approx([60.0, 60.06, 60.12])
    assert all(of["ks_p"] < 0.001 and of["paired_p"] < 1e-6 for of in found["by_training_seed"])
    assert found["ks_p"] == np.median([of["ks_p"] for of in found["by_training_seed"]])
    assert found["invalid_replies"] == {"base": 0, "trained": 3 * 12 * 2}
    assert summarised(metrics)["mab"]["gamma"]["invalid_replies"] == 72


def test_metrics_compare_the_trained_model_with_every_algorithm_and_know_the_error_of_its_exponent():
    rng, rounds = np.random.default_rng(0), np.arange(1, 41)
    power = {
        "base": np.full(30, 0.9),
        "trained": rng.normal(0.6, 0.1, 30),
        "low": np.full(30, 0.2),
        "uniform": np.ones(30),
    }
    results = {player: results_of((rounds ** exponents[:, None])[None]) for player, exponents in power.items()}
    found = metrics_of(gaussian=results)["mab"]["gaussian"]
    for algorithm, above in (("low", True), ("uniform", False)):
        low, mean, high = found["algorithms"][algorithm]["paired_difference"]
        assert mean == pytest.approx((40.0 ** power["trained"] - 40.0 ** power[algorithm]).mean())
        assert low < mean < high
        assert (low > 0) is above
        assert (high < 0) is not above
    exponents = []
    for seed in range(150):
        again = np.random.default_rng(1000 + seed).normal(0.6, 0.1, 30)
        exponents.append(growth((rounds[:, None] ** again).mean(axis=1)).exponent)
    assert found["trained"]["exponent_se"] == pytest.approx(np.std(exponents), rel=0.4)


def test_metrics_say_how_many_instances_the_observed_difference_needs():
    fall = np.random.default_rng(0).normal(1.0, 2.0, 40)
    high, low = results_of(np.full((1, 40, 1), 20.0)), results_of((20 - fall)[None, :, None])
    metrics = metrics_of(lower={"base": high, "trained": low}, higher={"base": low, "trained": high})["mab"]
    found = {name: of["power"] for name, of in metrics.items()}
    assert found["lower"]["difference_sd"] == pytest.approx(fall.std(ddof=1))
    near = 13.02 * (fall.std(ddof=1) / fall.mean()) ** 2  # (z_0.99 + z_0.9)² sd² / mean², for many instances
    assert found["lower"]["instances_needed"] == pytest.approx(near + 2.7, abs=1.5)
    assert found["higher"]["instances_needed"] is None


# --- Tables of regret ---

PAPER = {("ftrl", ""): (1.0, 30.0, 1.0), ("base", "gemma"): (5.0, 100.0, 0.9), ("trained", "gemma"): (4.0, 90.0, 1.0)}
SLOPES = {"base": 3.0, "trained": 2.0, "ftrl-50": 1.0, "uniform": 4.0}


def regret_of(model: str, runs: int = 1, horizon: int = 30, n: int = 12) -> RenderedTable:
    """Return the table of regret that grows by SLOPES, beside a paper that has eight instances."""
    lines = [
        f"gaussian,{player},{of},{horizon},8,{statistic},{value}"
        for (player, of), values in PAPER.items()
        for statistic, value in zip(("max", "mean", "exponent"), values, strict=True)
    ]
    paper = paper_values("reward,player,model,T,instances,statistic,value", *lines)
    results = {"gaussian": linear(SLOPES, runs={"trained": runs}, n=n)}
    table = regret_table(Estimation(0, "own", 40), results, paper, {"ftrl-50": "ftrl"}, model)
    assert list(table.tidy.columns) == ["reward", "player", "instances", *VALUES]
    return table


def regret_rows(*arguments: object, **keywords: object) -> pd.DataFrame:
    """Return the tidy table of `regret_of`, by player, instances and statistic."""
    return regret_of(*arguments, **keywords).tidy.set_index(["player", "instances", "statistic"]).sort_index()


def test_regret_is_shown_on_as_many_instances_as_the_papers_and_on_all():
    tidy = regret_rows("embedded")
    instances = 1 + 0.01 * (np.arange(12) - 5.5)  # times 30 rounds: final regrets of the player of slope 1
    largest = np.mean([instances[list(chosen)].max() for chosen in combinations(range(12), 8)])
    ours = tidy.loc["ftrl-50"].ours
    assert ours[8, "max"] == ours[8, "max_of_all"] == pytest.approx(30 * instances[:8].max())
    assert ours[12, "max"] == pytest.approx(30 * largest)
    assert ours[12, "max_of_all"] == pytest.approx(30 * instances.max())
    assert ours[8, "mean"] == pytest.approx(30 * instances[:8].mean())
    assert ours[12, "mean"] == pytest.approx(30)
    assert [ours[n, "exponent"] for n in (8, 12)] == pytest.approx([1, 1])
    assert ours[12, "slope"] == pytest.approx(1)


def test_another_model_than_the_papers_is_compared_in_direction_alone_and_algorithms_in_value():
    verdicts = regret_rows("embedded").verdict
    assert verdicts["ftrl-50", 12, "mean"] == REPRODUCED
    assert verdicts["ftrl-50", 12, "max"] == verdicts["trained", 12, "max"] == ""  # a maximum has no standard error
    assert set(verdicts["base"]) == {""}
    assert verdicts["trained", 12, "mean"] == DIRECTION_ONLY
    assert verdicts["trained", 12, "exponent"] == ""  # the paper's does not fall
    assert set(verdicts["uniform"]) == {""}


def test_the_papers_model_is_compared_in_value_if_several_training_seeds_tell_runs_apart():
    once, thrice = (regret_rows("gemma", runs).verdict for runs in (1, 3))
    for verdicts in (once, thrice):
        assert verdicts["base", 12, "mean"] == NOT_REPRODUCED  # 90, and 100 in the paper
    assert once["trained", 12, "exponent"] == ""
    assert thrice["trained", 12, "exponent"] == REPRODUCED
    assert thrice["trained", 12, "mean"] == DIRECTION_ONLY  # 60, and 90 in the paper: not its value, but a fall


def test_games_of_another_length_have_no_verdict():
    table = regret_of("gemma", horizon=31)
    assert set(table.tidy.verdict) == {""}
    assert table.notes[-1].startswith("No verdicts")


def test_on_fewer_instances_than_the_papers_there_is_a_direction_and_no_value():
    verdicts = regret_rows("gemma", runs=3, n=7).verdict
    assert verdicts["trained", 7, "mean"] == DIRECTION_ONLY
    assert verdicts["trained", 7, "exponent"] == ""
    assert set(verdicts["ftrl-50"]) == set(verdicts["base"]) == {""}


def test_regret_has_the_papers_shape_with_its_lines_above_ours(tmp_path):
    regret_of("embedded").save(tmp_path / "own")
    lines = (tmp_path / "own.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells[0] == ["player", "", "gaussian max(LR)", "gaussian avg(LR)", "gaussian exponent"]
    assert [row[:2] for row in cells[2:6]] == [
        ["ftrl-50", "paper"], ["ftrl-50", "ours, n = 8"], ["ftrl-50", "ours, n = 12"], ["ftrl-50", "verdict"],
    ]  # fmt: skip
    assert ["trained", "paper, gemma", "4.00", "90.00", "1.00"] in cells
    assert ["base", "ours, embedded, n = 12"] in [row[:2] for row in cells]


@pytest.mark.parametrize(
    ("ours", "error", "paper", "verdict"),
    [
        (28.9, 1.0, 27.99, REPRODUCED),
        (28.9, 6.0, 27.99, REPRODUCED),
        (28.9, 7.0, 27.99, INCONCLUSIVE),  # two errors and the difference are more than half of the paper's value
        (31.0, 2.0, 27.99, INCONCLUSIVE),  # farther than a tenth of it
        (30.5, 1.0, 27.99, NOT_REPRODUCED),
        (27.994, 0.0, 27.99, REPRODUCED),
        (28.9, math.nan, 27.99, INCONCLUSIVE),
    ],
)
def test_a_value_is_the_papers_if_it_is_near_and_significantly_so(ours, error, paper, verdict):
    assert value_verdict(ours, error, paper, 1000, decimals=2) == verdict


def test_of_few_trainings_a_value_must_lie_further_from_the_papers_to_be_another():
    of_few, of_many = (value_verdict(30.5, 1.0, 27.99, sample, decimals=2) for sample in (5, 100))
    assert (of_few, of_many) == (REPRODUCED, NOT_REPRODUCED)


@pytest.mark.parametrize(
    ("ours", "margin", "paper", "verdict"),
    [
        (-3.0, 2.0, -0.01, DIRECTION_ONLY),
        (-1.9, 2.0, -9.0, INCONCLUSIVE),
        (3.0, 2.0, -9.0, NOT_REPRODUCED),
        (-3.0, 2.0, 4.0, ""),
        (3.0, 2.0, 4.0, ""),
        (-3.0, math.nan, -9.0, INCONCLUSIVE),
        (-1e-15, 0.0, -9.0, INCONCLUSIVE),  # the rounding of a sum
    ],
)
def test_a_fall_of_the_papers_is_one_of_ours_if_that_is_sure(ours, margin, paper, verdict):
    assert direction_verdict(ours, margin, paper) == verdict


def test_a_fall_of_a_mean_is_sure_as_by_the_paired_t_test():
    after, before = (np.random.default_rng(seed).normal(size=16) for seed in (0, 1))
    estimation = Estimation(0, "x", 2000)
    of = [
        regret_statistics(estimation, "r", "x", results_of(games[None, :, None] * np.ones(5)), 16)[0]
        for games in (after, before)
    ]
    difference, margin = of[0].above(of[1], "mean")
    paired = paired_difference(after[None], before[None])
    assert (difference, margin) == pytest.approx((paired.mean, paired.high - paired.mean), rel=0.06)


def test_a_maximum_has_no_error_unless_all_games_are_alike():
    final = np.random.default_rng(0).exponential(size=30)
    estimation = Estimation(0, "x", 50)
    of, alike = (
        regret_statistics(estimation, "r", "base", results_of(games[None, :, None] * np.arange(1, 6)), 30)[0]
        for games in (final, np.ones(30))
    )
    assert math.isnan(of.error("max"))
    assert alike.error("max") == 0
    assert of.error("mean") == pytest.approx(5 * final.std(ddof=1) / np.sqrt(30), rel=0.3)


@pytest.mark.parametrize(("failing", "others", "sure"), [(0, 2, False), (2, 0, False), (0, 15, True), (50, 30, True)])
def test_shares_of_failures_differ_surely_by_the_errors_of_both_players(failing, others, sure):
    estimation, n, horizon = Estimation(0, "x", 200), 50, 10
    best = np.zeros((1, n, horizon), dtype=int)
    first, second = (
        replace(
            results_of(np.ones((1, n, horizon)).cumsum(axis=2)),
            actions=best + (np.arange(n) < m)[:, None],
            best_actions=best,
        )
        for m in (failing, others)
    )
    ours, beside = (regret_statistics(estimation, "r", name, of, n)[0] for name, of in (("a", first), ("b", second)))
    for one, other in ((ours, beside), (beside, ours)):
        difference, margin = one.above(other, "suff_fail_freq")
        assert (abs(difference) > margin) is sure


def test_trainings_that_fail_differently_are_not_surely_worse_than_a_player_that_never_fails():
    n, best, at = 50, np.zeros((3, 50, 10), dtype=int), np.arange(50)
    failing = np.stack([at < m for m in (0, 5, 40)])[..., None]
    regret = np.ones((3, n, 10)).cumsum(axis=2)
    players = {
        "trained": replace(results_of(regret), actions=best + failing, best_actions=best),
        "base": replace(results_of(regret[:1]), actions=best[:1], best_actions=best[:1]),
    }
    of = {name: regret_statistics(Estimation(0, "x", 200), "r", name, played, n)[0] for name, played in players.items()}
    difference, margin = of["trained"].above(of["base"], "suff_fail_freq")
    assert difference == pytest.approx(0.3)
    assert difference < margin


def test_the_error_of_a_single_run_is_over_instances_and_between_trainings():
    generator, n, seeds = np.random.default_rng(0), 400, 3
    final = generator.normal(0, 1, n) + generator.normal(0, 1, (seeds, n)) + np.array([[-1.0], [0.0], [1.0]])
    played = results_of(10 + final[..., None] * np.ones(5))
    of = regret_statistics(Estimation(0, "x", 400), "r", "trained", played, n)[0]
    one_run = math.sqrt(of.error_to_paper("mean") ** 2 - of.error("mean") ** 2)
    assert one_run == pytest.approx(1.0, rel=0.1)  # nearly all of it between trainings


def test_late_failures_count_games_in_which_what_is_best_is_not_played_once_at_the_end():
    rng, n, horizon = np.random.default_rng(0), 60, 100
    actions, best = (rng.integers(3, size=(2, n, horizon)) for _ in "ab")
    actions[:, :20, 97:] = (best[:, :20, 97:] + 1) % 3  # certainly never at the end: rounds 98, 99, 100
    played = PlayerResults(3, np.zeros((2, n, horizon)), actions, best, None, np.zeros((2, n)))
    by_hand = [
        [all(actions[s, i, t - 1] != best[s, i, t - 1] for t in range(98, 101)) for i in range(n)] for s in range(2)
    ]
    assert 20 < np.sum(by_hand[0]) < n
    assert late_failures(played).tolist() == by_hand


@pytest.mark.parametrize(
    "label",
    ["open-FOL-indist", "open-FOL-indist-appendix-A2", "FOL-indist", "FOL-ood-horizon", "FOL-ood-gemini",
     "FOL-ood-reward", "FOL-ood-action", "nsmab"],
)  # fmt: skip
def test_every_value_of_the_paper_on_regret_has_a_player_of_ours(label):
    params = load()
    job = table_job(params, label, None)
    paper = pd.read_csv(PAPER_FOLDER / f"{label}.csv")
    (experiment,) = job.table.experiments
    evaluations = params.experiments[experiment].evaluations
    assert len(paper) == 3 * 3 * len(job.sources)  # three statistics of three players
    assert [evaluation for _, evaluation in job.sources] == list(dict.fromkeys(paper.reward))
    assert set(paper.model.dropna()) == set(job.models) == {params.experiments[experiment].model}
    assert set(paper.player) - {"base", "trained"} == set(job.table.beside.values() or {"rexp3"})
    for _, evaluation in job.sources:
        printed = paper[paper.reward == evaluation]
        assert {evaluations[evaluation].T} == set(printed["T"])
        assert {evaluations[evaluation].instances} == set(printed.instances) == {50}
        assert set(job.table.beside or {"rexp3"}) <= set(evaluations[evaluation].algorithms)


# --- Tables of methods ---

METHODS = tuple(
    TrainedBy(name, name.upper(), played, learnt, cut=False)
    for name, played, learnt in (("ours", 90, 9), ("worse", 9, 9), ("better", 18, 18))
)


def compared(
    slopes: dict[str, float], model: str = "embedded", methods: Sequence[TrainedBy] = METHODS
) -> RenderedTable:
    """Return the table of methods whose trained models have regret that grows by slopes."""
    results = {
        (name, "gaussian"): linear({"base": 3.0, "trained": slope}, runs={"trained": 2})
        for name, slope in slopes.items()
    }
    means = {"base": 90.0, "worst": 58.0, "best": 30.0, "first": 22.0}
    lines = [f"{player},gemma,30,mean,{value}" for player, value in means.items()]
    paper = paper_values("player,model,T,statistic,value", *lines)
    beside = {"base": "base", "ours": "first", "worse": "worst", "better": "best"}
    return methods_table(Estimation(0, "own", 100), methods, results, paper, beside, model)


def test_methods_are_compared_with_the_first_game_by_game_and_it_comes_last():
    table = compared({"ours": 1.0, "worse": 2.0, "better": 0.5})
    tidy = table.tidy.set_index(["method", "statistic"])
    assert list(table.shaped["method"]) == ["base model", "WORSE", "BETTER", "OURS"]
    instances = 30 * (1 + 0.01 * (np.arange(12) - 5.5)) * 1.0005  # of the player of slope 1
    for method, times in (("WORSE", 1.0), ("BETTER", -0.5)):
        difference, low, high = (tidy.ours[method, f"difference{end}"] for end in ("", "_low", "_high"))
        assert difference == pytest.approx(times * instances.mean())
        assert min(times * instances) < low < difference < high < max(times * instances)
        paired = times**2 * instances.var(ddof=1) / 12  # of the differences
        runs = np.var([30 * times, 30.03 * times], ddof=1) / 2  # of the differences, too: trainings are paired by seed
        assert tidy.standard_error[method, "difference"] == pytest.approx(math.sqrt(paired + runs))
    assert ("OURS", "difference") not in tidy.index
    assert tidy.played["WORSE", "mean"] == 9
    assert tidy.ours["base model", "mean"] == pytest.approx(90)


def test_the_sign_of_a_difference_is_compared_with_the_papers():
    table = compared({"ours": 1.0, "worse": 2.0, "better": 0.5})
    verdicts = table.tidy.set_index(["method", "statistic"]).verdict
    assert verdicts["WORSE", "difference"] == verdicts["base model", "difference"] == DIRECTION_ONLY
    assert verdicts["BETTER", "difference"] == NOT_REPRODUCED  # in the paper it is worse, too
    assert set(verdicts.xs("mean", level="statistic")) == {""}  # another model plays
    alike = compared({"ours": 1.0, "worse": 1.0, "better": 0.5}).tidy
    assert alike.set_index(["method", "statistic"]).verdict["WORSE", "difference"] == INCONCLUSIVE


def test_values_of_methods_are_compared_where_the_papers_model_plays():
    table = compared({"ours": 0.74, "worse": 3.0, "better": 0.5}, model="gemma")
    verdicts = table.tidy.set_index(["method", "statistic"]).verdict
    assert verdicts["OURS", "mean"] == REPRODUCED  # 22.2, and 22 in the paper
    assert verdicts["WORSE", "mean"] == NOT_REPRODUCED  # 90, and 58


def test_a_method_that_was_given_less_than_its_budget_has_no_verdict():
    cut = tuple(replace(of, cut=of.experiment == "worse") for of in METHODS)
    slopes = {"ours": 0.74, "worse": 2.0, "better": 0.5}
    table = compared(slopes, model="gemma", methods=cut)
    verdicts = table.tidy.set_index(["method", "statistic"]).verdict
    assert set(verdicts["WORSE"]) == {""}
    assert verdicts["OURS", "mean"] == REPRODUCED


def test_methods_are_cut_at_the_scale_that_says_so_and_their_names_tell():
    params, label = load(), "qwen-ad-grpo-comparison"
    assert not any(of.cut for of in table_job(params, label, None).methods)
    names = {of.experiment: of.name for of in table_job(params.at_scale(), label, None).methods if of.cut}
    assert names["mab_distil_ucb_iml"] == "AD of ucb, IML cut to 192 of 768"


def test_every_value_of_the_paper_on_methods_is_one_that_an_experiment_stands_beside():
    params, label = load(), "qwen-ad-grpo-comparison"
    paper = pd.read_csv(PAPER_FOLDER / f"{label}.csv")
    beside = params.tables[label].beside
    assert set(beside.values()) == set(paper.player)
    job = table_job(params, label, None)
    assert set(paper.model) == {job.models[0]}
    assert {of.experiment: of.learnt for of in job.methods}["mab_distil_ucb_2iml"] == 6000


@pytest.mark.parametrize("label", ["simplex-table", "l2ball-table"])
def test_every_value_of_the_paper_has_a_row_of_ours(label):
    params = load()
    job = table_job(params, label, None)
    played = {
        (evaluation, player)
        for experiment, evaluation in job.sources
        for player in ["trained", *params.experiments[experiment].evaluations[evaluation].algorithms]
    }
    paper = pd.read_csv(PAPER_FOLDER / f"{label}.csv")
    assert len(paper) == 7 * 4 * 2
    assert set(zip(paper.reward, paper.player, strict=True)) <= played


# --- Ablations ---


def test_sensitivity_compares_settings_that_differ_in_one_thing_on_common_instances():
    experiments = [
        ((8, 1, 3, 1.0), linear({"base": 3.0, "trained": 2.5}, n=20)),
        ((2, 1, 2, 1.0), linear({"base": 3.0, "iteration-1": 2.0, "trained": 1.5})),
        ((5, 1, 1, 0.2), linear({"base": 3.0, "trained": 1.8})),
        ((5, 1, 1, 1.0), linear({"base": 3.0, "trained": 1.9})),
        ((2, 1, 3, 1.0), linear({"base": 3.0, "trained": 1.4})),
    ]
    experiments = {f"of_{number}": of for number, of in enumerate(experiments)}
    table = sensitivity_table(experiments, pd.read_csv(PAPER_FOLDER / "param-sensitivity-qwen.csv"), "embedded")
    tidy = table.tidy.set_index(["trajectories", "iterations", "temperature", "statistic"]).sort_index()
    assert set(tidy.instances) == {12}
    assert set(tidy.loc[(2, 1, 1.0), "experiment"]) == set(tidy.loc[(2, 2, 1.0), "experiment"]) == {"of_1"}
    rounds, instances = 30, 1 + 0.01 * (np.arange(12) - 5.5)
    fewer = 2.5 * rounds * (1 + 0.01 * (np.arange(12) - 9.5))  # the first 12 of 20; two training seeds
    assert tidy.loc[(8, 3, 1.0, "mean"), "ours"].item() == pytest.approx(fewer.mean() * 1.0005)
    assert tidy.loc[(8, 3, 1.0, "mean"), "paper"].item() == 33.08  # whatever its values: it is the paper's default
    assert "33.08 ± 24.82 (22.37 elsewhere)" in set(table.shaped["paper"])  # the paper has two values for one setting
    assert tidy.loc[(2, 1, 1.0, "mean"), "paper"].item() == 31.05
    assert tidy.loc[(2, 1, 1.0, "sd"), "ours"].item() == pytest.approx((2 * rounds * instances).std(ddof=1))
    changed = tidy[tidy.index.get_level_values("statistic").str.startswith("change")]
    assert math.isnan(changed.loc[(8, 3, 1.0, "change_from_trajectories_2"), "paper"])  # of an unknown setting
    assert changed.loc[(8, 3, 1.0, "change_from_trajectories_2"), "verdict"] == ""
    changes = changed.drop([8], level="trajectories").droplevel([0, 1, 2])
    assert dict(zip(changes.index, changes.verdict, strict=True)) == {
        "change_from_iterations_1": DIRECTION_ONLY,
        "change_from_iterations_2": DIRECTION_ONLY,
        "change_from_temperature_0.2": NOT_REPRODUCED,
        "change_from_trajectories_2": DIRECTION_ONLY,
    }
    assert changes.loc["change_from_temperature_0.2", "ours"] == pytest.approx(0.1 * rounds * 1.0005)
    assert changes.loc["change_from_temperature_0.2", "paper"] == pytest.approx(24.00 - 35.28)


def replicates(gain: float, n: int = 60) -> dict[str, np.ndarray]:
    """Return the final regrets (3, n) of three replicates of base and trained model."""
    rng = np.random.default_rng(3)
    task = rng.normal(40, 20, n)
    return {"base": task + rng.normal(0, 4, (3, n)), "trained": task - gain + rng.normal(0, 3, (3, n))}


def replicate_table(final: dict[str, np.ndarray]) -> RenderedTable:
    """Return the table of final regrets (R, n)."""
    results = {player: results_of(regrets[..., None]) for player, regrets in final.items()}
    paper = pd.read_csv(PAPER_FOLDER / "replicate-robustness.csv")
    return replicates_table(Estimation(0, "own", 200), results, paper, "embedded")


@pytest.mark.parametrize(("gain", "verdict"), [(4.0, DIRECTION_ONLY), (-4.0, NOT_REPRODUCED), (0.0, INCONCLUSIVE)])
def test_replicates_are_compared_with_tasks_and_show_how_many_games_it_takes(gain, verdict):
    final = replicates(gain)
    base, trained = final["base"], final["trained"]
    tidy = replicate_table(final).tidy.set_index(["player", "statistic"])
    ours, paper = tidy.ours, tidy.paper
    assert ours["base", "setting_sd"] == pytest.approx(base.std(axis=0, ddof=1).mean())
    assert ours["trained", "mean"] == pytest.approx(trained.mean())
    assert tidy.verdict["base", "replicate_above_between"] == DIRECTION_ONLY
    assert tidy.verdict["trained", "fall"] == verdict
    assert paper["trained", "fall"] == pytest.approx(4.17)
    assert paper["trained", "instances_unpaired"] == pytest.approx(2 * 6.1826 * (25 / 4.17) ** 2, abs=2)
    assert paper["trained", "instances_paired"] == pytest.approx(
        6.1826 * (8.86**2 + 8.13**2) / (0.8862 * 4.17) ** 2, abs=3
    )  # the mean sd of three values is 0.8862 σ
    assert paper["trained", "replicates_paired"] == 2
    if gain > 0:
        sd = (base[0] - trained[0]).std(ddof=1)
        near = 6.1826 * (sd / ours["trained", "fall"]) ** 2
        assert ours["trained", "instances_paired"] == pytest.approx(near, rel=0.5)
        assert ours["trained", "instances_paired"] < ours["trained", "instances_unpaired"] / 5
    else:
        assert gain == 0 or np.isnan(ours["trained", "instances_paired"])


# Of three trainings. Their mean is more than two standard errors above 0, and fewer than the 4.3 of Student's t.
GAINS = np.array([2.0, 4.5, 7.0])


def test_a_fall_is_no_surer_than_three_trainings_make_it():
    base = np.random.default_rng(0).normal(40, 8, (3, 50))
    tidy = replicate_table({"base": base, "trained": base - GAINS[:, None]}).tidy.set_index(["player", "statistic"])
    assert tidy.standard_error["trained", "fall"] == pytest.approx(2.5 / 3**0.5)
    assert tidy.verdict["trained", "fall"] == INCONCLUSIVE
    regrets = {"base": base[:1, :, None], "trained": base[0, :, None] - GAINS[:, None, None]}
    ours = {
        player: regret_statistics(Estimation(0, "own", 200), "gaussian", player, results_of(of), 50)[0]
        for player, of in regrets.items()
    }
    fall, margin = ours["trained"].above(ours["base"], "mean")
    assert (fall, margin) == pytest.approx((-4.5, 4.303 * 2.5 / 3**0.5), rel=1e-3)


def test_replicates_are_not_closer_together_than_tasks_that_are_all_alike():
    verdicts = []
    for seed in range(12):
        base, trained = np.random.default_rng(seed).normal(40, 8, (2, 3, 50))
        tidy = replicate_table({"base": base, "trained": trained}).tidy
        assert (tidy[tidy.statistic == "setting_over_task"].ours < 1.1).all()  # which shows nothing
        verdicts += list(tidy[tidy.statistic == "replicate_above_between"].verdict)
    assert DIRECTION_ONLY not in verdicts
    assert NOT_REPRODUCED in verdicts


def test_replicates_and_tasks_that_are_all_alike_raise_no_error():
    table = replicate_table({"base": np.full((3, 2), 3.0), "trained": np.full((3, 2), 2.0)})
    assert "base - trained" in list(table.shaped[""])


def test_entropy_is_that_of_every_policy_and_its_change_is_paired():
    uniform, decided = np.full(3, 1 / 3), np.array([1.0, 0.0, 0.0])
    results = {}
    for player, uniforms in (("base", 4), ("trained", 1)):
        policies = [uniform] * uniforms + [decided] * (4 - uniforms)
        results[player] = replace(results_of(np.zeros((1, 2, 4))), policies=np.array([[policies] * 2]))
    table = entropy_table({("fol", "gaussian"): results})
    ours = table.tidy.set_index(["player", "statistic"]).ours
    assert [ours["base", name] for name in ("entropy", "decided", "extreme")] == pytest.approx([1, 0, 0])
    assert ours["trained"].to_dict() == pytest.approx(
        {"entropy": 0.25, "entropy_late": 0, "decided": 0.75, "extreme": 0.5, "entropy_change": -0.75}
    )


def test_every_setting_of_the_papers_table_is_one_of_ours():
    params = load()
    job = table_job(params, "param-sensitivity-qwen", None)
    ours = {
        (of.trajectories, of.selected, iterations, of.temperature)
        for (experiment, evaluation), of in zip(job.sources, job.loops, strict=True)
        for iterations in [*params.experiments[experiment].evaluations[evaluation].iterations, of.iterations]
    }
    frame = pd.read_csv(PAPER_FOLDER / "param-sensitivity-qwen.csv")
    printed = frame[["trajectories", "selected", "iterations", "temperature"]].dropna()
    assert set(map(tuple, printed.to_numpy())) <= ours
    assert set(frame["T"]) == {params.experiments["mab_l2"].evaluations["gaussian-100"].T}
