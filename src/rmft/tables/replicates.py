"""RenderedTable `replicate-robustness`: how far replicates of a game are apart, beside how far tasks are; and what that needs.

Symbols: R replicates, n instances. A replicate of the base model samples by other random numbers, one of the trained
model was also trained by others.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.metrics.comparison import sd_of_numbers
from rmft.metrics.power import instances_needed, paired_sd, replicates_needed, spread
from rmft.results import read_players
from rmft.streams import stream
from rmft.tables.layout import CONFIDENT, VALUES, RenderedTable, direction_verdict
from rmft.workflow.records import TableJob

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
DERIVED = ("setting_over_task", "replicate_above_between")  # of a Spread
PAPER_INSTANCES = 50  # ASSUME: as in its other tables
Statistics = dict[tuple[str, str], float | None]  # by player and statistic


def replicates_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Set the spread over replicates and tasks beside the paper's, and how many games would show the difference."""
    evaluation, values = paths
    players = read_players(evaluation)
    base, trained = players["base"].final, players["trained"].final
    measured, errors = _measured(base, trained), _errors(job, base, trained)
    paper = _of_paper(values)
    rows = []
    for (player, statistic), ours in measured.items():
        theirs = paper.get((player, statistic))
        verdict = _verdict(statistic, ours, errors.get((player, statistic)), theirs)
        error = errors.get((player, statistic))
        rows.append((player, len(trained), base.shape[1], statistic, ours, error, theirs, verdict))
    tidy = pd.DataFrame(rows, columns=[*KEYS, *VALUES])
    title = "Final regret over replicates and over tasks, and how many games show the difference"
    shaped = pd.DataFrame([_shaped(job, *row) for row in rows])
    return RenderedTable(title, tidy, shaped, _notes(job, len(trained)))


def _measured(base: np.ndarray, trained: np.ndarray) -> Statistics:
    """Return the statistics of final regrets (R, n) of the two."""
    found: Statistics = {}
    for player, final in (("base", base), ("trained", trained)):
        of = spread(final)
        found |= {(player, name): value for name, value in vars(of).items()}
        found |= {(player, name): getattr(of, name) for name in DERIVED}
    fall = found["base", "mean"] - found["trained", "mean"]
    both = math.hypot(found["base", "task_sd"], found["trained", "task_sd"]) / math.sqrt(2)
    return found | _needed(fall, both, lambda replicates: paired_sd(base, trained, replicates), *base.shape)


def _of_paper(path: Path) -> Statistics:
    """Return what the paper prints, and what follows if the gain is the same on every task, which it does not say."""
    frame = read_csv(path, ["player", "replicates", "statistic", "value"])
    found: Statistics = {(line.player, line.statistic): float(line.value) for line in frame.itertuples()}
    for player in ("base", "trained"):
        setting, task = found[player, "setting_sd"], found[player, "task_sd"]
        found[player, "setting_over_task"] = setting / task
        found[player, "replicate_above_between"] = setting - math.sqrt(max(task**2 - setting**2, 0.0))
    noise = math.hypot(found["base", "setting_sd"], found["trained", "setting_sd"])
    fall, replicates = found["base", "mean"] - found["trained", "mean"], int(frame["replicates"].iloc[0])
    sd = found["base", "task_sd"]
    return found | _needed(fall, sd, lambda each: noise / math.sqrt(each), replicates, PAPER_INSTANCES)


def _needed(fall: float, task_sd: float, paired: Callable[[int], float], replicates: int, instances: int) -> Statistics:
    """Return how many games show a fall of regret. paired: the sd of differences of means over so many replicates."""

    def effect(sd: float) -> float:
        return fall / sd if sd > 0 else math.inf

    return {
        ("trained", "fall"): fall,
        ("trained", "instances_unpaired"): instances_needed(effect(task_sd), ALPHA, POWER, paired=False),
        ("trained", "instances_paired"): instances_needed(effect(paired(1)), ALPHA, POWER),
        ("trained", "instances_paired_replicated"): instances_needed(effect(paired(replicates)), ALPHA, POWER),
        ("trained", "replicates_paired"): replicates_needed(fall, paired, instances, ALPHA, POWER),
    }


def _errors(job: TableJob, base: np.ndarray, trained: np.ndarray) -> dict[tuple[str, str], float]:
    """Return standard errors over instances, drawn again; of how many games are needed there is none.

    The trained model and its fall also differ from one training run to the next, which instances cannot show.
    """
    n = base.shape[1]
    drawn = stream(job.seed, "bootstrap", job.label).integers(n, size=(job.resamples, n))
    found = []
    for chosen in drawn:
        of = {"base": spread(base[:, chosen]), "trained": spread(trained[:, chosen])}
        values = {(player, name): value for player, its in of.items() for name, value in vars(its).items()}
        values |= {(player, name): getattr(its, name) for player, its in of.items() for name in DERIVED}
        values["trained", "fall"] = of["base"].mean - of["trained"].mean
        found.append(values)
    errors = {key: sd_of_numbers(values[key] for values in found) for key in found[0]}
    for key, of_runs in ((("trained", "mean"), trained), (("trained", "fall"), base - trained)):
        errors[key] = math.hypot(errors[key], sd_of_numbers(of_runs.mean(axis=1)) / math.sqrt(len(trained)))
    return errors


def _verdict(statistic: str, ours: float | None, error: float | None, paper: float | None) -> str:
    if statistic == "fall":
        return direction_verdict(-ours, error, -paper)
    return direction_verdict(ours, error, paper) if statistic == "replicate_above_between" else ""


def _shaped(
    job: TableJob, player: str, runs: int, n: int, statistic: str, ours: float | None, error: float | None,
    paper: float | None, verdict: str,
) -> dict[str, str]:  # fmt: skip
    digits = 0 if statistic.startswith(("instances", "replicates")) else 2

    def said(value: float | None) -> str:
        return "none" if value is None else f"{value:.{digits}f}"

    return {
        "player": player,
        "": HEADERS[statistic],
        "paper": "" if statistic == "replicate_sd" else said(paper),
        f"ours, {job.models[0]}, R = {runs}, n = {n}": said(ours) + ("" if error is None else f" ± {error:.2f}"),
        "verdict": verdict,
    }


def _notes(job: TableJob, replicates: int) -> list[str]:
    return [
        f"R: {replicates} replicates. The base model samples anew in each; the trained model was also trained anew.",
        "sd over replicates: of one instance, averaged over instances, as the paper has it. Of three, an sd is 11% too "
        "small on average, its root mean square is not. sd over tasks: of single games, over instances, so that it has "
        "the sd over replicates in it; sd between tasks without theirs is the root of the difference of their squares. "
        "±: standard error over instances, of the trained model's mean and the fall over training runs too.",
        f"instances, replicates: with which a one-sided t-test at level {ALPHA:g} sees the observed difference with a "
        f"probability of {POWER:g}, for these training runs. Paired: both models on the same instances; what no number "
        "of replicates wears down is that the gain differs between instances. none: no number of them suffices.",
        "In these lines, paper is what follows from its printed values if the gain is the same on every task, which "
        f"is the best case, and if it has {PAPER_INSTANCES} instances; it prints no such numbers.",
        "direction only: as in the paper regret falls, and replicates are closer together than tasks, surely "
        f"({CONFIDENT:g} standard errors).",
        *([job.scale_note] if job.scale_note else []),
    ]
