"""The ancestry of figures and tables on the page: files, the rules that made them, and their hashes.

Times, machines and commits are left out, so that equal results make equal pages; `rmft lineage` prints them, and
verifies every hash.
"""

from collections.abc import Iterable
from typing import Any

from rmft.artifacts.files import is_artifact
from rmft.lineage.records import read_record
from rmft.lineage.trace import SHORT


def ancestry(starts: Iterable[str]) -> dict[str, list[Any]]:
    """Return [rule, short hash, inputs] of every file from the starts to the sources, by path.

    rule: empty for a source in git, `no record` for an artifact without one.
    """
    ancestors: dict[str, list[Any]] = {}
    hashes: dict[str, str | None] = {}
    pending = list(starts)
    while pending:
        path = pending.pop()
        if path in ancestors:
            continue
        record = read_record(path) if is_artifact(path) else None
        if record is None:
            ancestors[path] = ["no record" if is_artifact(path) else "", "", []]
            continue
        inputs = sorted(record.inputs)
        ancestors[path] = [record.rule, record.receipt.sha256[:SHORT], inputs]
        hashes |= record.inputs
        pending += inputs
    for path, ancestor in ancestors.items():
        ancestor[1] = ancestor[1] or (hashes.get(path) or "")[:SHORT]
    return dict(sorted(ancestors.items()))
