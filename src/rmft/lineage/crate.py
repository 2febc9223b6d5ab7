"""A trace as an RO-Crate of the profile Provenance Run Crate, which the public validator `roc-validator` accepts.

The Snakefile is the workflow, a rule is a step of it (HowToStep), the code that ran for a rule is a tool
(SoftwareApplication) with settings and files as formal parameters, and a job is an action (CreateAction) that Snakemake
started (ControlAction).
"""

import hashlib
import importlib.metadata
import json
import mimetypes
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmft.errors import InputError
from rmft.lineage.records import Record
from rmft.lineage.text import flat
from rmft.lineage.trace import SHORT, Ancestor, Trace

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

SNAKEFILE = "Snakefile"
INCLUDED = Path("workflow")  # the files that the Snakefile includes
OPERATOR, RUN, SNAKEMAKE, WORKFLOW = "#operator", "#run", "#snakemake", "#workflow"
WORKFLOW_TYPES = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
LICENSE = "https://spdx.org/licenses/Apache-2.0"
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
TYPES = {bool: "Boolean", int: "Integer", float: "Float"}  # of schema.org; all other values are text


@dataclass
class _Graph:
    """Entities by identifier: their literal properties, and the identifiers that their other properties name."""

    literals: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)

    def add(self, identifier: str, kind: str, **literals: Any) -> str:  # noqa: ANN401 (any JSON value)
        """Add an entity unless there is one, and return its identifier."""
        self.literals.setdefault(identifier, {"@type": kind, **literals})
        return identifier

    def link(self, identifier: str, **objects: list[str]) -> None:
        """Let properties of an entity name other entities, besides those that they name already."""
        for name, identifiers in objects.items():
            self.links.setdefault(identifier, {}).setdefault(name, {}).update(dict.fromkeys(identifiers))

    def properties(self, identifier: str) -> dict[str, Any]:
        """Return an entity as JSON-LD, without its identifier."""
        properties = dict(self.literals.get(identifier, {}))
        for name, identifiers in self.links.get(identifier, {}).items():
            named = [{"@id": one} for one in identifiers]
            properties[name] = named[0] if len(named) == 1 else named
        return properties


def as_crate(trace: Trace) -> "ROCrate":
    """Return the crate of an artifact: every file of its trace, the workflow, and every job.

    Raise InputError where the artifact has no record, or outside of the workflow's folder.
    """
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    made = trace.ancestors[trace.path].record
    if made is None or not Path(SNAKEFILE).exists():
        reason = "no record of what made it" if made is None else f"no {SNAKEFILE} in this folder"
        raise InputError(f"{trace.path}: {reason}, so there is no crate of it")
    graph = _graph(trace)
    crate = ROCrate(version="1.1")  # which the profiles build on
    crate.metadata.extra_contexts.append(TERMS)
    crate.metadata.extra_terms["sha256"] = "https://schema.org/sha256"
    crate.name = f"Lineage of {trace.path}"
    crate.description = f"{trace.path} with everything that it was made from, back to the root seed."
    crate.datePublished = made.started
    crate.license = {"@id": LICENSE}
    version = made.receipt.commit or made.code["digest"]
    about = {"@type": WORKFLOW_TYPES, "name": "rmft", "version": version, **graph.properties(SNAKEFILE)}
    crate.add_workflow(SNAKEFILE, SNAKEFILE, main=True, lang="snakemake", properties=about)
    for rules in sorted(INCLUDED.rglob("*.smk")):
        crate.add_file(rules, rules.as_posix(), properties={"name": rules.name, "encodingFormat": "text/plain"})
    for path, ancestor in trace.ancestors.items():
        crate.add_file(path, path, properties={**_about_file(ancestor), **graph.properties(path)})
    for identifier in graph.literals:
        crate.add(ContextEntity(crate, identifier, properties=graph.properties(identifier)))
    for name, value in graph.properties("./").items():
        crate.root_dataset[name] = value
    return crate


