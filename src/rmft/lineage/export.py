"""A trace for other programs: JSON, a Mermaid diagram, and an RO-Crate of the Process Run profile."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmft.artifacts.files import is_artifact
from rmft.errors import InputError
from rmft.lineage.records import Record
from rmft.lineage.trace import SHORT, Ancestor, Trace, flat

if TYPE_CHECKING:
    from rocrate.model import ContextEntity, File
    from rocrate.rocrate import ROCrate

PROCESS_RUN = "https://w3id.org/ro/wfrun/process/0.5"


def as_json(found: Trace) -> dict[str, Any]:
    """Return a trace as JSON: path, ancestors by path (itself first), problems."""
    return {
        "path": found.path,
        "ancestors": {path: _ancestor(ancestor) for path, ancestor in found.ancestors.items()},
        "problems": [asdict(problem) for problem in found.problems],
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


def as_mermaid(found: Trace) -> str:
    """Return a trace as a Mermaid flow chart, from sources to the artifact; what is not as recorded is red."""
    numbers = {path: f"n{number}" for number, path in enumerate(found.ancestors)}
    bad = {problem.path for problem in found.problems}
    lines = ["flowchart LR"]
    for path, ancestor in found.ancestors.items():
        text = f"{path}<br/>{(ancestor.sha256 or 'missing')[:SHORT]}"
        lines.append(f'  {numbers[path]}["{text}"]' + (":::bad" if path in bad else ""))
        lines += [f"  {numbers[name]} -->|{ancestor.record.rule}| {numbers[path]}" for name in ancestor.inputs]
        if ancestor.record and not ancestor.data:
            seed = f"root seed {ancestor.record.settings.get('seed')}"
            lines.append(f'  seed(["{seed}"]) -->|{ancestor.record.rule}| {numbers[path]}')
    return "\n".join([*lines, "  classDef bad stroke:#B00020,color:#B00020", ""])


def as_crate(found: Trace) -> "ROCrate":
    """Return a trace as an RO-Crate: every file, and an action for every job with its code, libraries and settings."""
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")  # what the profile builds on
    files = {path: _file(crate, ancestor) for path, ancestor in found.ancestors.items()}
    jobs: dict[str, list[Record]] = {}
    for ancestor in found.ancestors.values():
        if ancestor.record:
            jobs.setdefault(_job_id(ancestor.record), []).append(ancestor.record)
    actions = [_action(crate, identifier, records, files) for identifier, records in jobs.items()]
    made = found.ancestors[found.path].record
    crate.name = f"Lineage of {found.path}"
    crate.description = f"{found.path} with everything that it was made from, back to the root seed."
    crate.datePublished = made.started
    crate.license = "https://spdx.org/licenses/Apache-2.0"
    profile = {"@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    crate.root_dataset["conformsTo"] = _entity(crate, PROCESS_RUN, profile)
    crate.root_dataset["mainEntity"] = files[found.path]
    crate.root_dataset["mentions"] = actions
    crate.metadata.extra_terms["sha256"] = "https://schema.org/sha256"
    return crate


def _job_id(record: Record) -> str:
    text = json.dumps([record.rule, record.settings, record.code, record.inputs], sort_keys=True)
    return f"#{record.rule}-{hashlib.sha256(text.encode()).hexdigest()[:SHORT]}"


def _entity(crate: "ROCrate", identifier: str, properties: dict[str, Any]) -> "ContextEntity":
    from rocrate.model import ContextEntity

    return crate.dereference(identifier) or crate.add(ContextEntity(crate, identifier, properties=properties))


def _file(crate: "ROCrate", ancestor: Ancestor) -> "File":
    path = Path(ancestor.path)
    properties = {"name": path.name, "sha256": ancestor.sha256, "contentSize": str(path.stat().st_size)}
    return crate.add_file(path, dest_path=ancestor.path, properties=properties)


def _action(crate: "ROCrate", identifier: str, records: list[Record], files: dict[str, "File"]) -> "ContextEntity":
    """Add one job, `records` being those of its outputs, and return it."""
    record = records[0]
    ended = record.started + timedelta(seconds=record.wall_seconds)
    properties = {
        "name": f"{record.rule} of rmft",
        "startTime": record.started.isoformat(timespec="seconds"),
        "endTime": ended.isoformat(timespec="seconds"),
        "description": f"{record.wall_seconds:.1f} s on {record.receipt.machine}",
    }
    settings = [_value(crate, f"{identifier}/{key}", key, value) for key, value in flat(record.settings)]
    inputs = [files[name] for name in record.inputs]
    outputs = [files[one.path] for one in records]
    return crate.add_action(_program(crate, record), identifier, [*inputs, *settings], outputs, properties)


def _program(crate: "ROCrate", record: Record) -> "ContextEntity":
    code, made = record.code, record.receipt
    versions = {"python": made.python, **code["libraries"]}
    properties = {
        "@type": "SoftwareApplication",
        "name": f"rmft, rule {record.rule}",
        "softwareVersion": f"code {code['digest']}, commit {made.commit}",
        "softwareRequirements": list(_libraries(crate, versions.items())),
    }
    return _entity(crate, f"#{record.rule}-{code['digest']}", properties)


def _libraries(crate: "ROCrate", versions: Iterable[tuple[str, str]]) -> "Iterable[ContextEntity]":
    for name, version in versions:
        properties = {"@type": "SoftwareApplication", "name": name, "softwareVersion": version}
        yield _entity(crate, f"#{name}-{version}", properties)


def _value(crate: "ROCrate", identifier: str, name: str, value: object) -> "ContextEntity":
    text = value if isinstance(value, str | int | float) else json.dumps(value)
    return _entity(crate, identifier, {"@type": "PropertyValue", "name": name, "value": text})


def write_crate(folder: Path, crate: "ROCrate") -> None:
    """Write an RO-Crate as a folder of its own, with all of its files.

    Raise InputError if there is one already, or where it cannot be written.
    """
    if folder.exists():
        raise InputError(f"{folder}: exists already; name a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".crate-") as temporary:
            whole = Path(temporary) / folder.name
            crate.write(whole)
            whole.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
