"""A user's own reward processes, reference algorithms and training methods: files that params.yaml lists.

A file registers its functions and classes with the decorators `process`, `algorithm` and `method`. Loading a file
tries out its processes and algorithms in small games, so that a mistake is an error that names the file and the reason
before anything runs; an error in a later game names the file too.

Symbols: n instances, T rounds, d actions, p features of a context.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from rmft.algorithms import ALGORITHMS, Algorithm
from rmft.environments import ADAPTIVE, ENVIRONMENTS, environment_named
from rmft.environments.processes import CONTEXTUAL, TABULAR
from rmft.errors import InputError, not_python
from rmft.extensions.checks import (
    DRAWS,
    STARTS,
    TRAINS,
    checked_factory,
    checked_process,
    fault,
    guarded,
    require_takes,
    try_algorithm,
    try_process,
)
from rmft.extensions.methods import METHODS, TrainingMethod, require_model_of_settings

Function = TypeVar("Function", bound=Callable[..., Any])

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

PROCESS_FILES: dict[str, str] = {}  # registered processes: name → file, as params.yaml lists it
ALGORITHM_FILES: dict[str, str] = {}
METHOD_FILES: dict[str, str] = {}
_digests: dict[str, str] = {}  # file → hash of its text when it was loaded
_spelt: dict[Path, str] = {}  # resolved path → file, as it was loaded last
_loading: list[str] = []  # the file that is being run


def process(name: str, environments: Sequence[str]) -> Callable[[Function], Function]:
    """Register a function as a reward process of some environments.

    rmft calls it as `draw(streams, n, horizon, d)`, in environments with contexts as `draw(streams, n, horizon, d, p)`;
    it returns a RewardTable, or a ContextualTable. `streams(*words)` opens a random stream. Use one stream for the
    instances' parameters and one for each round, and read each row by row, a row an instance: see
    `environments.processes`.
    """

    def register(draw: Function) -> Function:
        file = _claim(name, PROCESS_FILES, (*TABULAR, *CONTEXTUAL, ADAPTIVE))
        _require_list(f"{file}: process {name!r}", environments)
        kinds = {environment_named(environment).contextual for environment in environments}
        if len(kinds) != 1:
            raise InputError(f"{file}: process {name!r}: needs environments, all with contexts or all without")
        contextual = kinds.pop()
        require_takes(f"{file}: process {name!r}", draw, (*DRAWS, "p") if contextual else DRAWS)
        (CONTEXTUAL if contextual else TABULAR)[name] = checked_process(file, name, draw)
        for environment in environments:
            ENVIRONMENTS[environment].processes.append(name)
        PROCESS_FILES[name] = file
        return draw

    return register


def algorithm(name: str, environments: Sequence[str]) -> Callable[[Function], Function]:
    """Register a class, or a function, as a reference algorithm for some environments.

    rmft calls it as `factory(n, horizon, d, streams, **options)`, with the options of params.yaml; it returns a Player.
    `policy()` returns policies (n, d), `observe(revealed, rewards)` takes the rewards (n, d) in [0, 1] that were
    revealed, and `see(contexts)`, if there is one, takes the contexts (n, p) before each round.
    """

    def register(factory: Function) -> Function:
        file = _claim(name, ALGORITHM_FILES, ALGORITHMS)
        _require_list(f"{file}: algorithm {name!r}", environments)
        require_takes(f"{file}: algorithm {name!r}", factory, STARTS, "; its options need defaults")
        for environment in environments:
            environment_named(environment)
        checked = checked_factory(file, name, factory)
        ALGORITHMS[name] = Algorithm(
            lambda settings, setup: checked(setup.n, setup.horizon, setup.d, setup.streams, **settings.options),
            tuple(environments),
            factory=factory,
        )
        ALGORITHM_FILES[name] = file
        return factory

    return register


def method(name: str, settings: type, title: str | None = None) -> Callable[[Function], Function]:
    """Register a function as a training method, for experiments of kind `method`.

    settings: the dataclass or pydantic model that checks the experiment's `settings`. title: in tables; else the name.
    rmft calls the function as `train(job, trajectories, selection, start, report)`: see `stages.method`.
    """

    def register(train: Function) -> Function:
        file = _claim(name, METHOD_FILES, ("rmft", "sft", "grpo", "distillation"))
        require_takes(f"{file}: method {name!r}", train, TRAINS)
        require_model_of_settings(f"{file}: method {name!r}", settings)
        METHODS[name] = TrainingMethod(title or name, settings, guarded(file, train))
        METHOD_FILES[name] = file
        return train

    return register


def load(files: str | Path | Iterable[str | Path], root: Path = Path()) -> None:
    """Run the file or files of extensions, which lie in the folder `root`, so that their registrations can be used.

    Raise InputError, in one line that names the file, where one is wrong.
    """
    for file in [files] if isinstance(files, str | Path) else files:
        _load(str(file), root / file)


def files_of(processes: Iterable[str] = (), algorithms: Iterable[str] = (), methods: Iterable[str] = ()) -> list[str]:
    """Return the files that registered any of these processes, algorithms and methods."""
    registered = ((PROCESS_FILES, processes), (ALGORITHM_FILES, algorithms), (METHOD_FILES, methods))
    return sorted({files[name] for files, names in registered for name in names if name in files})


def data_of(files: Iterable[str]) -> list[str]:
    """Return the files beside extensions, or in folders there, that the extensions name: their jobs depend on these.

    files: must be readable. A name counts wherever it is in the text: an input too many is no harm.
    """
    found: set[str] = set()
    for file in map(Path, files):
        text = file.read_text(encoding="utf-8")
        found |= {beside.as_posix() for beside in file.parent.rglob("*") if beside.name in text and beside.is_file()}
    return sorted(found.difference(files))


def forget(file: str) -> None:
    """Undo the registrations of a file."""
    for name in _names(PROCESS_FILES, file):
        del PROCESS_FILES[name]
        for registered in (TABULAR, CONTEXTUAL):
            registered.pop(name, None)
        for environment in ENVIRONMENTS.values():
            if name in environment.processes:
                environment.processes.remove(name)
    for name in _names(ALGORITHM_FILES, file):
        del ALGORITHM_FILES[name], ALGORITHMS[name]
    for name in _names(METHOD_FILES, file):
        del METHOD_FILES[name], METHODS[name]
    _digests.pop(file, None)


def _names(files: dict[str, str], file: str) -> list[str]:
    """Return the names that a file registered."""
    return [name for name, registrant in files.items() if registrant == file]


def _load(file: str, path: Path) -> None:
    """Run a file, unless its text is unchanged since it was last run, and try out what it registers."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin files with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    if _digests.get(file) == digest:
        return
    for earlier in {file, _spelt.get(path.resolve(), file)}:  # one file, however its path is written
        forget(earlier)
    _spelt[path.resolve()] = file
    _loading.append(file)
    try:
        code = _compiled(text, file, path)
        module = ModuleType(f"rmft_extension:{file.removesuffix('.py')}")  # files in two folders may share a name
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)
        _try_out(file)
        _digests[file] = digest
    except InputError as error:
        forget(file)
        raise InputError(str(error) if str(error).startswith(file) else f"{file}: {error}") from None
    except (Exception, SystemExit) as error:
        forget(file)
        raise InputError(fault(file, path, error)) from None
    finally:
        _loading.pop()


