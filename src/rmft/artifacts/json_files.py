"""JSON, one value a file or one value a line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmft.artifacts.files import artifact, reading
from rmft.artifacts.text import write_text


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON with sorted keys; NaN and infinities become null."""
    write_text(path, json.dumps(finite(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (any JSON value)
    """Return the value in a JSON file."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def finite(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Return a JSON value with NaN and infinities replaced by None."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def write_jsonl(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON value a line."""
    with artifact(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the JSON value of each line."""
    with reading(path), path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if not line.endswith("\n"):
                raise ValueError("its last line has no end")
            yield json.loads(line)
