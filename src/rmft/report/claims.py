"""Does a claim of the paper hold in our results? One check for each kind of claim about a figure.

A claim is checked in every evaluation that the figure draws, on its first experiment: the one with the paper's
parameters. Further experiments are variants.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
from pydantic import model_validator

from rmft.artifacts.number_text import difference, signed
from rmft.environments import PolicySpace
from rmft.metrics.comparison import NOISE, below_zero, smallest_sample, t_quantile
from rmft.metrics.exploration import LATE, in_round, share_with_error
from rmft.metrics.growth import is_sublinear, linear_exponent
from rmft.params.outputs import Figure
from rmft.params.section import Name, Section
from rmft.reasoning import SHARE, SHARE_ERROR
from rmft.report.templates import plain
from rmft.tables.layout import CONFIDENT

# ASSUME: the paper gives no number for any of these.
NEAR = 1.25  # regret is near a reference algorithm's if it is at most so many times as large
VANISHED = 0.1  # a distance has vanished at this share of its first value
NO_LOWER = 0.1  # regret that did not fall significantly, and by at most this share of the base model's, is no lower
FALLEN = 0.1  # a curve falls if it ends this share of its peak below the peak
EXPLOITS = 0.5  # a player exploits if d · MinFrac(T) is below this: half of the share under equal play
HIGH_ENTROPY = 0.8  # of log d: policies of at least this entropy are close to uniform
PRINTED = "printed: "  # begins the series of a number that is written into a figure
EvaluationMetrics = dict[str, Any]  # one evaluation in metrics.json
Metrics = dict[str, dict[str, EvaluationMetrics]]  # by experiment and evaluation
Outcome = tuple[bool | None, str]  # whether a claim holds (None: unsure), and the numbers that show it


class PaperClaim(Section):
    """A claim of the paper about a figure; in captions.yaml its name alone, or a map.

    claim: a key of CHECKS. of: the algorithm that `regret near` and `regret below` compare with. without: models whose
    games are no evidence for the claim.
    """

    claim: str
    of: Name | None = None
    without: list[Name] = []

    def in_words(self, labels: Mapping[str, str]) -> str:
        """Return the claim as a sentence without its full stop. labels: of players."""
        return IN_WORDS[self.claim].format(of=plain(labels.get(self.of, self.of or "")))

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:  # noqa: ANN401 (as pydantic has it)
        return {"claim": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_checked(self) -> Self:
        if self.claim not in CHECKS:
            raise ValueError(f"unknown claim {self.claim!r}; one of {', '.join(CHECKS)}")
        if ("{of}" in IN_WORDS[self.claim]) != (self.of is not None):
            raise ValueError(f"{self.claim}: `of` names an algorithm, for `regret near` and `regret below` alone")
        return self


@dataclass(frozen=True)
class CheckedClaim:
    """A claim of the paper and whether it holds here. holds: None if that is inconclusive. numbers: what shows it."""

    claim: PaperClaim
    holds: bool | None
    numbers: list[str]


@dataclass(frozen=True)
class FigureData:
    """What claims about a figure are checked on. frame: the figure's csv. model: that of its first experiment."""

    figure: Figure
    metrics: Metrics
    frame: pd.DataFrame
    model: str

    @property
    def evaluations(self) -> dict[str, EvaluationMetrics]:
        """Return the metrics of the first experiment's evaluations that the figure draws."""
        return {name: self.metrics[self.figure.experiments[0]][name] for name in self.figure.evaluations}

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Return the rows of curves."""
        return self.frame[self.frame["series"] == "curve"].astype({"x": float, "y": float})

    @cached_property
    def printed(self) -> pd.DataFrame:
        """Return the rows of numbers that are written into the figure; series: what they are."""
        rows = self.frame[self.frame["series"].str.startswith(PRINTED)].astype({"y": float})
        return rows.assign(series=rows["series"].str.removeprefix(PRINTED))

    def curve(self, panel: str, player: str) -> np.ndarray:
        """Return the values of a player's curve in panels of that name, (T,) or empty."""
        rows = self.curves[self.curves["player"] == player]
        return rows.loc[rows["panel"].str.contains(panel), "y"].to_numpy()


Check = Callable[[FigureData, PaperClaim], list[Outcome]]


