"""docs/paper-map.md: for every labelled part of the paper, where it is in this repository, and in what state.

data/paper/map.yaml holds the places. Figures and tables of the parameters are found by their label.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rmft.artifacts.text import read_text, read_yaml
from rmft.errors import InputError
from rmft.params import Params
from rmft.params.section import Section, first_error
from rmft.tools.paper_labels import PaperLabel, read_labels
from rmft.workflow.targets import everything

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
HEAD = """# Where each part of the paper is

`rmft paper-map` makes this page from the paper's labels (`data/paper/labels.csv`), from
`data/paper/map.yaml`, and from the figures and tables of `outputs.yaml`. To change the page, edit those and
run the command again. Sections have the numbers of the arXiv version.
"""
STATES = """
Built: the part exists here; whether values agree is in `results/tables`. A figure or table is built at the paper's
size if its experiments are that large at the scale in `params.yaml`. At scale demo, the embedded model plays in place
of the paper's language models. What real language models gave is in [real-models.md](real-models.md)."""


class Place(Section):
    """Where a part of the paper is: code (path, or path:name of a function or class), parameters, Snakemake targets.

    differs: how ours differs from the paper. not_applicable: why there is nothing to build. open: what is missing.
    size: of a figure or table, the size at which its experiments run at the scale of params.yaml.
    """

    code: list[str] = Field(default=[])
    params: list[str] = Field(default=[])
    build: list[str] = Field(default=[])
    differs: str | None = None
    not_applicable: str | None = None
    open: str | None = None
    size: str = ""

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
        return next(
            (f"{state}: {reason}" for state, reason in states.items() if reason is not None), f"built{self.size}"
        )


def read_map(root: Path) -> dict[str, Place]:
    """Read data/paper/map.yaml. Raise InputError naming the label that is wrong."""
    values = read_yaml(root / MAP)
    try:
        return TypeAdapter(dict[str, Place]).validate_python(values)
    except ValidationError as error:
        raise InputError(f"{MAP}: {first_error(error, values)}") from None


def places_of(labels: Sequence[PaperLabel], mapped: Mapping[str, Place], params: Params) -> dict[str, Place]:
    """Return the place of every label that has one: that of its figure or table, else the mapped one."""
    places, small = {}, params.at_scale()
    for label in labels:
        place, drawn = mapped.get(label.label), _drawn(label, params, small)
        if drawn:
            places[label.label] = drawn.model_copy(update={"differs": place.differs if place else None})
        elif place:
            places[label.label] = place
    return places


def _drawn(label: PaperLabel, params: Params, small: Params) -> Place | None:
    """Return the place of a figure or table of the parameters. small: the parameters at their scale."""
    from rmft.figures import DRAWN

    output = {"figure": params.figures.drawn, "table": params.tables}.get(label.kind, {}).get(label.kebab)
    if output is None:
        return None
    module = DRAWN[output.form].__module__ if label.kind == "figure" else f"rmft.tables.{output.form}"
    experiments = [f"experiments.{experiment}" for experiment in output.experiments]
    whole = all(params.experiments[name] == small.experiments[name] for name in output.experiments)
    return Place(
        size=", at the paper's size" if whole else f", at scale {params.scale}",
        code=[f"src/{module.replace('.', '/')}.py"],
        params=[f"{DRAWN_IN[label.kind]}.{label.kebab}", *experiments],
        build=[f"results/{label.kind}s/{label.kebab}.csv"],
    )


def problems(labels: Sequence[PaperLabel], mapped: Mapping[str, Place], params: Params, root: Path) -> list[str]:
    """Return the problems of the map: labels without a place, and places that do not exist."""
    known, values = {label.label for label in labels}, params.model_dump(mode="json")
    rules = re.findall(r"^rule (\w+):", read_text(root / "Snakefile"), re.MULTILINE)
    targets = {*rules, *(f"exp_{name}" for name in params.experiments), *everything(params.at_scale())}
    places = places_of(labels, mapped, params)
    wrong = [f"{label}: is no label of the paper" for label in mapped if label not in known]
    wrong += [f"{label.label}: has no place" for label in labels if label.label not in places]
    for label, place in places.items():
        wrong += [f"{label}: there is no {code}" for code in place.code if not _exists(root, code)]
        wrong += [f"{label}: params.yaml has no {key}" for key in place.params if not _has(values, key.split("."))]
        wrong += [f"{label}: there is no target {name}" for name in place.build if name not in targets]
    return wrong


def _exists(root: Path, code: str) -> bool:
    """Return whether a file or folder exists and, if a colon follows, its module defines the name after the colon."""
    path, _, name = code.partition(":")
    if not name or not (root / path).is_file():
        return not name and (root / path).exists()
    nodes = ast.walk(ast.parse(read_text(root / path)))
    return name in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


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
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    yield HEAD
    yield f"{len(labels)} labels: {'; '.join(counts)}."
    yield STATES
    for kind, title in KINDS.items():
        of_kind = ((label, places[label.label]) for label in labels if label.kind == kind)
        rows = [
            [f"`{label.label}`", label.section, *map(_code, (place.code, place.params, place.build)), place.state]
            for label, place in of_kind
        ]
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


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.removeprefix('src/rmft/')}`" for name in names)
