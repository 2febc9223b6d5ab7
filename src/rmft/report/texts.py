"""The texts of the report in data/report: captions, the paper's claims, and known issues of the paper."""

from pathlib import Path
from typing import Literal

from rmft.artifacts.text import read_yaml
from rmft.params.outputs import Label
from rmft.params.section import Name, Section
from rmft.report.claims import PaperClaim

Kind = Literal["figures", "tables"]


class Caption(Section):
    """The caption of a figure or table.

    part: the report's chapter. paper: the label in the paper, None for ours. claims: the paper's, about a figure; the
    values of a table are compared without claims.
    """

    title: str
    part: Name
    paper: str | None
    text: str
    claims: list[PaperClaim] = []


class Captions(Section):
    """data/report/captions.yaml. parts: the report's chapters in order, with their titles."""

    parts: dict[Name, str]
    figures: dict[Label, Caption]
    tables: dict[Label, Caption]

    def of(self, kind: Kind, label: str) -> Caption:
        """Return a caption; a user's label without a caption gets one that says where to write it."""
        text = "No caption yet: data/report/captions.yaml has none under this label."
        missing = Caption(title=label, part=list(self.parts)[-1], paper=None, text=text)
        return getattr(self, kind).get(label, missing)


class KnownIssue(Section):
    """A place where the paper contradicts itself. rows: the rows of a table that it explains, by key column.

    An issue without rows is shown, and changes no verdict.
    """

    reason: str
    rows: dict[Name, list[str]] = {}


class KnownIssues(Section):
    """data/report/known.yaml."""

    figures: dict[Label, list[KnownIssue]] = {}
    tables: dict[Label, list[KnownIssue]] = {}


def read_texts(captions: Path, known: Path) -> tuple[Captions, KnownIssues]:
    """Read both files. Raise InputError with the dotted key."""
    return Captions.checked(read_yaml(captions), captions), KnownIssues.checked(read_yaml(known), known)
