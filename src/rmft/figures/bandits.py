"""Regret and exploration in bandits: Fig. `tfbandit` and `tfgamma`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmft.figures.regret import draw_distribution, draw_regret, read_shown
from rmft.figures.style import Drawing
from rmft.jobs import FigureJob
from rmft.metrics.exploration import scaled_min_frac, suffix_failure


def exploration_panels(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw regret over time, its final distribution, d · MinFrac(t) and SuffFailFreq(t)."""
    drawing = Drawing(job.style, job.scale_note, 2, 2)
    (over_time, final), (fractions, failures) = drawing.axes
    ((_, shown, everyone),) = read_shown(job, paths)
    draw_regret(drawing, over_time, "regret", shown, band=False)
    draw_distribution(drawing, final, "final regret", shown, everyone)
    for name, played in shown.items():
        by_seed = [scaled_min_frac(actions, played.d).mean(axis=0) for actions in played.actions]
        drawing.by_seed(fractions, "min frac", name, np.stack(by_seed))
        games = zip(played.actions, played.best_actions, strict=True)
        by_seed = [suffix_failure(actions, best).mean(axis=0) for actions, best in games]
        drawing.by_seed(failures, "suff fail freq", name, np.stack(by_seed))
    fractions.set(xlabel="Round $t$", ylabel=r"$d\cdot$MinFrac($t$)", ylim=(0, 1.02))
    failures.set(xlabel="Round $t$", ylabel="SuffFailFreq($t$)", ylim=(0, 1.02))
    drawing.legend()
    return drawing
