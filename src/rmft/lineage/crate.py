"""A trace as an RO-Crate of the profile Provenance Run Crate, which the public validator `roc-validator` accepts.

The Snakefile is the workflow, a rule is a step of it (HowToStep), the code that ran for a rule is a tool
(SoftwareApplication) with settings and files as formal parameters, and a job is an action (CreateAction) that Snakemake
started (ControlAction).
"""

import hashlib
import json
import mimetypes
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rmft.artifacts.files import SHORT, sha256
from rmft.artifacts.folders import new_folder
from rmft.artifacts.here import is_outside, without_folders
from rmft.errors import InputError
from rmft.lineage.records import Record
from rmft.lineage.text import WEIGHTS, flat
from rmft.lineage.trace import Ancestor, Trace

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

SNAKEFILE = "Snakefile"
INCLUDED = Path("workflow")  # the files that the Snakefile includes
OPERATOR, RUN, SNAKEMAKE, WORKFLOW = "#operator", "#run", "#snakemake", "#workflow"
WORKFLOW_TYPES = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
LICENSE = "https://spdx.org/licenses/Apache-2.0"
MAKERS = "The terms of its makers"
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
TYPES = {bool: "Boolean", int: "Integer", float: "Float"}  # of schema.org; all other values are text


def as_crate(trace: Trace) -> "ROCrate":
    """Return the crate of an artifact: every file of its trace, the workflow, and every job.

    Raise InputError where the artifact has no record, or outside of the workflow's folder.
    """
    from rocrate.rocrate import ROCrate

    made = trace.ancestors[trace.path].record
    if made is None or not Path(SNAKEFILE).exists():
        reason = "no record of what made it" if made is None else f"no {SNAKEFILE} in this folder"
        raise InputError(f"{trace.path}: {reason}, so there is no crate of it")
    crate = ROCrate(version="1.1")  # which the profiles build on
    crate.metadata.extra_contexts.append(TERMS)
    crate.metadata.extra_terms["sha256"] = "https://schema.org/sha256"
    crate.name = f"Lineage of {trace.path}"
    crate.description = (
        f"{trace.path} with everything that it was made from, back to the root seed. The license is that of rmft; "
        f"{MAKERS.lower()} hold for what is not in its repository."
    )
    crate.datePublished = made.started
    crate.license = {"@id": LICENSE}
    about = {"@type": WORKFLOW_TYPES, "name": "rmft", "sha256": sha256(Path(SNAKEFILE)), **_version(made)}
    crate.add_workflow(SNAKEFILE, SNAKEFILE, main=True, lang="snakemake", properties=about)
    for rules in sorted(INCLUDED.rglob("*.smk")):
        properties = {"name": rules.name, "encodingFormat": "text/plain", "sha256": sha256(rules)}
        crate.add_file(rules, rules.as_posix(), properties=properties)
    for path, ancestor in trace.ancestors.items():
        source, target = (_id(path), None) if is_outside(path) else (path, path)
        crate.add_file(source, target, properties=_about_file(ancestor))
    _add_entities(crate, trace)
    return crate


def write_crate(folder: Path, crate: "ROCrate") -> None:
    """Write an RO-Crate as a new folder with all of its files.

    Raise InputError if the folder exists, or where it cannot be written.
    """
    with new_folder(folder) as whole:
        crate.write(whole)