def check_claims(claims: Iterable[PaperClaim], data: FigureData) -> list[CheckedClaim]:
    """Check claims: a claim holds if it holds in every place, and fails if it fails in any place."""
    checked = []
    for claim in claims:
        outcomes = CHECKS[claim.claim](data, claim)
        holds, numbers = all_hold(holds for holds, _ in outcomes), [text for _, text in outcomes]
        if data.model in claim.without:
            holds, numbers = None, [*numbers, f"the model {data.model} is no evidence for this claim"]
        checked.append(CheckedClaim(claim, holds, numbers))
    return checked


def all_hold(holds: Iterable[bool | None]) -> bool | None:
    """Return False if any is False, else None if any is unsure or there are none, else True."""
    distinct = set(holds)
    if False in distinct:
        return False
    return None if None in distinct or not distinct else True


# --- Claims about the metrics of evaluations ---


def _in_each(check: Callable[[str, EvaluationMetrics, str | None], Outcome]) -> Check:
    """Return the check of all evaluations of a figure, from that of one: (name, metrics, reference algorithm)."""
    return lambda data, claim: [check(name, metrics, claim.of) for name, metrics in data.evaluations.items()]


def _against_base(holds: Callable[[EvaluationMetrics], bool | None]) -> Check:
    """Return a check of the difference between trained and base model in every evaluation."""
    return _in_each(
        lambda name, metrics, _: (holds(metrics), _difference(name, metrics, "base", metrics["base"]["mean"], metrics))
    )


def _against_algorithm(check: Callable[[str, EvaluationMetrics, str], Outcome]) -> Check:
    """Return a check against the claim's algorithm in every evaluation: unsure where that does not play."""
    return _in_each(
        lambda name, metrics, algorithm: (
            check(name, metrics, algorithm)
            if algorithm in metrics["algorithms"]
            else (None, f"{name}: {algorithm} does not play there")
        )
    )


def _below_algorithm(name: str, metrics: EvaluationMetrics, algorithm: str) -> Outcome:
    other = metrics["algorithms"][algorithm]
    return _is_below(other), _difference(name, metrics, algorithm, other["mean"], other)


def _grows_sublinearly(name: str, metrics: EvaluationMetrics, _: str | None) -> Outcome:
    """Check that regret grows slower than linear growth; see `is_sublinear`."""
    exponent, error = (metrics["trained"][key] for key in ("exponent", "exponent_se"))
    uniform = metrics["algorithms"].get("uniform", {}).get("exponent")
    if exponent is None or error is None:
        return None, f"{name}: exponent unknown"
    text = f"{name}: exponent {exponent:.2f} ± {error:.2f}" + (f", uniform {uniform:.2f}" if uniform else "")
    return is_sublinear(exponent, _quantile(metrics) * error, linear_exponent(uniform)), text


def _grows_slower_than_base(name: str, metrics: EvaluationMetrics, _: str | None) -> Outcome:
    """Check that the exponent is significantly below the base model's. Errors as of separate instances are cautious."""
    base, trained = ([metrics[model][key] for key in ("exponent", "exponent_se")] for model in ("base", "trained"))
    if None in (*base, *trained):
        return None, f"{name}: exponent unknown"
    margin = _quantile(metrics) * math.hypot(base[1], trained[1])
    text = f"{name}: exponent of base {base[0]:.2f} ± {base[1]:.2f}, trained {trained[0]:.2f} ± {trained[1]:.2f}"
    return _significantly_below(trained[0] - base[0], margin, 0), text


def _quantile(metrics: EvaluationMetrics) -> float:
    return t_quantile(smallest_sample(metrics["n"], len(metrics["by_training_seed"])))


def _near_algorithm(name: str, metrics: EvaluationMetrics, algorithm: str) -> Outcome:
    """Check that mean regret is below NEAR times an algorithm's. Errors as of separate instances are cautious."""
    trained, other = metrics["trained"], metrics["algorithms"][algorithm]
    if trained["se"] is None or other["se"] is None:
        return None, f"{name}: one game has no standard error"
    margin = _quantile(metrics) * math.hypot(trained["se"], NEAR * other["se"])
    text = f"{name}: trained {trained['mean']:.1f} ± {trained['se']:.1f}, {algorithm} {other['mean']:.1f}"
    return _significantly_below(trained["mean"] - NEAR * other["mean"], margin, 0), text


