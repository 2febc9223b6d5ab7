"""The reward processes of App. `reward_dist` that are drawn before the game (all but VIII, Adaptive), and ours.

Symbols: n instances, T rounds, d actions, p features of a context. A process is a function
`(streams, n, T, d) -> RewardTable`, one with contexts `(streams, n, T, d, p) -> ContextualTable`; `streams(*words)`
opens a named random stream. For prefix stability a process reads each stream row by row, with one stream for the
parameters of instances and one for the draws of each round.
"""

from collections.abc import Callable

import numpy as np

from rmft.environments.clipping import HIGH, LOW, MIXTURE_VARIANCES, gamma_mean, gaussian_mixture_mean
from rmft.environments.tables import ContextualTable, RewardTable

Streams = Callable[..., np.random.Generator]


def _each_round(horizon: int, draw: Callable[[int], np.ndarray]) -> np.ndarray:
    """Stack `draw(t)` of shape (n, d) over rounds t = 1..T into (n, T, d), the instances last in memory."""
    return np.stack([draw(t).T for t in range(1, horizon + 1)]).transpose(2, 0, 1)


def _constant(values: np.ndarray, horizon: int) -> np.ndarray:
    """Repeat (n, d) over the rounds without copying: a read-only (n, T, d)."""
    return np.broadcast_to(values.T, (horizon, *values.T.shape)).transpose(2, 0, 1)


def _unclipped(rewards: np.ndarray, means: np.ndarray) -> RewardTable:
    """Return a table whose rewards are never clipped, so that both kinds of means are equal."""
    return RewardTable(rewards, means, means)


def _mixture_of_gaussians(streams: Streams, means: np.ndarray, variances: np.ndarray = MIXTURE_VARIANCES) -> np.ndarray:
    """Return rewards (n, T, d) around means, with one of the variances in each round, before clipping."""
    n, horizon, d = means.shape

    def draw(t: int) -> np.ndarray:
        variance = variances[streams("component", t).integers(len(variances), size=n)]
        return means[:, t - 1] + np.sqrt(variance)[:, None] * streams("noise", t).standard_normal((n, d))

    return _each_round(horizon, draw)


