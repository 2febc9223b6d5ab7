"""Checks of an extension's processes and algorithms, when it is loaded and in every game.

Symbols: n instances, T rounds, d actions, p features of a context.
"""

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rmft.algorithms import ALGORITHMS, AlgorithmSettings, start
from rmft.algorithms.players import CheckedPlayer, ContextualPlayer, Player
from rmft.environments import ENVIRONMENTS
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.processes import CONTEXTUAL, TABULAR
from rmft.environments.tables import ContextualTable, RewardTable, one_hot
from rmft.errors import InputError
from rmft.streams import stream

Function = TypeVar("Function", bound=Callable[..., Any])

SMALL, SMALLER = (4, 5, 3), (2, 3, 3)  # (n, T, d) of the games in which an algorithm or method is tried out
LONG, LESS_LONG = (4, 110, 3), (2, 100, 3)  # of those in which a process is: it may change after many rounds
FEATURES = 2
REAL, NOISE = "biuf", 1e-9  # kinds of NumPy's types; how far rounding may leave a mean from its range
# The arguments with which rmft calls a process, an algorithm and a training method
DRAWS, STARTS = ("streams", "n", "horizon", "d"), ("n", "horizon", "d", "streams")
TRAINS = ("job", "trajectories", "selection", "start", "report")


def require_takes(label: str, function: Callable[..., Any], names: Sequence[str], more: str = "") -> None:
    """Raise InputError where a user's function does not take the arguments that rmft gives it, by place."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        raise InputError(f"{label} must take ({', '.join(names)}), but: {error}{more}") from None


def fault(file: str, path: Path, error: BaseException) -> str:
    """Return one line that says which error occurred at which line of a file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{file}:{lines[-1]}" if lines else file
    return f"{where}: {type(error).__name__}: {' '.join(str(error).split())}"


def guarded(file: str, function: Function) -> Function:
    """Return a user's function whose errors are InputErrors that name its file and line."""
    code = getattr(function, "__code__", None)  # a class, or a bound method of one, may have none
    path = Path(code.co_filename if code else sys.modules[function.__module__].__file__)

    @functools.wraps(function)
    def call(*arguments: object, **options: object) -> object:
        try:
            return function(*arguments, **options)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(fault(file, path, error)) from None

    return call


def checked_process(file: str, name: str, draw: Callable[..., RewardTable]) -> Callable[..., RewardTable]:
    """Return a process that raises InputError where a table has the wrong type, shapes or values."""
    guarded_draw = guarded(file, draw)

    @functools.wraps(draw)
    def checked(streams: Callable[..., np.random.Generator], n: int, horizon: int, d: int, *p: int) -> RewardTable:
        table = guarded_draw(streams, n, horizon, d, *p)
        kind = ContextualTable if p else RewardTable
        if type(table) is not kind:
            raise InputError(f"{file}: process {name!r} must return a {kind.__name__}, not {type(table).__name__}")
        shapes = dict.fromkeys(("rewards", "means", "clipped_means"), (n, horizon, d))
        if p:
            shapes["contexts"] = (n, horizon, *p)
        parts = {part: np.asarray(getattr(table, part)) for part in shapes}
        for part, values in parts.items():
            if values.dtype.kind not in REAL:
                raise InputError(f"{file}: process {name!r}: {part} must be real numbers, not {values.dtype}")
            if values.shape != shapes[part]:
                raise InputError(f"{file}: process {name!r}: {part} have shape {values.shape}, not {shapes[part]}")
            if not np.isfinite(values).all():
                raise InputError(f"{file}: process {name!r}: {part} are not all finite")
        for part, noise in (("rewards", 0.0), ("clipped_means", NOISE)):
            if parts[part].min() < LOW - noise or parts[part].max() > HIGH + noise:
                raise InputError(f"{file}: process {name!r}: {part} must lie in [{LOW:g}, {HIGH:g}]; clip them")
        return kind(**{part: values.astype(np.float64) for part, values in parts.items()})

    return checked


def checked_factory(file: str, name: str, factory: Callable[..., Player]) -> Callable[..., Player]:
    """Return a factory of players that raise InputError where a policy is no distribution over actions."""
    guarded_factory = guarded(file, factory)

    @functools.wraps(factory)
    def checked(n: int, horizon: int, d: int, *arguments: object, **options: object) -> Player:
        player = guarded_factory(n, horizon, d, *arguments, **options)
        kind = GuardedContextualPlayer if isinstance(player, ContextualPlayer) else GuardedPlayer
        return kind(file, name, player, (n, d))

    return checked


class GuardedPlayer(CheckedPlayer):
    """A user's player whose policies are checked and whose errors name its file."""

    def __init__(self, file: str, name: str, player: Player, shape: tuple[int, int]) -> None:
        if not isinstance(player, Player):
            raise InputError(f"{file}: algorithm {name!r} must have deterministic, policy() and observe()")
        super().__init__(f"{file}: algorithm {name!r}", player, shape)
        self._policy, self.observe = guarded(file, player.policy), guarded(file, player.observe)


class GuardedContextualPlayer(GuardedPlayer):
    """A guarded player that sees contexts."""

    def __init__(self, file: str, name: str, player: ContextualPlayer, shape: tuple[int, int]) -> None:
        super().__init__(file, name, player, shape)
        self.see = guarded(file, player.see)


def try_process(file: str, name: str) -> None:
    """Raise InputError where an instance changes with n, or a round with T."""
    streams = functools.partial(stream, 0, "environment", "extension", 0, name)
    draw, p = (CONTEXTUAL[name], [FEATURES]) if name in CONTEXTUAL else (TABULAR[name], [])
    more, fewer = draw(streams, *LONG, *p), draw(streams, *LESS_LONG, *p)
    for part in vars(fewer):
        if not np.array_equal(getattr(more.head(*LESS_LONG[:2]), part), getattr(fewer, part)):
            raise InputError(
                f"{file}: process {name!r}: with more instances or rounds, the first ones have other {part}; draw each"
                " round from a stream of its own, such as streams('noise', t), with one row for each instance"
            )


def try_algorithm(file: str, name: str) -> None:
    """Raise InputError where the policies in a game change with n."""
    for environment in ALGORITHMS[name].environments:
        more, fewer = (_policies(name, environment, n) for n in (SMALL[0], SMALLER[0]))
        if not np.array_equal(more[:, : SMALLER[0]], fewer):
            raise InputError(
                f"{file}: algorithm {name!r}: its policies in one game change with how many games are played"
            )


def _policies(name: str, environment: str, n: int) -> np.ndarray:
    """Return the policies (T, n, d) of an algorithm without options in a small game."""
    _, horizon, d = SMALL
    kind = ENVIRONMENTS[environment]
    streams = functools.partial(stream, 0, "sampling", "extension", name)
    player = start(AlgorithmSettings(name), (n, horizon, d), streams=streams)
    numbers = stream(0, "environment", "extension", "game").random((horizon, SMALL[0], d))[:, :n]
    policies = []
    for t in range(horizon):
        if kind.contextual and isinstance(player, ContextualPlayer):
            player.see(numbers[t, :, :FEATURES])
        policies.append(player.policy())
        revealed = np.ones((n, d), bool) if kind.full_feedback else one_hot(policies[-1].argmax(axis=1), d)
        player.observe(revealed, revealed * numbers[t])
    return np.array(policies)
