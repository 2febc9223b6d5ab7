"""Algorithm `ssft-numerical-model`: iterative RMFT of the numeric agent, several training seeds at once.

Symbols: S training seeds, M scenarios, L trajectories a scenario, k of them selected, T rounds, d actions.
Tensors have shape (S, M, L, T, d); in memory rounds come first and trajectories last, because torch is many times
slower along a last axis of three actions.
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
class TrainingRewards:
    """One iteration's reward tables: rewards and the means that regret counts, (S, M, T, d)."""

    rewards: Tensor
    means: Tensor


@dataclass(frozen=True)
class SampledTrajectories:
    """The trajectories of L perturbed models.

    policies: (S, M, L, T, d). revealed: the rewards that they observed, (S, M, L, T, d), or (S, M, 1, T, d) where all L
    observe the same.
    """

    policies: Tensor
    revealed: Tensor


@dataclass(frozen=True)
class IterationLog:
    """One iteration's row of training-log.csv, each value (S,): loss, regret at round T, and distances from FTRL.

    loss: before the first step. A_b, C_minus_diagonal (C less the mean of its diagonal times I), d, d_minus_mean:
    the paper's norms. FTRL has all 0 (d on the ball, d_minus_mean on the simplex) and C = cI with c > 0; on the simplex
    other C are FTRL, too, since its softmax ignores what all scores have in common.
    step: the c of the FTRL Operator(c Σ R) nearest to C: tr(C)/d on the ball; tr(PCP)/(d-1) on the simplex, where P
    projects on vectors of mean 0, because there adding a constant to all scores changes nothing.
    """

    loss: np.ndarray
    regret_all: np.ndarray
    regret_selected: np.ndarray
    A_b: np.ndarray
    C_minus_diagonal: np.ndarray
    d: np.ndarray
    d_minus_mean: np.ndarray
    step: np.ndarray


def one_thread() -> None:
    """Limit torch to one thread: on tensors this small more threads are slower, and jobs run side by side."""
    torch.set_num_threads(1)


def initial_model(root: int, settings: LinearAttentionModel, d: int, training_seeds: int) -> LinearAttention:
    """Return the base models, drawn uniformly from ± initialisation/√d, with a random stream for each seed."""
    bound = settings.initialisation / np.sqrt(d)

    def draw(symbol: str, shape: tuple[int, ...]) -> Tensor:
        draws = [stream(root, "initialisation", symbol, s).uniform(-bound, bound, shape) for s in range(training_seeds)]
        return torch.tensor(np.stack(draws), dtype=torch.float32, requires_grad=True)

    return LinearAttention(*(draw(symbol, (d, d) if symbol.isupper() else (d,)) for symbol in SYMBOLS))


