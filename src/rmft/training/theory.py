"""Theorem 1 by experiment: train linear attention without its Operator on the best policy in hindsight.

Symbols: N reward sequences, T rounds, d actions, R_Π radius of the ball. Rewards are N(0, I).

The loss of Eq. `loss-for-theory` is quadratic in a round's increment A R Rᵀ b + C R + d, so it depends on the samples
only through their second moments, and a step of training costs the same for any N. Every sequence enters with both
signs, as the symmetric distribution allows; terms of odd degree then cancel exactly.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rmft.agents.numeric import SYMBOLS, LinearAttention
from rmft.streams import stream

CERTIFIED_EXCESS = 1e-8
MAXIMAL_STARTS = 20
CHUNK_NUMBERS = 4_000_000  # float64 numbers in a chunk of features, at most


@dataclass(frozen=True)
class FeatureMoments:
    """Second moments of the features summed over rounds τ < t, then over t, averaged over sequences.

    even: (1 + d², 1 + d²), of (1, vec R Rᵀ). odd: (d, d), of R. target: (d, d), of R with π* on the unit ball.
    target_square: E Σ_t ‖π*‖². c_error: standard error of the c that minimises the loss, over its value.
    """

    even: Tensor
    odd: Tensor
    target: Tensor
    target_square: float
    c_error: float


@dataclass(frozen=True)
class TrainedMinimum:
    """A trained minimum: C = c I + rest, and the excess of its loss over that of the best linear map.

    The excess is relative to E Σ_t ‖π*‖². No θ has a lower loss than the best linear map, so an excess of 0 proves that
    the minimum is global. certified: whether the excess is 0 up to rounding. starts: how many random starts were tried.
    """

    c: float
    standard_error: float
    off_diagonal: float
    C_minus_cI: float
    A_b: float
    bias: float
    excess_loss: float
    certified: bool
    starts: int


def closed_form(d: int, horizon: int, radius: float) -> float:
    """Return c = R_Π √2 Γ((d+1)/2) / (√T d Γ(d/2)), the minimiser of App. `appendix:thm1pf`."""
    ratio = math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    return radius * math.sqrt(2) * ratio / (math.sqrt(horizon) * d)


def moments(root: int, d: int, horizon: int, samples: int) -> FeatureMoments:
    """Sample N sequences and accumulate their moments, chunk by chunk."""
    size = max(1, CHUNK_NUMBERS // (horizon * (1 + d + d * d)))
    even, odd, target = np.zeros((1 + d * d,) * 2), np.zeros((d, d)), np.zeros((d, d))
    ratios = []
    for chunk, start in enumerate(range(0, samples, size)):
        n = min(size, samples - start)
        rewards = stream(root, "environment", "theory", d, horizon, chunk).standard_normal((n, horizon, d))
        squares = np.einsum("nti,ntj->ntij", rewards, rewards).reshape(n, horizon, d * d)
        before = _sum_before(np.concatenate([np.ones((n, horizon, 1)), squares], axis=2)).reshape(-1, 1 + d * d)
        linear, total = _sum_before(rewards), rewards.sum(axis=1)
        best = total / np.linalg.norm(total, axis=1, keepdims=True)
        even += before.T @ before
        odd += np.einsum("nti,ntj->ij", linear, linear, optimize=True)
        summed = linear.sum(axis=1)
        target += summed.T @ best
        ratios.append(np.stack([(summed * best).sum(axis=1), (linear**2).sum(axis=(1, 2))]))
    numerator, denominator = np.concatenate(ratios, axis=1)
    c = numerator.mean() / denominator.mean()
    error = (numerator - c * denominator).std() / denominator.mean() / np.sqrt(samples)
    return FeatureMoments(
        *(torch.tensor(moment / samples) for moment in (even, odd, target)), float(horizon), float(error / c)
    )


def _sum_before(values: np.ndarray) -> np.ndarray:
    """Return the sum over rounds τ < t, along axis 1."""
    return values.cumsum(axis=1) - values


def loss(model: LinearAttention, sample: FeatureMoments, radius: float) -> Tensor:
    """Return the sampled Eq. `loss-for-theory` of a model."""
    A, b, C, d = model.reparametrised()
    squares = (A[:, :, None] * b).flatten(1)  # A R Rᵀ b as a linear map of vec R Rᵀ
    even = torch.cat([d[:, None], squares], dim=1)
    quadratic = (even @ sample.even * even).sum() + (C @ sample.odd * C).sum()
    return quadratic - 2 * radius * (C.mT * sample.target).sum() + radius**2 * sample.target_square


def minimise(root: int, sample: FeatureMoments, d: int, horizon: int, radius: float) -> TrainedMinimum:
    """Train θ to convergence, from new random starts until a minimum is certified as global.

    The loss has local minima in θ, at which C has a lower rank; the theorem is about global ones.
    """
    best = torch.linalg.solve(sample.odd, sample.target)  # the best linear map is radius * best
    floor = sample.target_square - float((best * sample.target).sum())
    minima = []
    for start in range(MAXIMAL_STARTS):
        model = _train(stream(root, "initialisation", "theory", d, horizon, start), sample, d, horizon, radius)
        with torch.no_grad():
            excess = (float(loss(model, sample, radius)) / radius**2 - floor) / sample.target_square
            minima.append((excess, model))
        if excess < CERTIFIED_EXCESS:
            break
    excess, model = min(minima, key=lambda pair: pair[0])
    with torch.no_grad():
        A, b, C, bias = model.reparametrised()
        c = float(C.diagonal().mean())
        off_diagonal = float((C - torch.diag(C.diagonal())).norm())
        rest = float((C - c * torch.eye(d)).norm())
        sizes = off_diagonal, rest, float(A.norm() * b.norm()), float(bias.norm())
        return TrainedMinimum(c, abs(c) * sample.c_error, *sizes, excess, excess < CERTIFIED_EXCESS, len(minima))


def _train(start: np.random.Generator, sample: FeatureMoments, d: int, horizon: int, radius: float) -> LinearAttention:
    """Return the model at a minimum of the loss, reached with L-BFGS from random parameters."""
    # Outputs grow like T times the square of the parameters; a start of this size keeps the first steps stable.
    scale = 1 / math.sqrt(d * horizon)
    shapes = [(d, d) if symbol.isupper() else (d,) for symbol in SYMBOLS]
    parameters = [torch.tensor(scale * start.standard_normal(shape), requires_grad=True) for shape in shapes]
    model = LinearAttention(*parameters)
    lbfgs = torch.optim.LBFGS(
        parameters, max_iter=500, history_size=50, line_search_fn="strong_wolfe",
        tolerance_grad=1e-8, tolerance_change=1e-13,
    )  # fmt: skip

    def closure() -> Tensor:
        lbfgs.zero_grad()
        value = loss(model, sample, radius)
        value.backward()
        return value

    lbfgs.step(closure)
    return model
