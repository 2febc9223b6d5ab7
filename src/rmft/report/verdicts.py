"""What became of a figure or table of the paper, by rule: nothing here is said by hand.

A figure is judged by the paper's claims about it, a table by its values. A claim is checked on the figure's first
experiment, which has the paper's setting (further ones are variants), in every evaluation that is drawn.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rmft.params.outputs import Figure
from rmft.reasoning import SHARE, SHARE_ERROR
from rmft.report.texts import Claimed, Known, plain
from rmft.tables.layout import CONFIDENT, DIRECTION_ONLY, INCONCLUSIVE, INCONSISTENT, NOT_REPRODUCED, REPRODUCED
from rmft.tables.measured import LATE

ILLUSTRATION, OURS = "illustration", "not the paper's"
VERDICTS = (REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, ILLUSTRATION, OURS)
WEAKEST_FIRST = (NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, DIRECTION_ONLY, REPRODUCED)
NEAR = 1.25  # times the regret of a reference algorithm that still competes with it. ASSUME: the paper gives no number
VANISHED = 0.1  # share of a distance's first value that is left where it has vanished. ASSUME: likewise
NOISE = 1e-6  # of regrets: what sums of rewards leave where two games are alike
NO_LOWER = 0.1  # share of the base model's regret: a fall that is surely smaller is none. ASSUME: likewise
FALLEN = 0.1  # share of its peak by which a curve ends below it where it falls. ASSUME: likewise
EXPLOITS = 0.5  # of d · MinFrac(T): below it the least-played action has less than half its share. ASSUME: likewise
HIGH_ENTROPY = 0.8  # of log d: above it stated policies are close to uniform. ASSUME: likewise
Metrics = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Evidence:
    """A claim of the paper's, and whether ours bears it out: None where that is not sure. seen: in numbers."""

    claim: str
    holds: bool | None
    seen: list[str]


@dataclass(frozen=True)
class Seen:
    """What claims are checked on. frame: what the figure draws. model: that of its first experiment."""

    figure: Figure
    metrics: Metrics
    frame: pd.DataFrame
    model: str

    @property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of the first experiment's evaluations that are drawn."""
        return {name: self.metrics[self.figure.experiments[0]][name] for name in self.figure.evaluations}

    def curves(self, panel: str, player: str) -> pd.DataFrame:
        """Return what is drawn of a player in panels of that name."""
        rows = self.frame
        return rows[rows["panel"].str.contains(panel) & (rows["player"] == player) & (rows["series"] == "curve")]


Check = Callable[[Seen, Claimed], list[tuple[bool | None, str]]]


def evidence(claims: Iterable[Claimed], seen: Seen) -> list[Evidence]:
    """Check claims; one holds if it does wherever it is checked, and fails if it does anywhere."""
    found = []
    for claimed in claims:
        parts = CHECKS[claimed.claim](seen, claimed)
        told, texts = f"{claimed.claim} {claimed.of}" if claimed.of else claimed.claim, [text for _, text in parts]
        holds = _all(holds for holds, _ in parts)
        if seen.model in claimed.without:
            holds, texts = None, [*texts, f"the model {seen.model} is no evidence of it"]
        found.append(Evidence(told, holds, texts))
    return found


def figure_verdict(found: list[Evidence], scale_note: str | None, *, of_paper: bool) -> str:
    """Return a figure's verdict. At another size than the paper's, what holds is the direction alone."""
    if not of_paper:
        return OURS
    if not found:
        return ILLUSTRATION
    holds = _all(one.holds for one in found)
    if holds is None:
        return INCONCLUSIVE
    return (DIRECTION_ONLY if scale_note else REPRODUCED) if holds else NOT_REPRODUCED


def explained(tidy: pd.DataFrame, known: Iterable[Known]) -> pd.DataFrame:
    """Return a table with the reason beside every value that is not reproduced because the paper contradicts itself.

    Such a value's verdict becomes `paper inconsistent`.
    """
    tidy = tidy.assign(verdict=tidy["verdict"].fillna(""), reason="")
    for one in known:
        columns = {name: values for name, values in one.rows.items() if name in tidy}
        if columns:
            rows = tidy["verdict"].isin([NOT_REPRODUCED, INCONSISTENT])
            for name, values in columns.items():
                rows &= tidy[name].astype(str).isin(values)
            tidy.loc[rows, ["verdict", "reason"]] = [INCONSISTENT, one.reason]
    return tidy


def table_verdict(tidy: pd.DataFrame, *, of_paper: bool) -> str:
    """Return a table's verdict: that of the weakest value of what it is about.

    It is about its trained models; where there are none, about all that it holds.
    """
    if not of_paper:
        return OURS
    if "player" in tidy and tidy["player"].str.startswith("trained").any():
        tidy = tidy[tidy["player"].str.startswith("trained")]
    there = set(tidy["verdict"])
    return next((verdict for verdict in WEAKEST_FIRST if verdict in there), INCONCLUSIVE)


