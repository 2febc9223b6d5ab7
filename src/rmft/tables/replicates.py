"""Table `replicate-robustness`: how far replicates lie apart, beside how far tasks do; and how many games that needs.

Symbols: R replicates, n instances, B resamples. A replicate of the base model samples with other random numbers; a
replicate of the trained model was also trained with others.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from rmft.metrics.comparison import bootstrap_error, paired_difference, sd_of_numbers, t_quantile
from rmft.metrics.players import PlayerResults
from rmft.metrics.power import instances_needed, mean_sd_of_normal, paired_sd, replicates_needed, spread
from rmft.tables.layout import Estimation, RenderedTable, direction_verdict, tidy_frame

ALPHA, POWER = 0.05, 0.8
KEYS = ["player", "replicates", "instances"]
HEADERS = {
    "mean": "mean final regret",
    "setting_sd": "sd over replicates, mean",
    "replicate_sd": "the same, root mean square",
    "task_sd": "sd over tasks",
    "setting_over_task": "sd over replicates / sd over tasks",
    "replicate_above_between": "sd over replicates - sd between tasks without theirs",
    "fall": "base - trained",
    "instances_unpaired": "instances, unpaired",
    "instances_paired": "instances, paired",
    "instances_paired_replicated": "instances, paired, mean of R replicates",
    "replicates_paired": "replicates of each of the n instances, paired",
}
MEASURED = ("mean", "setting_sd", "replicate_sd", "task_sd")  # of a RegretSpread
DERIVED = ("setting_over_task", "replicate_above_between")  # of a RegretSpread
FALLS = {"fall": -1, "replicate_above_between": 1}  # with this sign, differences that are below 0 in the paper
PAPER_INSTANCES = 50  # ASSUME: as in all tables of Section 5, though this one is in another appendix
PAPER = ["player", "replicates", "statistic", "value"]  # columns of the paper's values
Statistics = dict[tuple[str, str], float | None]  # by player and statistic


def replicates_table(
    estimation: Estimation, results: Mapping[str, PlayerResults], paper: pd.DataFrame, model: str
) -> RenderedTable:
    """Set the spread over replicates and tasks beside the paper's, and how many games would show the difference.

    results: by player. model: the one that plays.
    """
    final = {player: results[player].final for player in ("base", "trained")}
    replicates, instances = final["base"].shape
    fall = paired_difference(final["trained"], final["base"])
    errors = _errors(estimation, final) | {("trained", "fall"): fall.error}
    ours, theirs = _statistics(final), _paper_statistics(paper)
    rows = []
    for (player, statistic), value in ours.items():
        error, paper_value = errors.get((player, statistic)), theirs.get((player, statistic))
        verdict = ""
        if statistic in FALLS:
            sign = FALLS[statistic]
            margin = fall.margin if statistic == "fall" else t_quantile(instances) * error
            verdict = direction_verdict(sign * value, margin, sign * paper_value)
        rows.append((player, replicates, instances, statistic, value, error, paper_value, verdict))
    title = "Final regret over replicates and over tasks, and how many games show the difference"
    shaped = pd.DataFrame([_shaped(f"ours, {model}, R = {replicates}, n = {instances}", row) for row in rows])
    return RenderedTable(title, tidy_frame(KEYS, rows), shaped, _notes(replicates))


def _spreads(final: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float]:
    """Return the statistics of final regrets (R, n) of each player, by player and statistic."""
    spreads = {player: spread(regrets) for player, regrets in final.items()}
    return {(player, name): getattr(of, name) for player, of in spreads.items() for name in (*MEASURED, *DERIVED)}


def _statistics(final: Mapping[str, np.ndarray]) -> Statistics:
    """Return all statistics of final regrets (R, n) of base and trained model."""
    values = _spreads(final)
    fall = values["base", "mean"] - values["trained", "mean"]
    both = math.hypot(values["base", "task_sd"], values["trained", "task_sd"]) / math.sqrt(2)
    paired = partial(paired_sd, final["base"], final["trained"])
    return values | _games_needed(fall, both, paired, *final["base"].shape)


def _paper_statistics(paper: pd.DataFrame) -> Statistics:
    """Return the paper's values, and what follows from them if the gain is the same on every task."""
    values: Statistics = {(line.player, line.statistic): float(line.value) for line in paper.itertuples()}
    for player in ("base", "trained"):
        setting, task = values[player, "setting_sd"], values[player, "task_sd"]
        values[player, "setting_over_task"] = setting / task
        values[player, "replicate_above_between"] = setting - math.sqrt(max(task**2 - setting**2, 0.0))
    fall, replicates = values["base", "mean"] - values["trained", "mean"], int(paper["replicates"].iloc[0])
    printed = math.hypot(values["base", "setting_sd"], values["trained", "setting_sd"])
    noise = printed / mean_sd_of_normal(replicates)
    task_sd = values["base", "task_sd"]
    return values | _games_needed(fall, task_sd, lambda each: noise / math.sqrt(each), replicates, PAPER_INSTANCES)


