"""The one exception for a user's mistake, which `cli.py` turns into a line, and what to say of a wrong name."""

import difflib
from collections.abc import Collection

FEW = 12  # names that one line can list


class InputError(ValueError):
    """A value or file of the user is wrong; the message names file and key, and what would be right."""


def unknown(name: str, among: Collection[str]) -> str:
    """Return what to say of a name that is none of those there are: the one that was probably meant, or all of them."""
    near = difflib.get_close_matches(name, among, n=1) if len(among) > FEW else []
    return f"unknown {name!r}; " + (f"did you mean {near[0]}?" if near else f"one of {', '.join(among)}")
