"""docs/paper-map.md: for every labelled part of the paper, where it is in this repository, and in what state.

data/paper/map.yaml holds the places. Figures and tables of the parameters are found by their label.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import yaml
from pydantic import Field, ValidationError, model_validator

from rmft.errors import InputError
from rmft.params import Params
from rmft.params.section import Section
from rmft.tools.paper_labels import PaperLabel, read_labels
from rmft.workflow.paths import everything

PAGE, MAP = Path("docs/paper-map.md"), Path("data/paper/map.yaml")
DRAWN_IN = {"figure": "figures.drawn", "table": "tables"}  # the parameters with the labels of a kind
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


class Place(Section):
    """Where a part of the paper is: code (path, or path:name of a function or class), parameters, Snakemake targets.

    differs: how ours differs from the paper. not_applicable: why there is nothing to build. open: what is missing.
    """

    code: list[str] = Field(default=[])
    params: list[str] = Field(default=[])
    build: list[str] = Field(default=[])
    differs: str | None = None
    not_applicable: str | None = None
    open: str | None = None

    @model_validator(mode="after")
    def _one_state(self) -> Self:
        states = [state for state in (self.differs, self.not_applicable, self.open) if state is not None]
        if len(states) > 1:
            raise ValueError("has two states")
        if not states and not self.code + self.params + self.build:
            raise ValueError("has no code, params, build or state")
        return self

    @property
    def state(self) -> str:
        """Return the state, with its reason where it has one."""
        states = {"ours differs": self.differs, "not applicable": self.not_applicable, "open": self.open}
        return next((f"{state}: {reason}" for state, reason in states.items() if reason is not None), "built")


def read_map(root: Path) -> dict[str, Place]:
    """Read data/paper/map.yaml. Raise InputError naming the label that is wrong."""
    places = {}
    for label, place in yaml.safe_load(_text(root / MAP)).items():
        try:
            places[label] = Place.model_validate(place)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (label, *first["loc"])))
            raise InputError(f"{MAP}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    return places


def places_of(labels: Sequence[PaperLabel], mapped: Mapping[str, Place], params: Params) -> dict[str, Place]:
    """Return the place of every label that has one: that of its figure or table, else the mapped one."""
    places = {}
    for label in labels:
        place, drawn = mapped.get(label.label), _drawn(label, params)
        if drawn:
            places[label.label] = drawn.model_copy(update={"differs": place.differs if place else None})
        elif place:
            places[label.label] = place
    return places


def _drawn(label: PaperLabel, params: Params) -> Place | None:
    """Return the place of a figure or table of the parameters."""
    from rmft.figures import DRAWN

    output = {"figure": params.figures.drawn, "table": params.tables}.get(label.kind, {}).get(label.kebab)
    if output is None:
        return None
    module = DRAWN[output.form].__module__ if label.kind == "figure" else f"rmft.tables.{output.form}"
    experiments = [f"experiments.{experiment}" for experiment in output.experiments]
    return Place(
        code=[f"src/{module.replace('.', '/')}.py"],
        params=[f"{DRAWN_IN[label.kind]}.{label.kebab}", *experiments],
        build=[f"results/{label.kind}s/{label.kebab}.csv"],
    )


def problems(labels: Sequence[PaperLabel], mapped: Mapping[str, Place], params: Params, root: Path) -> list[str]:
    """Return the problems of the map: labels without a place, and places that do not exist."""
    known, values = {label.label for label in labels}, params.model_dump(mode="json")
    targets = {*everything(params.at_scale()), *_targets(params, root)}
    places = places_of(labels, mapped, params)
    wrong = [f"{label}: is no label of the paper" for label in mapped if label not in known]
    wrong += [f"{label.label}: has no place" for label in labels if label.label not in places]
    for label, place in places.items():
        wrong += [f"{label}: there is no {code}" for code in place.code if not _exists(root, code)]
        wrong += [f"{label}: params.yaml has no {key}" for key in place.params if not _has(values, key.split("."))]
        wrong += [f"{label}: there is no target {name}" for name in place.build if name not in targets]
    return wrong


def _targets(params: Params, root: Path) -> set[str]:
    """Return the targets of the Snakefile."""
    named = re.findall(r"^rule (\w+):", _text(root / "Snakefile"), re.MULTILINE)
    return {*named, *(f"exp_{name}" for name in params.experiments)}


def _exists(root: Path, code: str) -> bool:
    """Return whether a file or folder exists and, if a colon follows, its module defines the name after the colon."""
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
    labels, mapped = read_labels(root), read_map(root)
    if wrong := problems(labels, mapped, params, root):
        raise InputError(f"{MAP}: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if wrong[1:] else ""))
    places = places_of(labels, mapped, params)
    return "\n".join([*_of_paper(labels, places), *_ours(labels, params), *_experiments(params), ""])


def _of_paper(labels: Sequence[PaperLabel], places: Mapping[str, Place]) -> Iterator[str]:
    states = [places[label.label].state.partition(":")[0] for label in labels]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    yield "# Where each part of the paper is"
    yield ""
    yield "`rmft paper-map` makes this page from the paper's labels (`data/paper/labels.csv`), from"
    yield "`data/paper/map.yaml`, and from the figures and tables of `outputs.yaml`. To change the page, edit those and"
    yield "run the command again. Sections have the numbers of the arXiv version."
    yield ""
    yield f"{len(labels)} labels: {counts}. Built: the part exists here; whether values agree is in `results/tables`."
    for kind, title in KINDS.items():
        rows = []
        for label in labels:
            if label.kind == kind:
                place = places[label.label]
                parts = map(_code, (place.code, place.params, place.build))
                rows.append([f"`{label.label}`", label.section, *parts, place.state])
        yield from _table(title, ["label", "§", "code", "params", "build", "state"], rows)


def _ours(labels: Sequence[PaperLabel], params: Params) -> Iterator[str]:
    of_paper = {label.kebab for label in labels if label.kind in DRAWN_IN}
    rows = [
        [f"`{name}`", kind, _code(output.experiments), f"`results/{kind}s/{name}.csv`"]
        for kind, outputs in {"figure": params.figures.drawn, "table": params.tables}.items()
        for name, output in outputs.items()
        if name not in of_paper
    ]
    yield from _table("Not in the paper", ["label", "kind", "experiments", "build"], rows)


def _experiments(params: Params) -> Iterator[str]:
    outputs = [*params.figures.drawn.items(), *params.tables.items()]
    rows = []
    for name, experiment in params.experiments.items():
        shown = dict.fromkeys(label for label, output in outputs if name in output.experiments)
        rows.append([f"`experiments.{name}`", experiment.model, f"`exp_{name}`", _code(shown)])
    yield from _table("Experiments", ["experiment", "model", "build", "shown in"], rows)


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield from ["", f"## {title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.removeprefix('src/rmft/')}`" for name in names)