def _is_below(metrics: EvaluationMetrics) -> bool | None:
    return below_zero(metrics["paired_difference"])


def _is_above(metrics: EvaluationMetrics) -> bool | None:
    below = _is_below(metrics)
    return None if below is None else not below


def _is_not_below(metrics: EvaluationMetrics) -> bool | None:
    """Return whether regret did not fall significantly, and at most by NO_LOWER; a larger unsure fall says nothing."""
    low, _, high = metrics["paired_difference"]
    known = low is not None and high is not None and max(abs(low), abs(high)) >= NOISE
    small = _is_below(metrics) is None and known and low > -NO_LOWER * metrics["base"]["mean"]
    return True if small else _is_above(metrics)


def _significantly_below(value: float, margin: float, bound: float) -> bool | None:
    return True if value + margin < bound else (False if value - margin > bound else None)


def _difference(name: str, metrics: EvaluationMetrics, label: str, other: float, compared: Mapping[str, Any]) -> str:
    """Return the regrets of another player and the trained model, with their difference, and its interval if known."""
    trained = metrics["trained"]["mean"]
    low, _, high = compared["paired_difference"]
    text = signed(trained - other) if low is None or high is None else difference((low, trained - other, high))
    return f"{name}: {label} {other:.1f}, trained {trained:.1f}, difference {text}"


# --- Claims about what a figure draws ---


def _fails_less_than(player: str, *, early: bool) -> Check:
    def check(data: FigureData, _: PaperClaim) -> list[Outcome]:
        """Compare SuffFailFreq late in the game, where the paper's tables take it, or over its first half.

        The interval is Agresti and Caffo's for two shares of n games. It holds for these trainings: of several, whose
        chance it leaves out, it may be too narrow.
        """
        curves = [data.curve("suff fail freq", name) for name in ("trained", player)]
        ours, theirs = (_share_that_fails(curve, early=early) for curve in curves)
        when, n = "first half" if early else f"{LATE} T", min(metrics["n"] for metrics in data.evaluations.values())
        text = f"SuffFailFreq({when}): trained {ours:.2f}, {player} {theirs:.2f}, n = {n}"
        if math.isnan(ours + theirs):
            return [(None, text)]
        (first, error), (second, other_error) = (share_with_error(share, n) for share in (ours, theirs))
        return [(_significantly_below(first - second, CONFIDENT * math.hypot(error, other_error), 0), text)]

    return check


