"""docs/paper-map.md: every labelled part of the paper, where it is here, and in what state.

Labels are in data/paper/labels.csv; where each is, in data/paper/map.yaml; figures and tables that params.yaml asks
for are found by their label.
"""

import ast
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from rmft.errors import InputError
from rmft.params import Params
from rmft.params.section import Section
from rmft.workflow.paths import everything

PAGE, LABELS, MAP = Path("docs/paper-map.md"), Path("data/paper/labels.csv"), Path("data/paper/map.yaml")
DRAWN_IN = {"figure": "figures.drawn", "table": "tables"}  # the parts of params.yaml that ask for labels by kind
KINDS = {  # in the order of the page
    "section": "Sections and appendices",
    "algorithm": "Algorithms",
    "line": "Lines of algorithms",
    "equation": "Equations",
    "theorem": "Theorem",
    "claim": "Claims",
    "remark": "Remarks",
    "process": "Reward processes",
    "prompt": "Prompts",
    "figure": "Figures",
    "table": "Tables",
}
ENVIRONMENTS = {"equation": "equation", "align": "equation", "table*": "table"} | {
    kind: kind for kind in ("figure", "table", "algorithm", "theorem", "claim", "remark")
}
SECTIONS = ("section", "subsection", "subsubsection")
COMMAND = re.compile(
    r"\\begin\{(?:restatable\}\{)?(?P<begin>[a-z*]+)\}|\\end\{(?P<end>[a-z*]+)\}|(?P<appendix>\\appendix\b)"
    r"|\\(?P<level>(?:sub){0,2}section)\{|\\label\{(?P<label>[^}]+)\}|\\hypertarget\{(?P<anchor>[^}]+)\}"
)


class Label(NamedTuple):
    """A label, or an anchor of a process or a prompt; kind: one of KINDS; section: the number of the one it is in."""

    label: str
    kind: str
    section: str


class Place(Section):
    """Where a part of the paper is: files (path, or path:name of a function or class), keys, Snakemake targets.

    differs: how ours is another. not_applicable: why there is nothing to build. open: what is missing.
    """

    code: list[str] = Field(default=[])
    params: list[str] = Field(default=[])
    build: list[str] = Field(default=[])
    differs: str | None = None
    not_applicable: str | None = None
    open: str | None = None

    @model_validator(mode="after")
    def _one_state(self) -> Self:
        said = [state for state in (self.differs, self.not_applicable, self.open) if state is not None]
        if len(said) > 1:
            raise ValueError("says two states")
        if not said and not self.code + self.params + self.build:
            raise ValueError("says neither where it is nor that it is nowhere")
        return self

    @property
    def state(self) -> str:
        """Return the state, with its reason where it has one."""
        states = {"ours differs": self.differs, "not applicable": self.not_applicable, "open": self.open}
        return next((f"{state}: {reason}" for state, reason in states.items() if reason is not None), "built")


def labels_in(source: str) -> list[Label]:
    """Return the labels of the paper's LaTeX source, those of its arXiv version first, then what only ICLR's has."""
    text = re.sub(r"(?<!\\)%.*", "", source)
    found = _labels_of(_version(text, "arxiv"))
    known = {label.label for label in found}
    others = (label._replace(section=f"ICLR {label.section}") for label in _labels_of(_version(text, "iclr")))
    return [*found, *(label for label in others if label.label not in known)]


def _labels_of(text: str) -> list[Label]:
    counts, letters, inside, found = [0, 0, 0], False, [], []
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
                found.append(Label(command["label"], _kind(command["label"], inside), ".".join(number)))
            elif command["anchor"]:
                kind = "prompt" if inside[-1:] == ["tcolorbox"] else "process"
                found.append(Label(command["anchor"], kind, ".".join(number)))
    return found


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
    """Return what is in the braces that open at or after `start`, and where they end."""
    opening = text.index("{", start)
    depth, place = 1, opening + 1
    while depth:
        if text[place] == "\\":
            place += 1
        else:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
        place += 1
    return text[opening + 1 : place - 1], place


def kebab(label: str) -> str:
    """Return a label as our figures and tables have it."""
    return label.partition(":")[2].replace("_", "-")


def read_labels(root: Path) -> list[Label]:
    """Read data/paper/labels.csv."""
    return [Label(**row) for row in csv.DictReader(_text(root / LABELS).splitlines())]


