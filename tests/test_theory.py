"""Theorem 1 against sampling and against its closed form."""

import numpy as np
import pytest
import torch
from scipy.special import factorial, factorial2

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


@pytest.mark.parametrize("d", range(2, 12))
def test_the_appendix_has_the_closed_form_right_for_even_d_and_2d_over_d_minus_1_times_too_large_for_odd_d(d):
    """The last two formulas of App. `appendix:thm1pf`, for T = R_Π = 1."""
    if d % 2 == 0:
        appendix = factorial2(d - 1) / 2 ** (d / 2) * np.sqrt(2 * np.pi) / (factorial(d // 2 - 1) * d)
        assert appendix == pytest.approx(closed_form(d, 1, 1.0))
    else:
        half = (d - 1) // 2
        appendix = np.sqrt(2 / np.pi) * factorial(half - 1) * 2**half / factorial2(d - 2)
        assert appendix == pytest.approx(closed_form(d, 1, 1.0) * 2 * d / (d - 1))


@pytest.mark.parametrize("horizon", [2, 5, 9])
def test_a_bias_costs_its_square_times_the_sum_of_squares_of_the_rounds_before(horizon):
    """Step 1 of App. `appendix:thm1pf` has T(T - 1)/2 where Σ(t - 1)² belongs."""
    bias = moments(0, 2, horizon, 1).even[0, 0].item()
    assert bias == sum((t - 1) ** 2 for t in range(1, horizon + 1))
    assert (bias == horizon * (horizon - 1) / 2) == (horizon == 2)
