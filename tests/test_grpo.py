"""GRPO, against advantages, gradients and AdamW steps worked out here, and against TRL's own advantages.

The model is a random Qwen3 of two layers, one of them with a sliding window. A game is rounds of a message and
a reply.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from tiny_model import VOCABULARY, write_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Phi3Config, Phi3ForCausalLM

from rmft.agents.local import load
from rmft.agents.weights import with_weights
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.params import load as load_params
from rmft.params.grpo import Objective
from rmft.params.language import LoRA
from rmft.params.language_model import LanguageModelSettings
from rmft.params.section import Section
from rmft.selection import Scoring
from rmft.training.advantages import EPSILON, advantages, rounds_of
from rmft.training.grpo import reinforce
from rmft.training.learner import FineTuned
from rmft.workflow.plan import rollouts_job
from rmft.workflow.records import GRPOJob

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls transformers by an old name

ROOT = Path(__file__).parents[1]
PARAMS = load_params(ROOT / "params.yaml")
EXPERIMENT = PARAMS.experiments["mab_grpo_regret"]
CONTEXT, ROUNDS, D = 600, 3, 2
GAMES = 8  # two scenarios of four trajectories


def replace(settings: Section, **changes: object) -> Section:
    return settings.model_copy(update=changes)


ONE_STEP = replace(
    Objective.model_validate({name: getattr(EXPERIMENT.grpo, name) for name in Objective.model_fields}),
    method="full",
    gradient_checkpointing=False,
    learning_rate=1e-3,
    epsilon=1e-3,
    max_grad_norm=0.05,
    batch_size=GAMES,
    accumulation=1,
    kl=0.0,
)
ADAPTED = replace(ONE_STEP, method="lora", lora=LoRA(rank=4, alpha=8, dropout=0.1, target="all-linear"))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> LanguageModelSettings:
    """Return a base model with its tokenizer, in a folder."""
    return write_tiny_model(tmp_path_factory.mktemp("base"), CONTEXT)


def trained(
    base: LanguageModelSettings,
    settings: Objective = ONE_STEP,
    played: dict | None = None,
    start: Path | None = None,
    *,
    words: str = "test",
    temperature: float = 1.0,
    on_step=lambda *_: None,
) -> FineTuned:
    """Reinforce the decisions of games in a bandit by their realized regret."""
    scoring = Scoring("mab", "realized")
    return reinforce(played or PLAYED, base, start, settings, scoring, temperature, 0, (words,), on_step)


def games(seed: int = 0, rounds: int = ROUNDS, invalid: tuple[int, int] = (1, 1)) -> dict:
    """Return eight games of two scenarios; messages have 5 tokens, replies 4 or more.

    invalid: game and round of an invalid reply.
    """
    numbers = np.random.default_rng(seed)
    rewards = np.repeat(numbers.uniform(0, 10, (2, 1, rounds, D)), 4, axis=1).reshape(GAMES, rounds, D)
    actions = numbers.integers(D, size=(GAMES, rounds))
    fallback = np.zeros((GAMES, rounds), dtype=bool)
    fallback[invalid] = True
    ids, sampled = [], []
    for _ in range(GAMES):
        tokens, by_model = [], []
        for _ in range(rounds):
            length = int(numbers.integers(4, 8))
            tokens += numbers.integers(2, VOCABULARY, 5 + length).tolist()
            by_model += [False] * 5 + [True] * length
        ids.append([tokens])
        sampled.append([by_model])
    flat = list(rewards.reshape(GAMES, -1))
    return {
        "scenario": [0] * 4 + [1] * 4,
        "trajectory": [0, 1, 2, 3] * 2,
        "d": [D] * GAMES,
        **dict.fromkeys(("rewards", "means", "clipped_means"), flat),
        "policy": list(one_hot(actions, D).reshape(GAMES, -1)),
        "action": list(actions),
        "fallback": list(fallback),
        "ids": ids,
        "sampled": sampled,
    }


PLAYED = games()


@pytest.fixture
def model(base):
    return AutoModelForCausalLM.from_pretrained(base.weights, dtype=torch.float32)


@pytest.fixture(scope="module")
def tuned(base):
    """Return the base model after one step."""
    return trained(base)


def written(result, path: Path) -> Path:
    path.write_bytes(as_bytes(result))
    return path


def as_bytes(result) -> bytes:
    return save(result.tensors, metadata=result.metadata)


def regrets(played: dict) -> np.ndarray:
    rewards = np.array(played["rewards"]).reshape(GAMES, -1, D)
    got = np.take_along_axis(rewards, np.array(played["action"])[..., None], axis=2)[..., 0]
    return (rewards.max(axis=2) - got).sum(axis=1)


def by_hand(model, played: dict, row: int) -> torch.Tensor:
    """Return log p of the tokens that were sampled, each given all before it."""
    ids, sampled = played["ids"][row][0], played["sampled"][row][0]
    log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return torch.stack([log_p[t - 1, token] for t, token in enumerate(ids) if sampled[t]])


def of_games(played: dict) -> np.ndarray:
    """Return what regret credits each game with."""
    regret = regrets(played).reshape(2, 4)
    return ((regret.mean(1, keepdims=True) - regret) / (regret.std(1, ddof=1, keepdims=True) + EPSILON)).reshape(-1)


def assert_one_step_of_adamw(tensors, model, norm: float) -> None:
    for name, parameter in model.named_parameters():
        gradient = parameter.grad * min(1.0, ONE_STEP.max_grad_norm / norm)
        # The first step's bias-corrected moments are the gradient and its square.
        moved = parameter - ONE_STEP.learning_rate * gradient / (gradient.abs() + ONE_STEP.epsilon)
        torch.testing.assert_close(tensors[name], moved.detach(), atol=1e-6, rtol=0)


def norm_of(model) -> float:
    return torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm().item()


# Advantages


@pytest.mark.parametrize("credit", ["step", "round", "regret"])
def test_in_a_group_of_equal_trajectories_nobody_has_an_advantage_after_all(credit):
    same = np.repeat(np.random.default_rng(0).uniform(0, 10, (1, 5)), 4, axis=0)
    credited = advantages(credit, np.zeros(4, int), same, np.full(4, 3.0))
    assert np.allclose(credited, credited[0])
    assert np.allclose(credited[:, 0], 0)
    if credit != "step":
        assert not credited.any()


def test_regret_credits_all_rounds_with_how_far_it_is_below_the_groups_in_standard_deviations():
    credited = advantages("regret", np.array([0, 0, 0, 7, 7]), np.zeros((5, 2)), np.array([1.0, 2.0, 3.0, 10.0, 30.0]))
    assert credited[:, 0] == pytest.approx([1, 0, -1, 0.5**0.5, -(0.5**0.5)], abs=1e-3)
    assert (credited[:, 0] == credited[:, 1]).all()


def test_round_compares_a_reward_with_the_groups_in_the_same_round_alone():
    rewards = np.array([[1.0, 9.0], [3.0, 5.0]])
    expected = np.array([[-1, 1], [1, -1]]) / 2**0.5
    assert advantages("round", np.zeros(2, int), rewards, np.zeros(2)) == pytest.approx(expected, abs=1e-4)
    later = np.array([[1.0, 9.0], [3.0, 8.0]])
    assert advantages("round", np.zeros(2, int), later, np.zeros(2))[:, 0] == pytest.approx(expected[:, 0], abs=1e-4)


def test_step_credits_a_round_with_its_own_and_all_later_rewards():
    rewards = np.array([[1.0, 9.0, 2.0], [3.0, 5.0, 4.0]])
    normalised = (rewards - 4) / (rewards.std(ddof=1) + EPSILON)
    expected = [[row[t:].sum() for t in range(3)] for row in normalised]
    assert advantages("step", np.zeros(2, int), rewards, np.zeros(2)) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("credit", ["step", "round", "regret"])
def test_scenarios_are_groups_of_their_own(credit):
    numbers = np.random.default_rng(0)
    rewards, regret, scenario = numbers.uniform(0, 10, (6, 4)), numbers.uniform(0, 9, 6), np.array([0, 1] * 3)
    alone = advantages(credit, scenario[::2], rewards[::2], regret[::2])
    assert (advantages(credit, scenario, rewards, regret)[::2] == alone).all()


def test_tokens_belong_to_the_round_in_which_they_were_sampled():
    no, yes = False, True
    dialogue = [[no, no, yes, yes, no, yes, no, no, no, no, yes]]
    assert [row.tolist() for row in rounds_of(dialogue, 3)] == [[-1, -1, 0, 0, -1, 1, -1, -1, -1, -1, 2]]
    summary = [[no, yes, yes], [no, yes], [no, yes]]
    assert [row.tolist() for row in rounds_of(summary, 3)] == [[-1, 0, 0], [-1, 1], [-1, 2]]


def test_a_reply_without_tokens_is_an_error():
    with pytest.raises(ValueError, match="1 replies for 2 rounds"):
        rounds_of([[False, True]], 2)


# Steps


@pytest.mark.parametrize("credit", ["regret", "step", "round"])
def test_the_first_step_is_one_of_reinforce_with_the_groups_mean_as_baseline(credit, base, model):
    result = trained(base, replace(ONE_STEP, reward=credit))
    rewards = np.array(PLAYED["rewards"]).reshape(GAMES, ROUNDS, D)
    got = np.take_along_axis(rewards, np.array(PLAYED["action"])[..., None], axis=2)[..., 0]
    credited = advantages(credit, np.array(PLAYED["scenario"]), got, regrets(PLAYED))
    if credit == "regret":
        assert credited[:, 0] == pytest.approx(of_games(PLAYED))
    terms = []
    for game in range(GAMES):
        (rounds,) = rounds_of(PLAYED["sampled"][game], ROUNDS)
        weights = torch.tensor(credited[game][rounds[rounds >= 0]], dtype=torch.float32)
        terms.append((weights * by_hand(model, PLAYED, game)).mean())
    (-torch.stack(terms).mean()).backward()
    norm = norm_of(model)
    assert result.log[0]["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > ONE_STEP.max_grad_norm
    assert result.log[0]["clipped"] == 0
    assert_one_step_of_adamw(result.tensors, model, norm)


def test_a_second_step_clips_what_has_gone_far_and_lets_it_come_back(base, model, tmp_path):
    far = replace(ONE_STEP, learning_rate=0.02, max_grad_norm=0.0, clip=0.1)
    log = trained(base, replace(far, epochs=2)).log
    once = with_weights(model, written(trained(base, far), tmp_path / "once.safetensors"))
    old = AutoModelForCausalLM.from_pretrained(base.weights, dtype=torch.float32)
    terms, clipped = [], []
    for game, advantage in enumerate(of_games(PLAYED)):
        ratio = (by_hand(once, PLAYED, game) - by_hand(old, PLAYED, game).detach()).exp()
        outside = ratio > 1.1 if advantage > 0 else ratio < 0.9
        terms.append(torch.where(outside, 1.1 if advantage > 0 else 0.9, ratio).mean() * advantage)
        clipped.append(outside.float())
    loss = -torch.stack(terms).mean()
    loss.backward()
    share = torch.cat(clipped).mean().item()
    assert 0.1 < share < 0.9
    assert log[1]["clipped"] == pytest.approx(share, abs=1e-3)
    assert log[1]["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert log[1]["grad_norm"] == pytest.approx(norm_of(once), rel=1e-3)


@pytest.mark.parametrize(("kl", "epochs", "scored"), [(0.0, 1, 0), (0.1, 1, 1), (0.1, 2, 2)])
def test_conversations_are_scored_under_the_base_model_and_where_it_moves_under_the_one_that_played(
    kl, epochs, scored, base
):
    counts = []
    settings = replace(ONE_STEP, kl=kl, epochs=epochs)
    reinforce(PLAYED, base, None, settings, Scoring("mab", "realized"), 1.0, 0, on_scored=counts.append)
    assert counts == [GAMES] * scored


def test_equal_returns_teach_nothing(base, model):
    same = PLAYED | {"action": [np.zeros(ROUNDS, dtype=int)] * GAMES}
    result = trained(base, played=same)
    assert result.log[0]["grad_norm"] == 0
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in result.tensors.items())


def test_tokens_after_the_last_reply_get_no_gradient(base):
    def followed_by(token: int) -> dict:
        return PLAYED | {
            "ids": [[[*ids, token]] for (ids,) in PLAYED["ids"]],
            "sampled": [[[*sampled, False]] for (sampled,) in PLAYED["sampled"]],
        }

    assert as_bytes(trained(base, played=followed_by(7))) == as_bytes(trained(base, played=followed_by(8)))


def test_an_invalid_reply_is_reinforced_like_any_other(base, tuned):
    valid = games(invalid=(slice(0, 0), 0))
    assert valid["ids"] == PLAYED["ids"]
    assert as_bytes(trained(base, played=valid)) == as_bytes(tuned)


@pytest.mark.parametrize("settings", [ONE_STEP, ADAPTED], ids=lambda settings: settings.method)
def test_divergence_is_from_the_base_model_whatever_is_continued(settings, base, model, tmp_path):
    settings = replace(settings, kl=0.5, learning_rate=0.02)
    first = trained(base, settings)
    assert first.log[0]["kl"] == 0
    path = written(first, tmp_path / "first.safetensors")
    log = trained(base, settings, PLAYED, path).log
    theirs = AutoModelForCausalLM.from_pretrained(base.weights, dtype=torch.float32)
    ours = with_weights(theirs, path)
    kl, terms = [], []
    with torch.no_grad():
        for game, advantage in enumerate(of_games(PLAYED)):
            change = by_hand(model, PLAYED, game) - by_hand(ours, PLAYED, game)
            kl.append(change.exp() - change - 1)
            terms.append(advantage - 0.5 * kl[-1].mean())
    assert log[0]["kl"] == pytest.approx(torch.cat(kl).mean().item(), rel=1e-3)
    assert log[0]["kl"] > 1e-3
    assert log[0]["loss"] == pytest.approx(-float(np.mean([float(term) for term in terms])), abs=1e-5)


def test_the_temperature_of_play_is_that_of_the_probabilities(base, model):
    result = trained(base, temperature=2.0)
    for game, advantage in enumerate(of_games(PLAYED)):
        ids, sampled = PLAYED["ids"][game][0], PLAYED["sampled"][game][0]
        log_p = (model(torch.tensor([ids])).logits[0] / 2).log_softmax(-1)
        taken = torch.stack([log_p[t - 1, token] for t, token in enumerate(ids) if sampled[t]])
        (-advantage / GAMES * taken.mean()).backward()
    assert result.log[0]["grad_norm"] == pytest.approx(norm_of(model), rel=1e-4)


def test_several_passes_a_step_give_the_step_of_one_pass(base, tuned):
    parts = trained(base, replace(ONE_STEP, accumulation=4))
    for name, tensor in tuned.tensors.items():
        torch.testing.assert_close(parts.tensors[name], tensor, atol=1e-6, rtol=0)


@pytest.mark.parametrize("settings", [ONE_STEP, ADAPTED], ids=lambda settings: settings.method)
def test_the_same_job_gives_the_same_bytes_and_another_ones_streams_another_order(settings, base):
    def with_words(words: str) -> bytes:
        torch.rand(3)  # whatever happened to the global generator before
        return as_bytes(trained(base, replace(settings, batch_size=2), words=words))

    assert (once := with_words("a")) == with_words("a")
    assert once != with_words("b")


def test_every_epoch_reads_every_game_once(base):
    settings = replace(ONE_STEP, batch_size=2, epochs=3, learning_rate=1e-12)
    steps = []
    log = trained(base, settings, on_step=lambda *step: steps.append(step)).log
    assert [row["epoch"] for row in log] == pytest.approx([(step + 1) / 4 for step in range(12)])
    assert steps == [(row["step"], 12, row["loss"]) for row in log]
    by_epoch = np.array([row["loss"] for row in log]).reshape(3, 4)
    assert by_epoch.mean(axis=1) == pytest.approx(-of_games(PLAYED).mean(), abs=1e-4)
    assert [row["regret"] for row in log] == pytest.approx([regrets(PLAYED).mean()] * 12)


def test_where_one_action_is_always_best_its_probability_rises_to_one(base, model):
    prompt, best, other, rounds = [5, 6, 7], 11, 10, 6
    settings = replace(ONE_STEP, learning_rate=3e-3, max_grad_norm=1.0, epsilon=1e-8, clip=0.2, batch_size=GAMES)
    path, shares = None, []
    numbers = torch.Generator().manual_seed(0)
    folder = Path(base.weights)
    for iteration in range(rounds):
        now = with_weights(model, path) if path else model
        with torch.no_grad():
            p = now(torch.tensor([prompt])).logits[0, -1].softmax(-1)[[best, other]]
        shares.append((p[0] / p.sum()).item())
        # Half of each, whatever the model prefers, so that every group has advantages.
        actions = torch.tensor([0, 1] * 4)[torch.randperm(GAMES, generator=numbers)].numpy()
        rewards = [np.array([9.0, 1.0])] * GAMES
        played = {
            "scenario": [0] * GAMES,
            "trajectory": list(range(GAMES)),
            "d": [D] * GAMES,
            **dict.fromkeys(("rewards", "means", "clipped_means"), rewards),
            "policy": list(np.eye(D)[actions]),
            "action": list(actions[:, None]),
            "fallback": [np.zeros(1, dtype=bool)] * GAMES,
            "ids": [[[*prompt, (best, other)[action]]] for action in actions],
            "sampled": [[[False] * 3 + [True]]] * GAMES,
        }
        result = trained(base, settings, played, path, words=f"iteration-{iteration}")
        path = written(result, folder / "toy.safetensors")
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < 0.9 < shares[-1]


def test_a_summary_is_learnt_from_round_by_round(base, model):
    """Each round of a game is then a conversation of its own, and compared with that round of the others."""
    apart = PLAYED | {"ids": [], "sampled": []}
    for (ids,) in PLAYED["ids"]:
        cut = [0, len(ids) // 3, 2 * len(ids) // 3, len(ids)]
        parts = list(pairwise(cut))
        apart["ids"].append([ids[a:b] for a, b in parts])
        apart["sampled"].append([[False] * 2 + [True] * (b - a - 2) for a, b in parts])
    apart["fallback"] = [np.zeros(ROUNDS, dtype=bool)] * GAMES
    result = trained(base, replace(ONE_STEP, batch_size=GAMES * ROUNDS), apart)
    terms = []
    for game, advantage in enumerate(of_games(PLAYED)):
        for ids in apart["ids"][game]:
            log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            terms.append(advantage * torch.stack([log_p[t - 1, ids[t]] for t in range(2, len(ids))]).mean())
    (-torch.stack(terms).mean()).backward()
    assert result.log[0]["grad_norm"] == pytest.approx(norm_of(model), rel=1e-4)


def test_the_reference_turns_positions_by_the_same_factors_as_the_policy(base, tmp_path):
    """LongRoPE has one set of factors for short texts and one for long texts; the context decides which."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 48}
    torch.manual_seed(1)
    Phi3ForCausalLM(
        Phi3Config(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=CONTEXT, original_max_position_embeddings=48, pad_token_id=0,
            initializer_range=0.5, rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **factors},
        )
    ).save_pretrained(tmp_path)  # fmt: skip
    AutoTokenizer.from_pretrained(base.weights).save_pretrained(tmp_path)
    phi = replace(base, weights=str(tmp_path), context=CONTEXT)
    assert trained(phi, replace(ONE_STEP, kl=0.1)).log[0]["kl"] == 0  # before the first step they are one model


