"""Algorithm `ssft-numerical-model`: iterative RMFT of the numeric agent, several training seeds at once.

Symbols: S training seeds, M scenarios, L trajectories a scenario, k of them selected, T rounds, d actions.
Tensors are (S, M, L, T, d) to the reader; in memory rounds come first and trajectories last, because torch is
many times slower along a last axis of three actions.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rmft.agents.numeric import SYMBOLS, LinearAttention
from rmft.environments import draw_rewards
from rmft.environments.clipping import HIGH, LOW
from rmft.environments.regret import Mean, means_of
from rmft.params.numeric import LinearAttentionModel, Training
from rmft.streams import BLOCK, stream


@dataclass(frozen=True)
class Scenarios:
    """One iteration's reward tables: rewards and nominal means, (S, M, T, d)."""

    rewards: Tensor
    means: Tensor


@dataclass(frozen=True)
class Sampled:
    """What the L perturbed models played: policies (S, M, L, T, d) and the rewards they saw, same shape or L = 1."""

    policies: Tensor
    seen: Tensor


@dataclass(frozen=True)
class Progress:
    """One iteration's figures, each (S,): regret at round T, and how far the parameters are from FTRL's.

    step: the c of FTRL's Operator(c Σ R) that C comes nearest to, tr(C)/d on the ball; on the simplex, where adding the
    same to every action changes nothing, tr(PCP)/(d-1) with P the projection on vectors of mean 0.
    """

    loss: np.ndarray
    regret_all: np.ndarray
    regret_selected: np.ndarray
    A_b: np.ndarray
    C_minus_diagonal: np.ndarray
    C_minus_constant: np.ndarray
    d: np.ndarray
    d_minus_mean: np.ndarray
    step: np.ndarray


def one_thread() -> None:
    """Keep torch to one thread: on tensors this small more threads are slower, and jobs run side by side."""
    torch.set_num_threads(1)


def initial_model(root: int, settings: LinearAttentionModel, d: int, training_seeds: int) -> LinearAttention:
    """Return the base models, uniform on ± initialisation/√d; a seed's model does not depend on the others."""
    bound = settings.initialisation / np.sqrt(d)

    def draw(symbol: str, shape: tuple[int, ...]) -> Tensor:
        draws = [stream(root, "initialisation", symbol, s).uniform(-bound, bound, shape) for s in range(training_seeds)]
        return torch.tensor(np.stack(draws), dtype=torch.float32, requires_grad=True)

    return LinearAttention(*(draw(symbol, (d, d) if symbol.isupper() else (d,)) for symbol in SYMBOLS))


