"""How all figures look, and the files of a figure."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from seaborn import objects

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.files import artifact
from rmft.figures.frames import CURVE, SEED
from rmft.params.outputs import Style

mpl.use("Agg")

RATIO = 0.72  # height of a panel over its width
LEGEND_INCHES, NOTE_INCHES = 0.55, 0.15
FULL_SIZE = "the paper's size"
LEGEND_CHARACTERS = 50  # of names in one line
NOTE_CHARACTERS = 17  # of a note, on an inch of a figure's width
CROWDED = 4  # times the range of another panel in the row
LOW = 0.15  # of an axis: curves that stay below cannot be told apart
INSETS = [(0.12, 0.52, width, 0.46) for width in (0.5, 0.36)]  # left, bottom, width, height, as shares of a panel
DASHES = {  # on, off, ... in line widths; what is not here is solid
    "base": (1, 1),
    "uniform": (1, 2.5),
    "ftl": (4, 1.5),
    "greedy": (4, 1.5),
    "exp3": (6, 1.2, 1, 1.2),
    "ftrl-100": (6, 1.2, 1, 1.2),
    "linucb": (6, 1.2, 1, 1.2),
    "rexp3": (2.5, 1),
}
VARIANT_DASHES = {
    "trained-": (3, 1),
    "base-": (1, 2),
}  # of the models of a further experiment, by what names begin with


@dataclass(frozen=True)
class Drawing:
    """A figure and the frame that it draws. scale_note: what it says of its scale, None at the paper's size."""

    figure: Figure
    frame: pd.DataFrame
    scale_note: str | None
    dpi: int

    def save(self, stem: Path) -> None:
        """Write stem.pdf, stem.png and stem.csv; a figure of a smaller scale says so in itself and in its metadata."""
        about = f"rmft, {stem.name}, {self.scale_note or FULL_SIZE}"
        pdf, png, csv = (stem.with_name(f"{stem.name}.{ending}") for ending in ("pdf", "png", "csv"))
        with artifact(pdf) as path:  # no date: the same data gives the same bytes
            self.figure.savefig(path, metadata={"Subject": about, "CreationDate": None})
        self.figure.set_layout_engine("none")  # both files have the layout of the first
        with artifact(png) as path:
            self.figure.savefig(path, metadata={"Description": about}, dpi=self.dpi)
        write_csv(csv, self.frame)


def finished(figure: Figure, frame: pd.DataFrame, style: Style, scale_note: str | None) -> Drawing:
    """Return a figure that is ready to be saved, with the note on its scale."""
    if scale_note:  # a title, so that the layout leaves room for it
        figure.suptitle(scale_note, x=0.995, ha="right", fontsize="xx-small", color="#B00020")
        figure.set_figheight(figure.get_figheight() + NOTE_INCHES)
    plt.close(figure)  # pyplot need not keep it
    return Drawing(figure, frame, scale_note, style.dpi)


def set_theme(style: Style) -> None:
    """Set the theme of all figures that are drawn from now on."""
    size = style.font_points
    sizes = dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), size)
    sizes |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.title_fontsize"), size - 1)
    thin = {"axes.linewidth": 0.6, "grid.linewidth": 0.4, "xtick.major.width": 0.6, "ytick.major.width": 0.6}
    short = {"xtick.major.size": 2.5, "ytick.major.size": 2.5}
    rc = {
        "axes.grid": True,
        "grid.color": "#DDDDDD",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "pdf.fonttype": 42,  # real fonts, which journals ask for
        "text.hinting": "none",  # so that characters of a font of fixed width have the same width at every size
    }
    mpl.rcdefaults()  # a matplotlibrc of the user's is in no record
    sns.set_theme(style="ticks", palette="colorblind", font="DejaVu Sans", rc=rc | sizes | thin | short)


# --- Players ---


def palette(style: Style, players: Sequence[str]) -> dict[str, str]:
    """Return the colour of each player; of those without one in the style, the next of a colour-blind palette."""
    spare = iter(sns.color_palette("colorblind", len(players)).as_hex())
    return {player: style.colours.get(player) or next(spare) for player in players}


def dashes(player: str) -> tuple[float, ...] | str:
    """Return how a player's line is broken; an empty text where it is solid."""
    variant = next((pattern for start, pattern in VARIANT_DASHES.items() if player.startswith(start)), "")
    return DASHES.get(player, variant)


def width(player: str) -> float:
    """Return the width of a player's line in points: models stand out."""
    return 1.6 if player.startswith(("trained", "base")) else 1.1


def label(style: Style, player: str) -> str:
    """Return the name of a player in legends."""
    return style.labels.get(player, player)


# --- Parts of figures ---


def panels(
    style: Style, rows: int, columns: int, ratio: float = RATIO, *, sharey: bool = False
) -> tuple[Figure, np.ndarray]:
    """Return a figure of rows × columns panels of the same size, with room for a legend below them."""
    size = (style.width_inches, rows * style.width_inches / columns * ratio + LEGEND_INCHES)
    return plt.subplots(rows, columns, sharey=sharey, figsize=size, squeeze=False, layout="constrained")


