"""What made an artifact: code fingerprints before a job runs, and Snakemake's own records after it.

Snakemake keeps a record for each output (rule, params, hashes of every input). That record is the ground here: it
is read, followed to the sources, and verified, never written.
"""

import ast
import base64
import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts import sha256
from rmft.errors import InputError

SOURCE = Path(__file__).parent.parent  # the folder that holds the package
METADATA = Path(".snakemake/metadata")
MANIFEST = Path("results/manifest.csv")
SCRATCH = ("results", "data/rewards")  # every file below these is an artifact


@dataclass(frozen=True)
class Code:
    """A piece of code: hash of its syntax, our modules and other people's libraries that it imports."""

    digest: str
    modules: frozenset[str]
    libraries: frozenset[str]


def fingerprint(command: str) -> str:
    """Return a hash of the code of a sub-command: its own text, our modules that it imports, versions of all others.

    Taken over the syntax without docstrings, so that comments, blank lines and touched files change nothing.
    """
    own = _code_of(_command(command))
    codes = {"cli": own}
    pending = [*own.modules]
    while pending:
        module = pending.pop()
        if module not in codes:
            codes[module] = _code(module)
            pending += codes[module].modules
    parts = {name: code.digest for name, code in codes.items()}
    parts |= {library: _version(library) for code in codes.values() for library in code.libraries}
    return _short_hash(parts)


def _command(command: str) -> ast.Module:
    """Return a sub-command with the helpers in cli.py that it calls."""
    functions = {node.name: node for node in _syntax("rmft.cli").body if isinstance(node, ast.FunctionDef)}
    own, pending = {}, [command]
    while pending:
        name = pending.pop()
        if name in functions and name not in own:
            own[name] = functions[name]
            names = (node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name))
            pending += [name for name in names if name.startswith("_")]  # other names are variables or commands
    return ast.Module([own[name] for name in sorted(own)], type_ignores=[])


@functools.cache
def _code(module: str) -> Code:
    return _code_of(_syntax(module))


def _code_of(tree: ast.Module) -> Code:
    return Code(_short_hash(_plain(tree)), frozenset(_imports(tree)), frozenset(_libraries(tree)))


def _short_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _plain(syntax: object) -> object:
    """Return a piece of syntax as lists and text, the same from every Python: what is empty is left out."""
    if isinstance(syntax, ast.AST):
        fields = [[name, _plain(value)] for name, value in ast.iter_fields(syntax) if value is not None and value != []]
        return [type(syntax).__name__, *fields]
    return [_plain(part) for part in syntax] if isinstance(syntax, list) else repr(syntax)


@functools.cache
def _syntax(module: str) -> ast.Module:
    tree = ast.parse(_file(module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
    return tree


def _libraries(tree: ast.AST) -> set[str]:
    """Return the top-level names of other people's libraries that a piece of syntax imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[0] for name in names} - {"rmft", *sys.stdlib_module_names}


@functools.cache
def _version(library: str) -> str:
    """Return a library's version without what says how it was built, such as +cpu."""
    return importlib.metadata.version({"yaml": "PyYAML"}.get(library, library)).split("+")[0]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _file(module: str) -> Path:
    stem = SOURCE / module.replace(".", "/")
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield our modules that are imported anywhere in a piece of syntax, with the packages around them."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "rmft":
                packages = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
                yield from (package for package in packages if _file(package).exists())


@dataclass(frozen=True)
class Record:
    """What Snakemake wrote down of the job that made one output."""

    path: Path
    rule: str
    inputs: dict[str, str | None]  # path → sha256 when the job ran
    params: list[str]
    wall_seconds: float


def read_records(metadata: Path = METADATA) -> dict[str, Record]:
    """Read Snakemake's records, by output path. Raise InputError where there are none."""
    if not metadata.is_dir():
        raise InputError(f"{metadata}: no records; run snakemake (or `dvc pull`) in the root of the repository first")
    records = {}
    for file in metadata.rglob("*"):
        if file.is_file():
            # Snakemake names a record after its output, in base64 cut into folders whose names begin with @.
            encoded = "".join(part.removeprefix("@") for part in file.relative_to(metadata).parts)
            try:
                path = base64.urlsafe_b64decode(encoded).decode()
            except ValueError:
                raise InputError(f"{file}: no record of Snakemake's; delete it") from None
            records[path] = _record(path, file)
    return records


def _record(path: str, file: Path) -> Record:
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        checksums = raw.get("input_checksums") or {}
        inputs = {name: (checksums.get(name) or "").removeprefix("sha256:") or None for name in raw["input"]}
        return Record(Path(path), raw["rule"], inputs, raw["params"], raw["endtime"] - raw["starttime"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file}: damaged record of {path}; delete {path} and run snakemake again") from None


def problems_of(record: Record) -> Iterator[str]:
    """Yield what is not as the record says, with what to run."""
    remedy = f"run `snakemake --forcerun {record.rule} -- {record.path}`"
    if not record.path.exists():
        yield f"missing: {record.path}; run `snakemake -- {record.path}`"
    for name, recorded in record.inputs.items():
        if not Path(name).exists():
            yield f"missing: {name}, read for {record.path}; run `snakemake -- {name}`"
        elif recorded is None:
            yield f"unverified: {name} was not hashed when {record.path} was made; {remedy}"
        elif _hash(name) != recorded:
            yield f"altered: {name} is not what {record.path} was made from; {remedy}"


@functools.cache
def _hash(name: str) -> str:
    return sha256(Path(name))


def audit(records: dict[str, Record]) -> list[str]:
    """Return all that is not as recorded in the whole tree: missing, altered, or asked for by nobody."""
    current = reachable(records)
    problems = [problem for record in current.values() for problem in problems_of(record)]
    if str(MANIFEST) not in records:
        problems.append(f"missing: {MANIFEST}, against which artifacts that no job reads are held; run `snakemake`")
    for folder in SCRATCH:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and str(path) not in current:
                problems.append(f"orphan: {path} is no part of what `snakemake` builds; delete it")
    return problems


def reachable(records: dict[str, Record]) -> dict[str, Record]:
    """Return the records that the manifest leads to; all of them where there is no manifest yet.

    The rest are records of what is no longer in the workflow.
    """
    if str(MANIFEST) not in records:
        return records
    found, pending = {}, [str(MANIFEST)]
    while pending:
        name = pending.pop()
        if name in records and name not in found:
            found[name] = records[name]
            pending += records[name].inputs
    return found


def trace(records: dict[str, Record], path: Path) -> tuple[list[str], list[str]]:
    """Return the lines of the tree from an artifact to its sources, and what is not as recorded on the way.

    Raise InputError for a path without a record.
    """
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    if str(path) not in records:
        raise InputError(f"{path}: no artifact of this workflow; try a file below {' or '.join(SCRATCH)}")
    lines, problems, seen = [], [], set()

    def walk(name: str, depth: int) -> None:
        indent, record = "  " * depth, records.get(name)
        short = _hash(name)[:12] if Path(name).exists() else "missing"
        if record is None:
            lines.append(f"{indent}{name}  {short}  source")
            return
        if name in seen:
            lines.append(f"{indent}{name}  {short}  (above)")
            return
        seen.add(name)
        lines.append(f"{indent}{name}  {short}  {record.rule}, {record.wall_seconds:.1f} s")
        lines.extend(f"{indent}    {param}" for param in record.params)
        problems.extend(problems_of(record))
        for input_name in record.inputs:
            walk(input_name, depth + 1)

    walk(str(path), 0)
    return lines, problems
