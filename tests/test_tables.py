"""Tables and metrics: the right numbers beside the right names, and honest verdicts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmft.artifacts import write_evaluation
from rmft.jobs import MetricsJob, TableJob, table_job
from rmft.metrics.growth import Growth
from rmft.metrics.summary import all_metrics
from rmft.params import Table as TableParams
from rmft.params import load
from rmft.tables import make
from rmft.tables.growth import Row
from rmft.tables.layout import (
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    VALUES,
    errors_apart,
)

ROUNDS = np.arange(1, 31)


def write_linear(path: Path, slopes: dict[str, float], seeds: int = 2, n: int = 12) -> Path:
    """Write an evaluation in which each player's regret grows by its slope, a little differently in each instance."""
    rows = [
        {
            "player": player, "training_seed": seed, "instance": i, "d": 3,
            "regret": slope * (1 + 0.01 * (i - (n - 1) / 2)) * ROUNDS, "action": None, "best_action": None,
        }
        for player, slope in slopes.items()
        for seed in range(seeds if player in ("base", "trained") else 1)
        for i in range(n)
    ]  # fmt: skip
    write_evaluation(path, pd.DataFrame(rows))
    return path


def test_metrics_put_every_figure_under_its_experiment_evaluation_and_player(tmp_path):
    first = write_linear(tmp_path / "a.parquet", {"base": 3.0, "trained": 2.0, "ucb": 1.0})
    second = write_linear(tmp_path / "b.parquet", {"base": 5.0, "trained": 4.0, "ucb": 6.0})
    job = MetricsJob(seed=0, floor=None, sources=[("mab", "gaussian"), ("mab", "gamma")])
    metrics = all_metrics(job, [first, second])["mab"]
    found = {
        name: [of["base"]["slope"], of["trained"]["slope"], of["algorithms"]["ucb"]["slope"]]
        for name, of in metrics.items()
    }
    assert found == {"gaussian": pytest.approx([3, 2, 1]), "gamma": pytest.approx([5, 4, 6])}
    assert metrics["gaussian"]["trained"]["mean"] == pytest.approx(2 * 30)
    assert metrics["gaussian"]["trained"]["exponent"] == pytest.approx(1)
    assert metrics["gaussian"]["ks_p"] < 0.001
    assert metrics["gaussian"]["n"] == 12


def test_the_growth_table_is_tidy_and_sets_each_row_beside_the_papers(tmp_path):
    evaluation = write_linear(tmp_path / "gaussian.parquet", {"base": 3.0, "trained": 0.665, "ftl": 1.0})
    paper = tmp_path / "paper.csv"
    paper.write_text(
        "reward,player,statistic,value,interchanged_with\ngaussian,trained,beta_hat,0.665,\ngaussian,trained,p_reg,<0.001,\n",
        encoding="utf-8",
    )
    job = TableJob(
        seed=0, label="simplex-table", table=TableParams(experiments=["simplex"]), sources=[("simplex", "gaussian")],
        floor=None, resamples=400, theory_rows=0, scale_note=None,
    )  # fmt: skip
    tidy = make(job, [evaluation, paper]).tidy
    assert list(tidy.columns) == ["reward", "player", *VALUES]
    slope = tidy[(tidy.player == "trained") & (tidy.statistic == "slope")].iloc[0]
    assert (slope.ours, slope.paper, slope.verdict) == (pytest.approx(0.665), 0.665, REPRODUCED)
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
    row = Row("gaussian", "trained", fit, error, 0.05, error, paper, None, interchanged)
    assert row.slope_verdict == verdict


def test_the_error_of_a_mean_final_regret_counts_training_seeds_and_instances(tmp_path):
    rows = [
        {"player": player, "training_seed": seed, "instance": i, "d": 3, "regret": np.array([1.0, 10.0 * seed])}
        for player in ("base", "trained")
        for seed in range(2)
        for i in range(4)
    ]
    write_evaluation(tmp_path / "a.parquet", pd.DataFrame(rows).assign(action=None, best_action=None))
    job = MetricsJob(seed=0, floor=None, sources=[("fol", "adaptive")])
    metrics = all_metrics(job, [tmp_path / "a.parquet"])["fol"]["adaptive"]
    assert metrics["trained"]["se"] == pytest.approx(5)  # seeds 0 and 10; the instances are alike


def test_a_difference_without_spread_is_infinitely_many_standard_errors():
    assert errors_apart(0.5, 1e-17, 0.4) == np.inf
    assert errors_apart(0.3324, 0.0, 0.332) == 0
    assert errors_apart(0.5, 0.05, 0.4) == pytest.approx(2)


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
