"""Theorem 1 against sampling and against its closed form."""

import numpy as np
import pytest
import torch

from rmft.agents.numeric import SYMBOLS, LinearAttention
from rmft.streams import stream
from rmft.training.theory import closed_form, loss, minimise, moments


@pytest.mark.parametrize(("d", "horizon", "radius"), [(2, 10, 1.0), (3, 25, 0.5), (10, 10, 2.0)])
def test_training_to_convergence_finds_the_closed_form(d, horizon, radius):
    found = minimise(0, moments(0, d, horizon, 20_000), d, horizon, radius)
    assert found.c == pytest.approx(closed_form(d, horizon, radius), abs=4 * found.standard_error)
    assert found.excess_loss < 1e-8
    assert max(found.A_b, found.bias) < 1e-4
    assert found.off_diagonal < 0.1 * found.c * np.sqrt(d)


def test_the_closed_form_is_the_projection_of_the_best_policy_on_the_sum_so_far():
    d, horizon, radius = 3, 10, 1.0
    rewards = stream(0, "environment", "oracle").standard_normal((200_000, horizon, d))
    total = rewards.sum(axis=1)
    best = radius * total / np.linalg.norm(total, axis=1, keepdims=True)
    before = rewards.cumsum(axis=1) - rewards
    c = (before * best[:, None]).sum() / (before**2).sum()
    assert c == pytest.approx(closed_form(d, horizon, radius), rel=0.01)


def test_the_loss_from_moments_is_the_loss_over_sequences_of_both_signs():
    d, horizon, radius, n = 2, 5, 1.5, 40
    rng = np.random.default_rng(0)
    model = LinearAttention(*(torch.tensor(rng.normal(size=(d,) * (1 + s.isupper()))) for s in SYMBOLS))
    rewards = stream(0, "environment", "theory", d, horizon, 0).standard_normal((n, horizon, d))
    both = torch.tensor(np.concatenate([rewards, -rewards]))
    steps = model.increments(both)
    played = steps.cumsum(1) - steps
    total = both.sum(1)
    best = radius * total / total.norm(dim=1, keepdim=True)
    direct = (played - best[:, None]).square().sum((1, 2)).mean()
    assert loss(model, moments(0, d, horizon, n), radius).item() == pytest.approx(direct.item())
