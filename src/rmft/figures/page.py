"""Pages of text: a frame whose rows are runs of characters, written in a font of fixed width, and boxes behind them.

Further columns of the frame: x, characters from the left; line, lines from the top; y, the text; series, its look.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from rmft.params.outputs import Style

WIDE = 0.602  # width of a character of the font over its size
TALL = 1.3  # height of a line over the size
PAD_POINTS = 6.0  # that the layout leaves at the sides
PLAIN = "plain"
INK = "#222222"


class Box(NamedTuple):
    """A coloured box: left and width in characters, top and height in lines."""

    left: float
    top: float
    width: float
    height: float
    colour: str


class Run(NamedTuple):
    """A run of characters of one look in a line of wrapped text: x in characters, line from 0."""

    x: int
    line: int
    text: str
    look: str


def draw_page(
    frame: pd.DataFrame, boxes: Sequence[Box], looks: Mapping[str, Mapping[str, str]], style: Style, columns: int
) -> Figure:
    """Return a page of so many columns of characters. looks: text properties by series; none for PLAIN."""
    size = (style.width_inches * 72 - PAD_POINTS) / columns / WIDE
    lines = frame["line"].max() + 1.5
    height = (lines * TALL * size + PAD_POINTS) / 72
    figure = Figure(figsize=(style.width_inches, height), layout="constrained")
    ax = figure.add_subplot()
    ax.set(xlim=(0, columns), ylim=(lines, 0))
    ax.set_axis_off()
    for box in boxes:
        shape = {"boxstyle": "square,pad=0", "facecolor": box.colour, "linewidth": 0}
        ax.add_patch(FancyBboxPatch((box.left, box.top), box.width, box.height, **shape))
    for run in frame.itertuples():
        look = {"family": "DejaVu Sans Mono", "fontsize": size, "color": INK, "parse_math": False}
        ax.text(run.x, run.line, run.y, va="top", **(look | looks.get(run.series, {})))
    return figure


def runs_of(text: str, looks: Sequence[str], width: int) -> Iterator[Run]:
    """Yield a text in lines of at most `width` characters as runs. looks: of each character of the text."""
    for line, (begin, end) in enumerate(_lines(text, width)):
        for look, places in groupby(range(begin, end), key=looks.__getitem__):
            first, *others = places
            yield Run(first - begin, line, text[first : first + 1 + len(others)], look)


def height_of(text: str, width: int) -> int:
    """Return in how many lines a text is written."""
    return len(list(_lines(text, width)))


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a text begin and end, broken at line ends and, where they are too long, at spaces."""
    begin = 0
    for line in text.split("\n"):
        stop = begin + len(line)
        while stop - begin > width:
            space = text.rfind(" ", begin + 1, begin + width + 1)
            cut = space if space > begin else begin + width
            yield begin, cut
            begin = cut + (text[cut] == " ")
        yield begin, stop
        begin = stop + 1
