"""Reference algorithms of App. `appendix_baseline`, vectorised over n replicates.

A player decides on a policy (n, d), then observes what the environment reveals. Rewards reach it normalised to
[0, 1] by the known range, as in the appendix.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmft.algorithms.bandits import EXP3, Greedy, Rexp3, ThompsonSampling, UpperConfidenceBound
from rmft.algorithms.full_information import (
    FollowTheLeader,
    FollowTheRegularizedLeader,
    StepSize,
    Uniform,
    anytime_step_size,
    constant_step_size,
)
from rmft.algorithms.players import Player
from rmft.environments import environment_named
from rmft.environments.clipping import HIGH, LOW
from rmft.errors import InputError

__all__ = ["ALGORITHMS", "AlgorithmSettings", "Player", "check_algorithm", "start"]

FULL_FEEDBACK = ("ftl", "ftrl", "hedge", "uniform")
BANDIT_FEEDBACK = ("ucb", "exp3", "rexp3", "greedy", "thompson-sampling", "uniform")
ALGORITHMS = tuple(dict.fromkeys(FULL_FEEDBACK + BANDIT_FEEDBACK))
TAKES = {"eta": ("ftrl", "hedge", "exp3"), "gamma": ("exp3",), "variation": ("rexp3",)}


@dataclass(frozen=True)
class AlgorithmSettings:
    """A reference algorithm and its tuning; what is None is the paper's.

    eta: a number; "anytime" for η_t = √(2 log d / t) (ftrl, hedge); "T=25" for the constant tuned to 25 rounds.
    gamma: exploration of exp3. variation: V_T of rexp3 on the rewards' scale; None takes each instance's own.
    """

    algorithm: str
    eta: float | str | None = None
    gamma: float | None = None
    variation: float | None = None


def check_algorithm(settings: AlgorithmSettings, environment: str, policy_space: str = "simplex") -> None:
    """Raise InputError where the algorithm is unknown, cannot play the environment, or its tuning is wrong."""
    name = settings.algorithm
    if name not in ALGORITHMS:
        raise InputError(f"unknown algorithm {name!r}; one of {', '.join(ALGORITHMS)}")
    playable = FULL_FEEDBACK if environment_named(environment).full_feedback else BANDIT_FEEDBACK
    if name not in playable:
        raise InputError(f"algorithm {name!r} cannot play {environment}; there: {', '.join(playable)}")
    if policy_space == "ball" and name == "hedge":
        raise InputError("hedge plays on the simplex; on the ball use ftrl")
    for option, algorithms in TAKES.items():
        value = getattr(settings, option)
        if value is not None and name not in algorithms:
            raise InputError(f"{option} belongs to {' and '.join(algorithms)}, not to {name}")
        if isinstance(value, int | float) and (isinstance(value, bool) or not 0 < value < float("inf")):
            raise InputError(f"{option} must be a positive number, not {value!r}")
    if settings.gamma is not None and settings.gamma > 1:
        raise InputError(f"gamma is a probability, at most 1, not {settings.gamma:g}")
    if isinstance(settings.eta, str):
        _stated_step_size(settings.eta, 2, name)


def _stated_step_size(eta: str, d: int, algorithm: str) -> float | StepSize:
    """Read "anytime" or "T=25"."""
    horizon = eta.removeprefix("T=")
    if horizon != eta and horizon.isdecimal() and int(horizon) > 0:
        return EXP3.tuned_eta(d, int(horizon)) if algorithm == "exp3" else constant_step_size(d, int(horizon))
    if eta == "anytime" and algorithm != "exp3":
        return anytime_step_size(d)
    raise InputError(f'eta must be a positive number, "T=<rounds>", or for ftrl and hedge "anytime", not {eta!r}')


def start(
    settings: AlgorithmSettings,
    shape: tuple[int, int, int],
    *,
    radius: float | None = None,
    streams: Callable[..., np.random.Generator] | None = None,
    variation: np.ndarray | None = None,
) -> Player:
    """Return the algorithm at the start of n games of T rounds with d actions, shape = (n, T, d).

    radius: of the ball, None on the simplex. streams: opens the algorithm's own random streams
    (thompson-sampling). variation: (n,), each instance's V_T on the rewards' scale (rexp3).
    """
    n, horizon, d = shape
    eta = settings.eta
    if isinstance(eta, str):
        eta = _stated_step_size(eta, d, settings.algorithm)
    match settings.algorithm:
        case "ftl":
            return FollowTheLeader(n, d, radius)
        case "ftrl" | "hedge":
            eta = constant_step_size(d, horizon) if eta is None else eta
            return FollowTheRegularizedLeader(n, d, eta if callable(eta) else lambda _: eta, radius)
        case "uniform":
            return Uniform(n, d, radius)
        case "greedy":
            return Greedy(n, d)
        case "ucb":
            return UpperConfidenceBound(n, d)
        case "thompson-sampling":
            return ThompsonSampling(n, d, streams)
        case "exp3":
            eta = EXP3.tuned_eta(d, horizon) if eta is None else eta
            return EXP3(n, d, eta, EXP3.tuned_gamma(d, eta) if settings.gamma is None else settings.gamma)
        case "rexp3":
            # ASSUME: V_T shrinks with the rewards, so a V_T on [0, 10] is divided by 10 like the rewards are.
            budget = variation if settings.variation is None else settings.variation
            if budget is None:
                raise InputError("rexp3 needs a variation where rewards have no means of their own")
            return Rexp3(n, d, horizon, budget / (HIGH - LOW))
    raise InputError(f"unknown algorithm {settings.algorithm!r}")
