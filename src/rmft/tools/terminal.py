"""Tables in a terminal, in the style that all sub-commands share."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def empty_table(title: str) -> "Table":
    """Return a table without frames, to which columns and rows are added."""
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def interval(low: float | None, high: float | None) -> str:
    """Return the interval of a difference; nothing where there is none: an end is None or NaN."""
    return "" if low is None or high is None or math.isnan(low + high) else f"[{low:+.2f}, {high:+.2f}]"


def print_tables(*parts: "Table | str") -> None:
    """Print tables and texts. A table that is wider than the terminal keeps all its digits, and its lines wrap."""
    from rich.console import Console
    from rich.table import Table

    console, endless = Console(highlight=False), Console(width=1000)
    terminal = console.width
    for part in parts:
        console.width = max(terminal, endless.measure(part).maximum if isinstance(part, Table) else 0)
        console.print(part)
