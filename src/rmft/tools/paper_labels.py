"""The labels of the paper: found in its LaTeX source, kept in data/paper/labels.csv."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LABELS = Path("data/paper/labels.csv")
ENVIRONMENTS = {"equation": "equation", "align": "equation", "table*": "table"} | {
    kind: kind for kind in ("figure", "table", "algorithm", "theorem", "claim", "remark")
}
SECTIONS = ("section", "subsection", "subsubsection")
COMMAND = re.compile(
    r"\\begin\{(?:restatable\}\{)?(?P<begin>[a-z*]+)\}|\\end\{(?P<end>[a-z*]+)\}|(?P<appendix>\\appendix\b)"
    r"|\\(?P<level>(?:sub){0,2}section)\{|\\label\{(?P<label>[^}]+)\}|\\hypertarget\{(?P<anchor>[^}]+)\}"
)


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
    lines = (root / LABELS).read_text(encoding="utf-8").splitlines()
    return [PaperLabel(**row) for row in csv.DictReader(lines)]


def labels_in(source: str) -> list[PaperLabel]:
    """Return the labels in the LaTeX source: those of the arXiv version, then those of the ICLR version alone."""
    text = re.sub(r"(?<!\\)%.*", "", source)
    labels = _labels_of(_version(text, "arxiv"))
    known = {label.label for label in labels}
    others = (label._replace(section=f"ICLR {label.section}") for label in _labels_of(_version(text, "iclr")))
    return [*labels, *(label for label in others if label.label not in known)]


def _labels_of(text: str) -> list[PaperLabel]:
    counts, letters, inside, labels = [0, 0, 0], False, [], []
    for command in COMMAND.finditer(text):
        if command["appendix"]:
            counts, letters = [0, 0, 0], True
        elif command["level"]:
            level = SECTIONS.index(command["level"])
            counts = [*counts[:level], counts[level] + 1, *[0] * (2 - level)]
        elif command["begin"]:
            inside.append(command["begin"])
        elif command["end"] and command["end"] in ("restatable", *inside):
            inside.pop()
        else:
            number = [chr(64 + counts[0]) if letters else str(counts[0]), *(str(n) for n in counts[1:] if n)]
            if command["label"]:
                labels.append(PaperLabel(command["label"], _kind(command["label"], inside), ".".join(number)))
            elif command["anchor"]:
                kind = "prompt" if inside[-1:] == ["tcolorbox"] else "process"
                labels.append(PaperLabel(command["anchor"], kind, ".".join(number)))
    return labels


def _kind(label: str, inside: Sequence[str]) -> str:
    if label.startswith("line:"):
        return "line"
    return next((ENVIRONMENTS[name] for name in reversed(inside) if name in ENVIRONMENTS), "section")


def _version(text: str, version: str) -> str:
    """Return the text with every choice between the versions made as in one of them."""
    choice = re.compile(r"\\ifthenelse\s*\{\\boolean\{(iclr|arxiv)\}\}\s*")
    while match := choice.search(text):
        yes, after = _braced(text, match.end())
        no, after = _braced(text, after)
        text = text[: match.start()] + (yes if match[1] == version else no) + text[after:]
    return text


def _braced(text: str, start: int) -> tuple[str, int]:
    """Return the text in the braces that open at or after `start`, and where they end."""
    opening = text.index("{", start)
    depth, place = 1, opening + 1
    while depth:
        if text[place] == "\\":
            place += 1
        else:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
        place += 1
    return text[opening + 1 : place - 1], place
