"""What data/report says of figures and tables: captions, the paper's claims, and what is known of the paper."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from rmft.artifacts.text import read_yaml
from rmft.errors import InputError
from rmft.params.outputs import Label
from rmft.params.section import Name, Section

Claim = Literal[
    "regret below base",
    "regret above base",
    "regret not below base",
    "regret below",
    "growth sublinear",
    "regret near",
    "failures below base",
    "failures below base early",
    "failures below greedy",
    "exploration rises and falls",
    "base exploits",
    "distances vanish",
    "entropy stays",
    "entropy low",
    "loss rises again",
    "avoidance below base",
]
Kind = Literal["figures", "tables"]
SYMBOLS = {r"\\\|": "‖", r"\\eta": "η", r"\\,": " ", r"\\math\w+": "", r"[${}]": ""}  # LaTeX in legends


class Claimed(Section):
    """One thing that the paper says of a figure, and that can be checked.

    of: the algorithm, of `regret near` and `regret below`. without: models whose games are no evidence of it.
    """

    claim: Claim
    of: Name | None = None
    without: list[Name] = []


class Caption(Section):
    """What the report says of a figure or table.

    part: the chapter it stands in. paper: where it is in the paper, None for what is ours. claims: what the paper says
    of a figure; a table holds its values itself.
    """

    title: str
    part: Name
    paper: str | None
    text: str
    claims: list[Claim | Claimed] = []

    @property
    def claimed(self) -> list[Claimed]:
        """Return all claims in one form."""
        return [of if isinstance(of, Claimed) else Claimed(claim=of) for of in self.claims]


class Captions(Section):
    """data/report/captions.yaml. parts: the chapters, in order, with their titles."""

    parts: dict[Name, str]
    figures: dict[Label, Caption]
    tables: dict[Label, Caption]

    def of(self, kind: Kind, label: str) -> Caption:
        """Return a caption; of a label of the user's own that has none, one that says so."""
        none = "No caption yet: data/report/captions.yaml has none under this label."
        own = Caption(title=label, part=list(self.parts)[-1], paper=None, text=none)
        return getattr(self, kind).get(label, own)


class Known(Section):
    """Something known of the paper: reason says what. rows: the rows of a table that it explains, by key column.

    Without rows it is told, and changes no verdict.
    """

    reason: str
    rows: dict[Name, list[str]] = {}


class KnownOfPaper(Section):
    """data/report/known.yaml."""

    figures: dict[Label, list[Known]] = {}
    tables: dict[Label, list[Known]] = {}


def read_texts(captions: Path, known: Path) -> tuple[Captions, KnownOfPaper]:
    """Read both files. Raise InputError with the dotted key."""
    return _validated(captions, Captions), _validated(known, KnownOfPaper)


def _validated(path: Path, kind: type[Section]) -> Any:  # noqa: ANN401 (one of the records above)
    try:
        return TypeAdapter(kind).validate_python(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def plain(label: str) -> str:
    """Return a legend's label without LaTeX."""
    for pattern, symbol in SYMBOLS.items():
        label = re.sub(pattern, symbol, label)
    return label
