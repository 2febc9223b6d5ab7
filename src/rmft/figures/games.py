"""What players do in evaluations: regret over time, its final distribution, and exploration.

Fig. `simplex_tf_all`, `ball_tf_all`, `regret-dynamics-noisy`, `tf*`, `open-*`, `phi-*`, `*-ood-*`, `contextual`.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmft.figures import frames
from rmft.figures.style import (
    add_legend,
    draw_curves,
    draw_distribution,
    enlarge_low_curves,
    label,
    panels,
    share_limits,
)
from rmft.metrics.exploration import scaled_min_frac, suffix_failure
from rmft.metrics.players import PlayerResults, ks_by_seed
from rmft.params.outputs import Style
from rmft.results import read_variants
from rmft.workflow.records_outputs import FigureJob

COLUMNS = 4  # panels in a row, at most
RATIOS = {1: 0.5, 2: 0.6, 3: 0.85, 4: 0.95}  # height of a panel over its width, by how many stand in a row
TITLE_CHARACTERS = {1: 90, 2: 45, 3: 28, 4: 19}  # in a line, likewise
# ASSUME: the paper speaks of confidence intervals in an appendix, and of standard deviations in captions.
NOTE = "Lines: means over games. Bands: 95% intervals of the mean."
SHARE_NOTE = " Of SuffFailFreq: Wilson intervals."
SEEDS_NOTE = " Thin lines: training seeds, whose spread is not in the bands."
INSETS_NOTE = " Insets: low curves, enlarged."
KS = "KS test against base"


@dataclass(frozen=True)
class Quantity:
    """What a panel draws over rounds. values: of a player, (S, n, T); None for the distribution of final regrets.

    bounds: of values, None where there are none.
    """

    name: str
    label: str
    values: Callable[[PlayerResults], np.ndarray] | None
    bounds: tuple[float, float] | None = None


def _min_frac(played: PlayerResults) -> np.ndarray:
    return np.stack([scaled_min_frac(actions, played.d) for actions in played.actions])


def _failures(played: PlayerResults) -> np.ndarray:
    return np.stack([suffix_failure(*games) for games in zip(played.actions, played.best_actions, strict=True)])


REGRET = Quantity("regret", "Regret($t$)", lambda played: played.regret)
FINAL = Quantity("final regret", "Share of games", None)
MIN_FRAC = Quantity("min frac", r"$d\cdot$MinFrac($t$)", _min_frac, bounds=(0, 1))
FAILURES = Quantity("suff fail freq", "SuffFailFreq($t$)", _failures, bounds=(0, 1))
QUANTITIES = {  # by form, the rows of panels of each evaluation
    "regret": [[REGRET]],
    "min-frac": [[MIN_FRAC]],
    "regret-and-distribution": [[REGRET], [FINAL]],  # of a single evaluation, beside each other
    "exploration": [[REGRET, FINAL], [MIN_FRAC, FAILURES]],
    "sufficient-failure": [[REGRET, FINAL, FAILURES]],
}


@dataclass(frozen=True)
class Shown:
    """One evaluation in a figure: its title, the players to draw, and everyone who played."""

    title: str
    players: dict[str, PlayerResults]
    everyone: dict[str, PlayerResults]


def read_shown(job: FigureJob, paths: Sequence[Path]) -> Iterator[Shown]:
    """Yield each evaluation of a figure."""
    for evaluation, everyone in read_variants(job.figure.sources, paths).items():
        yield Shown(job.titles[evaluation], {name: everyone[name] for name in job.figure.players}, everyone)


def games(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw the quantities of a form: regret over time, its final distribution, d · MinFrac(t), SuffFailFreq(t)."""
    shown = list(read_shown(job, paths))
    rows = [[(quantity, one) for one in shown for quantity in row] for row in QUANTITIES[job.figure.form]]
    if job.figure.form == "regret-and-distribution" and len(shown) == 1:
        rows = [[*rows[0], *rows[1]]]
    if len(rows) == 1:
        rows = [rows[0][first : first + COLUMNS] for first in range(0, len(rows[0]), COLUMNS)]
    return _draw(job.style, rows)


