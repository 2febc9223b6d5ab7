"""How language models were trained: the loss (Fig. `phi-loss`), and luck in hindsight (ours)."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.trajectories import read_selection
from rmft.figures.frames import CURVE, PRINTED, SEED, joined, printed, rows
from rmft.figures.style import add_legend, add_note, draw_curves, panels, share_limits
from rmft.metrics.luck import Selection, around_average, lead_of_selected, survival
from rmft.workflow.records_outputs import FigureJob

LOSS_NOTE = "Points: mean of each epoch. Thin lines: every step of a training seed."
ALL, SELECTED = "All trajectories", "Selected trajectories"
COLOURS = {SELECTED: "#D55E00", ALL: "#999999"}
HALVES = {"rewards of the rollout": ("regret", 1), "rewards drawn again": ("rerolled", -1)}  # column, up or down
LUCK_NOTE = "Regret less its scenario's average. Up: on {}. Down: on {}. Lines: means of the selected.".format(*HALVES)
BINS = 30
ROW_INCHES = 1.4


def _runs(job: FigureJob, paths: Sequence[Path]) -> Iterator[tuple[str, list[Sequence[Path]]]]:
    """Yield each experiment with its files: by training seed, then iteration."""
    start = 0
    for experiment, (seeds, iterations) in zip(job.figure.experiments, job.loops, strict=True):
        yield experiment, [paths[start + s * iterations :][:iterations] for s in range(seeds)]
        start += seeds * iterations


def losses(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw the loss while fine-tuning, iterations one after another: one panel an experiment."""
    figure, (axes,) = panels(job.style, 1, len(job.loops))
    parts = []
    for ax, (experiment, by_seed) in zip(axes, _runs(job, paths), strict=True):
        iterations = len(by_seed[0])
        parts.append(_losses(experiment, by_seed))
        draw_curves(ax, parts[-1], job.style, marker="o", markersize=3.5)
        ax.get_legend().remove()
        ax.set_title("\n".join(textwrap.wrap(job.experiment_titles[experiment], 40)))
        ax.set_xticks(range(iterations + 1), labels=[])
        ax.set_xticks(np.arange(iterations) + 0.5, labels=range(1, iterations + 1), minor=True)
        ax.tick_params(axis="x", which="minor", length=0)
        ax.set(xlabel="Iteration", ylabel="Loss", xlim=(0, 1.01 * iterations))
    share_limits(axes)
    add_note(figure, LOSS_NOTE)
    return figure, joined(parts)


def _losses(experiment: str, by_seed: list[Sequence[Path]]) -> pd.DataFrame:
    """Return the loss of every step by training seed, and the means of epochs over seeds.

    The steps of iteration i lie between i - 1 and i, and an epoch's mean in the middle of its steps.
    """
    steps, epochs = [], []
    for seed, logs in enumerate(by_seed):
        for done, path in enumerate(logs):
            log = read_csv(path, ["step", "epoch", "loss"])
            steps.append(rows(experiment, "loss", f"{SEED} {seed}", done + log["step"] / len(log), log["loss"]))
            epochs.append(log["loss"].groupby(np.ceil(log["epoch"].round(6))).mean())
    means = np.mean(np.reshape(epochs, (len(by_seed), len(by_seed[0]), -1)), axis=0)  # (I, E)
    middles = (np.arange(means.size) + 0.5) / means.shape[1]
    return joined([rows(experiment, "loss", CURVE, middles, means.ravel()), *steps])


def luck_in_hindsight(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw the regrets of all trajectories around their scenario's average, and where the selected ones lie.

    A row an experiment, a column an iteration. Above the axis are regrets on the rewards of the rollout, by which was
    selected; below it those of the same decisions on rewards drawn again.
    """
    columns = max(iterations for _, iterations in job.loops)
    figure, axes = panels(job.style, len(job.loops), columns, ROW_INCHES * columns / job.style.width_inches)
    parts = []
    for row, (experiment, by_seed) in zip(axes, _runs(job, paths), strict=True):
        for iteration, ax in enumerate(row):
            if iteration < len(by_seed[0]):
                selection = _pooled([logs[iteration] for logs in by_seed])
                parts.append(_luck(f"{experiment}: iteration {iteration}", selection))
                _draw_luck(ax, parts[-1], f"Iteration {iteration}")
            else:
                ax.set_axis_off()
        row[0].set_ylabel("\n".join(textwrap.wrap(job.experiment_titles[experiment], 22)), fontsize="small")
    add_legend(figure, job.style, LUCK_NOTE)
    return figure, joined(parts)


def _pooled(paths: Sequence[Path]) -> Selection:
    """Read the selections of several training seeds, whose scenarios are different ones, as one."""
    selections = [read_selection(path) for path in paths]
    first = 0
    for selection in selections:
        selection["scenario"] = selection["scenario"] + first
        first = int(selection["scenario"].max()) + 1
    return {column: np.concatenate([selection[column] for selection in selections]) for column in selections[0]}


def _luck(panel: str, selection: Selection) -> pd.DataFrame:
    """Return regrets less their scenario's average as x, with the share of one trajectory, down negative, as y."""
    parts = []
    for half, (column, sign) in HALVES.items():
        values = around_average(selection, column)
        for player, sample in ((ALL, values), (SELECTED, values[selection["selected"]])):
            parts.append(rows(panel, player, half, sample, sign / len(sample)))
    numbers = zip(
        ("before", "after", "share", "error"), (*lead_of_selected(selection), *survival(selection)), strict=True
    )
    return joined([*parts, *(printed(panel, SELECTED, f"advantage: {what}", value) for what, value in numbers)])


def _draw_luck(ax: Axes, frame: pd.DataFrame, title: str) -> None:
    """Draw both halves as histograms, the lower one with negative weights, and the means of the selected."""
    before, after, share, error = frame.loc[frame["series"].str.startswith(PRINTED), "y"]
    drawn = frame[frame["series"].isin(HALVES)].astype({"x": float, "y": float})
    low, high = drawn["x"].min(), drawn["x"].max()
    edges = np.linspace(low, max(high, low + 1), BINS + 1).tolist()
    for _, half in drawn.groupby("series", sort=False):
        look = {"hue": "player", "hue_order": [*COLOURS], "palette": COLOURS, "alpha": 0.65, "linewidth": 0}
        sns.histplot(half, x="x", weights="y", bins=edges, ax=ax, **look)
    top = 1.1 * max(map(abs, ax.get_ylim()))
    for advantage, end in ((before, top), (after, -top)):
        ax.vlines(-advantage, *sorted((0, end)), color=COLOURS[SELECTED], linewidth=1.1)
    spread = f"{error:.0%}" if np.isfinite(error) else "unknown"
    survives = f"{share:.0%} ± {spread} survives" if np.isfinite(share) else "no advantage"
    ax.set_title(f"{title}: advantage {before:.1f} → {after:.1f}\n{survives}", fontsize="small")
    ax.set(ylim=(-top, top), yticks=[0], yticklabels=[""], xlabel="", ylabel="")
