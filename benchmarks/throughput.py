"""Replicate-rounds per second of UCB and EXP3, ours and other libraries', on one thread and the same rewards.

    python benchmarks/throughput.py --replicates 1000 --actions 3 --horizon 100

A rate counts playing only: the reward table is drawn before the clock starts. Exit code 1 if a goal is missed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import peers
from goals import verdict

from rmft.algorithms import AlgorithmSettings, start
from rmft.environments import RewardTable, draw_rewards
from rmft.game import play
from rmft.streams import stream

GOALS = {"ucb": 10e6, "exp3": 6e6}  # replicate-rounds per second
REPEATS = 50  # of ours; the best counts, since other work on the machine only slows it
PEER_REPEATS = 3
PEER_REPLICATES = 20


def best_rate(game: Callable[[], object], replicate_rounds: int, repeats: int) -> float:
    """Return replicate-rounds per second in the fastest of several games."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        game()
        seconds.append(time.perf_counter() - begin)
    return replicate_rounds / min(seconds)


def our_rate(algorithm: str, table: RewardTable) -> float:
    """Return the rate of one of our algorithms on a table (n, T, d)."""
    n, horizon, _ = table.shape

    def game() -> None:
        player = start(AlgorithmSettings(algorithm), table.shape)
        play(player, table, full_feedback=False, uniforms=lambda t: stream(0, "action", algorithm, t).random(n))

    return best_rate(game, n * horizon, REPEATS)


def peer_rate(start_peer: Callable[[int], peers.Peer], table: RewardTable) -> float:
    """Return the rate of another library's algorithm on the first instances of a table (n, T, d)."""
    rewards = np.ascontiguousarray(table.rewards[:PEER_REPLICATES]) / 10
    return best_rate(lambda: peers.play_peer(start_peer, rewards), rewards.shape[0] * rewards.shape[1], PEER_REPEATS)


def main() -> int:
    """Print the rates; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--actions", type=int, default=3)
    parser.add_argument("--horizon", type=int, default=100)
    options = parser.parse_args()

    shape = (options.replicates, options.horizon, options.actions)
    table = draw_rewards(0, "throughput", ["gaussian"], shape)
    gamma = min(1.0, np.sqrt(np.log(options.actions) * options.actions / (2 * options.horizon)))
    rivals = {
        "ucb": peers.PEERS["ucb"],
        "exp3": {"SMPyBandits": lambda d: peers.exp3(d, gamma)},
    }
    rates = {algorithm: our_rate(algorithm, table) for algorithm in GOALS}

    print(f"Gaussian rewards, {shape[0]} replicates, {shape[1]} rounds, {shape[2]} actions, one thread")
    print(f"{'algorithm':<11}{'library':<13}{'replicate-rounds/s':>19}{'ours is':>11}   goal")
    for algorithm, goal in GOALS.items():
        outcome = verdict(rates[algorithm] >= goal)
        print(f"{algorithm:<11}{'rmft':<13}{rates[algorithm]:>19,.0f}{'':>11}   {outcome} {goal:,.0f}")
        for library, start_peer in rivals[algorithm].items():
            rate = peer_rate(start_peer, table)
            print(f"{algorithm:<11}{library:<13}{rate:>19,.0f}{rates[algorithm] / rate:>9,.0f} ×")
    return int(any(rates[algorithm] < goal for algorithm, goal in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())
