"""How the attention's parameters approach those of FTRL while training: Fig. `parameter`."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmft.artifacts.csv_files import read_csv
from rmft.figures.frames import CURVE, joined, rows
from rmft.figures.style import add_note, draw_curves, panels
from rmft.workflow.records_outputs import FigureJob

# Label by column of the training log; the last column differs between the ball and the simplex.
CURVES = {
    "A_b": r"$\|\mathbf{A}\|_F\,\|\mathbf{b}\|_2$",
    "C_minus_diagonal": r"$\|\mathbf{C}-\mathrm{mean}(\mathrm{diag}\,\mathbf{C})\,I\|_F$",
    "step": r"$|c|$, the step size",
}
BALL = CURVES | {"d": r"$\|\mathbf{d}\|_2$"}
SIMPLEX = CURVES | {"d_minus_mean": r"$\|\mathbf{d}-\mathrm{mean}(\mathbf{d})\,\mathbf{1}\|_2$"}
PANELS = {
    "ball": (r"$\ell_2$ ball (Env I)", BALL),
    "simplex": ("Simplex (Env II)", SIMPLEX),
    "simplex, logits": ("Simplex, noise on logits (ours)", SIMPLEX),
}
POINTS = 200  # iterations that are drawn, at most
NOTE = "Lines: medians over training seeds. Bands: the middle half of the seeds. $c<0$: seeds whose step ends so."


def parameter_evolution(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw the distances that vanish where the model has become FTRL: on the ball, and twice on the simplex.

    In the third panel the noise is on the logits, which is another reading of the paper.

    Ours is the size of the step c that is left: distances that vanish together with it show no FTRL, but a model that
    ignores rewards. The label says in how many trainings c ends negative, which is no FTRL either.
    """
    figure, axes = panels(job.style, 1, len(paths), ratio=1.15 if len(paths) > 2 else 0.8, sharey=True)
    frames = []
    shown = islice(PANELS.items(), len(paths))
    for ax, path, (seeds, iterations), (panel, (title, labels)) in zip(axes.flat, paths, job.loops, shown, strict=True):
        log = read_csv(path, ["training_seed", "iteration", *labels], seeds * iterations)
        log = log[log["iteration"].isin(np.linspace(1, iterations, POINTS).round())]
        negative = int((log.loc[log["iteration"] == iterations, "step"] < 0).sum())
        labels = labels | {"step": f"{labels['step']}; $c<0$ in {negative} of {seeds}"}
        frame = joined(_distance(panel, label, log[column].abs(), log["iteration"]) for column, label in labels.items())
        draw_curves(ax, frame, job.style)
        ax.set(xlabel="Iteration", ylabel="Distance" if panel == "ball" else "", yscale="log", title=title)
        ax.minorticks_off()  # eight between two powers of ten look like a comb at this size
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=1, fontsize="small", columnspacing=1)
        frames.append(frame)
    add_note(figure, NOTE)
    return figure, joined(frames)


def _distance(panel: str, label: str, values: pd.Series, iteration: pd.Series) -> pd.DataFrame:
    """Return the median of one distance over training seeds by iteration, with the middle half of the seeds."""
    low, median, high = (values.groupby(iteration).quantile(share) for share in (0.25, 0.5, 0.75))
    return rows(panel, label, CURVE, median.index, median.to_numpy(), low=low.to_numpy(), high=high.to_numpy())
