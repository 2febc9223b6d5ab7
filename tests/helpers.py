"""Small games that several test files play; a comparison of a sample with its expectation; waiting for another process.

Symbols: n instances, T rounds, d actions.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rmft.algorithms import AlgorithmSettings, Player, start
from rmft.environments import ENVIRONMENTS, AdaptiveRewards, RewardTable, draw_rewards
from rmft.environments.tables import variation
from rmft.game import Trajectories, play
from rmft.streams import stream

# Said first by a child process that is to be interrupted: a shell's background jobs are born deaf to Ctrl-C.
HEAR_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def draw(process: str, n: int, horizon: int, d: int, *, root: int = 0) -> RewardTable:
    """Return the first n instances of one process."""
    return draw_rewards(root, "test", [process], (n, horizon, d))


def fixed_table(rewards: np.ndarray) -> RewardTable:
    """Return a table of known rewards (n, T, d) which are their own means."""
    rewards = np.asarray(rewards, dtype=float)
    return RewardTable(rewards, rewards, rewards)


def uniforms(n: int, *words: str | int) -> Callable[[int], np.ndarray]:
    """Return the numbers that turn policies (n, d) into actions, named by words."""
    return lambda t: stream(0, "action", *words, t).random(n)


def play_algorithm(
    settings: AlgorithmSettings, table: RewardTable, environment: str, *, words: tuple[str, ...] = ("test",)
) -> Trajectories:
    """Play an algorithm on a table, with everything that it may need."""
    n = table.shape[0]
    player = start(
        settings,
        table.shape,
        streams=partial(stream, 0, "sampling", *words),
        variation=variation(table.means),
    )
    full = ENVIRONMENTS[environment].full_feedback
    return play(player, table, full_feedback=full, uniforms=uniforms(n, *words))


def play_full(player: Player, table: RewardTable | AdaptiveRewards) -> Trajectories:
    """Play a player under full feedback, actions included."""
    return play(player, table, full_feedback=True, uniforms=uniforms(table.shape[0], "full"))


def assert_mean(sample: np.ndarray, expected: float | np.ndarray, *, standard_errors: float = 4.0) -> None:
    """Hold the mean of independent rows of a sample (n, …) against what is expected of it."""
    error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
    distance = np.abs(sample.mean(axis=0) - expected)
    assert (distance <= standard_errors * error + 1e-9).all(), f"{distance} apart, standard error {error}"


def wait_until(condition: Callable[[], Any], seconds: float = 120.0, every: float = 0.05) -> Any:
    """Wait until a condition of another process or thread holds; return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"the condition did not hold within {seconds:.0f} s"
        time.sleep(every)
    return value


def games(n: int = 6, horizon: int = 20, d: int = 3) -> dict[str, list]:
    """Return n games in words, two a scenario, in which every message is another one."""
    random = np.random.default_rng(0)
    rewards, means, clipped_means = random.uniform(0, 10, (3, n, horizon * d)).tolist()
    replies = [[f"reply-{i}-{t} [bold]so[/bold]" for t in range(1, horizon + 1)] for i in range(n)]
    return {
        "scenario": [i // 2 for i in range(n)],
        "trajectory": [i % 2 for i in range(n)],
        "d": [d] * n,
        "rewards": rewards,
        "means": means,
        "clipped_means": clipped_means,
        "prompt": [[f"prompt-{i}-{t}\nsecond-line-{i}-{t}" for t in range(1, horizon + 1)] for i in range(n)],
        "reply": replies,
        "policy": random.dirichlet(np.ones(d), (n, horizon)).reshape(n, -1).tolist(),
        "action": random.integers(d, size=(n, horizon)).tolist(),
        "attempts": [[1] * horizon for _ in range(n)],
        "fallback": [[False] * horizon for _ in range(n)],
        "ids": [[[1]]] * n,
        "sampled": [[[True]]] * n,
        "replied": [[[True]]] * n,
    }
