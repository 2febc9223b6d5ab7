"""How every figure looks, and the record of exactly what it draws."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.files import artifact
from rmft.params.outputs import Style

RATIO = 0.72  # height of a panel over its width
FULL_SIZE = "the paper's size"
LINESTYLES = {"base": ":", "uniform": ":", "ftl": "--", "greedy": "--"}


class Drawing:
    """A figure on a grid of panels. What is drawn through it is also recorded, for the CSV."""

    def __init__(self, style: Style, scale_note: str | None, rows: int, columns: int) -> None:
        self.style = style
        self.colours = dict(style.colours)  # a family of figures may add curves that are no players
        self.scale_note = scale_note
        mpl.rcParams.update(_settings(style.font_points))
        width = self.style.width_inches
        height = rows * width / columns * RATIO + 0.45 + (0.15 if scale_note else 0)  # for the legend and the note
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.axes: np.ndarray = self.figure.subplots(rows, columns, squeeze=False)
        self.records: dict[str, list] = {name: [] for name in ("panel", "player", "series", "x", "y")}

    def line(self, ax: Axes, panel: str, player: str, x: np.ndarray, y: np.ndarray) -> None:
        """Draw a player's main curve."""
        ax.plot(x, y, **self._look(player), label=self.label(player))
        self._record(panel, player, "curve", x, y)

    def by_seed(self, ax: Axes, panel: str, player: str, curves: np.ndarray) -> None:
        """Draw the mean of curves (S, T) over training seeds and, if there are several, each of them thin below it."""
        rounds = np.arange(1, curves.shape[1] + 1)
        for seed, curve in enumerate(curves if len(curves) > 1 else []):
            self.thin(ax, panel, player, seed, rounds, curve)
        self.line(ax, panel, player, rounds, curves.mean(axis=0))

    def thin(self, ax: Axes, panel: str, player: str, seed: int, x: np.ndarray, y: np.ndarray) -> None:
        """Draw the curve of one training seed below the main ones."""
        look = {"color": self._look(player)["color"], "linewidth": 0.5, "alpha": 0.5}
        ax.plot(x, y, **look, zorder=1.9, label=self.label(player))
        self._record(panel, player, f"training seed {seed}", x, y)

    def band(self, ax: Axes, panel: str, player: str, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Shade between two curves."""
        ax.fill_between(x, low, high, color=self._look(player)["color"], alpha=0.15, linewidth=0)
        self._record(panel, player, "band low", x, low)
        self._record(panel, player, "band high", x, high)

    def distribution(self, ax: Axes, panel: str, player: str, sample: np.ndarray) -> None:
        """Draw the empirical distribution function of a sample (n,)."""
        x = np.sort(sample)
        y = np.arange(1, len(x) + 1) / len(x)
        ax.step(x, y, where="post", **self._look(player), label=self.label(player))
        self._record(panel, player, "distribution", x, y)

    def histogram(
        self,
        ax: Axes,
        panel: str,
        player: str,
        series: str,
        sample: np.ndarray,
        edges: np.ndarray,
        *,
        down: bool = False,
    ) -> None:
        """Draw the share of a sample (n,) in every bin; down: hanging from the axis, the shares negative."""
        shares = np.histogram(sample, edges)[0] / len(sample) * (-1 if down else 1)
        look = {"facecolor": self._look(player)["color"], "alpha": 0.65, "linewidth": 0}
        ax.stairs(shares, edges, fill=True, **look, label=self.label(player))
        self._record(panel, player, series, (edges[:-1] + edges[1:]) / 2, shares)

    def mark(self, ax: Axes, panel: str, player: str, series: str, x: float, low: float, high: float) -> None:
        """Draw a vertical line at x from low to high."""
        ax.plot([x, x], [low, high], color=self._look(player)["color"], linewidth=1.1)
        self._record(panel, player, series, [x, x], [low, high])

    def printed(self, panel: str, player: str, what: str, value: float) -> None:
        """Record a number that a text in the figure gives."""
        self._record(panel, player, f"printed: {what}", [None], [value])

    def said(self, panel: str, player: str, lines: Sequence[str], series: str = "text") -> None:
        """Record a text that the figure shows, line by line; or parts of it that it shows in some way (text: ...)."""
        self._record(panel, player, series, range(1, len(lines) + 1), lines)

    def label(self, player: str) -> str:
        """Return the name of a player in legends."""
        return self.style.labels.get(player, player)

    def legend(self) -> None:
        """Put one legend for all panels below them."""
        entries = {}
        for ax in self.axes.flat:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                entries[label] = handle  # the last, since what is thin is drawn first
        self.figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", ncols=len(entries) if len(entries) <= 6 else 4
        )

    def save(self, stem: Path) -> None:
        """Write stem.pdf, stem.png and stem.csv; a figure of a smaller scale says so in itself and in its metadata."""
        if self.scale_note:  # a title, so that the layout leaves room for it
            self.figure.suptitle(self.scale_note, x=0.995, ha="right", fontsize="xx-small", color="#B00020")
        about = f"rmft, {stem.name}, {self.scale_note or FULL_SIZE}"
        pdf, png, csv = (stem.with_name(f"{stem.name}.{ending}") for ending in ("pdf", "png", "csv"))
        with artifact(pdf) as path:  # no date: the same data gives the same bytes
            self.figure.savefig(path, metadata={"Subject": about, "CreationDate": None})
        with artifact(png) as path:
            self.figure.savefig(path, metadata={"Description": about}, dpi=self.style.dpi)
        write_csv(csv, self.records)

    def _look(self, player: str) -> dict[str, str | float]:
        width = 1.6 if player.startswith("trained") else 1.1
        color = self.colours.get(player, "#000000")
        return {"color": color, "linestyle": LINESTYLES.get(player, "-"), "linewidth": width}

    def _record(
        self, panel: str, player: str, series: str, x: Sequence[float | None], y: Sequence[float | str]
    ) -> None:
        point = {"panel": [panel] * len(x), "player": [player] * len(x), "series": [series] * len(x), "x": x, "y": y}
        for column, values in point.items():
            self.records[column].extend(values)


def _settings(size: float) -> dict[str, object]:
    return {
        "font.size": size,
        "axes.titlesize": size,
        "legend.fontsize": size,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.linewidth": 0.4,
        "grid.color": "#DDDDDD",
        "axes.axisbelow": True,
        "legend.frameon": False,
        "pdf.fonttype": 42,  # real fonts, which journals ask for
    }
