"""How long iterative RMFT of the numeric agent takes, beside the drawing of its noise alone, which is its floor.

Run: python benchmarks/training.py. One thread; goals are for one training seed of 1,000 iterations.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from goals import verdict

from rmft.params import load
from rmft.params.numeric import Training
from rmft.training.numeric import Perturbation, one_thread, rmft
from rmft.workflow.plan import training_job

GOALS_SECONDS = {"numeric_simplex": 5.0, "numeric_ball": 5.0, "numeric_mab": 20.0}
PARAMS = load(Path(__file__).parents[1] / "params.yaml")


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of some work."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def draw_noise(training: Training) -> None:
    """Draw the noise of every iteration."""
    loop = training.rmft
    shape = (loop.scenarios, loop.trajectories, training.T, training.d)
    perturbation = Perturbation(0, loop.training_seeds, shape, loop.variance)
    for _ in range(loop.iterations):
        perturbation.noise()


def measured(experiment: str, training_seeds: int, iterations: int) -> tuple[float, float]:
    """Return the seconds of a training run and of its floor."""
    job = training_job(PARAMS, experiment)
    small = {"training_seeds": training_seeds, "iterations": iterations}
    training = job.training.model_copy(update={"rmft": job.training.rmft.model_copy(update=small)})
    return seconds(lambda: list(rmft(0, training, job.model))), seconds(lambda: draw_noise(training))


def main() -> None:
    """Print a line for each experiment and number of training seeds; exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    iterations = parser.parse_args().iterations
    one_thread()
    missed = False
    print(f"{'experiment':<18} {'seeds':>5} {'seconds':>8} {'of its floor':>13}   goal")
    for experiment, goal in GOALS_SECONDS.items():
        for training_seeds in (1, 5):
            took, floor = measured(experiment, training_seeds, iterations)
            outcome = ""
            if training_seeds == 1:
                reached_goal = took <= goal * iterations / 1000
                missed |= not reached_goal
                outcome = f"{verdict(reached_goal)} {goal:g} s"
            print(f"{experiment:<18} {training_seeds:>5} {took:>8.2f} {took / floor:>11.1f} ×   {outcome}", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
