"""Pages of text: a frame whose rows are runs of characters, written in a font of fixed width, and boxes behind them.

Further columns of the frame: x, characters from the left; line, lines from the top; y, the text; series, its look.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmft.figures.frames import rows
from rmft.params.outputs import Style

WIDE = 0.602  # width of a character of the font over its size
TALL = 1.3  # height of a line over the size
PAD_POINTS = 6.0  # that the layout leaves at the sides
PLAIN = "plain"
INK = "#222222"


class Run(NamedTuple):
    """A run of characters of one look in a line of wrapped text: x in characters, line from 0."""

    x: int
    line: int
    text: str
    look: str


def draw_page(
    frame: pd.DataFrame, boxes: Iterable[Rectangle], looks: Mapping[str, Mapping[str, str]], style: Style, columns: int
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
        ax.add_patch(box)
    for run in frame.itertuples():  # out of the layout, which would make room for text that fits once the axes are wide
        look = {"family": "DejaVu Sans Mono", "fontsize": size, "color": INK, "parse_math": False, "in_layout": False}
        ax.text(run.x, run.line, run.y, va="top", **(look | looks.get(run.series, {})))
    return figure


def rows_of(panel: str, player: str, runs: Sequence[Run]) -> pd.DataFrame:
    """Return runs of a page as rows of its frame."""
    x, line, text, look = zip(*runs, strict=True)
    return rows(panel, player, look, x, text, line=line)


def runs_of(text: str, looks: Sequence[str], width: int) -> list[Run]:
    """Return a text in lines of at most `width` characters as runs. looks: of each character of the text."""
    runs = []
    for line, (begin, end) in enumerate(_lines(text, width)):
        for look, places in groupby(range(begin, end), key=looks.__getitem__):
            first, *others = places
            runs.append(Run(first - begin, line, text[first : first + 1 + len(others)], look))
    return runs


def height_of(runs: Iterable[Run]) -> int:
    """Return how many lines a text takes."""
    return 1 + max((run.line for run in runs), default=0)


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a text begin and end, broken at line ends and, where they are too long, at spaces."""
    wrapper = textwrap.TextWrapper(width, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
    begin = 0
    for paragraph in text.split("\n"):
        for number, line in enumerate(wrapper.wrap(paragraph) or [""]):
            yield begin + (number > 0 and line.startswith(" ")), begin + len(line)
            begin += len(line)
        begin += 1
