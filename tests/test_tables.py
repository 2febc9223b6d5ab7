"""Tables and metrics: the right numbers beside the right names, and honest verdicts."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmft.artifacts.evaluations import write_evaluation
from rmft.metrics.growth import Growth, growth
from rmft.metrics.players import PlayerResults
from rmft.metrics.summary import all_metrics, summarised
from rmft.params import load
from rmft.params.language import LanguageRMFT
from rmft.params.outputs import Table as TableParams
from rmft.results import read_players
from rmft.stages.tables import make
from rmft.tables.growth import GrowthRow, PaperGrowth
from rmft.tables.layout import (
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    VALUES,
    RenderedTable,
    direction_verdict,
    errors_apart,
    value_verdict,
)
from rmft.tables.measured import late_failures
from rmft.workflow.plan import table_job
from rmft.workflow.records import Method, TableJob

ROUNDS = np.arange(1, 31)


def write_linear(
    path: Path, slopes: dict[str, float], n: int = 12, runs: dict[str, int] | None = None, invalid: int = 0
) -> Path:
    """Write an evaluation in which each player's regret grows by its slope, a little differently in each instance.

    runs: how many training seeds a player has, where it is not one; a later one grows a little faster. invalid: replies
    of a trained model in each game.
    """
    runs = {"base": 2, "trained": 2} if runs is None else runs
    rows = [
        {
            "player": player, "training_seed": seed, "instance": i, "d": 3,
            "regret": slope * (1 + 0.01 * (i - (n - 1) / 2)) * (1 + 0.001 * seed) * ROUNDS,
            "invalid": invalid if player == "trained" else 0,
        }
        for player, slope in slopes.items()
        for seed in range(runs.get(player, 1))
        for i in range(n)
    ]  # fmt: skip
    return write_games(path, rows)


def write_games(path: Path, rows: list[dict]) -> Path:
    """Write an evaluation without actions and policies."""
    write_evaluation(path, pd.DataFrame(rows).assign(action=None, best_action=None, policy=None))
    return path


def metrics_of(files: dict[str, Path]) -> dict:
    """Return the metrics of evaluations of one experiment, mab, by name."""
    return all_metrics([("mab", name, read_players(file)) for name, file in files.items()], seed=0, floor=None)


def test_metrics_put_every_figure_under_its_experiment_evaluation_and_player(tmp_path):
    first = write_linear(tmp_path / "a.parquet", {"base": 3.0, "trained": 2.0, "ucb": 1.0})
    second = write_linear(tmp_path / "b.parquet", {"base": 5.0, "trained": 4.0, "ucb": 6.0})
    metrics = metrics_of({"gaussian": first, "gamma": second})["mab"]
    found = {
        name: [of["base"]["slope"], of["trained"]["slope"], of["algorithms"]["ucb"]["slope"]]
        for name, of in metrics.items()
    }
    assert found == {"gaussian": pytest.approx([3.0015, 2.001, 1]), "gamma": pytest.approx([5.0025, 4.002, 6])}
    assert metrics["gaussian"]["trained"]["mean"] == pytest.approx(2.001 * 30)
    assert metrics["gaussian"]["trained"]["exponent"] == pytest.approx(1)
    assert metrics["gaussian"]["ks_p"] < 0.001
    assert metrics["gaussian"]["n"] == 12


def test_the_growth_table_is_tidy_and_sets_each_row_beside_the_papers(tmp_path):
    evaluation = write_linear(
        tmp_path / "gaussian.parquet", {"base": 3.0, "trained": 0.665, "ftl": 1.0}, runs={"trained": 2}
    )
    paper = tmp_path / "paper.csv"
    paper.write_text(
        "reward,player,statistic,value,interchanged_with\ngaussian,trained,beta_hat,0.665,\ngaussian,trained,p_reg,<0.001,\n",
        encoding="utf-8",
    )
    job = TableJob(
        seed=0, label="simplex-table", table=TableParams(form="growth", experiments=["simplex"]), models=["linear"],
        sources=[("simplex", "gaussian")], floor=None, resamples=400, theory_rows=0, scale_note=None,
    )  # fmt: skip
    tidy = make(job, [evaluation, paper]).tidy
    assert list(tidy.columns) == ["reward", "player", *VALUES]
    slope = tidy[(tidy.player == "trained") & (tidy.statistic == "slope")].iloc[0]
    assert (slope.ours, slope.paper, slope.verdict) == (pytest.approx(0.665, rel=1e-3), 0.665, REPRODUCED)
    assert set(tidy.player) == {"trained", "ftl"}


@pytest.mark.parametrize(
    ("slope", "error", "exponent", "paper", "interchanged", "verdict"),
    [
        (0.3324, 0.0, 0.7, 0.332, None, REPRODUCED),
        (0.38, 0.03, 0.7, 0.332, None, REPRODUCED),
        (0.60, 0.03, 0.7, 0.332, None, DIRECTION_ONLY),
        (0.60, 0.03, 0.95, 0.332, None, NOT_REPRODUCED),  # not below 1 by two standard errors
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
    row = GrowthRow("gaussian", "trained", fit, error, 0.05, error, PaperGrowth(paper, None, interchanged))
    assert row.slope_verdict == verdict


def test_the_error_of_a_mean_final_regret_counts_training_seeds_and_instances(tmp_path):
    rows = [
        {
            "player": player,
            "training_seed": seed,
            "instance": i,
            "d": 3,
            "regret": np.array([1.0, 10.0 * seed]),
            "invalid": 0,
        }
        for player in ("base", "trained")
        for seed in range(2)
        for i in range(4)
    ]
    write_games(tmp_path / "a.parquet", rows)
    metrics = metrics_of({"adaptive": tmp_path / "a.parquet"})["mab"]["adaptive"]
    assert metrics["trained"]["se"] == pytest.approx(5)  # seeds 0 and 10; the instances are alike


def test_a_difference_without_spread_is_infinitely_many_standard_errors():
    assert errors_apart(0.5, 1e-17, 0.4) == np.inf
    assert errors_apart(0.3324, 0.0, 0.332) == 0
    assert errors_apart(0.5, 0.05, 0.4) == pytest.approx(2)


# --- Language models: one base model, one or several training seeds ---


def test_every_training_seed_is_held_against_the_one_base_model(tmp_path):
    path = write_linear(tmp_path / "a.parquet", {"base": 3.0, "trained": 2.0}, runs={"trained": 3}, invalid=2)
    metrics = metrics_of({"gamma": path})
    found = metrics["mab"]["gamma"]
    assert [of["mean"] for of in found["by_training_seed"]] == pytest.approx([60.0, 60.06, 60.12])
    assert all(of["ks_p"] < 0.001 and of["paired_p"] < 1e-6 for of in found["by_training_seed"])
    assert found["ks_p"] == np.median([of["ks_p"] for of in found["by_training_seed"]])
    assert found["invalid_replies"] == {"base": 0, "trained": 3 * 12 * 2}
    assert summarised(metrics)["mab"]["gamma"]["invalid_replies"] == 72


def test_metrics_hold_the_trained_model_against_every_algorithm_and_know_the_error_of_its_exponent(tmp_path):
    rng, rounds = np.random.default_rng(0), np.arange(1, 41)
    power = {
        "base": np.full(30, 0.9),
        "trained": rng.normal(0.6, 0.1, 30),
        "low": np.full(30, 0.2),
        "uniform": np.ones(30),
    }
    rows = [
        {"player": player, "training_seed": 0, "instance": i, "d": 3, "regret": rounds ** of[i], "invalid": 0}
        for player, of in power.items()
        for i in range(30)
    ]
    found = metrics_of({"gaussian": write_games(tmp_path / "a.parquet", rows)})["mab"]["gaussian"]
    for algorithm, above in (("low", True), ("uniform", False)):
        low, mean, high = found["algorithms"][algorithm]["paired_difference"]
        assert mean == pytest.approx((40.0 ** power["trained"] - 40.0 ** power[algorithm]).mean())
        assert low < mean < high
        assert (low > 0) is above
        assert (high < 0) is not above
    exponents = []
    for seed in range(300):
        again = np.random.default_rng(1000 + seed).normal(0.6, 0.1, 30)
        exponents.append(growth((rounds[:, None] ** again).mean(axis=1)).exponent)
    assert found["trained"]["exponent_se"] == pytest.approx(np.std(exponents), rel=0.4)


def test_metrics_say_how_many_instances_the_observed_difference_needs(tmp_path):
    fall = np.random.default_rng(0).normal(1.0, 2.0, 40)
    rows = [
        {"player": player, "training_seed": 0, "instance": i, "d": 3, "regret": [20 - of[i]], "invalid": 0}
        for player, of in (("base", np.zeros(40)), ("trained", fall))
        for i in range(40)
    ]
    lower = write_games(tmp_path / "lower.parquet", rows)
    names = {"base": "trained", "trained": "base"}
    higher = write_games(tmp_path / "higher.parquet", [row | {"player": names[row["player"]]} for row in rows])
    found = {name: of["power"] for name, of in metrics_of({"lower": lower, "higher": higher})["mab"].items()}
    assert found["lower"]["difference_sd"] == pytest.approx(fall.std(ddof=1))
    near = 13.02 * (fall.std(ddof=1) / fall.mean()) ** 2  # (z_0.99 + z_0.9)² sd² / mean², for many instances
    assert found["lower"]["instances_needed"] == pytest.approx(near + 2.7, abs=1.5)
    assert found["higher"]["instances_needed"] is None


# --- Tables of regret ---

PAPER = {("ftrl", ""): (1.0, 30.0, 1.0), ("base", "gemma"): (5.0, 100.0, 0.9), ("trained", "gemma"): (4.0, 90.0, 1.0)}
SLOPES = {"base": 3.0, "trained": 2.0, "ftrl-50": 1.0, "uniform": 4.0}


def regret_rows(folder: Path, model: str, runs: int = 1, horizon: int = 30, n: int = 12) -> pd.DataFrame:
    """Return the tidy table of regret that grows by SLOPES, beside a paper that has eight instances."""
    evaluation = write_linear(folder / "gaussian.parquet", SLOPES, runs={"trained": runs}, n=n)
    lines = [
        f"gaussian,{player},{of},{horizon},8,{statistic},{value}"
        for (player, of), values in PAPER.items()
        for statistic, value in zip(("max", "mean", "exponent"), values, strict=True)
    ]
    paper = folder / "paper.csv"
    paper.write_text("\n".join(["reward,player,model,T,instances,statistic,value", *lines, ""]), encoding="utf-8")
    job = TableJob(
        seed=0, label="own", table=TableParams(form="regret", experiments=["fol"], beside={"ftrl-50": "ftrl"}),
        models=[model], sources=[("fol", "gaussian")], floor=None, resamples=100, theory_rows=0, scale_note=None,
    )  # fmt: skip
    table = make(job, [evaluation, paper])
    table.save(folder / "own")
    assert list(table.tidy.columns) == ["reward", "player", "instances", *VALUES]
    return table.tidy.set_index(["player", "instances", "statistic"]).sort_index()


def test_regret_is_shown_on_as_many_instances_as_the_papers_and_on_all(tmp_path):
    tidy = regret_rows(tmp_path, "embedded")
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


def test_another_model_than_the_papers_is_compared_in_direction_alone_and_algorithms_in_value(tmp_path):
    verdicts = regret_rows(tmp_path, "embedded").verdict
    assert verdicts["ftrl-50", 12, "mean"] == REPRODUCED
    assert verdicts["ftrl-50", 12, "max"] == NOT_REPRODUCED
    assert set(verdicts["base"]) == {""}
    assert verdicts["trained", 12, "mean"] == verdicts["trained", 12, "max"] == DIRECTION_ONLY
    assert verdicts["trained", 12, "exponent"] == ""  # the paper's does not fall
    assert set(verdicts["uniform"]) == {""}


def test_the_papers_model_is_compared_in_value_if_several_training_seeds_tell_runs_apart(tmp_path):
    once, thrice = (regret_rows(tmp_path, "gemma", runs).verdict for runs in (1, 3))
    for verdicts in (once, thrice):
        assert verdicts["base", 12, "mean"] == NOT_REPRODUCED  # 90, and 100 in the paper
    assert once["trained", 12, "exponent"] == ""
    assert thrice["trained", 12, "exponent"] == REPRODUCED
    assert thrice["trained", 12, "mean"] == DIRECTION_ONLY  # 60, and 90 in the paper: not its value, but a fall


def test_games_of_another_length_have_no_verdict(tmp_path):
    assert set(regret_rows(tmp_path, "gemma", horizon=31).verdict) == {""}
    assert "No verdicts" in (tmp_path / "own.md").read_text(encoding="utf-8")


def test_on_fewer_instances_than_the_papers_there_is_a_direction_and_no_value(tmp_path):
    verdicts = regret_rows(tmp_path, "gemma", runs=3, n=7).verdict
    assert verdicts["trained", 7, "mean"] == DIRECTION_ONLY
    assert verdicts["trained", 7, "exponent"] == ""
    assert set(verdicts["ftrl-50"]) == set(verdicts["base"]) == {""}


def test_regret_has_the_papers_shape_with_its_lines_above_ours(tmp_path):
    regret_rows(tmp_path, "embedded")
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
        (32.0, 1.0, 27.99, NOT_REPRODUCED),
        (27.994, 0.0, 27.99, REPRODUCED),
        (28.9, math.nan, 27.99, INCONCLUSIVE),
    ],
)
def test_a_value_is_the_papers_if_it_is_near_and_surely_so(ours, error, paper, verdict):
    assert value_verdict(ours, error, paper, decimals=2) == verdict


@pytest.mark.parametrize(
    ("ours", "error", "paper", "verdict"),
    [
        (-3.0, 1.0, -0.01, DIRECTION_ONLY),
        (-1.9, 1.0, -9.0, INCONCLUSIVE),
        (3.0, 1.0, -9.0, NOT_REPRODUCED),
        (-3.0, 1.0, 4.0, ""),
        (3.0, 1.0, 4.0, ""),
        (-3.0, math.nan, -9.0, INCONCLUSIVE),
        (-1e-15, 0.0, -9.0, INCONCLUSIVE),  # the rounding of a sum
    ],
)
def test_a_fall_of_the_papers_is_one_of_ours_if_that_is_sure(ours, error, paper, verdict):
    assert direction_verdict(ours, error, paper) == verdict


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
    paper = pd.read_csv(Path(__file__).parents[1] / f"data/paper/{label}.csv")
    (experiment,) = job.table.experiments
    asked = params.experiments[experiment].evaluations
    assert len(paper) == 3 * 3 * len(job.sources)  # three statistics of three players
    assert [evaluation for _, evaluation in job.sources] == list(dict.fromkeys(paper.reward))
    assert set(paper.model.dropna()) == set(job.models) == {params.experiments[experiment].model}
    assert set(paper.player) - {"base", "trained"} == set(job.table.beside.values() or {"rexp3"})
    for _, evaluation in job.sources:
        printed = paper[paper.reward == evaluation]
        assert {asked[evaluation].T} == set(printed["T"])
        assert {asked[evaluation].instances} == set(printed.instances) == {50}
        assert set(job.table.beside or {"rexp3"}) <= set(asked[evaluation].algorithms)


# --- Tables of methods ---

METHODS = tuple(
    Method(experiment=name, name=name.upper(), played=played, learnt=learnt)
    for name, played, learnt in (("ours", 90, 9), ("worse", 9, 9), ("better", 18, 18))
)


def methods_table(folder: Path, slopes: dict[str, float], n: int = 12, **changes: object) -> RenderedTable:
    """Return the table of methods whose trained models have regret that grows by slopes."""
    paths = [
        write_linear(folder / f"{name}.parquet", {"base": 3.0, "trained": slope}, n=n, runs={"trained": 2})
        for name, slope in slopes.items()
    ]
    paper = folder / "paper.csv"
    values = {"base": 90.0, "worst": 58.0, "best": 30.0, "first": 22.0}
    lines = [f"{player},gemma,30,mean,{value}" for player, value in values.items()]
    paper.write_text("\n".join(["player,model,T,statistic,value", *lines, ""]), encoding="utf-8")
    beside = {"base": "base", "ours": "first", "worse": "worst", "better": "best"}
    table = TableParams(form="methods", experiments=list(slopes), evaluations=["gaussian"], beside=beside)
    job = TableJob(
        seed=0, label="own", table=table, models=["embedded"] * 3, methods=METHODS, floor=None, resamples=100,
        sources=[(name, "gaussian") for name in slopes], theory_rows=0, scale_note=None,
    ).model_copy(update=changes)  # fmt: skip
    made = make(job, [*paths, paper])
    made.save(folder / "own")
    return made


def test_methods_are_compared_with_the_first_game_by_game_and_it_comes_last(tmp_path):
    table = methods_table(tmp_path, {"ours": 1.0, "worse": 2.0, "better": 0.5})
    tidy = table.tidy.set_index(["method", "statistic"])
    assert list(table.shaped["method"]) == ["base model", "WORSE", "BETTER", "OURS"]
    instances = 30 * (1 + 0.01 * (np.arange(12) - 5.5)) * 1.0005  # of the player of slope 1
    for method, times in (("WORSE", 1.0), ("BETTER", -0.5)):
        difference, low, high = (tidy.ours[method, f"difference{end}"] for end in ("", "_low", "_high"))
        assert difference == pytest.approx(times * instances.mean())
        assert min(times * instances) < low < difference < high < max(times * instances)
        error = abs(times) * instances.std(ddof=1) / math.sqrt(12)  # paired: of the differences
        assert tidy.standard_error[method, "difference"] == pytest.approx(error)
    assert ("OURS", "difference") not in tidy.index
    assert tidy.played["WORSE", "mean"] == 9
    assert tidy.ours["base model", "mean"] == pytest.approx(90)


def test_the_sign_of_a_difference_is_held_against_the_papers(tmp_path):
    table = methods_table(tmp_path, {"ours": 1.0, "worse": 2.0, "better": 0.5})
    verdicts = table.tidy.set_index(["method", "statistic"]).verdict
    assert verdicts["WORSE", "difference"] == verdicts["base model", "difference"] == DIRECTION_ONLY
    assert verdicts["BETTER", "difference"] == NOT_REPRODUCED  # in the paper it is worse, too
    assert set(verdicts.xs("mean", level="statistic")) == {""}  # another model plays
    alike = methods_table(tmp_path, {"ours": 1.0, "worse": 1.0, "better": 0.5}).tidy
    assert alike.set_index(["method", "statistic"]).verdict["WORSE", "difference"] == INCONCLUSIVE


def test_values_of_methods_are_compared_where_the_papers_model_plays(tmp_path):
    table = methods_table(tmp_path, {"ours": 0.74, "worse": 3.0, "better": 0.5}, models=["gemma"] * 3)
    verdicts = table.tidy.set_index(["method", "statistic"]).verdict
    assert verdicts["OURS", "mean"] == REPRODUCED  # 22.2, and 22 in the paper
    assert verdicts["WORSE", "mean"] == NOT_REPRODUCED  # 90, and 58


def test_a_method_that_was_given_less_than_its_budget_has_no_verdict(tmp_path):
    cut = tuple(of.model_copy(update={"cut": of.experiment == "worse"}) for of in METHODS)
    slopes = {"ours": 0.74, "worse": 2.0, "better": 0.5}
    table = methods_table(tmp_path, slopes, models=["gemma"] * 3, methods=cut)
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
    paper = pd.read_csv(Path(__file__).parents[1] / f"data/paper/{label}.csv")
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
    paper = pd.read_csv(Path(__file__).parents[1] / f"data/paper/{label}.csv")
    assert len(paper) == 7 * 4 * 2
    assert set(zip(paper.reward, paper.player, strict=True)) <= played


# --- Ablations ---


def loop(trajectories: int, iterations: int, temperature: float) -> LanguageRMFT:
    """Return how a model was trained, k being 1."""
    return LanguageRMFT(
        iterations=iterations, scenarios=4, trajectories=trajectories, selected=1, training_seeds=1,
        temperature=temperature,
    )  # fmt: skip


def table_of_words(
    label: str, form: str, models: list[str], sources: list[tuple[str, str]], **more: object
) -> TableJob:
    """Return what a table of games told in words depends on."""
    names = list(dict.fromkeys(name for name, _ in sources))
    asked = TableParams(form=form, experiments=names, evaluations=[sources[0][1]])
    fixed = {"seed": 0, "floor": None, "resamples": 200, "theory_rows": 0, "scale_note": None}
    return TableJob(label=label, table=asked, models=models, sources=sources, **fixed, **more)


def test_sensitivity_compares_settings_that_differ_in_one_thing_on_common_instances(tmp_path):
    first = write_linear(tmp_path / "a.parquet", {"base": 3.0, "trained": 2.5}, n=20)
    low = write_linear(tmp_path / "b.parquet", {"base": 3.0, "iteration-1": 2.0, "trained": 1.5})
    cold = write_linear(tmp_path / "c.parquet", {"base": 3.0, "trained": 1.8})
    high = write_linear(tmp_path / "d.parquet", {"base": 3.0, "trained": 1.9})
    job = table_of_words(
        "own", "sensitivity", ["embedded"] * 5, [(name, "gaussian-100") for name in "abcde"],
        loops=[loop(8, 3, 1.0), loop(2, 2, 1.0), loop(5, 1, 0.2), loop(5, 1, 1.0), loop(2, 3, 1.0)],
    )  # fmt: skip
    longer = write_linear(tmp_path / "e.parquet", {"base": 3.0, "trained": 1.4})
    printed = Path(__file__).parents[1] / "data/paper/param-sensitivity-qwen.csv"
    table = make(job, [first, low, cold, high, longer, printed])
    table.save(tmp_path / "own")
    tidy = table.tidy.set_index(["trajectories", "iterations", "temperature", "statistic"]).sort_index()
    assert set(tidy.instances) == {12}
    rounds, instances = 30, 1 + 0.01 * (np.arange(12) - 5.5)
    fewer = 2.5 * rounds * (1 + 0.01 * (np.arange(12) - 9.5))  # the first 12 of 20; two training seeds
    assert tidy.loc[(8, 3, 1.0, "mean"), "ours"].item() == pytest.approx(fewer.mean() * 1.0005)
    assert tidy.loc[(8, 3, 1.0, "mean"), "paper"].item() == 33.08  # whatever its values: it is the paper's default
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


def write_replicates(path: Path, gain: float, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Write an evaluation of three replicates; return the final regrets (3, n) of base and trained."""
    rng = np.random.default_rng(3)
    task = rng.normal(40, 20, n)
    final = {"base": task + rng.normal(0, 4, (3, n)), "trained": task - gain + rng.normal(0, 3, (3, n))}
    rows = [
        {"player": player, "training_seed": r, "instance": i, "d": 3, "regret": [of[r, i]], "invalid": 0}
        for player, of in final.items()
        for r, i in np.ndindex(3, n)
    ]
    write_games(path, rows)
    return final["base"], final["trained"]


