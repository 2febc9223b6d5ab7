"""Reference algorithms of App. `appendix_baseline` and ours, vectorised over n replicates.

A player decides on a policy (n, d), then observes what the environment reveals. Rewards reach it normalised to
[0, 1] by the known range, as in the appendix.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rmft.algorithms.bandits import EXP3, Greedy, Rexp3, ThompsonSampling, UpperConfidenceBound
from rmft.algorithms.contextual import LinUCB
from rmft.algorithms.full_information import (
    FollowTheLeader,
    FollowTheRegularizedLeader,
    StepSize,
    Uniform,
    anytime_step_size,
    constant_step_size,
)
from rmft.algorithms.players import Player
from rmft.environments import ContextualTable, Rewards, RewardTable, environment_named, variation
from rmft.environments.clipping import HIGH, LOW
from rmft.errors import InputError
from rmft.streams import stream

__all__ = [
    "ADDED",
    "ALGORITHMS",
    "Added",
    "AlgorithmSettings",
    "Player",
    "check_algorithm",
    "check_settings",
    "start",
    "start_on",
]

FULL_FEEDBACK = ("ftl", "ftrl", "hedge", "uniform")
BANDIT_FEEDBACK = ("ucb", "exp3", "rexp3", "greedy", "thompson-sampling", "uniform")
CONTEXTUAL = ("linucb",)  # beside those of bandit feedback, which play without looking at contexts
ALGORITHMS = tuple(dict.fromkeys(FULL_FEEDBACK + BANDIT_FEEDBACK + CONTEXTUAL))  # ours
TAKES = {
    "eta": ("ftrl", "hedge", "exp3"),
    "gamma": ("exp3",),
    "variation": ("rexp3",),
    "normalise": ("ftrl", "hedge"),
    "alpha": ("linucb",),
}


@dataclass(frozen=True)
class AlgorithmSettings:
    """A reference algorithm and its tuning; what is None is the paper's.

    eta: a number; "anytime" for η_t = √(2 log d / t) (ftrl, hedge); "T=25" for the constant tuned to 25 rounds.
    gamma: exploration of exp3. variation: V_T of rexp3 on the rewards' scale; None takes each instance's own.
    normalise: False lets ftrl and hedge see rewards in [0, 10] as they are, against the appendix. alpha: of linucb.
    options: what else an algorithm of an extension takes, by name.
    """

    algorithm: str
    eta: float | str | None = None
    gamma: float | None = None
    variation: float | None = None
    normalise: bool | None = None
    alpha: float | None = None
    options: dict[str, bool | int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Added:
    """An algorithm of an extension. environments: that it can play. start: called with n, T, d, streams, options."""

    environments: tuple[str, ...]
    start: Callable[..., Player]


ADDED: dict[str, Added] = {}  # by name; `rmft.extensions` fills it


def check_algorithm(settings: AlgorithmSettings, environment: str, policy_space: str = "simplex") -> None:
    """Raise InputError where the algorithm cannot play the environment, or is itself wrong."""
    check_settings(settings)
    name = settings.algorithm
    playable = playing(environment)
    if name not in playable:
        raise InputError(f"algorithm {name!r} cannot play {environment}; there: {', '.join(playable)}")
    if policy_space == "ball" and (name == "hedge" or name in ADDED):
        raise InputError(f"{name} plays on the simplex; on the ball use ftrl")
    if name == "rexp3" and environment == "mab" and settings.variation is None:
        raise InputError("rexp3 in mab needs a variation: there V_T of the instance is 0")


def playing(environment: str) -> tuple[str, ...]:
    """Return the algorithms that can play an environment."""
    of = environment_named(environment)
    ours = FULL_FEEDBACK if of.full_feedback else BANDIT_FEEDBACK + (CONTEXTUAL if of.contextual else ())
    return *ours, *(name for name, added in ADDED.items() if environment in added.environments)


def check_settings(settings: AlgorithmSettings) -> None:
    """Raise InputError where the algorithm is unknown or its tuning is wrong."""
    name = settings.algorithm
    if name not in ALGORITHMS and name not in ADDED:
        raise InputError(f"unknown algorithm {name!r}; one of {', '.join((*ALGORITHMS, *ADDED))}")
    if name in ADDED:
        try:
            inspect.signature(ADDED[name].start).bind(None, None, None, None, **settings.options)
        except TypeError as error:
            raise InputError(f"options of {name}: {error}") from None
    elif settings.options:
        raise InputError(f"options belong to algorithms of extensions, not to {name}")
    for option, algorithms in TAKES.items():
        value = getattr(settings, option)
        if value is not None and name not in algorithms:
            raise InputError(f"{option} belongs to {' and '.join(algorithms)}, not to {name}")
        if option != "normalise" and isinstance(value, int | float):
            limit = 1.0 if name == "exp3" else float("inf")  # the appendix has η and γ of EXP3 in (0, 1]
            if isinstance(value, bool) or not (0 < value <= limit and value < float("inf")):
                allowed = "in (0, 1]" if name == "exp3" else "a positive number"
                raise InputError(f"{option} must be {allowed}, not {value!r}")
    if isinstance(settings.eta, str):
        _stated_step_size(settings.eta, 2, name)


def _stated_step_size(eta: str, d: int, algorithm: str) -> float | StepSize:
    """Read "anytime" or "T=25"."""
    horizon = eta.removeprefix("T=")
    if horizon != eta and horizon.isdecimal() and int(horizon) > 0:
        return EXP3.tuned_eta(d, int(horizon)) if algorithm == "exp3" else constant_step_size(d, int(horizon))
    if eta == "anytime" and algorithm != "exp3":
        return anytime_step_size(d)
    raise InputError(f'eta must be a positive number, "T=ROUNDS", or for ftrl and hedge "anytime", not {eta!r}')


def start(
    settings: AlgorithmSettings,
    shape: tuple[int, int, int],
    *,
    radius: float | None = None,
    streams: Callable[..., np.random.Generator] | None = None,
    variation: np.ndarray | None = None,
    features: int | None = None,
) -> Player:
    """Return the algorithm at the start of n games of T rounds with d actions, shape = (n, T, d).

    radius: of the ball, None on the simplex. streams: opens the algorithm's own random streams
    (thompson-sampling). variation: (n,), each instance's V_T on the rewards' scale (rexp3). features: p of the
    contexts, None where there are none (linucb).
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
            step_size = eta if callable(eta) else lambda _: eta
            # Both use rewards only as η · total, so rewards ten times as large are a step ten times as long.
            stretch = HIGH - LOW if settings.normalise is False else 1.0
            return FollowTheRegularizedLeader(n, d, lambda t: stretch * step_size(t), radius)
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
        case "linucb":
            if features is None:
                raise InputError("linucb needs contexts")
            return LinUCB(n, d, features, settings.alpha)
    if settings.algorithm in ADDED:
        return ADDED[settings.algorithm].start(n, horizon, d, streams, **settings.options)
    raise InputError(f"unknown algorithm {settings.algorithm!r}")


def start_on(root: int, name: str, settings: AlgorithmSettings, rewards: Rewards, radius: float | None) -> Player:
    """Return an algorithm at the start of its games on the reward set `name`, with its streams and V_T from there."""
    streams = partial(stream, root, "sampling", name, settings.algorithm)
    budget = variation(rewards.means) if isinstance(rewards, RewardTable) else None
    features = rewards.contexts.shape[2] if isinstance(rewards, ContextualTable) else None
    return start(settings, rewards.shape, radius=radius, streams=streams, variation=budget, features=features)