def read_map(root: Path) -> dict[str, Place]:
    """Read data/paper/map.yaml. Raise InputError naming the label that is wrong."""
    found = {}
    for label, place in yaml.safe_load(_text(root / MAP)).items():
        try:
            found[label] = Place.model_validate(place)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (label, *first["loc"])))
            raise InputError(f"{MAP}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    return found


def places(labels: Sequence[Label], said: Mapping[str, Place], params: Params) -> dict[str, Place]:
    """Return where every label is: as said, and for what params.yaml draws as it says. Labels without a place lack."""
    found = {}
    for label in labels:
        place = said.get(label.label)
        drawn = _drawn(label, params)
        if drawn:
            found[label.label] = drawn.model_copy(update={"differs": place.differs if place else None})
        elif place:
            found[label.label] = place
    return found


def _drawn(label: Label, params: Params) -> Place | None:
    """Return where a figure or table is, if params.yaml asks for it."""
    from rmft.figures import DRAWN

    name = kebab(label.label)
    asked = {"figure": params.figures.drawn, "table": params.tables}.get(label.kind, {})
    if name not in asked:
        return None
    of = asked[name]
    module = DRAWN[of.form].__module__ if label.kind == "figure" else f"rmft.tables.{of.form}"
    return Place(
        code=[f"src/{module.replace('.', '/')}.py"],
        params=[f"{DRAWN_IN[label.kind]}.{name}", *(f"experiments.{experiment}" for experiment in of.experiments)],
        build=[f"results/{label.kind}s/{name}.csv"],
    )


def problems(labels: Sequence[Label], said: Mapping[str, Place], params: Params, root: Path) -> list[str]:
    """Return what is wrong with the map: labels without a place, places that there are not."""
    known, whole = {label.label for label in labels}, params.model_dump(mode="json")
    targets = {*everything(params.at_scale()), *_targets(params, root)}
    found = [f"{label}: is no label of the paper" for label in said if label not in known]
    where = places(labels, said, params)
    found += [f"{label.label}: has no place" for label in labels if label.label not in where]
    for label, place in where.items():
        found += [f"{label}: there is no {code}" for code in place.code if not _is_there(root, code)]
        found += [f"{label}: params.yaml has no {key}" for key in place.params if not _has(whole, key.split("."))]
        found += [f"{label}: there is no target {name}" for name in place.build if name not in targets]
    return found


def _targets(params: Params, root: Path) -> set[str]:
    """Return the targets that the Snakefile names."""
    named = re.findall(r"^rule (\w+):", _text(root / "Snakefile"), re.MULTILINE)
    return {*named, *(f"exp_{name}" for name in params.experiments)}


def _is_there(root: Path, code: str) -> bool:
    """Return whether there is a file or folder and, in a module, what is named after the colon."""
    path, _, name = code.partition(":")
    if not name or not (root / path).is_file():
        return not name and (root / path).exists()
    tree = ast.parse(_text(root / path))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return name in names


def _has(values: object, keys: Sequence[str]) -> bool:
    return not keys or (isinstance(values, dict) and keys[0] in values and _has(values[keys[0]], keys[1:]))


def page(root: Path, params: Params) -> str:
    """Return docs/paper-map.md. Raise InputError where the map is wrong."""
    labels, said = read_labels(root), read_map(root)
    if wrong := problems(labels, said, params, root):
        raise InputError(f"{MAP}: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if wrong[1:] else ""))
    return "\n".join([*_lines(labels, places(labels, said, params), params), ""])


def _lines(labels: Sequence[Label], where: Mapping[str, Place], params: Params) -> Iterator[str]:
    states = [where[label.label].state.partition(":")[0] for label in labels]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    yield "# Where each part of the paper is"
    yield ""
    yield "Made by `rmft paper-map` from the paper's labels (`data/paper/labels.csv`), from `data/paper/map.yaml` and"
    yield "from what `params.yaml` draws; edit those, and make it again. Sections are numbered as in the arXiv version."
    yield ""
    yield f"{len(labels)} labels: {counts}. Built is what is there; whether values agree is said in `results/tables`."
    for kind, title in KINDS.items():
        yield from ["", f"## {title}", "", "| label | § | code | params | build | state |", "|---|---|---|---|---|---|"]
        for label in labels:
            if label.kind == kind:
                place = where[label.label]
                cells = [f"`{label.label}`", label.section, *map(_code, (place.code, place.params, place.build))]
                yield f"| {' | '.join([*cells, place.state])} |"
    yield from ["", "## Not in the paper", "", "| label | kind | experiments | build |", "|---|---|---|---|"]
    known = {kebab(label.label) for label in labels if label.kind in DRAWN_IN}
    for kind, asked in {"figure": params.figures.drawn, "table": params.tables}.items():
        for name, of in asked.items():
            if name not in known:
                yield f"| `{name}` | {kind} | {_code(of.experiments)} | `results/{kind}s/{name}.csv` |"
    yield from ["", "## Experiments", "", "| experiment | model | build | shown in |", "|---|---|---|---|"]
    for name, of in params.experiments.items():
        shown = [
            label
            for asked in (params.figures.drawn, params.tables)
            for label, its in asked.items()
            if name in its.experiments
        ]
        yield f"| `experiments.{name}` | {of.model} | `exp_{name}` | {_code(dict.fromkeys(shown))} |"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name.removeprefix('src/rmft/')}`" for name in names)