def training_rewards(root: int, training: Training, mean: Mean = "nominal") -> Iterator[TrainingRewards]:
    """Yield, without end, M fresh reward tables an iteration for every training seed. mean: which one regret counts."""
    M, seeds = training.rmft.scenarios, range(training.rmft.training_seeds)
    iterations = max(1, BLOCK // M)  # drawn at once, because opening a stream costs more than a hundred draws from it
    for draw in itertools.count():
        names, shape = (f"training-{s}-{draw}" for s in seeds), (iterations * M, training.T, training.d)
        tables = [draw_rewards(root, name, training.process, shape) for name in names]
        rewards = torch.tensor(np.stack([table.rewards for table in tables]), dtype=torch.float32)
        means = torch.tensor(np.stack([means_of(table, mean) for table in tables]), dtype=torch.float32)
        yield from map(TrainingRewards, rewards.split(M, dim=1), means.split(M, dim=1))


def over_actions(combine: Callable[[Tensor, Tensor], Tensor], values: Tensor) -> Tensor:
    """Combine (..., d) along the last axis; for three actions this is ten times as fast as torch's reductions."""
    return functools.reduce(combine, values.unbind(-1))


def operator(scores: Tensor, radius: float | None) -> Tensor:
    """Return Operator(scores) over the last axis: softmax, or projection onto the ball."""
    if radius is None:
        weights = (scores - over_actions(torch.maximum, scores.detach())[..., None]).exp()
        return weights / over_actions(torch.add, weights)[..., None]
    norms = over_actions(torch.add, scores.square()).clamp(min=radius**2).sqrt()
    return scores * (radius / norms)[..., None]


def scores_before(model: LinearAttention, revealed: Tensor) -> Tensor:
    """Return the Operator's input at every round, the sum over rounds τ < t, (S, M, L, T, d).

    revealed: the observed rewards, (S, M, L, T, d).
    """
    totals = model.increments(revealed.flatten(1, 3)).view(revealed.shape).cumsum(3)
    return torch.nn.functional.pad(totals[..., :-1, :], (0, 0, 1, 0))


class Perturbation:
    """The random numbers of rollouts, with a generator for each training seed. shape: (M, L, T, d)."""

    def __init__(self, root: int, training_seeds: int, shape: tuple[int, int, int, int], variance: float) -> None:
        seeds = (int(stream(root, "perturbation", s).integers(2**63)) for s in range(training_seeds))
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.shape = shape
        self.sigma = variance**0.5

    def noise(self) -> Tensor:
        """Return Gaussian noise ε (S, M, L, T, d)."""
        M, L, T, d = self.shape
        draws = [torch.randn((T, d, M, L), generator=generator) for generator in self.generators]
        return self.sigma * torch.stack(draws, dim=1).permute(1, 3, 4, 0, 2)

    def uniforms(self) -> Tensor:
        """Return uniforms in [0, 1) that sample actions from policies, (S, M, L, T, 1)."""
        M, L, T, _ = self.shape
        draws = [torch.rand((T, 1, M, L), generator=generator) for generator in self.generators]
        return torch.stack(draws, dim=1).permute(1, 3, 4, 0, 2)


def rollouts(
    model: LinearAttention, scenarios: TrainingRewards, perturbation: Perturbation, training: Training
) -> SampledTrajectories:
    """Sample L perturbed trajectories on each reward table, Eq. `perturbation`."""
    radius, noise = training.radius, perturbation.noise()

    def perturbed(scores: Tensor, epsilon: Tensor) -> Tensor:
        unperturbed = operator(scores, radius) if training.rmft.perturb == "policy" else scores
        return operator(epsilon + unperturbed, radius)  # in this order the sum has the memory layout of the noise

    rewards = scenarios.rewards
    rewards = ((rewards - LOW) / (HIGH - LOW) if training.normalise else rewards)[:, :, None]
    if training.environment == "fol":
        return SampledTrajectories(perturbed(scores_before(model, rewards), noise), rewards)

    uniforms, scores = perturbation.uniforms(), torch.zeros_like(noise[..., 0, :])
    policies, revealed = [], []
    for t in range(training.T):
        policy = perturbed(scores, noise[..., t, :])
        below = policy[..., :-1].cumsum(-1) <= uniforms[..., t, :]  # the last action takes the remainder of rounding
        played = below.sum(-1, keepdim=True) == torch.arange(training.d)
        policies.append(policy)
        revealed.append(played * rewards[..., t, :])
        scores = scores + model.increments(revealed[-1].flatten(1, 2)).view(scores.shape)
    return SampledTrajectories(torch.stack(policies, dim=3), torch.stack(revealed, dim=3))


def final_regret(trajectories: SampledTrajectories, scenarios: TrainingRewards, training: Training) -> Tensor:
    """Return the expected regret at round T of every trajectory, (S, M, L)."""
    rewards, means = scenarios.rewards, scenarios.means
    if training.environment != "fol":
        best, values = means.amax(-1).sum(-1), means
    elif training.radius is None:
        best, values = rewards.sum(2).amax(-1), rewards
    else:
        best, values = training.radius * rewards.sum(2).norm(dim=-1), rewards
    return best[:, :, None] - over_actions(torch.add, trajectories.policies * values[:, :, None]).sum(-1)


def select(trajectories: SampledTrajectories, regret: Tensor, k: int) -> SampledTrajectories:
    """Return the k trajectories of lowest regret (S, M, L) in each scenario."""
    kept = regret.topk(k, dim=2, largest=False).indices[..., None, None]
    policies = trajectories.policies.take_along_dim(kept, dim=2)
    revealed = trajectories.revealed
    if revealed.shape[2] > 1:
        revealed = revealed.take_along_dim(kept, dim=2)
    return SampledTrajectories(policies, revealed)


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
) -> Iterator[tuple[int, LinearAttention, IterationLog | None]]:
    """Run Algorithm `ssft-numerical-model`; yield (iteration, its model, the log of the iteration that made the model).

    Iteration 0 is the base model and has no log. The model is updated in place: copy a model to keep it.
    """
    loop, T, d = training.rmft, training.T, training.d
    model = initial_model(root, settings, d, loop.training_seeds)
    parameters = [getattr(model, symbol) for symbol in SYMBOLS]
    sft = training.sft
    adam = torch.optim.Adam(parameters, lr=sft.learning_rate, betas=tuple(sft.betas), eps=sft.epsilon)
    perturbation = Perturbation(root, loop.training_seeds, (loop.scenarios, loop.trajectories, T, d), loop.variance)
    yield 0, model, None

    for iteration, scenarios in zip(
        range(1, loop.iterations + 1), training_rewards(root, training, mean), strict=False
    ):
        with torch.no_grad():
            sampled = rollouts(model, scenarios, perturbation, training)
            regret = final_regret(sampled, scenarios, training)
            demonstrations = select(sampled, regret, loop.selected)

        losses = []
        for _ in range(sft.steps):
            policies = operator(scores_before(model, demonstrations.revealed), training.radius)
            losses.append(distance(policies, demonstrations.policies, sft.distance).sum(-1).mean((1, 2)))
            adam.zero_grad()
            losses[-1].sum().backward()  # the sum over seeds is safe: each seed has parameters of its own
            adam.step()

        yield iteration, model, _log(model, losses[0], regret, training)


@torch.no_grad()
def _log(model: LinearAttention, losses: Tensor, regret: Tensor, training: Training) -> IterationLog:
    """Return the log of an iteration from its losses (S,) and regrets (S, M, L)."""
    A, b, C, d = model.reparametrised()
    # ASSUME: the paper's mean of C is that of its diagonal: with that of all entries, FTRL's C = cI would not give 0.
    mean_of_diagonal = C.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    log = IterationLog(
        loss=losses,
        regret_all=regret.mean((1, 2)),
        regret_selected=regret.topk(training.rmft.selected, dim=2, largest=False).values.mean((1, 2)),
        A_b=A.flatten(1).norm(dim=1) * b.norm(dim=1),
        C_minus_diagonal=(C - mean_of_diagonal * torch.eye(C.shape[-1])).flatten(1).norm(dim=1),
        d=d.norm(dim=1),
        d_minus_mean=(d - d.mean(1, keepdim=True)).norm(dim=1),
        step=_step(C, training.policy_space),
    )
    return IterationLog(**{name: value.detach().numpy() for name, value in vars(log).items()})


def _step(C: Tensor, policy_space: str) -> Tensor:
    """Return the step (S,) of the FTRL nearest to C (S, d, d); see `IterationLog`."""
    d = C.shape[-1]
    trace = C.diagonal(dim1=1, dim2=2).sum(1)
    return trace / d if policy_space == "ball" else (trace - C.sum((1, 2)) / d) / (d - 1)