def _share_that_fails(curve: np.ndarray, *, early: bool) -> float:
    if len(curve) <= early:
        return math.nan
    return float(curve[: len(curve) // 2].mean() if early else in_round(curve, LATE))


def _exploration_rises_and_falls(data: FigureData, _: PaperClaim) -> list[Outcome]:
    """Check that d · MinFrac(t) peaks inside the game and ends lower; uniform play's dips at the end are smaller."""
    curve = data.curve("min frac", "trained")
    if not len(curve):
        return [(None, "d MinFrac is not drawn")]
    first, peak, last = curve[0], curve.max(), curve[-1]
    holds = bool(first < peak and last <= (1 - FALLEN) * peak)
    return [(holds, f"d MinFrac: {first:.2f} at first, {peak:.2f} at most, {last:.2f} last")]


def _base_exploits(data: FigureData, _: PaperClaim) -> list[Outcome]:
    """Check that the base model rarely plays its least-played action by the end of the game."""
    last = data.curves[data.curves["player"] == "base"].groupby("panel", sort=False)["y"].last()
    return [(value < EXPLOITS, f"{panel}: d MinFrac(T) of base {value:.2f}") for panel, value in last.items()]


def _distances_vanish(data: FigureData, _: PaperClaim) -> list[Outcome]:
    """Check that distances vanish, and that the step, drawn beside them, does not: without one there is no FTRL."""
    paper = data.curves["panel"].isin(get_args(PolicySpace))  # other panels show variants
    ends = data.curves[paper].groupby(["panel", "player"], sort=False)["y"].agg(["first", "last"])
    return [
        (
            bool(last <= VANISHED * first) != ("step size" in player),
            f"{panel}, {plain(player)}: {first:.2g} to {last:.2g}",
        )
        for (panel, player), first, last in ends.itertuples()
    ]


def _entropy(player: str, *, high: bool) -> Check:
    def check(data: FigureData, _: PaperClaim) -> list[Outcome]:
        """Check on which side of HIGH_ENTROPY the mean entropy of a model's stated policies lies."""
        entropies = data.printed.pivot_table(index="panel", columns="player", values="y", sort=False)
        return [
            ((of[player] >= HIGH_ENTROPY) == high, f"{panel}: base {of['base']:.2f}, trained {of['trained']:.2f}")
            for panel, of in entropies.iterrows()
        ]

    return check


def _loss_rises_again(data: FigureData, _: PaperClaim) -> list[Outcome]:
    """Check that the loss ends above its value after the first iteration, in the first experiment's panel."""
    curve = data.curves[data.curves["panel"] == data.figure.experiments[0]]
    x, y = curve["x"], curve["y"]
    first, last = y[x <= 1].iloc[-1], y.iloc[-1]
    printed = f"{first:.3f}", f"{last:.3f}"
    holds = None if x.max() <= 1 or printed[0] == printed[1] else bool(last > first)
    return [(holds, "mean loss at the end of the first iteration {}, of the last {}".format(*printed))]


def _avoids_less(data: FigureData, _: PaperClaim) -> list[Outcome]:
    """Compare the shares of replies that pass over the best action because of unstable rewards."""
    first = data.printed["panel"].str.match(f"{data.figure.experiments[0]}, .*: unstable rewards")
    outcomes = []
    for panel, numbers in data.printed[first].groupby("panel", sort=False):
        of = numbers.pivot(index="series", columns="player", values="y")
        share, error = of.loc[SHARE], of.loc[SHARE_ERROR]
        se = math.hypot(error["trained"], error["base"])
        text = f"{panel}: base {share['base']:.1%}, trained {share['trained']:.1%} (standard error {se:.1%})"
        outcomes.append((_significantly_below(share["trained"] - share["base"], CONFIDENT * se, 0), text))
    return outcomes


CHECKS: dict[str, Check] = {
    "regret below base": _against_base(_is_below),
    "regret above base": _against_base(_is_above),
    "regret not below base": _against_base(_is_not_below),
    "regret below": _against_algorithm(_below_algorithm),
    "growth sublinear": _in_each(_grows_sublinearly),
    "growth below base": _in_each(_grows_slower_than_base),
    "regret near": _against_algorithm(_near_algorithm),
    "failures below base": _fails_less_than("base", early=False),
    "failures below base early": _fails_less_than("base", early=True),
    "failures below greedy": _fails_less_than("greedy", early=False),
    "exploration rises and falls": _exploration_rises_and_falls,
    "base exploits": _base_exploits,
    "distances vanish": _distances_vanish,
    "entropy stays": _entropy("trained", high=True),
    "base entropy low": _entropy("base", high=False),
    "loss rises again": _loss_rises_again,
    "avoidance below base": _avoids_less,
}
LAST = f"From round {LATE} T on,"
IN_WORDS = {  # of the same claims; {of}: the algorithm that is compared with
    "regret below base": "Training lowers regret",
    "regret above base": "Training raises regret",
    "regret not below base": "Training does not lower regret",
    "regret below": "The trained model has lower regret than {of}",
    "growth sublinear": "The fitted exponent of the trained model's regret lies below that of linear growth",
    "growth below base": "Training lowers the fitted exponent of regret",
    "regret near": "The trained model's regret is about as low as that of {of}",
    "failures below base": f"{LAST} games without the best action are rarer after training",
    "failures below base early": "In the first half, training makes it rarer that the best action is given up",
    "failures below greedy": f"{LAST} greedy has more games without the best action than the trained model",
    "exploration rises and falls": "The trained model first explores all actions, then ever fewer",
    "base exploits": "The base model already exploits: it rarely plays its least-played action",
    "distances vanish": "Training brings the parameters to FTRL's form",
    "entropy stays": "The trained model's stated policies stay close to uniform",
    "base entropy low": "The base model's stated policies are not close to uniform",
    "loss rises again": "The loss ends higher than after the first iteration",
    "avoidance below base": "Training makes replies that pass over the best action for its unstable rewards rarer",
}