def test_the_reference_is_rounded_as_the_model_that_played(base):
    coarser = replace(base, dtype="bfloat16")  # than the published weights
    assert trained(coarser, replace(ONE_STEP, kl=0.1)).log[0]["kl"] == 0


def test_games_that_outgrow_the_context_are_refused(base):
    with pytest.raises(InputError, match="the context 20; play fewer rounds"):
        trained(replace(base, context=20))


def test_a_loss_that_diverges_stops_the_training(base):
    settings = replace(ONE_STEP, learning_rate=1e30, batch_size=4, max_grad_norm=0.0)
    with pytest.raises(InputError, match=r"grpo\.learning_rate: at 1e\+30 the loss diverges in step 2"):
        trained(base, settings)


def test_nothing_is_printed_or_left_behind(base, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    trained(replace(base, revision="a" * 40), replace(ONE_STEP, kl=0.1))  # of which TRL warns
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_the_reference_is_of_the_pinned_revision_without_asking_the_hub(base, tmp_path):
    """With weights of the hub and no network, nothing but the pinned revision is on the disk."""
    revision = "a" * 40
    cache = tmp_path / "models--org--tiny"
    shutil.copytree(base.weights, cache / "snapshots" / revision)
    listed = {
        name: {"size": 1, "blob_id": "b" * 40}
        for name in (*(file.name for file in Path(base.weights).iterdir()), "README.md")
    }
    (cache / "trees").mkdir()  # the list of the repository's files, of which a job does not download all
    (cache / "trees" / f"{revision}.json").write_text(json.dumps({"format_version": 1, "files": listed}))
    of_hub = replace(base, weights="org/tiny", revision=revision).model_dump_json()
    call = f"from test_grpo import *; base = LanguageModelSettings.model_validate_json({of_hub!r})"
    offline = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    run = [sys.executable, "-c", f"{call}; trained(base, replace(ONE_STEP, kl=0.1))"]
    subprocess.run(run, cwd=Path(__file__).parent, env=offline, check=True)


# Parameters and jobs


@pytest.mark.parametrize("scale", ["paper", "demo"])
def test_budgets_are_those_of_the_papers_table(scale):
    experiments = replace(PARAMS, scale=scale).at_scale().experiments
    ours, step, regret = (experiments[f"{name}"] for name in ("open_mab_qwen", "mab_grpo_step", "mab_grpo_regret"))
    loop = ours.rmft

    def trajectories(of) -> int:
        return of.loop.iterations * of.loop.scenarios * of.loop.trajectories

    assert trajectories(step) == loop.iterations * loop.scenarios * loop.trajectories  # IML
    assert trajectories(regret) == loop.iterations * loop.scenarios * loop.selected  # IMk
    for rival in (step, regret):
        for name, evaluation in rival.evaluations.items():
            assert evaluation == ours.evaluations[name]


def test_games_that_real_conversations_played_are_learnt_from_by_the_command(rmft, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    params = replace(PARAMS, scale="smoke").at_scale()
    playing = rollouts_job(params, "mab_grpo_step", 0, 0, 1)
    problem = playing.problem
    settings = replace(ONE_STEP, reward="step", batch_size=playing.games, learning_rate=1e-4)
    learning = GRPOJob(
        seed=0, stream="a", problem=problem, model=playing.model, grpo=settings, temperature=1.0, mean="nominal"
    )
    games, weights, log = (tmp_path / name for name in ("games.parquet", "model.safetensors", "log.csv"))
    assert rmft("rollouts", "--settings", playing.canonical(), "--output", str(games))[0] == 0
    arguments = ("grpo", "--settings", learning.canonical(), "--rollouts", str(games))
    assert rmft(*arguments, "--output", str(weights), "--log", str(log))[0] == 0
    assert load(playing.model, weights).model.config.model_type == "qwen3"
    header, *rows = log.read_text().splitlines()
    assert header == "step,epoch,loss,learning_rate,grad_norm,kl,clipped,entropy,reward,regret"
    assert len(rows) == 1
    assert json.loads(learning.canonical())["grpo"]["reward"] == "step"
