"""Where figures and tables come from, as the page shows it: files, what made them, and their hashes.

Times, machines and commits are left out, so that the same results make the same page; `rmft lineage` tells them, and
verifies every hash.
"""

from collections.abc import Iterable
from typing import Any

from rmft.artifacts.files import is_artifact
from rmft.lineage.records import read_record
from rmft.lineage.trace import SHORT


def ancestry(starts: Iterable[str]) -> dict[str, list[Any]]:
    """Return [rule, short hash, inputs] of every file on the way to the sources, by path.

    rule: empty for a source in git, `no record` for an artifact that nothing is on record of.
    """
    found: dict[str, list[Any]] = {}
    hashes: dict[str, str | None] = {}
    pending = list(starts)
    while pending:
        path = pending.pop()
        if path in found:
            continue
        record = read_record(path) if is_artifact(path) else None
        if record is None:
            found[path] = ["no record" if is_artifact(path) else "", "", []]
            continue
        inputs = sorted(record.inputs)
        found[path] = [record.rule, record.receipt.sha256[:SHORT], inputs]
        hashes |= record.inputs
        pending += inputs
    for path, of in found.items():
        of[1] = of[1] or (hashes.get(path) or "")[:SHORT]
    return dict(sorted(found.items()))
