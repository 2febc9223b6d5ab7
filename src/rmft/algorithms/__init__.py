"""Reference algorithms of App. `appendix_baseline` and ours, vectorised over n instances.

A player decides on policies (n, d), then observes the rewards that the environment reveals. As in the appendix, it
observes rewards normalised to [0, 1] by their known range.

Symbols: n instances, T rounds, d actions, p features of a context.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from numbers import Real

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
from rmft.environments import Rewards, RewardTable, environment_named
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.tables import ContextualTable, variation
from rmft.errors import InputError, unknown
from rmft.streams import stream

Streams = Callable[..., np.random.Generator]


@dataclass(frozen=True)
class AlgorithmSettings:
    """A reference algorithm and its tuning; None is the paper's value.

    Attributes:
        algorithm: its name, such as "ucb".
        eta: a number; "anytime" for η_t = √(2 log d / t) (ftrl, hedge); "T=25" for the constant tuned to 25 rounds.
        gamma: exploration of exp3.
        variation: V_T of rexp3 on the scale of the rewards; None is each instance's own.
        normalise: False lets ftrl and hedge observe rewards in [0, 10], unlike the appendix.
        alpha: of linucb.
        options: keyword arguments of an extension's algorithm.
    """

    algorithm: str
    eta: float | str | None = None
    gamma: float | None = None
    variation: float | None = None
    normalise: bool | None = None
    alpha: float | None = None
    options: dict[str, bool | int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class GameSetup:
    """What an algorithm may know before n games of T rounds with d actions begin.

    radius: of the ball; None for the simplex. streams: opens the algorithm's random streams. variation: (n,), V_T of
    each instance on the scale of the rewards; None where rewards have no means of their own. features: p of the
    contexts; None without contexts.
    """

    n: int
    horizon: int
    d: int
    radius: float | None = None
    streams: Streams | None = None
    variation: np.ndarray | None = None
    features: int | None = None


@dataclass(frozen=True)
class Algorithm:
    """How an algorithm starts, which environments it can play, and which fields of AlgorithmSettings tune it.

    factory: an extension's own, called as factory(n, T, d, streams, **options); None for algorithms of rmft.
    """

    start: Callable[[AlgorithmSettings, GameSetup], Player]
    environments: tuple[str, ...]
    tuning: tuple[str, ...] = ()
    factory: Callable[..., Player] | None = None


def _ftrl(settings: AlgorithmSettings, setup: GameSetup) -> Player:
    step_size = _step_size(settings.eta, setup)
    # FTRL uses rewards only as η · total, so rewards ten times as large equal a step ten times as long.
    scale = 1.0 if settings.normalise is None or settings.normalise else HIGH - LOW
    return FollowTheRegularizedLeader(setup.n, setup.d, lambda t: scale * step_size(t), setup.radius)


def _step_size(eta: float | str | None, setup: GameSetup) -> StepSize:
    """Return the step size of FTRL; None is the constant tuned to the horizon."""
    if eta == "anytime":
        return anytime_step_size(setup.d)
    if eta is None or isinstance(eta, str):
        eta = constant_step_size(setup.d, setup.horizon if eta is None else _tuned_rounds(eta))
    return lambda _: eta


def _exp3(settings: AlgorithmSettings, setup: GameSetup) -> Player:
    eta, d = settings.eta, setup.d
    if eta is None or isinstance(eta, str):
        eta = EXP3.tuned_eta(d, setup.horizon if eta is None else _tuned_rounds(eta))
    return EXP3(setup.n, d, eta, EXP3.tuned_gamma(d, eta) if settings.gamma is None else settings.gamma)


def _rexp3(settings: AlgorithmSettings, setup: GameSetup) -> Player:
    budget = setup.variation if settings.variation is None else settings.variation
    if budget is None:
        raise InputError("rexp3 needs a variation where rewards have no means of their own")
    # ASSUME: V_T scales with the rewards, so a V_T on [0, 10] is divided by 10 as the rewards are.
    return Rexp3(setup.n, setup.d, setup.horizon, budget / (HIGH - LOW))


def _linucb(settings: AlgorithmSettings, setup: GameSetup) -> Player:
    if setup.features is None:
        raise InputError("linucb needs contexts")
    return LinUCB(setup.n, setup.d, setup.features, settings.alpha)


FULL, BANDIT = ("fol",), ("mab", "ns-mab", "cb")
ALGORITHMS = {  # `rmft.extensions` adds those of users
    "ftl": Algorithm(lambda _, setup: FollowTheLeader(setup.n, setup.d, setup.radius), FULL),
    "ftrl": Algorithm(_ftrl, FULL, ("eta", "normalise")),
    "hedge": Algorithm(_ftrl, FULL, ("eta", "normalise")),
    "uniform": Algorithm(lambda _, setup: Uniform(setup.n, setup.d, setup.radius), FULL + BANDIT),
    "ucb": Algorithm(lambda _, setup: UpperConfidenceBound(setup.n, setup.d), BANDIT),
    "exp3": Algorithm(_exp3, BANDIT, ("eta", "gamma")),
    "rexp3": Algorithm(_rexp3, BANDIT, ("variation",)),
    "greedy": Algorithm(lambda _, setup: Greedy(setup.n, setup.d), BANDIT),
    "thompson-sampling": Algorithm(lambda _, setup: ThompsonSampling(setup.n, setup.d, setup.streams), BANDIT),
    "linucb": Algorithm(_linucb, ("cb",), ("alpha",)),
}
TUNING = ("eta", "gamma", "variation", "normalise", "alpha")


def check_algorithm(settings: AlgorithmSettings, environment: str, policy_space: str = "simplex") -> None:
    """Raise InputError where the algorithm cannot play the environment, or its settings are wrong."""
    check_settings(settings)
    environment_named(environment)
    name = settings.algorithm
    playable = [other for other, algorithm in ALGORITHMS.items() if environment in algorithm.environments]
    if name not in playable:
        raise InputError(f"algorithm {name!r} cannot play {environment}; there: {', '.join(playable)}")
    if policy_space == "ball" and (name == "hedge" or ALGORITHMS[name].factory):
        raise InputError(f"{name} plays on the simplex; on the ball use ftrl")
    if name == "rexp3" and environment == "mab" and settings.variation is None:
        raise InputError("rexp3 in mab needs a variation: there V_T of the instance is 0")


def check_settings(settings: AlgorithmSettings) -> None:
    """Raise InputError where the algorithm is unknown or its tuning is wrong."""
    name = settings.algorithm
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise InputError(unknown(name, ALGORITHMS, "algorithm", extensible=True))
    algorithm = ALGORITHMS[name]
    if algorithm.factory:
        signature = inspect.signature(algorithm.factory)
        try:
            signature.bind(None, None, None, None, **settings.options)
        except TypeError as error:
            own = ", ".join([*signature.parameters][4:]) or "none"
            raise InputError(f"options of {name}: {error}; it takes: {own}") from None
    elif settings.options:
        raise InputError(f"options belong to algorithms of extensions, not to {name}")
    for option in TUNING:
        value = getattr(settings, option)
        if value is not None and option not in algorithm.tuning:
            owners = [other for other, of in ALGORITHMS.items() if option in of.tuning]
            raise InputError(f"{option} belongs to {' and '.join(owners)}, not to {name}")
        if value is not None and option != "normalise" and not (option == "eta" and isinstance(value, str)):
            limit = 1.0 if name == "exp3" else float("inf")  # the appendix has η and γ of EXP3 in (0, 1]
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0 < value <= limit and value < float("inf")):
                allowed = "in (0, 1]" if name == "exp3" else "a positive number"
                raise InputError(f"{option} must be {allowed}, not {value!r}")
    if settings.normalise is not None and not isinstance(settings.normalise, bool | np.bool_):
        raise InputError(f"normalise must be true or false, not {settings.normalise!r}")
    if isinstance(settings.eta, str) and (settings.eta != "anytime" or name == "exp3"):
        _tuned_rounds(settings.eta)


def _tuned_rounds(eta: str) -> int:
    """Return the rounds of an eta "T=ROUNDS". Raise InputError where it is another text."""
    horizon = eta.removeprefix("T=")
    if horizon != eta and horizon.isdecimal() and int(horizon) > 0:
        return int(horizon)
    raise InputError(f'eta must be a positive number, "T=ROUNDS", or for ftrl and hedge "anytime", not {eta!r}')


def start(
    settings: AlgorithmSettings,
    shape: tuple[int, int, int],
    *,
    radius: float | None = None,
    streams: Streams | None = None,
    variation: np.ndarray | None = None,
    features: int | None = None,
) -> Player:
    """Return the algorithm at the start of its games, shape = (n, T, d); see `GameSetup`."""
    return ALGORITHMS[settings.algorithm].start(settings, GameSetup(*shape, radius, streams, variation, features))


def start_on(root: int, name: str, settings: AlgorithmSettings, rewards: Rewards, radius: float | None) -> Player:
    """Return the algorithm at the start of its games on the reward set `name`, with that set's streams and V_T."""
    streams = partial(stream, root, "sampling", name, settings.algorithm)
    # ASSUME: rexp3 knows each instance's own V_T: its bound needs V_T, and the paper names no value.
    budget = variation(rewards.means) if isinstance(rewards, RewardTable) else None
    features = rewards.contexts.shape[2] if isinstance(rewards, ContextualTable) else None
    return start(settings, rewards.shape, radius=radius, streams=streams, variation=budget, features=features)
