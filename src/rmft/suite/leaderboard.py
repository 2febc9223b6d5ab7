"""A page that ranks several measurements: models and algorithms by part, and which differences are sure."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmft.errors import InputError
from rmft.suite import FILE
from rmft.suite.results import EvalResult, compared, read_result


def read_all(folder: Path) -> dict[str, EvalResult]:
    """Return all results below a folder, by the model's name, with the folder's where two have the same.

    Raise InputError where there is none.
    """
    paths = sorted(folder.rglob(FILE))
    if not paths:
        raise InputError(f"{folder}: has no {FILE} in it or below; `rmft eval MODEL` makes one")
    results = {path: read_result(path) for path in paths}
    names = [result.model.name for result in results.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({path.parent.relative_to(folder)})": result
        for (path, result), name in zip(results.items(), names, strict=True)
    }


def ranked(results: Mapping[str, EvalResult], seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of a table for each part, the lowest mean regret first.

    Results are in the same table where they played exactly the same instances of a part.
    """
    groups: dict[tuple[str, str, int], dict[str, EvalResult]] = {}
    for name, result in results.items():
        for part, of in result.parts.items():
            groups.setdefault((part, of.identity, of.instances), {})[name] = result
    several = [part for part, _, _ in groups]
    return {
        part if several.count(part) == 1 else f"{part}, {n} games ({identity[:8]})": list(_lines(part, of, seed))
        for (part, identity, n), of in groups.items()
    }


def _lines(part: str, results: Mapping[str, EvalResult], seed: int) -> Iterator[dict[str, Any]]:
    """Yield models and algorithms by mean regret; models with the difference to the model above them."""
    first = next(iter(results.values())).parts[part]
    lines = [
        {"name": name, "model": None, "regret": of.regret, "played": first} for name, of in first.references.items()
    ]
    lines += [
        {"name": name, "model": result, "regret": result.parts[part].regret, "played": result.parts[part]}
        for name, result in results.items()
    ]
    above = None
    for line in sorted(lines, key=lambda line: line["regret"].mean):
        difference = None
        if line["model"]:
            difference = compared(_only(line["model"], part), _only(above, part), seed)[part] if above else None
            above = line["model"]
        yield line | {"difference": difference}


def _only(result: EvalResult, part: str) -> EvalResult:
    return result.model_copy(update={"parts": {part: result.parts[part]}})
