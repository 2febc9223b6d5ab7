"""How language models were trained: Fig. `phi-loss`, and luck in hindsight (ours)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.trajectories import read_selection
from rmft.figures.style import Drawing
from rmft.metrics.luck import Selection, advantages, around_average, survival
from rmft.workflow.records import FigureJob

EVERY_STEP, EPOCH = "Every step", "Mean of an epoch"
ALL, SELECTED = "All trajectories", "Selected ones"
COLOURS = {EVERY_STEP: "#0072B2", EPOCH: "#D55E00", ALL: "#999999", SELECTED: "#D55E00"}
BINS = 30
HALVES = {"rewards as met": "regret", "rewards drawn again": "rerolled"}  # what is above and below the axis, by column


def _runs(job: FigureJob, paths: Sequence[Path]) -> Iterator[tuple[str, list[Sequence[Path]]]]:
    """Yield each experiment with its files: by training seed, then iteration."""
    start = 0
    for experiment, (seeds, iterations) in zip(job.figure.experiments, job.loops, strict=True):
        yield experiment, [paths[start + s * iterations :][:iterations] for s in range(seeds)]
        start += seeds * iterations


# --- Losses ---


def losses(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw the loss while fine-tuning, iterations one after another: one panel an experiment, Fig. `phi-loss`."""
    drawing = Drawing(job.style, job.scale_note, 1, len(job.figure.experiments))
    drawing.colours |= COLOURS
    for ax, (experiment, by_seed) in zip(drawing.axes.flat, _runs(job, paths), strict=True):
        epochs = []
        for seed, logs in enumerate(by_seed):
            x, loss, by_epoch = _curve(logs)
            drawing.thin(ax, experiment, EVERY_STEP, seed, x, loss)
            epochs.append(by_epoch)
        _draw_epochs(drawing, ax, experiment, np.mean(epochs, axis=0))
        _name_iterations(ax, len(by_seed[0]))
        ax.set_title(experiment)
    drawing.axes[0, 0].set_ylabel("Loss")
    drawing.legend()
    return drawing


def _curve(logs: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the loss of every step, where it stands (iteration i is from i - 1 to i), and its epochs' means (I, E)."""
    x, loss, by_epoch = [], [], []
    for done, path in enumerate(logs):
        log = read_csv(path, ["step", "epoch", "loss"])
        x.append(done + log["step"] / len(log))
        loss.append(log["loss"])
        by_epoch.append(log["loss"].groupby(np.ceil(log["epoch"].round(6))).mean())
    return np.concatenate(x), np.concatenate(loss), np.array(by_epoch)


def _draw_epochs(drawing: Drawing, ax: Axes, panel: str, means: np.ndarray) -> None:
    """Draw the means of epochs (I, E) as stairs."""
    edges = np.linspace(0, len(means), means.size + 1)
    drawing.line(ax, panel, EPOCH, edges.repeat(2)[1:-1], means.ravel().repeat(2))


def _name_iterations(ax: Axes, iterations: int) -> None:
    """Put the number of every iteration into its middle, and nothing at the lines between them."""
    ax.set_xticks(range(iterations + 1), labels=[])
    ax.set_xticks(np.arange(iterations) + 0.5, labels=range(1, iterations + 1), minor=True)
    ax.tick_params(axis="x", which="minor", length=0)
    ax.set(xlabel="Iteration", xlim=(0, iterations))


# --- Luck in hindsight ---


def luck_in_hindsight(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw the regrets of all trajectories around their scenario's average, and where the selected ones lie.

    A row an experiment, a column an iteration. Above the axis regrets on the rewards that were met, by which was
    selected; below it those of the same actions on rewards drawn again, where luck is gone and skill is left. The title
    says how much of the selected trajectories' advantage is left, with its standard error over scenarios.
    """
    columns = max(iterations for _, iterations in job.loops)
    drawing = Drawing(job.style, job.scale_note, len(job.loops), columns)
    drawing.colours |= COLOURS
    for row, (experiment, by_seed) in zip(drawing.axes, _runs(job, paths), strict=True):
        for iteration, ax in enumerate(row):
            ax.sharex(row[0])
            if iteration < len(by_seed[0]):
                found = _pooled([logs[iteration] for logs in by_seed])
                ax.set_title(f"Iteration {iteration}\n")
                _draw_luck(drawing, ax, f"{experiment}: iteration {iteration}", found)
            else:
                ax.set_axis_off()
        row[0].set_ylabel(experiment)
    for ax in drawing.axes[-1]:
        ax.set_xlabel("Regret less the scenario's average")
    drawing.legend()
    return drawing


def _pooled(paths: Sequence[Path]) -> Selection:
    """Read the selections of several training seeds, whose scenarios are different ones, as one."""
    read = [read_selection(path) for path in paths]
    first = 0
    for selection in read:
        selection["scenario"] = selection["scenario"] + first
        first = int(selection["scenario"].max()) + 1
    return {column: np.concatenate([selection[column] for selection in read]) for column in read[0]}


def _draw_luck(drawing: Drawing, ax: Axes, panel: str, selection: Selection) -> None:
    around = {series: around_average(selection, column) for series, column in HALVES.items()}
    low, high = min(map(np.min, around.values())), max(map(np.max, around.values()))
    edges = np.linspace(low, max(high, low + 1), BINS + 1)
    for (series, values), down in zip(around.items(), (False, True), strict=True):
        drawing.histogram(ax, panel, ALL, series, values, edges, down=down)
        drawing.histogram(ax, panel, SELECTED, series, values[selection["selected"]], edges, down=down)
    top = 1.15 * max(map(abs, ax.get_ylim()))
    for (series, values), end in zip(around.items(), (top, -top), strict=True):
        drawing.mark(ax, panel, SELECTED, f"mean, {series}", values[selection["selected"]].mean(), 0, end)
        ax.annotate(series, (0.98, 0.5 + end / top * 0.4), xycoords="axes fraction", ha="right", fontsize="x-small")
    ax.set(ylim=(-top, top), yticks=[0], yticklabels=[""])
    _say_survival(drawing, ax, panel, selection)


def _say_survival(drawing: Drawing, ax: Axes, panel: str, selection: Selection) -> None:
    """Print how much of the selected trajectories' advantage is left on rewards that are drawn again."""
    (in_hindsight, again), (share, error) = advantages(selection), survival(selection)
    drawing.printed(panel, SELECTED, "share that survives", share)
    drawing.printed(panel, SELECTED, "its standard error", error)
    text = f"{share:.0%} ± {error:.0%} survives" if np.isfinite(share) else "all are alike"
    ax.set_title(f"{ax.get_title()}advantage {in_hindsight:.1f} → {again:.1f}: {text}", fontsize="small")
