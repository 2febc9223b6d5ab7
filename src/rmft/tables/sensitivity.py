"""Table `param-sensitivity-qwen`: final regret by L, k, number of iterations and temperature."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmft.metrics.comparison import error_of_mean, paired_difference, sd_of_games, standard_error
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import RenderedTable, direction_verdict, tidy_frame

VARIED = ["trajectories", "selected", "iterations", "temperature"]
SYMBOLS = dict(zip(VARIED, ("L", "k", "iterations", "temperature"), strict=True))
KEYS = ["experiment", *VARIED, "instances"]
PAPER = [*VARIED, "statistic", "value"]  # columns of the paper's values
Values = tuple[float, ...]  # of VARIED


@dataclass(frozen=True)
class TrainedModel:
    """A model and how an experiment trained it: values of VARIED, final regret (S, n), the paper's statistics if any.

    default: whether the paper calls these values its default. It does not say what they are, so no difference between
    this model and another one can be compared with the paper's.
    """

    experiment: str
    values: Values
    final: np.ndarray
    default: bool
    paper: Mapping[str, float]


@dataclass(frozen=True)
class RegretChange:
    """How regret differs from that of a model with a lower value of `varied` and all other values the same."""

    varied: str
    lower: float
    mean: float
    error: float
    paper: float | None
    verdict: str


def sensitivity_table(
    experiments: Mapping[str, tuple[Values, Mapping[str, PlayerResults]]], paper: pd.DataFrame, model: str
) -> RenderedTable:
    """Set final regrets beside the paper's; the first experiment stands for what the paper calls default.

    experiments: by name, the values of VARIED in training, and the results by player. model: the one that plays.
    """
    n = min(players["trained"].regret.shape[1] for _, players in experiments.values())
    models = _trained_models(experiments, _read(paper), n)
    first, (_, of_first) = next(iter(experiments.items()))
    base = of_first["base"].by_instance[:n, -1]
    lines = [(first, None, None, 0, None, n, "mean", base.mean(), standard_error(base), None, "")]
    ours = f"ours, {model}, n = {n}"
    shown = [{**dict.fromkeys(SYMBOLS.values(), ""), "iterations": "base model", ours: _mean_sd(base[None])}]
    for trained in models:
        changes = _changes(trained, models)
        lines += _tidy(trained, changes, n)
        shown.append(_shaped(ours, trained, changes))
    title = "Final regret at T = 100 by L, k, number of iterations and temperature, trained on T = 25"
    shaped = pd.DataFrame(shown, columns=[*SYMBOLS.values(), "paper", ours, "change", "verdict"]).fillna("")
    return RenderedTable(title, tidy_frame(KEYS, lines), shaped, _notes(max(len(trained.final) for trained in models)))


def _read(paper: pd.DataFrame) -> dict[Values | None, dict[str, float]]:
    """Return the paper's statistics by values of VARIED; those of its default by None."""
    statistics: dict[Values | None, dict[str, float]] = {}
    for line in paper.itertuples():
        values = tuple(float(getattr(line, name)) for name in VARIED)
        key = None if math.isnan(values[0]) else values
        statistics.setdefault(key, {})[line.statistic] = float(line.value)
    return statistics


def _trained_models(
    experiments: Mapping[str, tuple[Values, Mapping[str, PlayerResults]]],
    paper: Mapping[Values | None, Mapping[str, float]],
    n: int,
) -> list[TrainedModel]:
    """Return the trained models of all experiments, each after as many iterations as were evaluated."""
    models, first = [], next(iter(experiments))
    for experiment, ((trajectories, selected, last, temperature), players) in experiments.items():
        for name, played in players.items():
            if name != "trained" and not name.startswith("iteration-"):
                continue
            iterations = last if name == "trained" else int(name.removeprefix("iteration-"))
            values = (trajectories, selected, iterations, temperature)
            default = experiment == first
            of_paper = paper.get(None if default else values, {})
            models.append(TrainedModel(experiment, values, played.final[:, :n], default, of_paper))
    return models


def _changes(trained: TrainedModel, models: Sequence[TrainedModel]) -> list[RegretChange]:
    """Compare a model with those that have a lower value of one parameter, on common instances."""
    changes = []
    for other in models:
        differs = [place for place in range(len(VARIED)) if trained.values[place] != other.values[place]]
        if len(differs) != 1 or other.values[differs[0]] > trained.values[differs[0]]:
            continue
        difference, paper, verdict = paired_difference(trained.final, other.final), None, ""
        if trained.paper and other.paper and not (trained.default or other.default):
            paper = trained.paper["mean"] - other.paper["mean"]
            verdict = direction_verdict(difference.mean, difference.margin, paper)
        values = (other.values[differs[0]], difference.mean, difference.error, paper, verdict)
        changes.append(RegretChange(VARIED[differs[0]], *values))
    return changes


def _tidy(trained: TrainedModel, changes: Sequence[RegretChange], n: int) -> Iterator[tuple]:
    key, final = (trained.experiment, *trained.values, n), trained.final
    sd = sd_of_games(final)
    yield (*key, "mean", float(final.mean()), error_of_mean(trained.final), trained.paper.get("mean"), "")
    yield (*key, "sd", sd, sd / math.sqrt(2 * max(n - 1, 1)), trained.paper.get("sd"), "")
    for change in changes:
        statistic = f"change_from_{change.varied}_{change.lower:g}"
        yield (*key, statistic, change.mean, change.error, change.paper, change.verdict)


def _shaped(our_header: str, trained: TrainedModel, changes: Sequence[RegretChange]) -> dict[str, str]:
    paper = trained.paper
    return {
        **{SYMBOLS[name]: f"{value:g}" for name, value in zip(VARIED, trained.values, strict=True)},
        "paper": f"{paper['mean']:.2f} ± {paper['sd']:.2f}{_elsewhere(paper)}" if paper else "",
        our_header: _mean_sd(trained.final),
        "change": "; ".join(map(_change_cell, changes)),
        "verdict": "; ".join(change.verdict for change in changes),
    }


def _elsewhere(paper: Mapping[str, float]) -> str:
    return f" ({paper['mean_elsewhere']:.2f} elsewhere)" if "mean_elsewhere" in paper else ""


def _change_cell(change: RegretChange) -> str:
    paper = "" if change.paper is None else f" (paper {change.paper:+.2f})"
    return f"from {SYMBOLS[change.varied]} {change.lower:g}: {change.mean:+.2f} ± {change.error:.2f}{paper}"


def _mean_sd(final: np.ndarray) -> str:
    return f"{final.mean():.2f} ± {sd_of_games(final):.2f}"


def _notes(runs: int) -> list[str]:
    return [
        "paper and ours: mean ± standard deviation over instances (the paper does not say what its ± is). The first "
        "row of trained models is what the paper calls default, without saying how it was trained, so that no change "
        "from or to it is the paper's.",
        "elsewhere: in the paper's Table `qwen-ad-grpo-comparison`, for the same model, horizon and method. The paper "
        "does not say why the two values differ.",
        "change: from the model that was trained with a lower value of one thing, all else being the same, on common "
        "instances and with common random numbers; ± is its standard error over instances"
        + (", of one training each." if runs == 1 else " and, where there are several, trainings."),
        "direction only: regret falls as in the paper, significantly (95% interval, Student's t); inconclusive: "
        "not significantly; not reproduced: it rises.",
        "All models are played at the same temperature; the one that varies is of training.",
    ]
