"""A user's own reward processes and reference algorithms: Python files that params.yaml lists under `extensions`.

A file registers what it has with the decorators `process` and `algorithm`. What it registers is tried out at once, on a
few small games, so that a mistake is a line that names file and reason before anything runs; and whatever goes wrong
in it later is such a line too.

Symbols: n instances or replicates, T rounds, d actions, p features of a context.
"""

import ast
import functools
import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from rmft.algorithms import ADDED, ALGORITHMS, Added
from rmft.algorithms.players import ContextualPlayer, Player
from rmft.environments import ADAPTIVE, ENVIRONMENTS, environment_named
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.processes import CONTEXTUAL, NOISE, TABULAR
from rmft.environments.tables import ContextualTable, RewardTable, one_hot
from rmft.errors import InputError
from rmft.streams import stream

Given = TypeVar("Given", bound=Callable[..., Any])

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SMALL, SMALLER = (4, 5, 3), (2, 3, 3)  # (n, T, d) of the games in which an extension is tried out
FEATURES = 2

PROCESS_FILES: dict[str, str] = {}  # what extensions have registered: name → file, as params.yaml lists it
ALGORITHM_FILES: dict[str, str] = {}
_read: dict[str, str] = {}  # file → hash of its text when it was loaded
_loading: list[str] = []  # the file whose text is running now


def process(name: str, environments: Sequence[str]) -> Callable[[Given], Given]:
    """Register a function as a reward process of some environments.

    It is called as `draw(streams, n, horizon, d)`, in environments with contexts with `p` after these, and returns a
    RewardTable, or a ContextualTable. `streams(*words)` opens a random stream, which is to be read row by row, an
    instance a row, and one a round: see `environments.processes`.
    """

    def register(draw: Given) -> Given:
        file = _registering(name, PROCESS_FILES, (*TABULAR, *CONTEXTUAL, ADAPTIVE, *NOISE))
        kinds = {environment_named(environment).contextual for environment in environments}
        if len(kinds) != 1:
            raise InputError(f"{file}: process {name!r}: needs environments, all with contexts or all without")
        (CONTEXTUAL if kinds.pop() else TABULAR)[name] = _checked_draw(file, name, draw)
        for environment in environments:
            ENVIRONMENTS[environment].processes.append(name)
        PROCESS_FILES[name] = file
        return draw

    return register


def algorithm(name: str, environments: Sequence[str]) -> Callable[[Given], Given]:
    """Register a class, or a function, as a reference algorithm for some environments.

    It is called as `start(n, horizon, d, streams, **options)` and returns a Player: `policy()` gives policies (n, d),
    `observe(revealed, rewards)` takes in the rewards (n, d) in [0, 1] that were revealed, and where there are contexts
    `see(contexts)` is told them before. The options are those of params.yaml.
    """

    def register(start: Given) -> Given:
        file = _registering(name, ALGORITHM_FILES, ALGORITHMS)
        for environment in environments:
            environment_named(environment)
        ADDED[name] = Added(tuple(environments), _checked_start(file, name, start))
        ALGORITHM_FILES[name] = file
        return start

    return register


def load(files: Iterable[str], root: Path = Path()) -> None:
    """Run the files of extensions, so that what they register can be used. root: the folder that they are in.

    Raise InputError, in one line that names the file, where one is wrong.
    """
    for file in files:
        _load(file, root / file)


def files_of(processes: Iterable[str] = (), algorithms: Iterable[str] = ()) -> list[str]:
    """Return the files that have registered any of these."""
    found = [PROCESS_FILES.get(name) for name in processes] + [ALGORITHM_FILES.get(name) for name in algorithms]
    return sorted({file for file in found if file is not None})


def forget(file: str) -> None:
    """Take back what a file has registered."""
    for name in [name for name, of in PROCESS_FILES.items() if of == file]:
        del PROCESS_FILES[name]
        for registered in (TABULAR, CONTEXTUAL):
            registered.pop(name, None)
        for environment in ENVIRONMENTS.values():
            if name in environment.processes:
                environment.processes.remove(name)
    for name in [name for name, of in ALGORITHM_FILES.items() if of == file]:
        del ALGORITHM_FILES[name], ADDED[name]
    _read.pop(file, None)