def draw_curves(ax: Axes, frame: pd.DataFrame, style: Style, **line: str | float) -> None:
    """Draw each player's main line with the band of its interval and, thin, the lines of its training seeds.

    line: further properties of the main line.
    """
    players = list(dict.fromkeys(frame["player"]))
    colours = palette(style, players)
    frame = frame.astype(dict.fromkeys(("x", "y", "low", "high"), float))
    seeds, curves = frame[frame["series"].str.startswith(SEED)], frame[frame["series"] == CURVE]
    look = {"x": "x", "y": "y", "hue": "player", "palette": colours, "estimator": None, "ax": ax}
    if len(seeds):
        sns.lineplot(seeds, units="series", linewidth=0.6, alpha=0.6, zorder=1.9, legend=False, **look)
    sizes = {"size": "player", "sizes": {player: width(player) for player in players}}
    broken = {"style": "player", "dashes": {player: dashes(player) for player in players}}
    sns.lineplot(curves, **look, **sizes, **broken, **line)
    if curves["low"].notna().any():
        bands = objects.Plot(curves, x="x", ymin="low", ymax="high", color="player").scale(color=colours)
        bands.add(objects.Band(alpha=0.18, edgewidth=0), legend=False).on(ax).plot()


def draw_distribution(ax: Axes, frame: pd.DataFrame, style: Style) -> None:
    """Draw the empirical distribution function of each player's sample, which is x."""
    colours = palette(style, list(dict.fromkeys(frame["player"])))
    for player, sample in frame.groupby("player", sort=False):
        line = {"color": colours[player], "linewidth": width(player), "linestyle": (0, dashes(player) or None)}
        sns.ecdfplot(x=sample["x"].astype(float), ax=ax, **line)
    ax.set(ylim=(0, 1.02))


def share_limits(axes: Sequence[Axes], axis: str = "y") -> None:
    """Give panels the same limits on one axis, which begins at 0 where nothing lies below it.

    Panels whose ranges differ by more than CROWDED times keep limits of their own: low curves could not be read.
    """
    ends = np.array([getattr(ax.dataLim, f"interval{axis}") for ax in axes])
    ends = np.stack([np.minimum(ends[:, 0], 0), ends[:, 1]])
    whole = np.array([ends[0].min(), ends[1].max()])
    shared = np.ptp(whole) <= CROWDED * np.ptp(ends, axis=0).min()
    for place, ax in enumerate(axes):
        low, high = whole if shared else ends[:, place]
        ax.set(**{f"{axis}lim": (low, high + 0.04 * (high - low))})
        if place and axis == "y":
            ax.set_ylabel("")
            ax.tick_params(labelleft=not shared)


def enlarge_low_curves(ax: Axes, frame: pd.DataFrame, style: Style) -> bool:
    """Draw low curves once more in an inset, where higher ones, here or in the same row, set the scale.

    Return whether there is an inset: only if a trained model is among the low curves, and no curve passes behind it.
    """
    curves = frame[frame["series"] == CURVE].astype({"x": float, "y": float, "high": float})
    top, highest = ax.get_ylim()[1], curves.groupby("player")[["y", "high"]].max().max(axis=1)
    low = highest.index[highest < LOW * top]
    free = [place for place in INSETS if _highest_until(curves, place[0] + place[2]) < (place[1] - 0.04) * top]
    if not free or len(low) < 2 or not any(player.startswith("trained") for player in low):
        return False
    inset = ax.inset_axes(free[0])
    draw_curves(inset, frame[frame["player"].isin(low)], style)
    inset.get_legend().remove()
    inset.set(xlabel="", ylabel="", xticks=[], xlim=ax.get_xlim())
    inset.set_ylim(min(inset.dataLim.y0, 0), 1.04 * highest[low].max())
    inset.tick_params(labelsize="x-small", pad=1)
    return True


def _highest_until(curves: pd.DataFrame, share: float) -> float:
    """Return the highest value in this share of the rounds, the first ones."""
    return curves.loc[curves["x"] <= share * curves["x"].max(), ["y", "high"]].max(axis=None)


def add_note(figure: Figure, text: str) -> None:
    """Write below all panels what lines and bands are."""
    figure.supxlabel(_wrapped(figure, text), fontsize="small")


def add_legend(figure: Figure, style: Style, note: str) -> None:
    """Put one legend below all panels, in place of seaborn's in each. note: what lines and bands are."""
    entries = {}
    for legend in filter(None, [ax.get_legend() for ax in figure.axes]):
        entries |= {text.get_text(): handle for text, handle in zip(legend.texts, legend.legend_handles, strict=True)}
        legend.remove()
    names = [label(style, player) for player in entries]
    columns = 6 if len(re.sub(r"\$.*?\$", "xx", "".join(names))) <= LEGEND_CHARACTERS else 3
    title = _wrapped(figure, note)
    figure.legend(entries.values(), names, loc="outside lower center", ncols=columns, title=title, handlelength=2.6)


def _wrapped(figure: Figure, note: str) -> str:
    """Return a note in lines that are no longer than the figure is wide."""
    return textwrap.fill(note, int(NOTE_CHARACTERS * figure.get_figwidth()))
