"""The numeric agent of Section 4, trained under other readings: its step c, and how near it is to the paper's rows.

Symbols: c the step of the nearest FTRL; d actions; T rounds.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from rmft.agents.numeric import LinearAttention
from rmft.algorithms import AlgorithmSettings
from rmft.artifacts.text import read_yaml
from rmft.environments import draw_rewards
from rmft.environments.clipping import HIGH, LOW
from rmft.errors import InputError
from rmft.evaluation import Instances, evaluate
from rmft.metrics.growth import growth
from rmft.params import load
from rmft.params.numeric import NumericExperiment
from rmft.params.section import Count, Name, Section
from rmft.progress import progress
from rmft.tools.forensics.questions import paper_values
from rmft.training.numeric import IterationLog, one_thread, rmft

AXES = ("process", "perturb", "variance", "normalise", "initialisation", "trajectories")  # that a sweep can vary
DISTANCES = {"simplex": ("A_b", "C_minus_diagonal", "d_minus_mean"), "ball": ("A_b", "C_minus_diagonal", "d")}
COLUMNS = ("sweep", *AXES, "iteration", "step", "distances", "rewards", "statistic", "ours", "paper")  # of sweeps.csv


class Sweep(Section):
    """An experiment of params.yaml, trained under every combination of readings.

    table: whose trained rows it is held against; None: none. rewards: what is evaluated, by the row's name in the
    table; `process` stands for the process of training. readings: values by AXES. iterations: at which it is evaluated.
    """

    title: str
    text: str
    experiment: str
    table: str | None = None
    rewards: dict[Name, str] = Field(min_length=1)
    readings: dict[Name, list[Any]]
    iterations: list[Count] = Field(min_length=1)


class Sweeps(Section):
    """data/forensics/sweeps.yaml. instances: games of an evaluation, each of T rounds."""

    training_seeds: Count
    instances: Count
    T: Count
    sweeps: dict[Name, Sweep]


def read_sweeps(path: Path) -> Sweeps:
    """Read the sweeps. Raise InputError with the dotted key."""
    sweeps = Sweeps.checked(read_yaml(path), path)
    for name, of in sweeps.sweeps.items():
        if set(of.readings) != set(AXES):
            raise InputError(f"{path}: sweeps.{name}.readings: needs values for {', '.join(AXES)}, and no others")
    return sweeps


def sweep(sweeps: Sweeps, name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Train and evaluate under every reading of a sweep; yield the lines of sweeps.csv."""
    one_thread()
    of = sweeps.sweeps[name]
    experiment = load(scale="paper").at_scale().experiments.get(of.experiment)
    if not isinstance(experiment, NumericExperiment):
        raise InputError(f"sweeps.{name}.experiment: {of.experiment!r} is no numeric experiment of params.yaml")
    readings = [dict(zip(AXES, values, strict=True)) for values in product(*(of.readings[axis] for axis in AXES))]
    with progress(name, len(readings), "readings") as advance:
        for reading in readings:
            for line in _trained(of, experiment, reading, sweeps, seed):
                yield {"sweep": name, **reading, **line}
            advance()


def _trained(
    of: Sweep, experiment: NumericExperiment, reading: Mapping[str, Any], sweeps: Sweeps, seed: int
) -> Iterator[dict[str, Any]]:
    """Train under one reading; yield what an evaluation finds on each rewards, at each of the iterations."""
    loop = {axis: reading[axis] for axis in ("perturb", "variance", "trajectories")}
    loop |= {"iterations": max(of.iterations), "training_seeds": sweeps.training_seeds}
    changes = {"process": [reading["process"]], "normalise": reading["normalise"]}
    training = experiment.changed(of.experiment, changes | {"rmft": experiment.rmft.changed("rmft", loop).model_dump()})
    model = load().models[experiment.model].changed("model", {"initialisation": reading["initialisation"]})
    scale = 1.0 if training.normalise else HIGH - LOW  # c is told on rewards in [0, 1]
    first = None
    for iteration, trained, log in rmft(seed, training, model):
        first = first or log
        if iteration not in of.iterations:
            continue
        common = {
            "iteration": iteration,
            "step": scale * float(log.step.mean()),
            "distances": _distances(log, training.policy_space) / _distances(first, training.policy_space),
        }
        for row, process in of.rewards.items():
            played = reading["process"] if process == "process" else process
            for statistic, ours in _evaluated(trained.to_numpy(), training, played, sweeps, seed).items():
                paper = None
                if of.table:
                    paper = paper_values(of.table, {"reward": row, "player": "trained"})["beta_hat"][0]
                yield common | {"rewards": row, "statistic": statistic, "ours": float(f"{ours:.4g}"), "paper": paper}


def _distances(log: IterationLog, space: str) -> float:
    """Return the largest of the distances from FTRL that Fig. `parameter` draws, mean over training seeds."""
    return float(max(getattr(log, name).mean() for name in DISTANCES[space]))


def _evaluated(
    model: LinearAttention, training: NumericExperiment, process: str, sweeps: Sweeps, seed: int
) -> dict[str, float]:
    """Return β̂, which is the slope of Regret(t), or in bandits the final regret as a share of uniform play's."""
    name = f"forensics-{process}"
    rewards = draw_rewards(seed, name, [process], (sweeps.instances, sweeps.T, training.d))
    games = Instances(rewards, name, seed, training.environment, "nominal", training.radius)
    uniform = {} if training.radius else {"uniform": AlgorithmSettings("uniform")}
    columns = evaluate(games, {"trained": model}, uniform, normalise=training.normalise)
    players, curves = np.array(columns["player"]), np.array(columns["regret"])
    trained = curves[players == "trained"].mean(axis=0)
    if training.environment == "fol":
        return {"beta_hat": growth(trained).slope}
    return {"share of uniform play": float(trained[-1] / curves[players == "uniform"].mean(axis=0)[-1])}
