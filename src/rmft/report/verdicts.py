"""What became of a figure or table of the paper, by rule: nothing here is said by hand.

A figure is judged by the paper's claims about it, a table by its values. A claim is checked on the figure's first
experiment, which has the paper's setting (further ones are variants), in every evaluation that is drawn.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rmft.params.outputs import Figure
from rmft.report.texts import Claimed, Known, plain
from rmft.tables.layout import DIRECTION_ONLY, INCONCLUSIVE, INCONSISTENT, NOT_REPRODUCED, REPRODUCED
from rmft.tables.measured import LATE

ILLUSTRATION, OURS = "illustration", "not the paper's"
VERDICTS = (REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, ILLUSTRATION, OURS)
WEAKEST_FIRST = (NOT_REPRODUCED, INCONSISTENT, INCONCLUSIVE, DIRECTION_ONLY, REPRODUCED)
NEAR = 1.25  # times the regret of a reference algorithm that still competes with it. ASSUME: the paper gives no number
VANISHED = 0.1  # share of a distance's first value that is left where it has vanished. ASSUME: likewise
NOISE = 1e-6  # of regrets: what sums of rewards leave where two games are alike
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
    """What claims are checked on. frame: what the figure draws."""

    figure: Figure
    metrics: Metrics
    frame: pd.DataFrame

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
        told = f"{claimed.claim} {claimed.of}" if claimed.of else claimed.claim
        found.append(Evidence(told, _all(holds for holds, _ in parts), [text for _, text in parts]))
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
    return [(_sign(of), _fall(name, of)) for name, of in seen.evaluations.items()]


def _not_below_base(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that regret has not surely fallen."""
    return [
        (None if of["paired_difference"][1] is None else _sign(of) is not True, _fall(name, of))
        for name, of in seen.evaluations.items()
    ]


def _sign(of: dict[str, Any]) -> bool | None:
    """Return whether the trained model's regret is surely below (True) or surely above (False) its base model's."""
    low, _, high = of["paired_difference"]
    if low is None or high is None or max(abs(low), abs(high)) < NOISE:
        return None
    return True if high < 0 else (False if low > 0 else None)


def _fall(name: str, of: dict[str, Any]) -> str:
    low, _, high = of["paired_difference"]
    base, trained = of["base"]["mean"], of["trained"]["mean"]
    interval = "" if low is None or high is None else f" [{_signed(low)}, {_signed(high)}]"
    return f"{name}: base {base:.1f}, trained {trained:.1f}, difference {_signed(trained - base)}{interval}"


def _sublinear(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    exponents = {name: of["trained"]["exponent"] for name, of in seen.evaluations.items()}
    return [
        (None if of is None else of < 1, f"{name}: exponent {'unknown' if of is None else f'{of:.2f}'}")
        for name, of in exponents.items()
    ]


def _near(seen: Seen, claimed: Claimed) -> list[tuple[bool | None, str]]:
    found = []
    for name, of in seen.evaluations.items():
        trained, other = of["trained"]["mean"], of["algorithms"][claimed.of]["mean"]
        found.append((trained <= NEAR * other, f"{name}: trained {trained:.1f}, {claimed.of} {other:.1f}"))
    return found


def _fails_less_than(player: str) -> Check:
    def check(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
        """Compare SuffFailFreq late in the game, where the paper's tables take it."""
        ours, theirs = (_late(seen.curves("suff fail freq", name)) for name in ("trained", player))
        text = f"SuffFailFreq({LATE} T): trained {ours:.2f}, {player} {theirs:.2f}"
        return [(None if ours == theirs or math.isnan(ours + theirs) else ours < theirs, text)]

    return check


def _late(curve: pd.DataFrame) -> float:
    if curve.empty:
        return math.nan
    return float(curve["y"].astype(float).iloc[max(math.floor(LATE * len(curve)) - 1, 0)])


def _rises_and_falls(seen: Seen, _: Claimed) -> list[tuple[bool | None, str]]:
    """Check that d · MinFrac(t) has its peak inside the game."""
    curve = seen.curves("min frac", "trained")["y"].astype(float).to_numpy()
    if not len(curve):
        return [(None, "d MinFrac is not drawn")]
    first, peak, last = curve[0], curve.max(), curve[-1]
    return [
        (bool(first < peak and last < peak), f"d MinFrac: {first:.2f} at first, {peak:.2f} at most, {last:.2f} last")
    ]


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
    rows = seen.frame[first & (seen.frame["series"] == "printed: share over all rounds")]
    found = []
    for panel, of in rows.groupby("panel", sort=False):
        base, ours = (float(of.loc[of["player"] == player, "y"].iloc[0]) for player in ("base", "trained"))
        found.append((None if base == ours else ours < base, f"{panel}: base {base:.1%}, trained {ours:.1%}"))
    return found


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


CHECKS: dict[str, Check] = {
    "regret below base": _below_base,
    "regret not below base": _not_below_base,
    "growth sublinear": _sublinear,
    "regret near": _near,
    "failures below base": _fails_less_than("base"),
    "failures below greedy": _fails_less_than("greedy"),
    "exploration rises and falls": _rises_and_falls,
    "distances vanish": _vanish,
    "entropy stays": _entropy(high=True),
    "entropy low": _entropy(high=False),
    "loss rises again": _loss_rises,
    "avoidance below base": _avoids_less,
}
