"""The code of a sub-command as a hash: what Snakemake compares to see whether an edit concerns a job.

Taken over the syntax without docstrings and what is imported for annotations alone, so that comments, blank lines and
touched files change nothing.
"""

import ast
import functools
import hashlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmft.errors import InputError

SOURCE = Path(__file__).parents[2]  # the folder that holds the package
NO_PART = {"lineage", "running"}  # modules of ours: what tells and guards how artifacts are made, and makes none


@dataclass(frozen=True)
class Code:
    """A piece of code: hash of its syntax, our modules and other people's libraries that it imports."""

    digest: str
    modules: frozenset[str]
    libraries: frozenset[str]


@functools.cache
def fingerprint(command: str, source: Path = SOURCE, extensions: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
    """Return the code of a sub-command: a digest, and the versions of its libraries by name.

    extensions: a user's own files that it runs.
    """
    codes = code_of(command, source, extensions)
    libraries = {name: _version(name) for name in sorted({name for code in codes.values() for name in code.libraries})}
    digest = _short_hash([{part: code.digest for part, code in codes.items()}, libraries])
    return digest, libraries


def code_of(command: str, source: Path = SOURCE, extensions: Sequence[str] = ()) -> dict[str, Code]:
    """Return what a sub-command runs: its own text under "cli", and every module of ours that it imports by name.

    source: the folder that holds the package, here or in another checkout. extensions: a user's own files, by path.
    """
    codes = {"cli": _code_of(_command(command, source), source)}
    codes |= {file: _code_of(_parsed(Path(file)), source) for file in extensions}
    pending = [module for code in codes.values() for module in code.modules]
    while pending:
        module = pending.pop()
        if module not in codes:
            codes[module] = _code(module, source)
            pending += codes[module].modules
    return dict(sorted(codes.items()))


def _command(command: str, source: Path) -> ast.Module:
    """Return a sub-command with the helpers and constants of cli.py that it uses."""
    defined: dict[str, ast.stmt] = {}
    for node in _syntax("rmft.cli", source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined |= {
                name.id: node for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            }
    own, pending = {}, [command]
    while pending:
        name = pending.pop()
        if name in defined and name not in own:
            own[name] = defined[name]
            body = getattr(defined[name], "body", [defined[name]])
            names = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
            pending += (name for name in names if name.startswith("_") or name.isupper())  # others are variables
    return ast.Module([own[name] for name in sorted(own)], type_ignores=[])


@functools.cache
def _code(module: str, source: Path) -> Code:
    return _code_of(_syntax(module, source), source)


def _code_of(tree: ast.Module, source: Path) -> Code:
    return Code(_short_hash(_plain(tree)), frozenset(_imports(tree, source)), frozenset(_libraries(tree)))


def _short_hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _plain(syntax: object) -> object:
    """Return a piece of syntax as lists and text, the same from every Python: what is empty is left out."""
    if isinstance(syntax, ast.AST):
        fields = [[name, _plain(value)] for name, value in ast.iter_fields(syntax) if value is not None and value != []]
        return [type(syntax).__name__, *fields]
    return [_plain(part) for part in syntax] if isinstance(syntax, list) else repr(syntax)


@functools.cache
def _syntax(module: str, source: Path) -> ast.Module:
    return _parsed(_file(module, source))


def _parsed(file: Path) -> ast.Module:
    """Return the syntax of a file without docstrings, and without what is imported for annotations alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]  # imported for annotations, and never run
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
    return importlib.metadata.version(_distribution(library)).split("+")[0]


def _distribution(library: str) -> str:
    """Return what a library is installed as: mostly, but not for all that a user may import, its own name."""
    known = {"yaml": "pyyaml"}.get(library, library)
    with suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(known)
        return known
    found = importlib.metadata.packages_distributions().get(library)
    if not found:
        raise InputError(f"{library}: is installed as no package, so nothing can tell its version; install it as one")
    return found[0]


def locked(lock: Path) -> dict[str, str]:
    """Return the versions in a lock file by library; none where there is no such file."""
    text = lock.read_text(encoding="utf-8", errors="replace") if lock.exists() else ""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def not_locked(commands: Iterable[str], lock: Path = Path("requirements.lock")) -> list[str]:
    """Return, in words, the libraries of these sub-commands whose installed version is not the locked one.

    Snakemake goes by what is installed, DVC by the lock; where the two differ they would disagree.
    """
    pins = locked(lock)
    installed = {name: version for command in commands for name, version in fingerprint(command)[1].items()}
    return [
        f"{name} {installed[name]} is installed, {lock} has {version}"
        for name in sorted(installed)
        if (version := pins.get(_distribution(name), installed[name])) != installed[name]
    ]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _file(module: str, source: Path) -> Path:
    stem = source / module.replace(".", "/")
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _imports(tree: ast.AST, source: Path) -> Iterator[str]:
    """Yield our modules that are imported anywhere in a piece of syntax, with the packages around them."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "rmft" and NO_PART.isdisjoint(parts[1:2]):
                packages = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
                yield from (package for package in packages if _file(package, source).exists())