def write_crate(folder: Path, crate: "ROCrate") -> None:
    """Write an RO-Crate as a new folder with all of its files.

    Raise InputError if the folder exists, or where it cannot be written.
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


def _about_file(ancestor: Ancestor) -> dict[str, Any]:
    path = Path(ancestor.path)
    return {
        "name": path.name,
        "sha256": ancestor.sha256,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": mimetypes.guess_type(path)[0] or "application/octet-stream",
    }


def _graph(trace: Trace) -> _Graph:
    """Return the entities of a crate that are no files, and what files and the crate itself (./) name of them."""
    graph = _Graph()
    graph.add(LICENSE, "CreativeWork", name="Apache License 2.0")
    graph.add(OPERATOR, "Organization", name="Operator of this rmft; no name is recorded")
    graph.add(BIOSCHEMAS, "CreativeWork", name="ComputationalWorkflow", version="1.0")
    graph.link(SNAKEFILE, conformsTo=[BIOSCHEMAS])
    for profile, (name, version) in PROFILES.items():
        graph.link("./", conformsTo=[graph.add(profile, "CreativeWork", name=name, version=version)])
    _add_run(graph, trace)
    jobs: dict[str, list[Record]] = {}  # of one job, the records of its outputs
    for ancestor in trace.ancestors.values():
        if ancestor.record:
            jobs.setdefault(_job_id(ancestor.record), []).append(ancestor.record)
    for job, records in jobs.items():
        _add_job(graph, job, records)
    return graph


def _job_id(record: Record) -> str:
    text = json.dumps([record.rule, record.settings, record.code, record.inputs], sort_keys=True)
    return f"#job-{record.rule}-{hashlib.sha256(text.encode()).hexdigest()[:SHORT]}"


def _add_run(graph: _Graph, trace: Trace) -> None:
    """Add the run of the workflow as a whole, and of Snakemake, from the first to the last of the jobs."""
    records = [ancestor.record for ancestor in trace.ancestors.values() if ancestor.record]
    sources = [path for path, ancestor in trace.ancestors.items() if ancestor.record is None]
    seeds = {record.settings["seed"] for record in records if "seed" in record.settings}
    values = [graph.add(f"{RUN}/seed-{seed}", "PropertyValue", name="seed", value=seed) for seed in sorted(seeds)]
    what = "Jobs of several runs, where not all were made at once"
    _add_action(graph, RUN, "CreateAction", records, name=f"Run of rmft for {trace.path}", description=what)
    graph.link(RUN, instrument=[SNAKEFILE], object=[*sources, *values], result=[trace.path])
    _add_parameter(graph, SNAKEFILE, "input", f"{WORKFLOW}/sources", "File", sources)
    _add_parameter(graph, SNAKEFILE, "input", f"{WORKFLOW}/seed", "Integer", values)
    _add_parameter(graph, SNAKEFILE, "output", f"{WORKFLOW}/artifact", "File", [trace.path])
    version = importlib.metadata.version("snakemake")
    engine = graph.add(SNAKEMAKE, "SoftwareApplication", name="Snakemake", softwareVersion=version)
    _add_action(graph, f"{SNAKEMAKE}-run", "OrganizeAction", records, name="Run of Snakemake")
    graph.link(f"{SNAKEMAKE}-run", instrument=[engine], result=[RUN])


def _add_job(graph: _Graph, job: str, records: list[Record]) -> None:
    """Add one job, with its tool and parameters, and its start by Snakemake. records: those of its outputs.

    The values of a job are its settings, and the SHA-256 of files of a hub's models.
    """
    record = records[0]
    rule, written, tool = record.rule, [one.path for one in records], _add_tool(graph, record)
    what = f"{record.wall_seconds:.1f} s on {record.receipt.machine}"
    _add_action(graph, job, "CreateAction", [record], name=f"{rule} of rmft", description=what)
    graph.link(job, instrument=[tool], object=list(record.inputs), result=written)
    for key, value in (*flat(record.settings), *record.receipt.hub.items()):
        text = value if isinstance(value, str | int | float) else json.dumps(value)
        setting = graph.add(f"{job}/{key}", "PropertyValue", name=key, value=text)
        graph.link(job, object=[setting])
        _add_parameter(graph, tool, "input", f"{tool}/{key}", TYPES.get(type(value), "Text"), [setting])
    _add_parameter(graph, tool, "input", f"{tool}/files-read", "File", list(record.inputs))
    _add_parameter(graph, tool, "output", f"{tool}/files-written", "File", written)
    start = graph.add(f"{job}/start", "ControlAction", name=f"Start of {rule}")
    graph.link(start, instrument=[_step(rule)], object=[job])
    graph.link(f"{SNAKEMAKE}-run", object=[start])
    graph.link("./", mentions=[start])


def _add_tool(graph: _Graph, record: Record) -> str:
    """Add the code that ran for a rule, as a part of the workflow and behind the rule's step."""
    digest, made = record.code["digest"], record.receipt
    code = f"code {digest}, commit {made.commit}"
    tool = graph.add(
        f"#{record.rule}-{digest}", "SoftwareApplication", name=f"rmft, rule {record.rule}", softwareVersion=code
    )
    for name, version in {"python": made.python, **record.code["libraries"]}.items():
        library = graph.add(f"#{name}-{version}", "SoftwareApplication", name=name, softwareVersion=version)
        graph.link(tool, softwareRequirements=[library])
    step = graph.add(_step(record.rule), "HowToStep", name=record.rule)
    graph.link(step, workExample=[tool])
    graph.link(SNAKEFILE, hasPart=[tool], step=[step])
    return tool


def _step(rule: str) -> str:
    return f"{SNAKEFILE}#{rule}"


def _add_action(graph: _Graph, action: str, kind: str, records: list[Record], **literals: str) -> None:
    """Add an action that took from the first start to the last end of some jobs."""
    started = min(record.started for record in records)
    ended = max(record.started + timedelta(seconds=record.wall_seconds) for record in records)
    times = {"startTime": started.isoformat(timespec="seconds"), "endTime": ended.isoformat(timespec="seconds")}
    graph.add(action, kind, **literals, **times)
    graph.link(action, agent=[OPERATOR])
    graph.link("./", mentions=[action])


def _add_parameter(graph: _Graph, owner: str, role: str, parameter: str, kind: str, values: list[str]) -> None:
    """Add a formal parameter of a tool or of the workflow, and say which files or values were given for it."""
    if values:
        graph.add(parameter, "FormalParameter", name=parameter.rpartition("/")[2], additionalType=kind)
        graph.link(owner, **{role: [parameter]})
        for value in values:
            graph.link(value, exampleOfWork=[parameter])