def scenarios_of(root: int, training: Training, mean: Mean = "nominal") -> Iterator[Scenarios]:
    """Yield each iteration's M fresh scenarios for every training seed, without end. mean: that regret counts."""
    M, seeds = training.rmft.scenarios, range(training.rmft.training_seeds)
    iterations = max(1, BLOCK // M)  # drawn at once: opening a stream costs more than a hundred draws from it
    for draw in itertools.count():
        names, shape = (f"training-{s}-{draw}" for s in seeds), (iterations * M, training.T, training.d)
        tables = [draw_rewards(root, name, training.process, shape) for name in names]
        rewards = torch.tensor(np.stack([table.rewards for table in tables]), dtype=torch.float32)
        means = torch.tensor(np.stack([means_of(table, mean) for table in tables]), dtype=torch.float32)
        yield from map(Scenarios, rewards.split(M, dim=1), means.split(M, dim=1))


def over_actions(combine: Callable[[Tensor, Tensor], Tensor], values: Tensor) -> Tensor:
    """Combine (..., d) along its last axis. For three actions ten times as fast as torch's reductions."""
    return functools.reduce(combine, values.unbind(-1))


def operator(scores: Tensor, radius: float | None) -> Tensor:
    """Return Operator(scores) over the last axis: softmax, or projection onto the ball."""
    if radius is None:
        weights = (scores - over_actions(torch.maximum, scores.detach())[..., None]).exp()
        return weights / over_actions(torch.add, weights)[..., None]
    norms = over_actions(torch.add, scores.square()).clamp(min=radius**2).sqrt()
    return scores * (radius / norms)[..., None]


def scores_before(model: LinearAttention, seen: Tensor) -> Tensor:
    """Return the Operator's input at every round, the sum over rounds τ < t, for rewards seen (S, M, L, T, d)."""
    totals = model.increments(seen.flatten(1, 3)).view(seen.shape).cumsum(3)
    return torch.nn.functional.pad(totals[..., :-1, :], (0, 0, 1, 0))


class Perturbation:
    """The randomness of rollouts: Gaussian noise and action draws, a generator for each training seed."""

    def __init__(self, root: int, training_seeds: int, shape: tuple[int, int, int, int], variance: float) -> None:
        """Take shape = (M, L, T, d)."""
        seeds = (int(stream(root, "perturbation", s).integers(2**63)) for s in range(training_seeds))
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.shape = shape
        self.sigma = variance**0.5

    def noise(self) -> Tensor:
        """Return ε (S, M, L, T, d)."""
        M, L, T, d = self.shape
        draws = [torch.randn((T, d, M, L), generator=generator) for generator in self.generators]
        return self.sigma * torch.stack(draws, dim=1).permute(1, 3, 4, 0, 2)

    def uniforms(self) -> Tensor:
        """Return numbers in [0, 1) that turn policies into actions, (S, M, L, T, 1)."""
        M, L, T, _ = self.shape
        draws = [torch.rand((T, 1, M, L), generator=generator) for generator in self.generators]
        return torch.stack(draws, dim=1).permute(1, 3, 4, 0, 2)


def rollouts(model: LinearAttention, scenarios: Scenarios, perturbation: Perturbation, training: Training) -> Sampled:
    """Sample L perturbed trajectories for each scenario, Eq. `perturbation`."""
    radius, noise = training.radius, perturbation.noise()

    def perturbed(scores: Tensor, epsilon: Tensor) -> Tensor:
        of_model = operator(scores, radius) if training.rmft.perturb == "policy" else scores
        return operator(epsilon + of_model, radius)  # in this order the sum is laid out in memory like the noise

    rewards = _as_shown(scenarios.rewards, training)[:, :, None]
    if training.environment == "fol":
        return Sampled(perturbed(scores_before(model, rewards), noise), rewards)

    uniforms, scores = perturbation.uniforms(), torch.zeros_like(noise[..., 0, :])
    policies, seen = [], []
    for t in range(training.T):
        policy = perturbed(scores, noise[..., t, :])
        below = policy[..., :-1].cumsum(-1) <= uniforms[..., t, :]  # the last action takes what rounding leaves over
        played = below.sum(-1, keepdim=True) == torch.arange(training.d)
        policies.append(policy)
        seen.append(played * rewards[..., t, :])
        scores = scores + model.increments(seen[-1].flatten(1, 2)).view(scores.shape)
    return Sampled(torch.stack(policies, dim=3), torch.stack(seen, dim=3))


def final_regret(trajectories: Sampled, scenarios: Scenarios, training: Training) -> Tensor:
    """Return the expected regret at round T of every trajectory, (S, M, L)."""
    rewards, means = scenarios.rewards, scenarios.means
    if training.environment != "fol":
        best, values = means.amax(-1).sum(-1), means
    elif training.radius is None:
        best, values = rewards.sum(2).amax(-1), rewards
    else:
        best, values = training.radius * rewards.sum(2).norm(dim=-1), rewards
    return best[:, :, None] - over_actions(torch.add, trajectories.policies * values[:, :, None]).sum(-1)


def select(trajectories: Sampled, regret: Tensor, k: int) -> Sampled:
    """Keep the k trajectories of lowest regret in each scenario."""
    kept = regret.topk(k, dim=2, largest=False).indices[..., None, None]
    policies = trajectories.policies.take_along_dim(kept, dim=2)
    shared = trajectories.seen.shape[2] == 1
    return Sampled(policies, trajectories.seen if shared else trajectories.seen.take_along_dim(kept, dim=2))


def distance(policies: Tensor, demonstrated: Tensor, kind: str) -> Tensor:
    """Return dist(π_θ, π_ℓ) of Eq. `dist` over the last axis.

    # ASSUME: l2 is the squared distance, as in Theorem 1. KL is in the order of the equation, KL(π_θ ‖ π_ℓ);
    the other order has the gradient of the cross-entropy.
    """
    if kind == "l2":
        return over_actions(torch.add, (policies - demonstrated).square())
    tiny = torch.finfo(policies.dtype).tiny
    log_policies = policies.clamp(min=tiny).log()
    if kind == "cross-entropy":
        return -over_actions(torch.add, demonstrated * log_policies)
    return over_actions(torch.add, policies * (log_policies - demonstrated.clamp(min=tiny).log()))


def rmft(
    root: int, training: Training, settings: LinearAttentionModel, mean: Mean = "nominal"
) -> Iterator[tuple[int, LinearAttention, Progress | None]]:
    """Run Algorithm `ssft-numerical-model`; yield (iteration, its model, what the step that made it showed).

    Iteration 0 is the base model and has no step. A model is updated in place: copy what is to be kept.
    """
    loop, T, d = training.rmft, training.T, training.d
    model = initial_model(root, settings, d, loop.training_seeds)
    parameters = [getattr(model, symbol) for symbol in SYMBOLS]
    sft = training.sft
    adam = torch.optim.Adam(parameters, lr=sft.learning_rate, betas=tuple(sft.betas), eps=sft.epsilon)
    perturbation = Perturbation(root, loop.training_seeds, (loop.scenarios, loop.trajectories, T, d), loop.variance)
    yield 0, model, None

    for iteration, scenarios in zip(range(1, loop.iterations + 1), scenarios_of(root, training, mean), strict=False):
        with torch.no_grad():
            sampled = rollouts(model, scenarios, perturbation, training)
            regret = final_regret(sampled, scenarios, training)
            demonstrations = select(sampled, regret, loop.selected)

        policies = operator(scores_before(model, demonstrations.seen), training.radius)
        losses = distance(policies, demonstrations.policies, sft.distance).sum(-1).mean((1, 2))
        adam.zero_grad()
        losses.sum().backward()  # the sum keeps the seeds apart: each has parameters of its own
        adam.step()

        yield iteration, model, _progress(model, losses, regret, training)


def _as_shown(rewards: Tensor, training: Training) -> Tensor:
    return (rewards - LOW) / (HIGH - LOW) if training.normalise else rewards


@torch.no_grad()
def _progress(model: LinearAttention, losses: Tensor, regret: Tensor, training: Training) -> Progress:
    A, b, C, d = model.reparametrised()
    mean_of_diagonal = C.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    figures = Progress(
        loss=losses,
        regret_all=regret.mean((1, 2)),
        regret_selected=regret.topk(training.rmft.selected, dim=2, largest=False).values.mean((1, 2)),
        A_b=A.flatten(1).norm(dim=1) * b.norm(dim=1),
        C_minus_diagonal=(C - mean_of_diagonal * torch.eye(C.shape[-1])).flatten(1).norm(dim=1),
        C_minus_constant=(C - C.mean((1, 2), keepdim=True)).flatten(1).norm(dim=1),
        d=d.norm(dim=1),
        d_minus_mean=(d - d.mean(1, keepdim=True)).norm(dim=1),
        step=_step(C, training.policy_space),
    )
    return Progress(**{name: value.detach().numpy() for name, value in vars(figures).items()})


def _step(C: Tensor, policy_space: str) -> Tensor:
    d = C.shape[-1]
    trace = C.diagonal(dim1=1, dim2=2).sum(1)
    return trace / d if policy_space == "ball" else (trace - C.sum((1, 2)) / d) / (d - 1)
