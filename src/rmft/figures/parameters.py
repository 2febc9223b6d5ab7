"""How the attention's parameters approach those of FTRL while training: Fig. `parameter`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmft.artifacts.csv_files import read_csv
from rmft.figures.style import Drawing
from rmft.workflow.records import FigureJob

# Column of the training log, label, colour; the last column differs between the ball and the simplex.
CURVES = (
    ("A_b", r"$\|\mathbf{A}\|_F\,\|\mathbf{b}\|_2$", "#0072B2"),
    ("C_minus_diagonal", r"$\|\mathbf{C}-\mathrm{mean}(\mathrm{diag}\,\mathbf{C})\,I\|_F$", "#D55E00"),
    ("step", r"$|c|$, the step size", "#999999"),
)
BIAS = {
    "ball": ("d", r"$\|\mathbf{d}\|_2$", "#009E73"),
    "simplex": ("d_minus_mean", r"$\|\mathbf{d}-\mathrm{mean}(\mathbf{d})\,\mathbf{1}\|_2$", "#CC79A7"),
}


def parameter_evolution(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw the distances that vanish where the model has become FTRL: left the ball, right the simplex.

    Ours is the size of the step c that is left: distances that vanish together with it show no FTRL, but a model that
    ignores rewards.
    A curve is the median over training seeds, its band their whole range.
    """
    drawing = Drawing(job.style, job.scale_note, 1, 2)
    titles = {"ball": r"$\ell_2$ ball (Env I)", "simplex": "Simplex (Env II)"}
    panels = zip(drawing.axes.flat, paths, job.loops, BIAS.items(), strict=True)
    for ax, path, (seeds, iterations), (space, bias) in panels:
        shown = (*CURVES, bias)
        columns = ["training_seed", "iteration", *(column for column, _, _ in shown)]
        log = read_csv(path, columns, seeds * iterations)
        for column, label, colour in shown:
            curves = log.pivot_table(index="training_seed", columns="iteration", values=column).abs()
            x, values = curves.columns.to_numpy(), curves.to_numpy()
            drawing.colours[label] = colour
            drawing.band(ax, space, label, x, values.min(axis=0), values.max(axis=0))
            drawing.line(ax, space, label, x, np.median(values, axis=0))
        ax.set(xlabel="Iteration", ylabel="Distance", yscale="log", ylim=(1e-3, None), title=titles[space])
    drawing.axes[0, 1].set_ylabel("")
    drawing.legend()
    return drawing
