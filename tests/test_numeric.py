"""The numeric agent and its iterative RMFT.

Symbols: S training seeds, M scenarios, L trajectories, T rounds, d actions.
"""

import itertools
from functools import cache

import numpy as np
import pytest
import torch

from rmft.agents.numeric import SYMBOLS, LinearAttention, NumericAgent
from rmft.algorithms.players import project_onto_ball, softmax
from rmft.environments import RewardTable
from rmft.environments.regret import regret
from rmft.game import play
from rmft.params import load
from rmft.params.numeric import Training
from rmft.training.numeric import (
    Perturbation,
    SampledTrajectories,
    TrainingRewards,
    distance,
    final_regret,
    initial_model,
    operator,
    rmft,
    rollouts,
    scores_before,
    select,
    training_rewards,
)
from rmft.workflow.plan import training_job


@cache
def training(experiment: str, **rmft_changes) -> Training:
    """Return an experiment's training with a few iterations, and whatever else of `rmft` is to change."""
    of_paper = training_job(load(), experiment).training
    small = {"iterations": 5, "scenarios": 8, "training_seeds": 2} | rmft_changes
    return of_paper.model_copy(update={"rmft": of_paper.rmft.model_copy(update=small)})


def random_model(seed: int = 0, *leading: int, d: int = 3) -> LinearAttention:
    rng = np.random.default_rng(seed)
    return LinearAttention(*(rng.normal(size=(*leading, *[d] * (1 + symbol.isupper()))) for symbol in SYMBOLS))


def as_tensors(model: LinearAttention) -> LinearAttention:
    return LinearAttention(*(torch.tensor(getattr(model, symbol)) for symbol in SYMBOLS))


def run(experiment: str, **changes) -> list[LinearAttention]:
    """Return the model of every iteration."""
    settings = load().models["linear_attention"]
    return [model.to_numpy() for _, model, _ in rmft(0, training(experiment, **changes), settings)]


def test_the_running_sum_is_attention_of_the_fixed_query_over_the_past():
    model, rewards = random_model(), np.random.default_rng(1).uniform(0, 10, (7, 3))
    query = model.Q @ np.ones(3) + model.q_c
    values, keys = (model.V @ rewards.T).T + model.v_c, (model.K @ rewards.T).T + model.k_c
    attention = values.T @ (keys @ query)  # Eq. single-linear-transformer before its Operator
    np.testing.assert_allclose(model.increments(rewards).sum(axis=0), attention)


def test_the_reparametrised_form_adds_the_same_in_every_round():
    model, rewards = random_model(), np.random.default_rng(1).uniform(0, 10, (7, 3))
    A, b, C, d = model.reparametrised()
    expected = [A @ np.outer(reward, reward) @ b + C @ reward + d for reward in rewards]
    np.testing.assert_allclose(model.increments(rewards), expected)


@pytest.mark.parametrize("radius", [None, 1.0, 0.5])
def test_a_player_decides_as_the_model_that_was_trained(radius):
    model, rewards = random_model(), np.random.default_rng(1).uniform(0, 10, (4, 9, 3))
    player = NumericAgent(model, 4, normalise=False, radius=radius)
    table = RewardTable(rewards, rewards, rewards)
    played = play(player, table, full_feedback=True, uniforms=None if radius else lambda _: np.full(4, 0.5))
    of_seeds = as_tensors(LinearAttention(*(getattr(model, symbol)[None] for symbol in SYMBOLS)))
    trained = operator(scores_before(of_seeds, torch.tensor(rewards)[None, :, None]), radius)[0, :, 0]
    np.testing.assert_allclose(played.policies, trained, atol=1e-9)


def test_a_bandit_player_learns_from_the_reward_of_its_action_alone():
    model, rewards = random_model(), np.random.default_rng(1).uniform(0, 10, (1, 2, 3))
    player = NumericAgent(model, 1, normalise=False, radius=None)
    played = play(player, RewardTable(*[rewards] * 3), full_feedback=False, uniforms=lambda _: np.full(1, 0.5))
    seen = np.zeros(3)
    seen[played.actions[0, 0]] = rewards[0, 0, played.actions[0, 0]]
    np.testing.assert_allclose(played.policies[0, 1], softmax(model.increments(seen[None])[0]))


@pytest.mark.parametrize("radius", [None, 1.0, 2.0])
def test_the_operator_is_the_same_for_playing_and_for_training(radius):
    scores = np.random.default_rng(0).normal(scale=3, size=(50, 4))
    ours = softmax(scores) if radius is None else project_onto_ball(scores, radius)
    np.testing.assert_allclose(operator(torch.tensor(scores), radius), ours)


def test_without_noise_perturbing_the_policy_applies_softmax_twice_and_perturbing_the_logits_once():
    model = as_tensors(random_model(0, 2))
    model = LinearAttention(*(getattr(model, symbol).float() for symbol in SYMBOLS))
    for perturb, applications in (("policy", 2), ("logits", 1)):
        quiet = training("numeric_simplex", perturb=perturb, variance=1e-30)
        scenarios = next(training_rewards(0, quiet))
        noise = Perturbation(0, 2, (8, 10, 25, 3), quiet.rmft.variance)
        expected = scores_before(model, scenarios.rewards[:, :, None])
        for _ in range(applications):
            expected = operator(expected, None)
        sampled = rollouts(model, scenarios, noise, quiet).policies
        torch.testing.assert_close(sampled, expected.expand_as(sampled))


def test_noise_has_the_stated_variance_and_belongs_to_its_seed():
    two, three = (Perturbation(0, seeds, (50, 10, 25, 3), 0.01).noise() for seeds in (2, 3))
    assert two.var().item() == pytest.approx(0.01, rel=0.02)
    torch.testing.assert_close(two, three[:2])
    assert abs(np.corrcoef(two[0].flatten(), two[1].flatten())[0, 1]) < 0.02