@pytest.mark.parametrize(("gain", "verdict"), [(4.0, DIRECTION_ONLY), (-4.0, NOT_REPRODUCED), (0.0, INCONCLUSIVE)])
def test_replicates_are_held_against_tasks_and_say_how_many_games_it_takes(tmp_path, gain, verdict):
    base, trained = write_replicates(tmp_path / "a.parquet", gain)
    job = table_of_words("own", "replicates", ["embedded"], [("own", "gaussian-50")])
    table = make(job, [tmp_path / "a.parquet", Path(__file__).parents[1] / "data/paper/replicate-robustness.csv"])
    table.save(tmp_path / "own")
    tidy = table.tidy.set_index(["player", "statistic"])
    ours, paper = tidy.ours, tidy.paper
    assert ours["base", "setting_sd"] == pytest.approx(base.std(axis=0, ddof=1).mean())
    assert ours["trained", "mean"] == pytest.approx(trained.mean())
    assert tidy.verdict["base", "replicate_above_between"] == DIRECTION_ONLY
    assert tidy.verdict["trained", "fall"] == verdict
    assert paper["trained", "fall"] == pytest.approx(4.17)
    assert paper["trained", "instances_unpaired"] == pytest.approx(2 * 6.1826 * (25 / 4.17) ** 2, abs=2)
    assert paper["trained", "instances_paired"] == pytest.approx(6.1826 * (8.86**2 + 8.13**2) / 4.17**2, abs=3)
    assert paper["trained", "replicates_paired"] == 2
    if gain > 0:
        sd = (base[0] - trained[0]).std(ddof=1)
        near = 6.1826 * (sd / ours["trained", "fall"]) ** 2
        assert ours["trained", "instances_paired"] == pytest.approx(near, rel=0.5)
        assert ours["trained", "instances_paired"] < ours["trained", "instances_unpaired"] / 5
    else:
        assert gain == 0 or np.isnan(ours["trained", "instances_paired"])


