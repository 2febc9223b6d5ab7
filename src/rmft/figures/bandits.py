"""Regret and exploration in bandits: Fig. `tfbandit`, `tfgamma`, `open-MAB-*`, `qwen3-gamma-T50-re`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.figures.regret import draw_distribution, draw_regret, read_shown, title
from rmft.figures.style import Drawing
from rmft.metrics.exploration import scaled_min_frac, suffix_failure
from rmft.metrics.players import PlayerResults
from rmft.workflow.records import FigureJob


def exploration_panels(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw regret over time, its final distribution, d · MinFrac(t) and SuffFailFreq(t)."""
    drawing = Drawing(job.style, job.scale_note, 2, 2)
    (over_time, final), (fractions, failures) = drawing.axes
    ((_, shown, everyone),) = read_shown(job, paths)
    draw_regret(drawing, over_time, "regret", shown, band=False)
    draw_distribution(drawing, final, "final regret", shown, everyone)
    draw_min_frac(drawing, fractions, "min frac", shown)
    draw_failures(drawing, failures, "suff fail freq", shown)
    drawing.legend()
    return drawing


def failure_panels(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw regret over time, its final distribution and SuffFailFreq(t), as Fig. `open-MAB-gamma-T50-re`."""
    drawing = Drawing(job.style, job.scale_note, 1, 3)
    over_time, final, failures = drawing.axes.flat
    ((evaluation, shown, everyone),) = read_shown(job, paths)
    draw_regret(drawing, over_time, "regret", shown, band=True)
    over_time.set_title(title(evaluation))
    draw_distribution(drawing, final, "final regret", shown, everyone)
    draw_failures(drawing, failures, "suff fail freq", shown)
    drawing.legend()
    return drawing


def min_frac_panels(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw d · MinFrac(t), one panel an evaluation, as Fig. `open-MAB-minfrac`."""
    drawing = Drawing(job.style, job.scale_note, 1, len(job.figure.evaluations))
    for ax, (evaluation, shown, _) in zip(drawing.axes.flat, read_shown(job, paths), strict=True):
        draw_min_frac(drawing, ax, evaluation, shown)
        ax.set_title(title(evaluation))
    for ax in drawing.axes[:, 1:].flat:
        ax.set_ylabel("")
    drawing.legend()
    return drawing


def draw_min_frac(drawing: Drawing, ax: Axes, panel: str, players: dict[str, PlayerResults]) -> None:
    """Draw d · MinFrac(t)."""
    for name, played in players.items():
        by_seed = [scaled_min_frac(actions, played.d).mean(axis=0) for actions in played.actions]
        drawing.by_seed(ax, panel, name, np.stack(by_seed))
    ax.set(xlabel="Round $t$", ylabel=r"$d\cdot$MinFrac($t$)", ylim=(0, 1.02))


def draw_failures(drawing: Drawing, ax: Axes, panel: str, players: dict[str, PlayerResults]) -> None:
    """Draw SuffFailFreq(t)."""
    for name, played in players.items():
        games = zip(played.actions, played.best_actions, strict=True)
        by_seed = [suffix_failure(actions, best).mean(axis=0) for actions, best in games]
        drawing.by_seed(ax, panel, name, np.stack(by_seed))
    ax.set(xlabel="Round $t$", ylabel="SuffFailFreq($t$)", ylim=(0, 1.02))
