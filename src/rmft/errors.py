"""The one exception for a user's mistake, which `cli.py` turns into a line, and what to say of a wrong name."""

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

FEW = 12  # names that one line lists; where there are more, it asks what was meant if a name is near
CONTINUED = 3  # names that a question lists at most of those that begin with the wrong one
MANY = 30  # names that one line can list at most
UNLISTED = "list the file that defines it under `extensions` in params.yaml (in Python: rmft.extensions.load)"
NOT_HERE = "no such file; run from the root of a clone of the repository"
INTERRUPTED = 130  # the exit code after Ctrl-C
AFTER_CTRL_C = "interrupted; no file was left half-written"  # what a command says then
# Pydantic's types of the error, of models and of dataclasses
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
CREDENTIALS = re.compile(r"://[^\s/'\"]*@")
LONGEST = 100  # characters of a wrong name that one line can quote
WORKFLOW = ("dvc", "lexicalrichness", "rocrate", "scmrepo", "snakemake", "vl_convert")  # libraries of that extra


class InputError(ValueError):
    """A value or file of the user is wrong; the message names file and key, and what would be right.

    The message is one line: characters that are not printable, in a name of the user's say, are written as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in message))


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise InputError where an option is given that means nothing beside, or without, another one.

    options: by name, None where an option is not given.
    """
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}: {reason}")


def without_workflow(name: str) -> str:
    """Return what to say where a library or program of the extra `workflow` is not installed."""
    return f"{name} is not installed; it belongs to rmft's extra `workflow`, which the environment of a clone has"


def first_line(error: BaseException) -> str:
    """Return the first line of what another library's exception says; of one that says nothing, its name.

    Addresses in it are without user and password.
    """
    return without_credentials((str(error).strip() or type(error).__name__).splitlines()[0])


def without_credentials(text: str) -> str:
    """Return a text in which addresses have no user and no password; what HF_ENDPOINT names, say, may have them."""
    return CREDENTIALS.sub("://", text)


def not_python(file: Path | str, error: SyntaxError) -> str:
    """Return what to say of a file that Python cannot read."""
    line = f":{error.lineno}" if error.lineno else ""
    return f"{file}{line}: {type(error).__name__}: {error.msg}"


def unknown(name: object, among: Collection[str], what: str = "", *, extensible: bool = False) -> str:
    """Return what to say of a wrong name: the one that was probably meant, or the names that there are.

    what: "process", say, where the line does not tell what is named. extensible: whether extensions add names.
    """
    name = str(name)
    meant = did_you_mean(name, among) if len(among) > FEW else ""
    quoted = repr(name if len(name) <= LONGEST else f"{name[:LONGEST]}…")
    names = [*among]
    more = f" or {len(names) - MANY} more" if len(names) > MANY else ""
    there = [f"one of {', '.join(names[:MANY])}{more}"] * bool(names) + [UNLISTED] * extensible
    return f"unknown {what + ' ' if what else ''}{quoted}; " + (meant or ", or ".join(there))


def did_you_mean(name: str, among: Collection[str], most: int = 1, cutoff: float = 0.6) -> str:
    """Return a question for a wrong name; empty where no name is near.

    It asks for the names that begin with the wrong one (`ftrl`: `ftrl-25`, …), or else for the nearest ones.
    """
    longer = [other for other in among if other.startswith(f"{name}-")][:CONTINUED]
    near = longer or difflib.get_close_matches(name, among, n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}?" if near else ""