def _draw(style: Style, rows: Sequence[Sequence[tuple[Quantity, Shown]]]) -> tuple[Figure, pd.DataFrame]:
    """Draw rows of panels. In a row, panels of one quantity share their axis; an evaluation's first has its title."""
    columns = len(rows[0])
    figure, axes = panels(style, len(rows), columns, RATIOS[min(columns, COLUMNS)])
    parts, titled, insets = [], set(), []
    for row_of_axes, row in zip(axes, rows, strict=True):
        drawn = []
        for ax, (quantity, shown) in zip(row_of_axes, row, strict=False):
            panel = f"{shown.title}: {quantity.name}"
            parts.append(_final_frame(panel, shown) if quantity is FINAL else _frame(panel, quantity, shown))
            _draw_panel(ax, parts[-1], quantity, style)
            drawn.append((ax, quantity, parts[-1]))
            if shown.title not in titled:
                unbroken = shown.title.replace(" = ", "\u00a0=\u00a0")
                ax.set_title(textwrap.fill(unbroken, TITLE_CHARACTERS[min(columns, COLUMNS)]))
                titled.add(shown.title)
        for ax in row_of_axes[len(row) :]:
            ax.set_axis_off()
        for shared, axis in ((REGRET, "y"), (FINAL, "x")):
            alike = [ax for ax, quantity, _ in drawn if quantity is shared]
            if alike:
                share_limits(alike, axis)
        insets += [enlarge_low_curves(ax, part, style) for ax, quantity, part in drawn if quantity is REGRET]
    frame = frames.joined(parts)
    several_seeds = frame["series"].str.startswith(frames.SEED).any()
    notes = {
        SHARE_NOTE: any(quantity is FAILURES for row in rows for quantity, _ in row),
        SEEDS_NOTE: several_seeds,
        INSETS_NOTE: any(insets),
    }
    add_legend(figure, style, NOTE + "".join(note for note, applies in notes.items() if applies))
    return figure, frame


def _frame(panel: str, quantity: Quantity, shown: Shown) -> pd.DataFrame:
    values = {name: quantity.values(played) for name, played in shown.players.items()}
    curves = partial(frames.mean_over_games, panel, bounds=quantity.bounds, is_share=quantity is FAILURES)
    return frames.joined(curves(name, of) for name, of in values.items())


def _final_frame(panel: str, shown: Shown) -> pd.DataFrame:
    """Return the final regrets of every player's games, and the KS test of every trained model against its base."""
    parts = [frames.rows(panel, name, frames.GAMES, played.final.ravel()) for name, played in shown.players.items()]
    for name in shown.players:
        if name.startswith("trained"):
            tests = ks_by_seed(shown.everyone[name], shown.everyone[name.replace("trained", "base", 1)])
            what = KS + (f" (median of {len(tests)} seeds)" if len(tests) > 1 else "")
            games = shown.everyone[name].final.shape[1]
            parts.append(frames.printed(panel, name, what, float(np.median(tests))).assign(x=games))
    return frames.joined(parts)


def _draw_panel(ax: Axes, frame: pd.DataFrame, quantity: Quantity, style: Style) -> None:
    if quantity is not FINAL:
        draw_curves(ax, frame, style)
        ax.set(xlabel="Round $t$", ylabel=quantity.label)
        ax.xaxis.get_major_locator().set_params(integer=True)
        if quantity.bounds:
            ax.set_ylim(0, 1.02)
        return
    draw_distribution(ax, frame[frame["series"] == frames.GAMES], style)
    ax.set(xlabel="Final regret", ylabel=quantity.label)
    tests = frame[frame["series"].str.startswith(frames.PRINTED)]
    lines = [heading.removeprefix(frames.PRINTED) for heading in tests["series"].unique()]
    for test in tests.itertuples():
        p = "all games alike" if np.isnan(test.y) else f"$p$ = {test.y:.2g}"
        lines.append(f"{label(style, test.player)}: {p} ({test.x} games)")
    ax.set_title("\n".join(lines), fontsize="x-small")
