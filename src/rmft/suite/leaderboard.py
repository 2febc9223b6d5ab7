"""A page that ranks several measurements: models and algorithms by part, and which differences are significant."""

import math
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rmft.errors import InputError
from rmft.metrics.comparison import LEVEL, below_zero, holm, paired_p, two_sided
from rmft.suite import FILE
from rmft.suite.results import EvalResult, PartResult, anytime_difference, compared, read_result


def read_all(folder: Path) -> dict[str, EvalResult]:
    """Return all results below a folder, by the model's name, with the folder's where two have the same.

    A file that is no result, as other tools' files of that name, is passed over with a warning. Raise InputError where
    there is none.
    """
    results = {}
    for path in sorted(folder.rglob(FILE)):
        try:
            results[path] = read_result(path)
        except InputError as error:
            print(f"passed over: {error}", file=sys.stderr)
    if not results:
        raise InputError(f"{folder}: has no {FILE} of rmft in it or below; `rmft eval MODEL` makes one")
    names = [result.model.name for result in results.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({path.parent.relative_to(folder)})": result
        for (path, result), name in zip(results.items(), names, strict=True)
    }


def ranked(results: Mapping[str, EvalResult]) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of a table for each part, the lowest mean regret first.

    Results are in the same table where they played exactly the same instances of a part.
    """
    groups: dict[tuple[str, str, int], dict[str, EvalResult]] = {}
    for name, result in results.items():
        for part, of in result.parts.items():
            groups.setdefault((part, of.identity, of.instances), {})[name] = result
    several = [part for part, _, _ in groups]
    return {
        part if several.count(part) == 1 else f"{part}, {n} games ({identity[:8]})": list(_lines(part, of))
        for (part, identity, n), of in groups.items()
    }


def _lines(part: str, results: Mapping[str, EvalResult]) -> Iterator[dict[str, Any]]:
    """Yield models and algorithms by mean regret; models with the difference to the model above them.

    apart: whether they differ, once it is counted how many pairs of models there are.
    """
    played = {name: result.parts[part] for name, result in results.items()}
    first = next(iter(played.values()))
    lines = [{"name": name, "model": None, "regret": of.regret} for name, of in first.references.items()]
    lines += [
        {"name": name, "model": of, "regret": of.regret, "words": results[name].reply.words}
        for name, of in played.items()
    ]
    apart, above = _significantly_apart(played), None
    for line in sorted(lines, key=lambda line: line["regret"].mean):
        name, difference, differs = line["name"], None, False
        if line["model"]:
            if above:
                difference = compared(_only(results[name], part), _only(results[above], part))[part]
                differs = apart[frozenset((name, above))]
            above = name
        yield line | {"games": first.instances, "difference": difference, "apart": differs}


def _significantly_apart(played: Mapping[str, PartResult]) -> dict[frozenset[str], bool]:
    """Return for each pair of models whether they differ, with a chance of LEVEL that any pair is wrong.

    Paired t-tests, two-sided, corrected by Holm for all pairs. Where a model stopped early, each pair has its share of
    LEVEL instead, and pairs with such a model are judged by intervals that hold whenever one stops.
    """
    pairs = [frozenset(pair) for pair in combinations(played, 2)]
    of_pairs = [[played[name] for name in pair] for pair in pairs]
    p_values = [_two_sided(*(np.array(of.final_regrets) for of in both)) for both in of_pairs]
    if not any(of.stopped_early for of in played.values()):
        return {pair: p <= LEVEL for pair, p in zip(pairs, holm(p_values), strict=True)}
    share = LEVEL / max(len(pairs), 1)
    return {
        pair: below_zero(anytime_difference(*both, share)) is not None
        if any(of.stopped_early for of in both)
        else p <= share
        for pair, both, p in zip(pairs, of_pairs, p_values, strict=True)
    }


def _two_sided(ours: np.ndarray, theirs: np.ndarray) -> float:
    p = paired_p(ours, theirs)
    return 1.0 if math.isnan(p) else two_sided(p)


def _only(result: EvalResult, part: str) -> EvalResult:
    return result.model_copy(update={"parts": {part: result.parts[part]}})