def test_replicates_are_not_closer_together_than_tasks_that_are_all_alike(tmp_path):
    verdicts = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = [
            {"player": player, "training_seed": r, "instance": i, "d": 3, "regret": [rng.normal(40, 8)], "invalid": 0}
            for player in ("base", "trained")
            for r, i in np.ndindex(3, 50)
        ]
        write_games(tmp_path / "a.parquet", rows)
        job = table_of_words("own", "replicates", ["embedded"], [("own", "gaussian-50")])
        tidy = make(
            job, [tmp_path / "a.parquet", Path(__file__).parents[1] / "data/paper/replicate-robustness.csv"]
        ).tidy
        assert (tidy[tidy.statistic == "setting_over_task"].ours < 1.1).all()  # which says nothing
        verdicts += list(tidy[tidy.statistic == "replicate_above_between"].verdict)
    assert DIRECTION_ONLY not in verdicts
    assert NOT_REPRODUCED in verdicts


def test_replicates_and_tasks_that_are_all_alike_are_no_reason_to_stop(tmp_path):
    rows = [
        {"player": player, "training_seed": r, "instance": i, "d": 3, "regret": [regret], "invalid": 0}
        for player, regret in (("base", 3.0), ("trained", 2.0))
        for r, i in np.ndindex(3, 2)
    ]
    write_games(tmp_path / "a.parquet", rows)
    job = table_of_words("own", "replicates", ["embedded"], [("own", "gaussian-50")])
    make(job, [tmp_path / "a.parquet", Path(__file__).parents[1] / "data/paper/replicate-robustness.csv"]).save(
        tmp_path / "own"
    )
    assert "base - trained" in (tmp_path / "own.md").read_text(encoding="utf-8")


def test_entropy_is_that_of_every_policy_and_its_change_is_paired(tmp_path):
    uniform, decided = np.full(3, 1 / 3), np.array([1.0, 0.0, 0.0])
    rows = [
        {
            "player": player, "training_seed": 0, "instance": i, "d": 3, "regret": np.arange(4.0), "invalid": 0,
            "action": [0] * 4, "best_action": [0] * 4,
            "policy": np.concatenate([uniform] * uniforms + [decided] * (4 - uniforms)),
        }
        for player, uniforms in (("base", 4), ("trained", 1))
        for i in range(2)
    ]  # fmt: skip
    write_evaluation(tmp_path / "a.parquet", pd.DataFrame(rows))
    job = table_of_words("own", "entropy", ["embedded"], [("fol", "gaussian")])
    table = make(job, [tmp_path / "a.parquet"])
    table.save(tmp_path / "own")
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
    frame = pd.read_csv(Path(__file__).parents[1] / "data/paper/param-sensitivity-qwen.csv")
    printed = frame[["trajectories", "selected", "iterations", "temperature"]].dropna()
    assert set(map(tuple, printed.to_numpy())) <= ours
    assert set(frame["T"]) == {params.experiments["mab_l2"].evaluations["gaussian-100"].T}
