"""Reading params.yaml, and outputs.yaml beside it: a mistake is one line with the dotted key."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import yaml
from pydantic import ValidationError

from rmft import extensions
from rmft.errors import NOT_HERE, InputError, unknown
from rmft.params.inheritance import SECTIONS, Place, with_origins
from rmft.params.outputs import Outputs
from rmft.params.section import EXTENSION, Section, first_error
from rmft.params.whole import Params, Science

OUTPUTS = "outputs.yaml"
MOST_DEPTH = 100  # of lists and maps within each other: parsing more ends the process
NO_ANCHORS = (
    "aliases and merges (*, <<) are refused: `dvc exp run --set-param` writes through them, so that an edit changes "
    "other experiments or none; inherit with `varies` or `defaults`"
)


class _Checked(yaml.CSafeLoader):
    """YAML that refuses what would be an edit lost in silence: a key given twice, and anchors."""

    def get_single_node(self) -> yaml.Node | None:
        """Read a document, and look at the keys of its maps. Raise InputError for a second one, and for an alias."""
        whole = super().get_single_node()
        pending, seen = [whole] if whole else [], set()
        while pending:
            node = pending.pop()
            if id(node) in seen:  # an alias is the node that it names
                raise InputError(f"line {node.start_mark.line + 1}: {NO_ANCHORS}")
            seen.add(id(node))
            if isinstance(node, yaml.SequenceNode):
                pending += node.value
            elif isinstance(node, yaml.MappingNode):
                pending += [value for _, value in node.value]
                _check_keys(node)
        return whole


# Numbers such as 1e-05, which `dvc exp run --set-param` writes for 1.0e-5: YAML 1.1 takes them for texts.
_Checked.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _check_keys(node: yaml.MappingNode) -> None:
    keys = set()
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            raise InputError(f"line {key.start_mark.line + 1}: {NO_ANCHORS}")
        if (key.tag, str(key.value)) in keys:
            raise InputError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
        keys.add((key.tag, str(key.value)))


def _same_experiment(place: Place, other: Place) -> bool:
    """Return whether two places are in the same experiment, whichever section it is written in."""
    return place[0] in SECTIONS and other[0] in SECTIONS and place[1:2] == other[1:2]


def _located(line: str, file: Path, places: Mapping[Place, Place | None]) -> str:
    """Return an error, which begins with a dotted key, after its file and under the key that was written there.

    file: params.yaml. places: in it, of what experiments inherit.
    """
    key, colon, message = line.partition(": ")
    keys = tuple(key.split("."))
    path = file.with_name(OUTPUTS) if keys[0] in Outputs.model_fields else file
    written = {  # of all leaves below the key
        place[: len(place) - len(leaf) + len(keys)]
        for leaf, place in places.items()
        if place is not None and leaf[: len(keys)] == keys
    }
    own = next((place[:2] for place in places.values() if place and _same_experiment(place, keys)), keys[:2])
    key = ".".join([*own, *keys[2:]])
    if len(written) == 1 and (place := written.pop())[:2] != own:
        key = f"{'.'.join(place)} (which {'.'.join(own)} inherits)"
    return f"{path}: {key}{colon}{message}"


def _refuse_two_places(path: Path, values: object) -> None:
    """Raise InputError where an experiment is in both sections, of which only one could count."""
    first, second = (values.get(section) for section in SECTIONS) if isinstance(values, dict) else (None, None)
    for name in first if isinstance(first, dict) and isinstance(second, dict) else ():
        if name in second:
            raise InputError(
                f"{path}: {SECTIONS[1]}.{name}: {SECTIONS[0]} has an experiment of this name; take another"
            )


def load(path: Path = Path("params.yaml"), scale: str | None = None) -> Params:
    """Read and check params.yaml and outputs.yaml, at full size; `at_scale` resizes.

    Raise InputError with the dotted key.

    scale: in place of the one that the file says.
    """
    return read(path, scale)[0]


def read(path: Path = Path("params.yaml"), scale: str | None = None) -> tuple[Params, Mapping[Place, Place | None]]:
    """Return the parameters, and the place in the file of each value that an experiment has."""
    written, outputs = _values(path), _values(path.with_name(OUTPUTS))
    _refuse_misplaced(path, written, Outputs, OUTPUTS)
    _refuse_misplaced(path.with_name(OUTPUTS), outputs, Science, path.name)
    _refuse_two_places(path, written)
    _load_listed(path, written)
    _refuse_unknown_originals(path, written)
    values, places = with_origins(written)
    if isinstance(values, dict):
        values = {**values, **({} if scale is None else {"scale": scale})}
        values |= outputs if isinstance(outputs, dict) else {}
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        raise InputError(_located(first_error(error, values), path, places)) from None
    try:
        Params.model_validate(params.at_scale().model_dump())
    except ValidationError as error:
        raise InputError(f"{path}: at scale {params.scale}: {first_error(error, values)}") from None
    except InputError as error:
        raise InputError(f"{path}: scales.{params.scale}.{error}") from None
    return params, places


def _refuse_misplaced(path: Path, values: object, sections: type[Section], place: str) -> None:
    """Raise InputError where a file has a section of the other one."""
    for key in values if isinstance(values, dict) else ():
        if key in sections.model_fields:
            raise InputError(f"{path}: {key}: belongs in {place}")


def _refuse_unknown_originals(path: Path, written: object) -> None:
    """Raise InputError where an experiment varies one that is not there: what it would inherit would seem missing."""
    sections = {name: written[name] for name in SECTIONS if isinstance(written, dict) and name in written}
    if not all(isinstance(of, dict) for of in sections.values()) or SECTIONS[0] not in sections:
        return  # which is refused elsewhere
    there = [str(name) for experiments in sections.values() for name in experiments]
    for section, experiments in sections.items():
        for name, of in experiments.items():
            original = of.get("varies") if isinstance(of, dict) else None
            if isinstance(original, str) and original not in there:
                raise InputError(f"{path}: {section}.{name}.varies: {unknown(original, there)}")


def _values(path: Path) -> object:
    """Return what a YAML file holds. Raise InputError where it cannot be read."""
    try:
        return _loaded(path, _Checked)
    except FileNotFoundError:
        raise InputError(f"{path}: {NOT_HERE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a text file: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        problem = str(error).replace(' in "<unicode string>",', "")  # the file is named already
        raise InputError(f"{path}: not YAML: {' '.join(problem.split())}") from None


def _loaded(path: Path, loader: type[yaml.CSafeLoader]) -> object:
    """Return what a YAML file holds. Raise InputError where its lists and maps are more than MOST_DEPTH deep."""
    text, depth = path.read_text(encoding="utf-8"), 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise InputError(f"line {event.start_mark.line + 1}: nested more than {MOST_DEPTH} deep")
    return yaml.load(text, loader)


def load_extensions(path: Path = Path("params.yaml")) -> None:
    """Load the extensions that params.yaml lists, where there is such a file, whatever else is in it."""
    values = None
    with suppress(OSError, ValueError, yaml.YAMLError):
        values = _loaded(path, yaml.CSafeLoader)
    _load_listed(path, values)


def _load_listed(path: Path, values: object) -> None:
    """Load the extensions that params.yaml lists. Raise InputError where one is wrong, or is not there."""
    files = _extensions_in(values)
    for file in files:
        if not (path.parent / file).exists():
            raise InputError(f"{path}: extensions: there is no file {file}")
    extensions.load(files, path.parent)


def _extensions_in(values: object) -> list[str]:
    """Return the extensions that params.yaml lists; none where that is no list of files: the model says so."""
    listed = values.get("extensions") if isinstance(values, dict) else None
    listed = listed if isinstance(listed, list) else []
    return [file for file in listed if isinstance(file, str) and EXTENSION.fullmatch(file)]
