"""The numeric agent: a single layer of linear attention over past rewards, Eq. `single-linear-transformer`.

Symbols: S training seeds, n instances, d actions. The query is fixed, so attention over the past is a sum with one
term a round; an agent keeps the running sum, and a trajectory costs O(T).

The formulas are written once for numpy arrays (to play, without importing torch) and torch tensors (to train).
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rmft.algorithms.players import project_onto_ball, softmax
from rmft.artifacts.tensors import read_arrays, write_arrays
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.tables import zeros

if TYPE_CHECKING:
    import torch

    Array: TypeAlias = np.ndarray | torch.Tensor


@dataclass(frozen=True)
class LinearAttention:
    """θ = (V, K, Q, v_c, k_c, q_c): matrices (..., d, d) and biases (..., d); a leading axis holds training seeds."""

    V: "Array"
    K: "Array"
    Q: "Array"
    v_c: "Array"
    k_c: "Array"
    q_c: "Array"

    def increments(self, rewards: "Array") -> "Array":
        """Return what each round adds to the Operator's input, (V R + v_c) ((K R + k_c)ᵀ (Q 1 + q_c)).

        rewards: (..., rounds, d), zero where not revealed; the result has the same shape.
        """
        b, gate = self._query()
        return (rewards @ self.V.mT + self.v_c[..., None, :]) * (rewards @ b[..., None] + gate[..., None])

    def reparametrised(self) -> "tuple[Array, Array, Array, Array]":
        """Return (A, b, C, d) of Eq. `rewrite_linear_att`, by which a round adds A R Rᵀ b + C R + d."""
        b, gate = self._query()
        C = gate[..., None] * self.V + self.v_c[..., :, None] * b[..., None, :]
        return self.V, b, C, gate * self.v_c

    def _query(self) -> "tuple[Array, Array]":
        """Return (b, gate) with (K R + k_c)ᵀ (Q 1 + q_c) = Rᵀ b + gate: (..., d) and (..., 1)."""
        query = self.Q.sum(-1) + self.q_c
        return (query[..., None, :] @ self.K)[..., 0, :], (self.k_c * query).sum(-1)[..., None]

    def to_numpy(self) -> "LinearAttention":
        """Return a copy whose parameters are arrays."""
        return LinearAttention(*(parameter.detach().numpy().copy() for parameter in vars(self).values()))

    def of_seed(self, training_seed: int) -> "LinearAttention":
        """Return the model of one training seed."""
        return LinearAttention(*(parameter[training_seed] for parameter in vars(self).values()))


SYMBOLS = tuple(field.name for field in fields(LinearAttention))


def write_model(path: Path, model: LinearAttention) -> None:
    """Write a numeric model whose parameters are numpy arrays, training seeds along the first axis."""
    write_arrays(path, vars(model))


def read_model(path: Path) -> LinearAttention:
    """Read a numeric model. Raise InputError where the file is missing or damaged."""
    return LinearAttention(**read_arrays(path, SYMBOLS))


class NumericAgent:
    """A trained model in the middle of n games.

    normalise: whether the model was trained on rewards in [0, 1], which every player observes, or in [0, 10]. radius:
    of the ball; None for the simplex.
    """

    deterministic = False

    def __init__(self, model: LinearAttention, n: int, *, normalise: bool, radius: float | None) -> None:
        self.model = model
        self.scores = zeros(n, model.V.shape[-1])
        self.normalise = normalise
        self.radius = radius

    def policy(self) -> np.ndarray:
        """Return Operator(scores), (n, d)."""
        return softmax(self.scores) if self.radius is None else project_onto_ball(self.scores, self.radius)

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the round's increment; rewards that were not revealed are zero, as R̂ of Sec. `ssec:setting-sec4`."""
        inputs = rewards if self.normalise else revealed * (LOW + (HIGH - LOW) * rewards)
        self.scores += self.model.increments(inputs)