def _all(holds: Iterable[bool | None]) -> bool | None:
    there = set(holds)
    return False if False in there else (None if None in there or not there else True)


# --- Checks: each returns (holds, what was seen) wherever it looks ---


def _below_base(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    return [(_below(of), _fall(name, of)) for name, of in seen.evaluations.items()]


def _above_base(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    return [(_not(_below(of)), _fall(name, of)) for name, of in seen.evaluations.items()]


def _not_below_base(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that regret has surely not fallen, or by less than NO_LOWER; that a fall is not sure is no evidence."""

    def holds(of: dict[str, Any]) -> bool | None:
        below, (low, _, high) = _below(of), of["paired_difference"]
        known = low is not None and high is not None and max(abs(low), abs(high)) >= NOISE
        return True if below is None and known and low > -NO_LOWER * of["base"]["mean"] else _not(below)

    return [(holds(of), _fall(name, of)) for name, of in seen.evaluations.items()]


def _below_algorithm(seen: Seen, claimed: Claimed) -> list[tuple[bool | None, str]]:
    """Check that the trained model's regret is below an algorithm's."""
    found = []
    for name, of in seen.evaluations.items():
        other = of["algorithms"][claimed.of]
        text = f"{name}: trained {of['trained']['mean']:.1f}, {claimed.of} {other['mean']:.1f}{_interval(other)}"
        found.append((_below(other), text))
    return found


def _below(of: dict[str, Any]) -> bool | None:
    """Return whether the paired difference in `of` is surely below 0 (True) or surely above (False)."""
    low, _, high = of["paired_difference"]
    if low is None or high is None or max(abs(low), abs(high)) < NOISE:
        return None
    return _surely_below(low, high, 0)


def _surely_below(low: float, high: float, bound: float) -> bool | None:
    return True if high < bound else (False if low > bound else None)


def _not(holds: bool | None) -> bool | None:
    return None if holds is None else not holds


def _interval(of: dict[str, Any]) -> str:
    low, _, high = of["paired_difference"]
    return "" if low is None or high is None else f" [{_signed(low)}, {_signed(high)}]"


def _fall(name: str, of: dict[str, Any]) -> str:
    base, trained = of["base"]["mean"], of["trained"]["mean"]
    return f"{name}: base {base:.1f}, trained {trained:.1f}, difference {_signed(trained - base)}{_interval(of)}"


def _sublinear(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that the exponent is below 1 by CONFIDENT standard errors: regret under uniform play has about 1."""
    found = []
    for name, of in seen.evaluations.items():
        exponent, error = (of["trained"][key] for key in ("exponent", "exponent_se"))
        if exponent is None or error is None:
            found.append((None, f"{name}: exponent unknown"))
            continue
        holds = _surely_below(exponent - CONFIDENT * error, exponent + CONFIDENT * error, 1)
        found.append((holds, f"{name}: exponent {exponent:.2f} ± {error:.2f}"))
    return found


def _near(seen: Seen, claimed: Claimed) -> list[tuple[bool | None, str]]:
    """Check that the mean is below NEAR times an algorithm's, errors taken as of other instances, which is cautious."""
    found = []
    for name, of in seen.evaluations.items():
        trained, other = of["trained"], of["algorithms"][claimed.of]
        apart = trained["mean"] - NEAR * other["mean"]
        margin = CONFIDENT * math.hypot(trained["se"], NEAR * other["se"])
        text = f"{name}: trained {trained['mean']:.1f} ± {trained['se']:.1f}, {claimed.of} {other['mean']:.1f}"
        found.append((_surely_below(apart - margin, apart + margin, 0), text))
    return found


def _fails_less_than(player: str, *, early: bool) -> Check:
    def check(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
        """Compare SuffFailFreq: late in the game, where the paper's tables take it, or over its first half.

        The interval is Agresti and Caffo's of two shares of n games, which is cautious: games are on common instances,
        and a share over rounds varies no more than that of one.
        """
        curves = (seen.curves("suff fail freq", name)["y"].astype(float).to_numpy() for name in ("trained", player))
        ours, theirs = (_early(curve) if early else _late(curve) for curve in curves)
        when, n = "first half" if early else f"{LATE} T", min(of["n"] for of in seen.evaluations.values())
        text = f"SuffFailFreq({when}): trained {ours:.2f}, {player} {theirs:.2f}, n = {n}"
        if math.isnan(ours + theirs):
            return [(None, text)]
        first, second = ((share * n + 1) / (n + 2) for share in (ours, theirs))
        margin = CONFIDENT * math.sqrt((first * (1 - first) + second * (1 - second)) / (n + 2))
        return [(_surely_below(first - second - margin, first - second + margin, 0), text)]

    return check


def _late(curve: np.ndarray) -> float:
    return float(curve[max(math.floor(LATE * len(curve)) - 1, 0)]) if len(curve) else math.nan


def _early(curve: np.ndarray) -> float:
    return float(curve[: len(curve) // 2].mean()) if len(curve) > 1 else math.nan


def _rises_and_falls(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that d · MinFrac(t) has its peak inside the game, by more than what uniform play dips at the end."""
    curve = seen.curves("min frac", "trained")["y"].astype(float).to_numpy()
    if not len(curve):
        return [(None, "d MinFrac is not drawn")]
    first, peak, last = curve[0], curve.max(), curve[-1]
    holds = bool(first < peak and last <= (1 - FALLEN) * peak)
    return [(holds, f"d MinFrac: {first:.2f} at first, {peak:.2f} at most, {last:.2f} last")]


def _base_exploits(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that the base model plays its least-played action little at the end of the game."""
    rows = seen.frame[(seen.frame["player"] == "base") & (seen.frame["series"] == "curve")]
    last = {panel: float(of["y"].astype(float).iloc[-1]) for panel, of in rows.groupby("panel", sort=False)}
    return [(value < EXPLOITS, f"{panel}: d MinFrac(T) of base {value:.2f}") for panel, value in last.items()]


def _vanish(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    ours = seen.frame["player"].str.contains("step size")  # drawn by us beside the paper's distances, and none
    rows = seen.frame[(seen.frame["series"] == "curve") & ~ours]
    found = []
    for (panel, player), of in rows.groupby(["panel", "player"], sort=False):
        first, last = of["y"].astype(float).iloc[[0, -1]]
        found.append((bool(last <= VANISHED * first), f"{panel}, {plain(player)}: from {first:.2g} to {last:.2g}"))
    return found


def _entropies(seen: Seen) -> pd.DataFrame:
    rows = seen.frame[seen.frame["series"].str.startswith("printed: ")]
    return rows.assign(y=rows["y"].astype(float)).pivot_table(index="panel", columns="player", values="y", sort=False)


def _entropy(*, high: bool) -> Check:
    def check(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
        """Check on which side of HIGH_ENTROPY the mean entropy of the trained model's stated policies lies."""
        return [
            ((of["trained"] >= HIGH_ENTROPY) == high, f"{panel}: base {of['base']:.2f}, trained {of['trained']:.2f}")
            for panel, of in _entropies(seen).iterrows()
        ]

    return check


def _loss_rises(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that the loss of later iterations ends above that of the first one; in the first experiment's panel."""
    panel = seen.frame["panel"] == seen.figure.experiments[0]
    curve = seen.frame[panel & (seen.frame["series"] == "curve")]
    x, y = curve["x"].astype(float), curve["y"].astype(float)
    first, last = y[x <= 1].iloc[-1], y.iloc[-1]
    sure = None if x.max() <= 1 else bool(last > first)
    return [(sure, f"mean loss at the end of the first iteration {first:.3f}, of the last {last:.3f}")]


def _avoids_less(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Compare in which share of replies the best action is passed over because of unstable rewards."""
    first = seen.frame["panel"].str.match(f"{seen.figure.experiments[0]}, .*: unstable rewards")
    printed = seen.frame[first & seen.frame["series"].str.startswith("printed: ")]
    found = []
    for panel, rows in printed.groupby("panel", sort=False):
        of = rows.assign(y=rows["y"].astype(float)).pivot(index="series", columns="player", values="y")
        share, error = (of.loc[f"printed: {name}"] for name in (SHARE, SHARE_ERROR))
        apart, margin = share["trained"] - share["base"], CONFIDENT * math.hypot(error["trained"], error["base"])
        text = f"{panel}: base {share['base']:.1%}, trained {share['trained']:.1%} (± {margin / CONFIDENT:.1%} apart)"
        found.append((_surely_below(apart - margin, apart + margin, 0), text))
    return found


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


CHECKS: dict[str, Check] = {
    "regret below base": _below_base,
    "regret above base": _above_base,
    "regret not below base": _not_below_base,
    "regret below": _below_algorithm,
    "growth sublinear": _sublinear,
    "regret near": _near,
    "failures below base": _fails_less_than("base", early=False),
    "failures below base early": _fails_less_than("base", early=True),
    "failures below greedy": _fails_less_than("greedy", early=False),
    "exploration rises and falls": _rises_and_falls,
    "base exploits": _base_exploits,
    "distances vanish": _vanish,
    "entropy stays": _entropy(high=True),
    "entropy low": _entropy(high=False),
    "loss rises again": _loss_rises,
    "avoidance below base": _avoids_less,
}