def test_in_bandits_actions_are_drawn_from_the_perturbed_policy_and_alone_are_seen():
    of_mab = training("numeric_mab", scenarios=200)
    model = initial_model(0, load().models["linear_attention"], 3, 2)
    drawn = next(training_rewards(0, of_mab))
    always_paid = TrainingRewards(torch.ones_like(drawn.rewards), drawn.means)
    with torch.no_grad():
        sampled = rollouts(model, always_paid, Perturbation(0, 2, (200, 10, 25, 3), 0.01), of_mab)
    assert (sampled.revealed.sum(-1) == 1).all()
    excess = (sampled.revealed - sampled.policies).mean((0, 1, 2, 3))
    assert excess.abs().max() < 0.008  # 100 000 draws, each with a standard deviation of at most a half


def test_final_regret_is_the_expected_regret_of_the_environments():
    for experiment, comparator in (
        ("numeric_simplex", "hindsight"),
        ("numeric_ball", "hindsight"),
        ("numeric_mab", "best mean"),
    ):
        settings = training(experiment)
        scenarios = next(training_rewards(0, settings))
        model = initial_model(0, load().models["linear_attention"], 3, 2)
        with torch.no_grad():
            sampled = rollouts(model, scenarios, Perturbation(0, 2, (8, 10, 25, 3), 1.0), settings)
        ours = final_regret(sampled, scenarios, settings)
        for seed, trajectory in itertools.product(range(2), range(10)):
            table = RewardTable(
                *(array[seed].double().numpy() for array in (scenarios.rewards, scenarios.means, scenarios.means))
            )
            policies = sampled.policies[seed, :, trajectory].double().numpy()
            oracle = regret("expected", comparator, table, policies, None, radius=settings.radius)[:, -1]
            np.testing.assert_allclose(ours[seed, :, trajectory], oracle, atol=1e-3)


def test_selection_keeps_the_k_lowest_regrets_of_each_scenario_with_what_they_saw():
    policies = torch.rand(2, 3, 5, 4, 3)
    seen = torch.rand(2, 3, 5, 4, 3)
    regrets = torch.rand(2, 3, 5)
    kept = select(SampledTrajectories(policies, seen), regrets, 2)
    for seed, scenario in itertools.product(range(2), range(3)):
        best = regrets[seed, scenario].argsort()[:2]
        torch.testing.assert_close(kept.policies[seed, scenario], policies[seed, scenario, best])
        torch.testing.assert_close(kept.revealed[seed, scenario], seen[seed, scenario, best])


def test_distances_are_those_of_the_field():
    p, q = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.6, 0.3, 0.1])
    assert distance(p, q, "l2").item() == pytest.approx(0.32)
    assert distance(p, q, "cross-entropy").item() == pytest.approx(-(q * p.log()).sum().item())
    assert distance(p, q, "kl").item() == pytest.approx((p * (p / q).log()).sum().item())
    assert distance(p, p, "kl").item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("experiment", ["numeric_simplex", "numeric_mixture", "numeric_mab"])
def test_a_training_seed_does_not_depend_on_how_many_there_are_nor_on_the_iterations_to_come(experiment):
    short, long = run(experiment, iterations=3, training_seeds=1), run(experiment, iterations=5, training_seeds=3)
    for symbol in SYMBOLS:
        np.testing.assert_allclose(getattr(short[3], symbol)[0], getattr(long[3], symbol)[0], rtol=1e-5, atol=1e-7)


def test_the_first_step_moves_every_parameter_by_the_learning_rate():
    before, after = run("numeric_simplex")[:2]  # Adam's first step is the sign of the gradient times the rate
    for symbol in SYMBOLS:
        moved = np.abs(getattr(after, symbol) - getattr(before, symbol))
        np.testing.assert_allclose(moved, 0.01, rtol=1e-2)


def test_all_steps_of_an_iteration_fit_the_same_demonstrations():
    of_paper, losses, moved = training("numeric_simplex", iterations=1), [], []
    for steps in (1, 3):
        sft = of_paper.sft.model_copy(update={"steps": steps, "learning_rate": 1e-4})
        settings = of_paper.model_copy(update={"sft": sft})
        models = [(model.to_numpy(), log) for _, model, log in rmft(0, settings, load().models["linear_attention"])]
        (before, _), (after, log) = models
        losses.append(log.loss)
        moved.append(np.mean([np.abs(getattr(after, of) - getattr(before, of)).mean() for of in SYMBOLS]))
    assert losses[0] == pytest.approx(losses[1])  # that before the first step
    assert moved == pytest.approx([1e-4, 3e-4], rel=0.1)  # nearly all steps of Adam go the same way, being so small


@pytest.mark.parametrize(("experiment", "by"), [("numeric_ball", 10), ("numeric_mab_logits_normalised", 1)])
def test_training_lowers_the_regret_of_what_the_model_plays(experiment, by):
    settings = training(experiment, iterations=150, scenarios=50)
    figures = [figures for _, _, figures in rmft(0, settings, load().models["linear_attention"]) if figures]
    first, last = (np.mean([f.regret_all.mean() for f in part]) for part in (figures[:20], figures[-20:]))
    assert last < first - by
    assert all((f.regret_selected <= f.regret_all).all() for f in figures)


def test_scenarios_are_fresh_in_every_iteration():
    first, second = itertools.islice(training_rewards(0, training("numeric_simplex")), 2)
    assert first.rewards.shape == (2, 8, 25, 3)
    assert not torch.equal(first.rewards, second.rewards)