def uniform(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """I. Uniform between two values drawn for each action."""
    ends = streams("parameters").uniform(LOW, HIGH, (n, 2, d))
    low, high = ends.min(axis=1), ends.max(axis=1)
    rewards = _each_round(horizon, lambda t: low + (high - low) * streams("draw", t).random((n, d)))
    return _unclipped(rewards, _constant((low + high) / 2, horizon))


def _clipped_gaussians(streams: Streams, mu: np.ndarray, horizon: int, variances: np.ndarray) -> RewardTable:
    """Return a mixture of Gaussians around means mu (n, d) that do not change, clipped."""
    means = _constant(mu, horizon)
    rewards = np.clip(_mixture_of_gaussians(streams, means, variances), LOW, HIGH)
    return RewardTable(rewards, means, _constant(gaussian_mixture_mean(mu, variances), horizon))


def gaussian(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """II. A mixture of three Gaussians around μ ~ N(5, I), clipped."""
    return _clipped_gaussians(streams, streams("parameters").normal(5.0, 1.0, (n, d)), horizon, MIXTURE_VARIANCES)


# ASSUME: the reference rows of the paper's tables do not follow from II. They fit the next three processes, which the
# paper does not document (docs/forensics.md has the evidence). They stand beside II, and replace it nowhere.
def gaussian_unit(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """II as Section 5's rows have it: μ ~ N(5, I), variance 1, clipped."""
    return _clipped_gaussians(streams, streams("parameters").normal(5.0, 1.0, (n, d)), horizon, np.array([1.0]))


def gaussian_wide_unit(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """II as Section 4's rows have it: μ uniform on the whole range [0, 10]^d, variance 1, clipped."""
    return _clipped_gaussians(streams, streams("parameters").uniform(LOW, HIGH, (n, d)), horizon, np.array([1.0]))


def gaussian_wide_mixed(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """II as Section 6's rows have it: μ uniform on [0, 10]^d, standard deviations 1, 3 and 10 mixed, clipped."""
    mu = streams("parameters").uniform(LOW, HIGH, (n, d))
    return _clipped_gaussians(streams, mu, horizon, np.array([1.0, 9.0, 100.0]))


def gamma(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """III. Gamma with a shape in (0, 10) and a scale in (0, 2) drawn for each action, clipped."""
    parameters = streams("parameters").random((n, 2, d))
    shape, scale = 10.0 * parameters[:, 0], 2.0 * parameters[:, 1]
    rewards = _each_round(horizon, lambda t: np.minimum(streams("draw", t).gamma(shape, scale), HIGH))
    clipped = gamma_mean(shape, scale)
    return RewardTable(rewards, _constant(shape * scale, horizon), _constant(clipped, horizon))


def bernoulli(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """IV. Two values common to all actions; each action has its own probability of the larger one."""
    values = streams("parameters").uniform(LOW, HIGH, (n, 2))
    low, high = values.min(axis=1)[:, None], values.max(axis=1)[:, None]
    probability = streams("probabilities").random((n, d))
    rewards = _each_round(horizon, lambda t: np.where(streams("draw", t).random((n, d)) < probability, high, low))
    return _unclipped(rewards, _constant(probability * high + (1 - probability) * low, horizon))


def sine_trend(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """V. A sine wave in t, with a frequency and a phase drawn for each action."""
    parameters = streams("parameters").uniform(0.0, 10.0, (n, 2, 1, d))
    rounds = np.arange(1, horizon + 1)[:, None]
    rewards = 5.0 * (1.0 + np.sin(parameters[:, 0] * rounds + parameters[:, 1]))
    return _unclipped(rewards, rewards)


def _turns(streams: Streams, n: int, horizon: int, d: int) -> np.ndarray:
    """Return (n, T, d), true where it is the action's turn: action (t + τ) mod d with a random shift τ."""
    shift = streams("parameters").integers(d, size=n)
    turn = (np.arange(1, horizon + 1) + shift[:, None]) % d
    return turn[:, :, None] == np.arange(d)


def alternating(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """VI. The action whose turn it is pays 10, all others 0."""
    rewards = np.where(_turns(streams, n, horizon, d), HIGH, LOW)
    return _unclipped(rewards, rewards)


def noisy_alternating(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """VII. The action whose turn it is pays min(25 / (t + 1), 10), all others Unif[9, 10]."""
    turns = _turns(streams, n, horizon, d)
    fading = np.minimum(25.0 / (np.arange(1, horizon + 1) + 1.0), HIGH)[:, None]
    others = _each_round(horizon, lambda t: 9.0 + streams("draw", t).random((n, d)))
    return _unclipped(np.where(turns, fading, others), np.where(turns, fading, 9.5))


def gradual_variation(streams: Streams, n: int, horizon: int, d: int) -> RewardTable:
    """IX. Means on a random walk whose steps shrink as 1/√t; draws as in the Gaussian process, clipped."""
    start = streams("parameters").uniform(LOW, HIGH, (n, 1, d))
    steps = _each_round(horizon, lambda t: streams("step", t).uniform(-1.0, 1.0, (n, d)) / np.sqrt(t))
    means = start + np.concatenate([np.zeros_like(start), steps[:, :-1].cumsum(axis=1)], axis=1)
    rewards = np.clip(_mixture_of_gaussians(streams, means), LOW, HIGH)
    return RewardTable(rewards, means, gaussian_mixture_mean(means))


def linear_contextual(streams: Streams, n: int, horizon: int, d: int, p: int) -> ContextualTable:
    """Means linear in a context that is shown before each round: r_t(a) = ⟨θ_a, x_t⟩; draws as in II, clipped.

    Not in the paper's experiments; the paper names contextual bandits among the directions beyond.
    # ASSUME: x_t is uniform on the simplex (say, shares of p kinds of customers) and θ_a uniform on [0, 10]^p (the
    # reward of an action for each kind). Means are then linear without an intercept, and in [0, 10] without clipping.
    """
    weights = streams("parameters").uniform(LOW, HIGH, (n, d, p))
    exponentials = _each_round(horizon, lambda t: streams("context", t).standard_exponential((n, p)))
    contexts = exponentials / exponentials.sum(axis=2, keepdims=True)
    # Summed feature by feature, because the rounding of a matrix product depends on the number of instances.
    means = sum(_constant(weights[:, :, j], horizon) * contexts[:, :, j, None] for j in range(p))
    rewards = np.clip(_mixture_of_gaussians(streams, means), LOW, HIGH)
    return ContextualTable(rewards, means, gaussian_mixture_mean(means), contexts)


# `rmft.extensions` adds the processes of users to both.
CONTEXTUAL: dict[str, Callable[[Streams, int, int, int, int], ContextualTable]] = {
    "linear-contextual": linear_contextual,
}
TABULAR: dict[str, Callable[[Streams, int, int, int], RewardTable]] = {
    "uniform": uniform,
    "gaussian": gaussian,
    "gaussian-unit": gaussian_unit,
    "gaussian-wide-unit": gaussian_wide_unit,
    "gaussian-wide-mixed": gaussian_wide_mixed,
    "gamma": gamma,
    "bernoulli": bernoulli,
    "sine-trend": sine_trend,
    "alternating": alternating,
    "noisy-alternating": noisy_alternating,
    "gradual-variation": gradual_variation,
}
