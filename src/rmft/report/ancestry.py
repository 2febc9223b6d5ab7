"""The ancestry of figures and tables on the page: files, the rules that made them, and some of their hashes.

Times, machines and commits are left out, so that equal results make equal pages; `rmft lineage` prints them, and
verifies every hash.
"""

from collections.abc import Collection, Iterable
from typing import Any

from rmft.artifacts.files import SHORT, is_artifact
from rmft.artifacts.here import named_apart
from rmft.lineage.records import read_record


def ancestry(starts: Iterable[str], read: Collection[str]) -> dict[str, list[Any]]:
    """Return [rule, short hash, inputs] of every file from the starts to the sources, by path.

    rule: empty for a source, `no record` for an artifact without one. read: the files that the page is made
    from. Others have no hash here: they may change without a change of the page's own files, as when a reward set
    grows by instances that no evaluation uses, and the page would then not be made again.
    """
    ancestors: dict[str, list[Any]] = {}
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
        ancestors[path] = [record.rule, record.receipt.sha256[:SHORT] if path in read else "", inputs]
        pending += inputs
    return {named_apart(path): [*of, [*map(named_apart, inputs)]] for path, (*of, inputs) in sorted(ancestors.items())}