def _version(made: Record) -> dict[str, str]:
    """Return the commit of a job where the rules here are those of this commit."""
    commit = (made.receipt.commit or "").removesuffix("-dirty")
    rules = [SNAKEFILE, *(path.as_posix() for path in INCLUDED.rglob("*.smk"))]
    if not commit:
        return {}
    try:
        for arguments in (["ls-files", "--error-unmatch", "--", *rules], ["diff", "--quiet", commit, "--", *rules]):
            subprocess.run(["git", "--no-optional-locks", *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"version": commit}


def _about_file(ancestor: Ancestor) -> dict[str, Any]:
    path = Path(ancestor.path)
    given = ancestor.record is None and not ancestor.in_git
    return {
        **({"license": MAKERS} if given or path.suffix in WEIGHTS else {}),
        "name": path.name,
        "sha256": ancestor.sha256,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": mimetypes.guess_type(path)[0] or "application/octet-stream",
    }


def _add_entities(crate: "ROCrate", trace: Trace) -> None:
    """Add what is no file, and let files and the crate itself (./) name it."""
    _add(crate, LICENSE, "CreativeWork", name="Apache License 2.0")
    _add(crate, OPERATOR, "Organization", name="Operator of this rmft; no name is recorded")
    _add(crate, BIOSCHEMAS, "CreativeWork", name="ComputationalWorkflow", version="1.0")
    _link(crate, SNAKEFILE, conformsTo=[BIOSCHEMAS])
    for profile, (name, version) in PROFILES.items():
        _link(crate, "./", conformsTo=[_add(crate, profile, "CreativeWork", name=name, version=version)])
    _add_run(crate, trace)
    jobs: dict[str, list[Record]] = {}  # of one job, the records of its outputs
    for ancestor in trace.ancestors.values():
        if ancestor.record:
            jobs.setdefault(identity(ancestor.record), []).append(ancestor.record)
    for job, records in jobs.items():
        _add_job(crate, job, records)


def _add(crate: "ROCrate", identifier: str, kind: str, **literals: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Add an entity unless there is one, and return its identifier."""
    from rocrate.model import ContextEntity

    if crate.get(identifier) is None:
        crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **literals}))
    return identifier


def _link(crate: "ROCrate", identifier: str, **objects: list[str]) -> None:
    """Let properties of an entity name other entities, besides those that they name already."""
    entity = crate.get(identifier)
    for name, identifiers in objects.items():
        known = entity.properties().get(name, [])
        known = {one["@id"] for one in (known if isinstance(known, list) else [known])}
        entity.append_to(name, [{"@id": one} for one in dict.fromkeys(identifiers) if one not in known], compact=True)


def _id(path: str) -> str:
    """Return the identifier of a file: its path, quoted; of one outside of the repository, which is not copied, a URN.

    Others may read a crate: nothing of a path on this machine but the last name is in it.
    """
    if not is_outside(path):
        return quote(path)
    return f"urn:rmft:outside:{hashlib.sha256(path.encode()).hexdigest()[:SHORT]}:{quote(Path(path).name)}"


def identity(record: Record) -> str:
    """Return the identifier of the job that wrote an artifact: all outputs of one job share it."""
    text = json.dumps([record.rule, record.settings, record.code, record.inputs], sort_keys=True)
    return f"#job-{record.rule}-{hashlib.sha256(text.encode()).hexdigest()[:SHORT]}"


def _add_run(crate: "ROCrate", trace: Trace) -> None:
    """Add the run of the workflow as a whole, and of Snakemake, from the first to the last of the jobs."""
    records = [ancestor.record for ancestor in trace.ancestors.values() if ancestor.record]
    sources = [_id(path) for path, ancestor in trace.ancestors.items() if ancestor.record is None]
    seeds = {record.settings["seed"] for record in records if "seed" in record.settings}
    values = [_add(crate, f"{RUN}/seed-{seed}", "PropertyValue", name="seed", value=seed) for seed in sorted(seeds)]
    what = "Jobs of several runs, where not all were made at once"
    _add_action(crate, RUN, "CreateAction", records, name=f"Run of rmft for {trace.path}", description=what)
    _link(crate, RUN, instrument=[SNAKEFILE], object=[*sources, *values], result=[trace.path])
    _add_parameter(crate, SNAKEFILE, "input", f"{WORKFLOW}/sources", "File", sources)
    _add_parameter(crate, SNAKEFILE, "input", f"{WORKFLOW}/seed", "Integer", values)
    _add_parameter(crate, SNAKEFILE, "output", f"{WORKFLOW}/artifact", "File", [trace.path])
    engine = _add(crate, SNAKEMAKE, "SoftwareApplication", name="Snakemake")  # no record has its version
    _add_action(crate, f"{SNAKEMAKE}-run", "OrganizeAction", records, name="Run of Snakemake")
    _link(crate, f"{SNAKEMAKE}-run", instrument=[engine], result=[RUN])


def _add_job(crate: "ROCrate", job: str, records: list[Record]) -> None:
    """Add one job, with its tool and parameters, and its start by Snakemake. records: those of its outputs.

    The values of a job are its settings, the SHA-256 of files of a hub's models and of an endpoint's responses, and
    what else it ran with.
    """
    record = records[0]
    rule, written, tool = record.rule, [one.path for one in records], _add_tool(crate, record)
    what = f"{record.wall_seconds:.1f} s on {record.receipt.machine}"
    _add_action(crate, job, "CreateAction", [record], name=f"{rule} of rmft", description=what)
    _link(crate, job, instrument=[tool], object=list(map(_id, record.inputs)), result=written)
    receipt = record.receipt
    given = {**receipt.hub, **receipt.ran_with, **({"responses": receipt.responses} if receipt.responses else {})}
    for key, value in (*flat(record.settings), *given.items()):
        shown = without_folders(value)
        text = shown if isinstance(shown, str | int | float) else json.dumps(shown)
        setting = _add(crate, f"{job}/{key}", "PropertyValue", name=key, value=text)
        _link(crate, job, object=[setting])
        _add_parameter(crate, tool, "input", f"{tool}/{key}", TYPES.get(type(value), "Text"), [setting])
    _add_parameter(crate, tool, "input", f"{tool}/files-read", "File", list(map(_id, record.inputs)))
    _add_parameter(crate, tool, "output", f"{tool}/files-written", "File", written)
    start = _add(crate, f"{job}/start", "ControlAction", name=f"Start of {rule}")
    _link(crate, start, instrument=[_step(rule)], object=[job])
    _link(crate, f"{SNAKEMAKE}-run", object=[start])
    _link(crate, "./", mentions=[start])


def _add_tool(crate: "ROCrate", record: Record) -> str:
    """Add the code that ran for a rule, as a part of the workflow and behind the rule's step."""
    digest, made = record.code["digest"], record.receipt
    code = f"code {digest}, commit {made.commit}"
    ran = f"#{record.rule}-{digest}-{made.commit}-python-{made.python}"  # the same code may have run at other commits
    tool = _add(crate, ran, "SoftwareApplication", name=f"rmft, rule {record.rule}", softwareVersion=code)
    for name, version in {"python": made.python, **record.code["libraries"]}.items():
        library = _add(crate, f"#{name}-{version}", "SoftwareApplication", name=name, softwareVersion=version)
        _link(crate, tool, softwareRequirements=[library])
    step = _add(crate, _step(record.rule), "HowToStep", name=record.rule)
    _link(crate, step, workExample=[tool])
    _link(crate, SNAKEFILE, hasPart=[tool], step=[step])
    return tool


def _step(rule: str) -> str:
    return f"{SNAKEFILE}#{rule}"


def _add_action(crate: "ROCrate", action: str, kind: str, records: list[Record], **literals: str) -> None:
    """Add an action that took from the first start to the last end of some jobs."""
    started = min(record.started for record in records)
    ended = max(record.started + timedelta(seconds=record.wall_seconds) for record in records)
    times = {"startTime": started.isoformat(timespec="seconds"), "endTime": ended.isoformat(timespec="seconds")}
    _add(crate, action, kind, **literals, **times)
    _link(crate, action, agent=[OPERATOR])
    _link(crate, "./", mentions=[action])


def _add_parameter(crate: "ROCrate", owner: str, role: str, parameter: str, kind: str, values: list[str]) -> None:
    """Add a formal parameter of a tool or of the workflow, and say which files or values were given for it."""
    if values:
        _add(crate, parameter, "FormalParameter", name=parameter.rpartition("/")[2], additionalType=kind)
        _link(crate, owner, **{role: [parameter]})
        for value in values:
            _link(crate, value, exampleOfWork=[parameter])
