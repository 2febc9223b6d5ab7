"""Tables in a terminal, in the style that all sub-commands share."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def empty_table(title: str) -> "Table":
    """Return a table without frames, to which columns and rows are added."""
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