def _games_needed(
    fall: float, task_sd: float, paired: Callable[[int], float], replicates: int, instances: int
) -> Statistics:
    """Return how many games show a fall of regret.

    paired: the standard deviation over instances of the difference between means over a number of replicates.
    """

    def effect(sd: float) -> float:
        return fall / sd if sd > 0 else math.inf

    return {
        ("trained", "fall"): fall,
        ("trained", "instances_unpaired"): instances_needed(effect(task_sd), ALPHA, POWER, paired=False),
        ("trained", "instances_paired"): instances_needed(effect(paired(1)), ALPHA, POWER),
        ("trained", "instances_paired_replicated"): instances_needed(effect(paired(replicates)), ALPHA, POWER),
        ("trained", "replicates_paired"): replicates_needed(fall, paired, instances, ALPHA, POWER),
    }


def _errors(estimation: Estimation, final: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float]:
    """Return standard errors over resampled instances; the fall and numbers of games needed have none.

    The error of the trained model's mean includes the spread over trainings, which instances cannot show.
    """
    n = final["base"].shape[1]
    draws = estimation.stream().integers(n, size=(estimation.resamples, n))
    resampled = [_spreads({player: regrets[:, chosen] for player, regrets in final.items()}) for chosen in draws]
    errors = {key: bootstrap_error((values[key] for values in resampled), n) for key in resampled[0]}
    trained = final["trained"]
    over_runs = sd_of_numbers(trained.mean(axis=1)) / math.sqrt(len(trained))
    return errors | {("trained", "mean"): math.hypot(errors["trained", "mean"], over_runs)}


def _shaped(our_header: str, row: tuple) -> dict[str, str]:
    player, _, _, statistic, ours, error, paper, verdict = row
    digits = 0 if statistic.startswith(("instances", "replicates")) else 2

    def cell(value: float | None) -> str:
        return "none" if value is None else f"{value:.{digits}f}"

    return {
        "player": player,
        "": HEADERS[statistic],
        "paper": "" if statistic == "replicate_sd" else cell(paper),
        our_header: cell(ours) + ("" if error is None else f" ± {error:.2f}"),
        "verdict": verdict,
    }


def _notes(replicates: int) -> list[str]:
    return [
        f"R: {replicates} replicates. The base model samples anew in each; the trained model was also trained anew.",
        "sd over replicates: of one instance, averaged over instances, as the paper has it. Of three, an sd is 11% too "
        "small on average, its root mean square is not. sd over tasks: of single games, over instances, so that it has "
        "the sd over replicates in it. What is without it is the root of a difference of squares; of ours, what one "
        "training does to all tasks is no part of the sd over replicates there. "
        "±: standard error over instances, of the trained model's mean and the fall over replicates too.",
        f"instances, replicates: with which a one-sided t-test at level {ALPHA:g} sees the observed difference with a "
        f"probability of {POWER:g}, for these trainings. Paired: both models on the same instances; what no number "
        "of replicates wears down is that the gain differs between instances. none: no number of them suffices, or "
        "all differences are the same.",
        "In these lines, paper is what follows from its printed values if the gain is the same on every task, which "
        f"is the best case, and if it has {PAPER_INSTANCES} instances; it prints no such numbers.",
        "direction only: as in the paper regret falls, and replicates are closer together than tasks, significantly "
        "(95% interval, Student's t; of the fall, instances and replicates are both samples).",
    ]
