"""Other readings of the paper's reward processes, beyond those of `environments.processes`.

Each is a function `(streams, n, T, d) -> RewardTable`. None is an environment of rmft: they exist to be ruled out.
"""

from collections.abc import Callable
from fnmatch import fnmatch
from functools import lru_cache, partial
from itertools import product

import numpy as np

from rmft.environments import ADAPTIVE, AdaptiveRewards, Rewards, RewardTable
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.processes import TABULAR, Streams
from rmft.errors import InputError
from rmft.streams import stream

MEANS = {
    "N(5, 1)": lambda random, shape: random.normal(5.0, 1.0, shape),
    "N(5, 9)": lambda random, shape: random.normal(5.0, 3.0, shape),
    "U(0, 10)": lambda random, shape: random.uniform(LOW, HIGH, shape),
}
VARIANCES = {"1": [1], "3": [3], "9": [9], "10": [10], "1, 3, 10": [1, 3, 10], "1, 9, 100": [1, 9, 100]}
DRAWN = ("round", "action", "game")  # for what a variance of a mixture is drawn
SAME = {  # readings that are processes of rmft
    "gaussian: means N(5, 1), variances 1, 3, 10 for each round",
    "gaussian: means N(5, 1), variance 1",
    "gaussian: means U(0, 10), variance 1",
    "gaussian: means U(0, 10), variances 1, 9, 100 for each round",
    "sine-trend: frequencies to 10, t from 1",
    "noisy-alternating: turn fading, others U[9, 10], cyclic, t from 1",
}


def gaussian(
    streams: Streams, n: int, horizon: int, d: int, *, means: str, variances: str, drawn: str, clipped: bool
) -> RewardTable:
    """Return Gaussian rewards with means and variances by name; a mixture's variance is drawn for each `drawn`."""
    mu = MEANS[means](streams("parameters"), (n, 1, d))
    components = np.sqrt(np.array(VARIANCES[variances], dtype=float))
    shape = {"round": (n, horizon, 1), "action": (n, horizon, d), "game": (n, 1, 1)}[drawn]
    deviations = components[streams("component").integers(len(components), size=shape)]
    rewards = mu + deviations * streams("noise").standard_normal((n, horizon, d))
    return _table(np.clip(rewards, LOW, HIGH) if clipped else rewards)


def sine(streams: Streams, n: int, horizon: int, d: int, *, highest: float, rounds: str, common: str) -> RewardTable:
    """Return sine waves with frequencies up to `highest`; `common`: what all actions share."""
    x, y = highest * streams("x").random((n, 1, d)), 10 * streams("y").random((n, 1, d))
    x = x[..., :1] if common == "frequency" else x
    y = y[..., :1] if common == "phase" else y
    t = np.arange(horizon)[:, None] + (1.0 if rounds == "from 1" else 0.0)
    return _table(5 * (1 + np.sin(x * (t / horizon if rounds == "over T" else t) + y)))


def noisy_alternating(
    streams: Streams, n: int, horizon: int, d: int, *, turn: str, others: str, order: str, first: int
) -> RewardTable:
    """Return Noisy Alternating with other values on the turn and elsewhere.

    order: how the turn passes on. first: the number t of the first round.
    """
    t = np.arange(first, first + horizon)
    shift = streams("parameters").integers(d, size=(n, 1))
    whose = {
        "cyclic": (t + shift) % d,
        "one action": np.repeat(shift, horizon, axis=1),
        "random": streams("turns").integers(d, size=(n, horizon)),
    }[order]
    fading = np.minimum(25.0 / (t + 1.0), HIGH)[:, None]
    noise = streams("noise").random((n, horizon, d))
    values = {"fading": fading, "10 - fading": HIGH - fading, "U[9, 10]": 9 + noise, "U[0, 1]": noise}
    return _table(np.where(whose[:, :, None] == np.arange(d), values[turn], values[others]))


def _table(rewards: np.ndarray) -> RewardTable:
    """Return the table of rewards in games of full information, whose regret reads no means.

    The instances are last in memory, as everywhere.
    """
    rewards = np.asfortranarray(rewards)
    return RewardTable(rewards, rewards, rewards)


Process = Callable[[Streams, int, int, int], RewardTable]


def _gaussians() -> dict[str, Process]:
    return {
        f"gaussian: means {means}, {'variance' if len(VARIANCES[variances]) == 1 else 'variances'} {variances}"
        + (f" for each {drawn}" if len(VARIANCES[variances]) > 1 else "")
        + ("" if clipped else ", not clipped"): partial(
            gaussian, means=means, variances=variances, drawn=drawn, clipped=clipped
        )
        for means, variances, drawn, clipped in product(MEANS, VARIANCES, DRAWN, (True, False))
        if drawn == "round" or len(VARIANCES[variances]) > 1
    }


def _sines() -> dict[str, Process]:
    return {
        f"sine-trend: frequencies to {highest:g}, t {rounds}" + (f", one {common}" if common else ""): partial(
            sine, highest=highest, rounds=rounds, common=common
        )
        for highest, rounds, common in product((1, 5, 10), ("from 1", "from 0", "over T"), ("", "frequency", "phase"))
    }


def _noisy_alternating() -> dict[str, Process]:
    values = ("fading", "10 - fading", "U[9, 10]", "U[0, 1]")
    return {
        f"noisy-alternating: turn {turn}, others {others}, {order}, t from {first}": partial(
            noisy_alternating, turn=turn, others=others, order=order, first=first
        )
        for turn, others, order, first in product(values, values, ("cyclic", "one action", "random"), (1, 0))
        if ("fading" in turn) != ("fading" in others)  # one of the two fades, the other is noise
    }


READINGS: dict[str, Process] = {
    name: process for name, process in (_gaussians() | _sines() | _noisy_alternating()).items() if name not in SAME
}


def processes_named(names: list[str]) -> list[str]:
    """Return the processes that names or patterns (`gaussian: *`) stand for. Raise InputError for a name of none."""
    found = []
    for name in names:
        matching = [process for process in (*TABULAR, ADAPTIVE, *READINGS) if process == name or fnmatch(process, name)]
        if not matching:
            raise InputError(f"process: {name!r} names no process, and no reading of a process")
        found += [process for process in matching if process not in found]
    return found


@lru_cache(maxsize=2)  # the players of a table play the same games
def draw(seed: int, name: str, process: str, shape: tuple[int, int, int]) -> Rewards:
    """Draw the rewards (n, T, d) of a process by the streams that `name` names."""
    if process == ADAPTIVE:
        return AdaptiveRewards(shape)
    return (TABULAR | READINGS)[process](partial(stream, seed, "environment", "forensics", name), *shape)