def _load(file: str, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    if _read.get(file) == digest:
        return
    forget(file)
    _loading.append(file)
    try:
        tree = ast.parse(text, str(path))
        _refuse_other_randomness(tree, file)
        module = ModuleType(f"rmft_extension_{path.stem}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        exec(compile(tree, str(path), "exec"), module.__dict__)
        _try_out(file)
        _read[file] = digest
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: {type(error).__name__}: {error.msg}") from None
    except InputError as error:
        forget(file)
        raise InputError(str(error) if str(error).startswith(file) else f"{file}: {error}") from None
    except Exception as error:
        forget(file)
        raise InputError(_fault(file, path, error)) from None
    finally:
        _loading.pop()


def _registering(name: str, files: dict[str, str], taken: Iterable[str]) -> str:
    """Return the file that is registering a name. Raise InputError where it cannot have it."""
    if not _loading:
        raise InputError(f"{name}: only files that params.yaml lists under extensions can register anything")
    if not NAME.fullmatch(name):
        raise InputError(f"{_loading[-1]}: {name!r} is no name: small letters and digits, with hyphens between")
    if name in files:
        raise InputError(f"{_loading[-1]}: {name!r} is registered already, by {files[name]}")
    if name in taken:
        raise InputError(f"{_loading[-1]}: {name!r} is a name of rmft's own; take another")
    return _loading[-1]


def _refuse_other_randomness(tree: ast.Module, file: str) -> None:
    """Raise InputError where a file draws random numbers that are not those of the streams that it is given."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("np.random.", "numpy.random.")):
            names = [ast.unparse(node).replace("np.", "numpy.", 1)]
        for found in names:
            module, *_ = found.split(".")
            if module in ("random", "secrets") or (
                found.startswith("numpy.random") and not found.startswith("numpy.random.Generator")
            ):
                raise InputError(f"{file}:{node.lineno}: uses {found}; draw from the streams that are given instead")


def _fault(file: str, path: Path, error: Exception) -> str:
    """Say in one line what went wrong in a file, and where."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{file}:{lines[-1]}" if lines else file
    return f"{where}: {type(error).__name__}: {' '.join(str(error).split())}"


def _guarded(file: str, function: Given) -> Given:
    """Return a function of a user's whose errors are lines that name its file."""
    path = Path(function.__code__.co_filename) if hasattr(function, "__code__") else _path_of(function)

    @functools.wraps(function)
    def call(*given: object, **options: object) -> object:
        try:
            return function(*given, **options)
        except InputError:
            raise
        except Exception as error:
            raise InputError(_fault(file, path, error)) from None

    return call


def _path_of(function: Callable[..., Any]) -> Path:
    """Return the file of a class, or of a bound method."""
    return Path(sys.modules[function.__module__].__file__)


def _checked_draw(file: str, name: str, draw: Callable[..., RewardTable]) -> Callable[..., RewardTable]:
    """Return a process whose tables are what they must be."""
    guarded = _guarded(file, draw)

    @functools.wraps(draw)
    def drawn(streams: Callable[..., np.random.Generator], n: int, horizon: int, d: int, *p: int) -> RewardTable:
        table = guarded(streams, n, horizon, d, *p)
        kind = ContextualTable if p else RewardTable
        if type(table) is not kind:
            raise InputError(f"{file}: process {name!r} must return a {kind.__name__}, not {type(table).__name__}")
        shapes = {"rewards": (n, horizon, d), "means": (n, horizon, d), "clipped_means": (n, horizon, d)}
        if p:
            shapes["contexts"] = (n, horizon, *p)
        for part, shape in shapes.items():
            values = np.asarray(getattr(table, part))
            if values.shape != shape:
                raise InputError(f"{file}: process {name!r}: {part} have shape {values.shape}, not {shape}")
            if not np.isfinite(values).all():
                raise InputError(f"{file}: process {name!r}: {part} are not all finite")
        if table.rewards.min() < LOW or table.rewards.max() > HIGH:
            raise InputError(f"{file}: process {name!r}: rewards must lie in [{LOW:g}, {HIGH:g}]; clip them")
        return table

    return drawn


def _checked_start(file: str, name: str, start: Callable[..., Player]) -> Callable[..., Player]:
    """Return what starts an algorithm whose policies are what they must be."""
    guarded = _guarded(file, start)

    @functools.wraps(start)
    def started(n: int, horizon: int, d: int, *given: object, **options: object) -> Player:
        player = guarded(n, horizon, d, *given, **options)
        kind = _CheckedContextual if isinstance(player, ContextualPlayer) else _Checked
        return kind(file, name, player, (n, d))

    return started


class _Checked:
    """A user's player, whose policies are checked and whose errors are lines that name its file."""

    def __init__(self, file: str, name: str, player: Player, shape: tuple[int, int]) -> None:
        if not isinstance(player, Player):
            raise InputError(f"{file}: algorithm {name!r} must have deterministic, policy() and observe()")
        self.file, self.name, self.player, self.shape = file, name, player, shape
        self.deterministic = player.deterministic
        self._decide, self.observe = _guarded(file, player.policy), _guarded(file, player.observe)

    def policy(self) -> np.ndarray:
        """Return the policies (n, d). Raise InputError where they are none."""
        found = np.asarray(self._decide(), dtype=float)
        if found.shape != self.shape:
            raise InputError(f"{self.file}: algorithm {self.name!r}: policies of shape {found.shape}, not {self.shape}")
        if not (np.isfinite(found).all() and (found >= 0).all() and np.allclose(found.sum(axis=1), 1)):
            raise InputError(f"{self.file}: algorithm {self.name!r}: a policy is no distribution over actions")
        return found


class _CheckedContextual(_Checked):
    """The same of one that wants to see contexts."""

    def __init__(self, file: str, name: str, player: ContextualPlayer, shape: tuple[int, int]) -> None:
        super().__init__(file, name, player, shape)
        self.see = _guarded(file, player.see)


def _try_out(file: str) -> None:
    """Play small games with what a file has registered. Raise InputError where anything is wrong with it."""
    processes = [name for name, of in PROCESS_FILES.items() if of == file]
    algorithms = [name for name, of in ALGORITHM_FILES.items() if of == file]
    if not processes and not algorithms:
        raise InputError(f"{file}: registers nothing; decorate with @process or @algorithm of rmft.extensions")
    for name in processes:
        _try_process(file, name)
    for name in algorithms:
        _try_algorithm(file, name)


def _try_process(file: str, name: str) -> None:
    """Raise InputError where instances depend on how many there are, or rounds on how many follow."""
    streams = functools.partial(stream, 0, "environment", "extension", 0, name)
    draw, p = (CONTEXTUAL[name], [FEATURES]) if name in CONTEXTUAL else (TABULAR[name], [])
    more, fewer = draw(streams, *SMALL, *p), draw(streams, *SMALLER, *p)
    for part in vars(fewer):
        if not np.array_equal(getattr(more.head(*SMALLER[:2]), part), getattr(fewer, part)):
            raise InputError(
                f"{file}: process {name!r}: {part} of an instance change with n or T; draw a round from a stream of its"
                " own, an instance a row"
            )


def _try_algorithm(file: str, name: str) -> None:
    """Raise InputError where the policies of a replicate depend on how many there are."""
    for environment in ADDED[name].environments:
        of = ENVIRONMENTS[environment]
        small = [
            _policies(name, n, full_feedback=of.full_feedback, contextual=of.contextual) for n in (SMALL[0], SMALLER[0])
        ]
        if not np.array_equal(small[0][:, : SMALLER[0]], small[1]):
            raise InputError(f"{file}: algorithm {name!r}: policies of a replicate change with n")


def _policies(name: str, n: int, *, full_feedback: bool, contextual: bool) -> np.ndarray:
    """Return the policies (T, n, d) of a small game, with the options that an algorithm has by default."""
    _, horizon, d = SMALL
    player = ADDED[name].start(n, horizon, d, functools.partial(stream, 0, "sampling", "extension", name))
    numbers = stream(0, "environment", "extension", "game").random((horizon, SMALL[0], d))[:, :n]
    found = []
    for t in range(horizon):
        if contextual and isinstance(player, ContextualPlayer):
            player.see(numbers[t, :, :FEATURES])
        found.append(player.policy())
        shown = np.ones((n, d), bool) if full_feedback else one_hot(found[-1].argmax(axis=1), d)
        player.observe(shown, shown * numbers[t])
    return np.array(found)
