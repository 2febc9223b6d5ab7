"""Reading params.yaml: a mistake is one line with the dotted key."""

from contextlib import suppress
from pathlib import Path

import yaml
from pydantic import ValidationError

from rmft import extensions
from rmft.errors import InputError
from rmft.params.section import first_error
from rmft.params.whole import EXTENSION, Params


class _UniqueKeys(yaml.CSafeLoader):
    """YAML that refuses a key given twice, where YAML itself would let the second win in silence.

    A key that a map has beside those of another, which it takes over by `<<`, is there once.
    """

    def get_single_node(self) -> yaml.Node | None:
        """Read a document, and look at the keys of maps before those of others are merged into them."""
        whole = super().get_single_node()
        pending, looked_at = [whole] if whole else [], set()
        while pending:
            if (node := pending.pop()) in looked_at:
                continue
            looked_at.add(node)
            if isinstance(node, yaml.SequenceNode):
                pending += node.value
            elif isinstance(node, yaml.MappingNode):
                seen = set()
                for key, value in node.value:
                    if (key.tag, str(key.value)) in seen:
                        raise yaml.YAMLError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
                    seen.add((key.tag, str(key.value)))
                    pending.append(value)
        return whole


def load(path: Path = Path("params.yaml"), scale: str | None = None) -> Params:
    """Read and check params.yaml, at full size; `at_scale` shrinks it. Raise InputError with the dotted key.

    scale: in place of the one that the file says.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run from the root of the repository") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a text file: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    extensions.load(_extensions_in(values), path.parent)
    if scale is not None and isinstance(values, dict):
        values["scale"] = scale
    try:
        params = Params.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{path}: {first_error(error, values)}") from None
    try:
        Params.model_validate(params.at_scale().model_dump())
    except ValidationError as error:
        raise InputError(f"{path}: at scale {params.scale}: {first_error(error, values)}") from None
    except InputError as error:
        raise InputError(f"{path}: scales.{params.scale}.{error}") from None
    return params


def load_extensions(path: Path = Path("params.yaml")) -> None:
    """Load the extensions that params.yaml lists, where there is such a file, whatever else is in it."""
    values = None
    with suppress(OSError, ValueError, yaml.YAMLError):
        values = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    extensions.load(_extensions_in(values), path.parent)


def _extensions_in(values: object) -> list[str]:
    """Return the extensions that params.yaml lists; none where that is no list of files: the model says so."""
    listed = values.get("extensions") if isinstance(values, dict) else None
    listed = listed if isinstance(listed, list) else []
    return [file for file in listed if isinstance(file, str) and EXTENSION.fullmatch(file)]
