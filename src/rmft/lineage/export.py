"""A trace for other programs: JSON, and a Mermaid diagram."""

from dataclasses import asdict
from typing import Any

from rmft.artifacts.files import SHORT, is_artifact
from rmft.lineage.trace import Ancestor, Trace


def as_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as JSON: path, ancestors by path (itself first), problems."""
    return {
        "path": trace.path,
        "ancestors": {path: _ancestor(ancestor) for path, ancestor in trace.ancestors.items()},
        "problems": [asdict(problem) for problem in trace.problems],
    }


def _ancestor(ancestor: Ancestor) -> dict[str, Any]:
    record = ancestor.record
    if record is None:
        return {"sha256": ancestor.sha256, "kind": "unrecorded" if is_artifact(ancestor.path) else "source"}
    return {
        "sha256": ancestor.sha256,
        "kind": "artifact",
        "rule": record.rule,
        "inputs": record.inputs,
        "settings": record.settings,
        "code": record.code,
        "started": record.started.isoformat(timespec="seconds"),
        "wall_seconds": round(record.wall_seconds, 3),
        "written": asdict(record.receipt),
    }


def as_mermaid(trace: Trace) -> str:
    """Return a trace as a Mermaid flow chart, from sources to the artifact; what is not as recorded is red."""
    numbers = {path: f"n{number}" for number, path in enumerate(trace.ancestors)}
    bad = {problem.path for problem in trace.problems}
    lines = ["flowchart LR"]
    for path, ancestor in trace.ancestors.items():
        text = f"{path}<br/>{(ancestor.sha256 or 'missing')[:SHORT]}"
        lines.append(f'  {numbers[path]}["{text}"]' + (":::bad" if path in bad else ""))
        lines += [f"  {numbers[name]} -->|{ancestor.record.rule}| {numbers[path]}" for name in ancestor.inputs]
        if ancestor.drawn:
            seed = f"root seed {ancestor.record.settings.get('seed')}"
            lines.append(f'  seed(["{seed}"]) -->|{ancestor.record.rule}| {numbers[path]}')
    return "\n".join([*lines, "  classDef bad stroke:#B00020,color:#B00020", ""])
