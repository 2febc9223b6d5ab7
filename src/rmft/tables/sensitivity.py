"""RenderedTable `param-sensitivity-qwen`: final regret by L, k, number of iterations and temperature."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.params.language import LanguageRMFT
from rmft.results import PlayerResults, read_players
from rmft.tables.layout import CONFIDENT, VALUES, RenderedTable, direction_verdict
from rmft.workflow.records import TableJob

VARIED = ["trajectories", "selected", "iterations", "temperature"]
SYMBOLS = dict(zip(VARIED, ("L", "k", "iterations", "temperature"), strict=True))
KEYS = [*VARIED, "instances"]
Values = tuple[float, ...]  # of VARIED


@dataclass(frozen=True)
class Setting:
    """A model by how it was trained: values of VARIED, final regret (n,), and the paper's statistics if it has any.

    default: whether the paper calls it that, without saying what its values are, so that no change is the paper's.
    """

    values: Values
    final: np.ndarray
    runs: int
    default: bool
    printed: Mapping[str, float]


@dataclass(frozen=True)
class Change:
    """By how much regret differs from that of a setting whose value of `varied` is lower, all others being the same."""

    varied: str
    lower: float
    mean: float
    error: float
    paper: float | None
    verdict: str


def sensitivity_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Set final regrets of every setting beside the paper's; the first experiment's is what the paper calls default."""
    *evaluations, paper = paths
    everyone = [read_players(path) for path in evaluations]
    n = min(players["trained"].regret.shape[1] for players in everyone)
    printed = _printed(paper)
    settings = [
        Setting(
            values,
            played.by_instance[:n, -1],
            len(played.regret),
            place == 0,
            printed.get(values if place else None, {}),
        )
        for place, (players, loop) in enumerate(zip(everyone, job.loops, strict=True))
        for values, played in _trained(players, loop)
    ]
    base = everyone[0]["base"].by_instance[:n, -1]
    rows = [(setting, _changes(setting, settings)) for setting in settings]
    lines = [(None, None, 0, None, n, "mean", base.mean(), _error(base), None, "")]
    lines += [line for setting, changes in rows for line in _tidy(setting, changes, n)]
    shown = [{**dict.fromkeys(SYMBOLS.values(), ""), "iterations": "base model", _ours(job, n): _mean_sd(base)}]
    shown += [_shaped(job, setting, changes, n) for setting, changes in rows]
    title = "Final regret at T = 100 by L, k, number of iterations and temperature, trained on T = 25"
    shaped = pd.DataFrame(shown, columns=[*SYMBOLS.values(), "paper", _ours(job, n), "change", "verdict"]).fillna("")
    runs = min(setting.runs for setting in settings)
    return RenderedTable(title, pd.DataFrame(lines, columns=[*KEYS, *VALUES]), shaped, _notes(job, runs))


def _trained(players: dict[str, PlayerResults], loop: LanguageRMFT) -> Iterator[tuple[Values, PlayerResults]]:
    """Yield the trained models of an experiment, by iterations, with how they were trained."""
    for name, played in players.items():
        if name == "trained" or name.startswith("iteration-"):
            iterations = loop.iterations if name == "trained" else int(name.removeprefix("iteration-"))
            yield (loop.trajectories, loop.selected, iterations, loop.temperature), played


def _printed(path: Path) -> dict[Values | None, dict[str, float]]:
    """Read the paper's values: by values of VARIED, those of what it calls default by None."""
    frame = read_csv(path, [*VARIED, "statistic", "value"])
    found: dict[Values | None, dict[str, float]] = {}
    for line in frame.itertuples():
        values = tuple(float(getattr(line, name)) for name in VARIED)
        found.setdefault(None if math.isnan(values[0]) else values, {})[line.statistic] = float(line.value)
    return found


def _changes(setting: Setting, settings: Sequence[Setting]) -> list[Change]:
    """Compare a setting with those that have a lower value of one thing, on common instances."""
    found = []
    for other in settings:
        differs = [place for place, of in enumerate(VARIED) if setting.values[place] != other.values[place]]
        if len(differs) != 1 or other.values[differs[0]] > setting.values[differs[0]]:
            continue
        difference = setting.final - other.final
        paper = None
        if setting.printed and other.printed and not (setting.default or other.default):
            paper = setting.printed["mean"] - other.printed["mean"]
        mean, error = float(difference.mean()), _error(difference)
        verdict = "" if paper is None else direction_verdict(mean, error, paper)
        found.append(Change(VARIED[differs[0]], other.values[differs[0]], mean, error, paper, verdict))
    return found


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _tidy(setting: Setting, changes: Sequence[Change], n: int) -> Iterator[tuple]:
    key = (*setting.values, n)
    sd = float(setting.final.std(ddof=1))
    yield (*key, "mean", float(setting.final.mean()), _error(setting.final), setting.printed.get("mean"), "")
    yield (*key, "sd", sd, sd / math.sqrt(2 * (n - 1)), setting.printed.get("sd"), "")
    for change in changes:
        statistic = f"change_from_{change.varied}_{change.lower:g}"
        yield (*key, statistic, change.mean, change.error, change.paper, change.verdict)


def _shaped(job: TableJob, setting: Setting, changes: Sequence[Change], n: int) -> dict[str, str]:
    printed = setting.printed
    return {
        **{SYMBOLS[name]: f"{value:g}" for name, value in zip(VARIED, setting.values, strict=True)},
        "paper": f"{printed['mean']:.2f} ± {printed['sd']:.2f}" if printed else "",
        _ours(job, n): _mean_sd(setting.final),
        "change": "; ".join(map(_said, changes)),
        "verdict": "; ".join(change.verdict for change in changes),
    }


def _said(change: Change) -> str:
    paper = "" if change.paper is None else f" (paper {change.paper:+.2f})"
    return f"from {SYMBOLS[change.varied]} {change.lower:g}: {change.mean:+.2f} ± {change.error:.2f}{paper}"


def _ours(job: TableJob, n: int) -> str:
    return f"ours, {job.models[0]}, n = {n}"


def _mean_sd(final: np.ndarray) -> str:
    return f"{final.mean():.2f} ± {final.std(ddof=1):.2f}"


def _notes(job: TableJob, runs: int) -> list[str]:
    return [
        "paper and ours: mean ± standard deviation over instances (the paper does not say what its ± is). The first "
        "row of trained models is what the paper calls default, without saying how it was trained, so that no change "
        "from or to it is the paper's.",
        "change: from the model that was trained with a lower value of one thing, all else being the same, on common "
        "instances and with common random numbers; ± is its standard error over instances"
        + (", of one training run each." if runs == 1 else "."),
        f"direction only: regret falls as in the paper, surely ({CONFIDENT:g} standard errors); inconclusive: not "
        "surely; not reproduced: it rises.",
        "All models are played at the same temperature; the one that varies is of training.",
        *([job.scale_note] if job.scale_note else []),
    ]
