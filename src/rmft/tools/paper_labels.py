"""The labels of the paper, which data/paper/labels.csv holds."""

import csv
from pathlib import Path
from typing import NamedTuple

from rmft.artifacts.text import read_text

LABELS = Path("data/paper/labels.csv")


class PaperLabel(NamedTuple):
    """A label of the paper, or the anchor of a process or a prompt. section: the number of its section."""

    label: str
    kind: str
    section: str

    @property
    def kebab(self) -> str:
        """Return the label that our figures and tables have: fig:simplex_tf_all is simplex-tf-all."""
        return self.label.partition(":")[2].replace("_", "-")


def read_labels(root: Path) -> list[PaperLabel]:
    """Read data/paper/labels.csv."""
    return [PaperLabel(**row) for row in csv.DictReader(read_text(root / LABELS).splitlines())]
