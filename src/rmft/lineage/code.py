"""The code of a stage as a hash: what Snakemake compares to see whether an edit concerns a job.

The code of a stage is its module in `rmft.stages` with all modules that this one imports, directly or through others:
whole modules. The hash is taken over their syntax, see `lineage.syntax`, so comments, blank lines and touched files
change nothing.
"""

import functools
import importlib.metadata
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmft.errors import InputError
from rmft.lineage.syntax import SourceReader, Syntax, short_hash

SOURCE = Path(__file__).parents[2]  # the folder that holds the package
READER = SourceReader()
STAGES = "rmft.stages"
INSTRUCTIONS = "rmft.instructions"  # the command line applies them to every stage, which does not import them
SERVER = ("rmft.endpoint_server.server", "rmft.endpoint_server.worker")  # processes that jobs start, and do not import
BENEATH_TRANSFORMERS = {"accelerate", "tokenizers"}  # what transformers and, on top of it, TRL compute with
NO_PART = (  # they record and guard how artifacts are made, and make none
    "rmft.lineage",
    "rmft.workflow.runs",
    "rmft.artifacts.job",
    "rmft.artifacts.receipts",
)


@dataclass(frozen=True)
class SourceCode:
    """A source file: the hash of its syntax, and the modules of ours and the libraries that it imports."""

    digest: str
    modules: frozenset[str]
    libraries: frozenset[str]


def stages(source: Path = SOURCE) -> list[str]:
    """Return the names of all stages."""
    folder = source / STAGES.replace(".", "/")
    return sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")


@functools.cache
def fingerprint(stage: str, source: Path = SOURCE, extensions: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
    """Return the code of a stage: a digest, and the versions of its libraries by name.

    extensions: the user's own files that the job runs.
    """
    return _digest_of(code_of(stage, source, extensions))


@functools.cache
def server_fingerprint(source: Path = SOURCE) -> str:
    """Return a digest of the code of our own server, and of what it fine-tunes with."""
    return module_fingerprint(*SERVER, source=source)


def module_fingerprint(*modules: str, source: Path = SOURCE) -> str:
    """Return a digest of the code of modules of ours, with all that they import and the versions of its libraries."""
    digest, _ = _digest_of(_with_imports(modules, source))
    return digest


def _digest_of(codes: Mapping[str, SourceCode]) -> tuple[str, dict[str, str]]:
    libraries = {name: _version(name) for name in sorted({name for code in codes.values() for name in code.libraries})}
    if Path("Snakefile").exists():  # `rmft eval` leaves no folder in those of users
        READER.keep()
    digest = short_hash([{part: code.digest for part, code in codes.items()}, libraries])
    return digest, libraries


def check_code(extensions: Iterable[str]) -> None:
    """Raise InputError where code of a stage or of a user's own file is not Python, or a library is not installed."""
    for stage in stages():
        fingerprint(stage)
    for file in extensions:
        try:
            _digest_of({file: _code(READER.read(Path(file)), SOURCE)})
        except InputError as error:
            raise InputError(str(error) if str(error).startswith(file) else f"{file}: imports {error}") from None


def code_of(stage: str, source: Path = SOURCE, extensions: Sequence[str] = ()) -> dict[str, SourceCode]:
    """Return the code of a stage by module: its own one, and every module of ours that is imported from there.

    source: the folder that holds the package, here or in another checkout. extensions: the user's own files, by path.
    """
    own = {file: _code(READER.read(Path(file)), source) for file in extensions}
    always = [INSTRUCTIONS] if _is_there(INSTRUCTIONS, source) else []  # former revisions have none
    codes = own | _with_imports(
        [f"{STAGES}.{stage}", *always, *(module for code in own.values() for module in code.modules)], source
    )
    return dict(sorted(codes.items()))


def _with_imports(modules: Iterable[str], source: Path) -> dict[str, SourceCode]:
    """Return the code of modules of ours, and of all that they import, directly or through others."""
    codes: dict[str, SourceCode] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module not in codes:
            codes[module] = _code(READER.read(_file(module, source)), source)
            pending += codes[module].modules
    return dict(sorted(codes.items()))


def _code(syntax: Syntax, source: Path) -> SourceCode:
    names = tuple(syntax.names)
    return SourceCode(syntax.digest, _modules(names, source), _libraries(names))


@functools.cache  # most modules are part of most stages
def _libraries(names: tuple[str, ...]) -> frozenset[str]:
    """Return the libraries of other people among imported names, and what transformers computes with."""
    found = {name.split(".")[0] for name in names} - {"rmft", *sys.stdlib_module_names}
    return frozenset(found | BENEATH_TRANSFORMERS if "transformers" in found else found)


@functools.cache
def _modules(names: tuple[str, ...], source: Path) -> frozenset[str]:
    """Return our modules among imported names, with the packages that contain them."""
    found: set[str] = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "rmft" and not f"{name}.".startswith(tuple(f"{module}." for module in NO_PART)):
            packages = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
            found.update(package for package in packages if _is_there(package, source))
    return frozenset(found)


@functools.cache  # of some hundred names, each in dozens of modules
def _is_there(module: str, source: Path) -> bool:
    return _file(module, source).exists()


def _file(module: str, source: Path) -> Path:
    stem = source / module.replace(".", "/")
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


@functools.cache
def _version(library: str) -> str:
    """Return a library's version without its build, such as +cpu."""
    return importlib.metadata.version(_distribution(library)).split("+")[0]


def _distribution(library: str) -> str:
    """Return the name of the package that installs a library: mostly the library's own name."""
    known = {"yaml": "pyyaml"}.get(library, library)
    with suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(known)
        return known
    found = importlib.metadata.packages_distributions().get(library)
    if not found:
        raise InputError(f"{library}: has no version, as no package installs it; install it as a package")
    return found[0]


def locked(lock: Path) -> dict[str, str]:
    """Return the versions in a lock file by library; none where there is no such file."""
    text = lock.read_text(encoding="utf-8", errors="replace") if lock.exists() else ""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def normalised(package: str) -> str:
    """Return the one spelling of a package's name that PyPI compares: `pydantic_core` is `pydantic-core`."""
    return re.sub(r"[-_.]+", "-", package).lower()


def not_locked(of: Iterable[str], lock: Path = Path("requirements.lock")) -> list[str]:
    """Return a line for each library of some stages whose installed version is not the locked one.

    Snakemake compares the installed versions and DVC compares the lock file, so the two would disagree.
    """
    pins = {normalised(name): version for name, version in locked(lock).items()}
    installed = {name: version for stage in of for name, version in fingerprint(stage)[1].items()}
    return [
        f"{name} {installed[name]} is installed, {lock} has {version}"
        for name in sorted(installed)
        if (version := pins.get(normalised(_distribution(name)), installed[name])) != installed[name]
    ]
