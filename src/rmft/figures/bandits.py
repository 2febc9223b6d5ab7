"""Regret and exploration in bandits: Fig. `tfbandit` and `tfgamma`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.figures.regret import draw_distribution, draw_regret, players_by_evaluation
from rmft.figures.style import Drawing
from rmft.jobs import FigureJob
from rmft.metrics.exploration import scaled_min_frac, suffix_failure
from rmft.results import Played, pick, read_players


def exploration_panels(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw regret over time, its final distribution, d · MinFrac(t) and SuffFailFreq(t)."""
    drawing = Drawing(job.style, job.size, 2, 2)
    (over_time, final), (fractions, failures) = drawing.axes
    ((_, players),) = players_by_evaluation(job, paths)
    base = pick(read_players(paths[0]), "base", paths[0])
    draw_regret(drawing, over_time, "regret", players, band=False)
    draw_distribution(drawing, final, "final regret", players, base)
    _draw_exploration(drawing, fractions, failures, players)
    drawing.legend()
    return drawing


def _draw_exploration(drawing: Drawing, fractions: Axes, failures: Axes, players: dict[str, Played]) -> None:
    for name, played in players.items():
        seeds, n, horizon = played.actions.shape
        actions, best = (array.reshape(seeds * n, horizon) for array in (played.actions, played.best_actions))
        rounds = np.arange(1, horizon + 1)
        drawing.line(fractions, "min frac", name, rounds, scaled_min_frac(actions, played.d).mean(axis=0))
        drawing.line(failures, "suff fail freq", name, rounds, suffix_failure(actions, best).mean(axis=0))
    fractions.set(xlabel="Round $t$", ylabel=r"$d\cdot$MinFrac($t$)", ylim=(0, 1.02))
    failures.set(xlabel="Round $t$", ylabel="SuffFailFreq($t$)", ylim=(0, 1.02))