def _require_list(label: str, environments: Sequence[str]) -> None:
    """Raise InputError where environments are no list, or none."""
    if isinstance(environments, str) or not environments:
        raise InputError(f'{label}: environments must be a list with at least one, such as ["mab"]')


def _compiled(text: str, file: str, path: Path) -> CodeType:
    """Return a file's code. Raise InputError where it is not Python, or draws random numbers of its own."""
    try:
        tree = ast.parse(text, str(path))
        _refuse_other_randomness(tree, file)
        return compile(tree, str(path), "exec")
    except SyntaxError as error:
        raise InputError(not_python(file, error)) from None


def _claim(name: str, files: dict[str, str], taken: Iterable[str]) -> str:
    """Return the file that is registering a name. Raise InputError where the name is malformed or taken."""
    if not _loading:
        raise InputError(f"{name}: only files that params.yaml lists under extensions can register anything")
    file = _loading[-1]
    if not NAME.fullmatch(name):
        raise InputError(f"{file}: {name!r} is no name: small letters and digits, with hyphens between")
    if name in files:
        raise InputError(f"{file}: {name!r} is registered already, by {files[name]}")
    if name in taken:
        raise InputError(f"{file}: {name!r} is a name of rmft's own; take another")
    return file


def _refuse_other_randomness(tree: ast.Module, file: str) -> None:
    """Raise InputError where a file draws random numbers from other sources than the streams that it is given."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("np.random.", "numpy.random.")):
            names = [ast.unparse(node).replace("np.", "numpy.", 1)]
        for name in names:
            if name.split(".")[0] in ("random", "secrets") or (
                name.startswith("numpy.random") and not name.startswith("numpy.random.Generator")
            ):
                raise InputError(f"{file}:{node.lineno}: uses {name}; draw from the streams that are given instead")


def _try_out(file: str) -> None:
    """Play small games with what a file registers. Raise InputError where anything is wrong."""
    processes, algorithms = _names(PROCESS_FILES, file), _names(ALGORITHM_FILES, file)
    if not processes and not algorithms and not _names(METHOD_FILES, file):
        raise InputError(f"{file}: registers nothing; decorate with @process, @algorithm or @method of rmft.extensions")
    for name in processes:
        try_process(file, name)
    for name in algorithms:
        try_algorithm(file, name)
