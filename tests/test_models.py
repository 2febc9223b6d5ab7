"""The embedded model: what it is taught is true, its gate notices what is not, and what is shipped is what was made."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from rmft.embedded_model.corpus import (
    MILD,
    STRONG,
    STYLES,
    Corpus,
    MadeUpScenarios,
    ScriptedPlayer,
    even,
    leaning,
)
from rmft.embedded_model.fidelity import LEAST, TOLERANCE, checks, examine_all, failures
from rmft.embedded_model.tokenizer import build_tokenizer
from rmft.environments import draw_rewards
from rmft.errors import InputError
from rmft.language.parsing import parse
from rmft.language.prompts import Prompts
from rmft.language.protocol import NOT_LEARNT, Protocol, Round, all_protocols
from rmft.params import load as load_params
from rmft.params.language_model import Coverage
from rmft.streams import stream
from rmft.workflow.plan import models_job

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "data/models/embedded"
EVERY = [protocol for d in (2, 3, 4, 5) for protocol in all_protocols(d)]
every_protocol = pytest.mark.parametrize("protocol", EVERY, ids=lambda p: "-".join(map(str, vars(p).values())))


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return Prompts.load(ROOT / "data/prompts/plain")


@pytest.fixture(scope="module")
def corpora() -> dict[str, Coverage]:
    return load_params(ROOT / "params.yaml").pretraining.corpora


@pytest.fixture(scope="module")
def coverage(corpora) -> Coverage:
    return corpora["embedded"]


def game(protocol: Protocol, style: str, seed: int, rounds: int = 12) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Let a scripted player play; return its replies, the rewards (T, d) and its actions (T,)."""
    rng = np.random.default_rng(seed)
    rewards = np.round(rng.uniform(0, 10, (rounds, protocol.d)), 2)
    player = ScriptedPlayer(protocol, style, np.full(protocol.d, 5), rng)
    replies, actions, last = [], [], None
    for t in range(rounds):
        reply, action, policy = player.reply(last)
        replies.append(reply)
        actions.append(action)
        last = Round(t + 1, action, policy, tuple(rewards[t]))
    return replies, rewards, np.array(actions)


def shares(protocol: Protocol, replies: list[str], rewards: np.ndarray, actions: np.ndarray) -> dict[str, float]:
    """Return the share of what is right, by check."""
    valid = [parse(reply, protocol, TOLERANCE) is not None for reply in replies]
    found = list(checks(protocol, replies, valid, rewards, actions))
    names = {name for right in found for name in right}
    return {name: np.mean([value for right in found for value in right.get(name, [])]) for name in names}


@every_protocol
def test_scripted_players_pass_the_gate_whatever_their_style(protocol):
    for seed, style in enumerate(STYLES[protocol.interaction, protocol.output]):
        found = shares(protocol, *game(protocol, style, seed))
        assert found["valid"] == 1
        assert set(found.values()) == {1}
        reasons = protocol.format == "with-reasoning"
        assert ("quotes" in found) == reasons
        assert ("carries" in found) == (reasons and protocol.interaction == "dialogue")


@pytest.mark.parametrize(
    ("before", "after", "check"),
    [
        ("Highest score: {a}.\nAction: {a}", "Highest score: {a}.\nAction: {b}", "agrees"),
        ("paid {r},", "paid 0.01,", "quotes"),
        ("good:", "poor:", "quotes"),
        ("goes from {s}", "goes from 0", "carries"),
        ("Scores: 1=", "Scores: 1=0, not ", "carries"),
        ("Action: {a}", "Action: 7", "valid"),
    ],
)
def test_each_kind_of_untruth_is_noticed_by_its_check_alone(before, after, check):
    protocol = Protocol("dialogue", "action", "bandit", "with-reasoning", 3)
    replies, rewards, actions = game(protocol, "tally", 0)
    t = next(t for t in range(3, 12) if rewards[t - 1, actions[t - 1]] >= 5 and actions[t] > 0)
    words = {
        "a": actions[t] + 1,
        "b": actions[t],
        "r": f"{rewards[t - 1, actions[t - 1]]:.2f}",
        "s": replies[t].partition("goes from ")[2][0],
    }
    assert before.format(**words) in replies[t]
    replies[t] = replies[t].replace(before.format(**words), after.format(**words))
    found = shares(protocol, replies, rewards, actions)
    wrong = {name for name, share in found.items() if share < 1 and name in LEAST}
    assert check in wrong
    assert wrong <= {check, "carries"}  # a score that is wrong once, or not stated, is wrong for the next reply too


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_policies_as_they_are_written_are_policies(d):
    for policy in (even(d), *(leaning(d, a, weight[d]) for a in range(d) for weight in (STRONG, MILD))):
        assert sum(policy) == pytest.approx(1, abs=TOLERANCE)
        written = f"Policy: [{', '.join(f'{p:.2f}' for p in policy)}]"
        read = parse(written, Protocol("dialogue", "distribution", "full", "policy-only", d), TOLERANCE)
        np.testing.assert_allclose(read.policy, np.array(policy) / sum(policy))


def test_a_game_keeps_one_style_from_beginning_to_end(prompts, coverage):
    rng = np.random.default_rng(0)
    corpus = Corpus(0, rng, coverage, prompts, MadeUpScenarios(rng))
    for _ in range(200):
        turns = corpus.game(6, STYLES)
        if "Highest score:" in turns[0].reply:
            assert all("Highest score:" in turn.reply for turn in turns)


def test_what_follows_from_nothing_seen_is_not_learnt(prompts, coverage):
    rng = np.random.default_rng(1)
    corpus = Corpus(0, rng, coverage, prompts, MadeUpScenarios(rng))
    for _ in range(300):
        first, *later = corpus.game(4, STYLES)
        begun = first.message.startswith("You make")
        assert all(turn.learnt for turn in later)
        assert first.learnt or not begun
        assert first.learnt == (begun or "Reason briefly" not in first.message)


def test_the_narrow_corpus_holds_nothing_that_its_coverage_leaves_out(prompts, corpora):
    narrow, rng = corpora["embedded-narrow"], np.random.default_rng(0)
    corpus = Corpus(0, rng, narrow, prompts, MadeUpScenarios(rng))
    messages = [turn.message for _ in range(500) for turn in corpus.game(9, STYLES)]
    assert {int(round_) for text in messages for round_ in re.findall(r"[Rr]ound (\d+)", text)} <= set(range(1, 26))
    assert not any(re.search(r"\b4 actions|You run a", text) for text in messages)
    assert {d: rewards.shape for d, rewards in corpus.rewards.items()} == {3: (140, 25, 3)}
    drawn = draw_rewards(0, "corpus-3", ["gaussian"], (140, 25, 3)).rewards
    np.testing.assert_array_equal(corpus.rewards[3], drawn)


@pytest.mark.parametrize("covered", [[2], [4], [5], [3, 4]])
def test_the_gate_examines_every_number_of_actions_that_a_corpus_covers(monkeypatch, corpora, covered):
    examined = []
    monkeypatch.setattr(
        "rmft.embedded_model.fidelity.examine",
        lambda *arguments, named: examined.append((*arguments[-2:], named)) or iter(()),
    )
    narrow = corpora["embedded-narrow"].model_copy(update={"d": covered})
    list(examine_all(None, narrow, None, 0, 1))
    assert sorted(examined) == sorted((25 if d == 3 else 15, d, False) for d in covered)


def test_a_model_that_does_not_pass_its_gate_is_kept_but_not_where_experiments_read_it(tmp_path, monkeypatch, corpora):
    from rmft.stages.models import run

    params = load_params(ROOT / "params.yaml")
    sizes = {"prompts": str(ROOT / "data/prompts/plain"), "steps": 1, "warmup_steps": 1, "rows": 1, "gate_games": 1}
    corpus = corpora["embedded-narrow"].model_copy(update={"T": 3})
    settings = params.pretraining.model_copy(update={**sizes, "corpora": {"embedded-narrow": corpus}})
    job = models_job(params, "embedded-narrow").model_copy(update={"pretraining": settings})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rmft.stages.models.MAX_TOKENS", 8)  # of replies that are nonsense
    kept = Path("scratch/models/embedded-narrow")
    with pytest.raises(InputError, match=f"does not pass its gate: valid 0.*; it is kept in {kept}"):
        run(job, Path("results/models/embedded-narrow"))
    assert {"model.safetensors", "tokenizer.json", "fidelity.csv"} <= {path.name for path in kept.iterdir()}
    assert not Path("results").exists()


def test_rows_hold_whole_games_and_labels_only_what_is_learnt(prompts, coverage):
    from transformers import AutoTokenizer

    from rmft.embedded_model.pretraining import PackedGames

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    rng = np.random.default_rng(0)
    ids, labels = PackedGames(tokenizer, Corpus(0, rng, coverage, prompts, MadeUpScenarios(rng)), 512).batch(4, STYLES)
    assert ids.shape == labels.shape == (4, 512)
    assert bool(((labels == NOT_LEARNT) | (labels == ids)).all())
    user, assistant, end, pad = tokenizer.convert_tokens_to_ids(["<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"])
    assert not np.isin(labels, [user, assistant, pad]).any()
    for row in ids.tolist():
        assert row.count(user) == row.count(assistant) == row.count(end) > 2
        assert row[0] == user


def test_the_shipped_tokenizer_is_what_the_templates_give_and_is_true_to_the_letter(prompts, coverage):
    """Where this fails, templates or players have changed, and the shipped model does not know: `snakemake models`."""
    from transformers import AutoTokenizer

    shipped, made = AutoTokenizer.from_pretrained(SHIPPED), build_tokenizer(0, coverage, prompts)
    assert shipped.get_vocab() == made.get_vocab()
    rng = np.random.default_rng(2)
    corpus = Corpus(0, rng, coverage, prompts, MadeUpScenarios(rng))
    for turn in (turn for _ in range(50) for turn in corpus.game(3, STYLES)):
        for text in (turn.message, turn.reply):
            assert shipped.decode(shipped(text).input_ids, clean_up_tokenization_spaces=False) == text


def test_the_shipped_fidelity_passes_the_gate_in_every_protocol():
    with (SHIPPED / "fidelity.csv").open(encoding="utf-8") as file:
        rows = [{**row, "value": float(row["value"]), "d": int(row["d"])} for row in csv.DictReader(file)]
    assert failures(rows) == []
    kinds = {(row["interaction"], row["output"], row["feedback"], row["format"]) for row in rows}
    assert len(kinds) == 16
    assert {row["rounds"] for row in rows} >= {"1-25", "26-50", "51-100"}
    worse = [{**row, "value": row["value"] - 0.02} for row in rows]
    assert len(failures(worse)) > 10


def test_the_shipped_model_says_what_is_true(prompts):
    from rmft.agents.local import LocalChatModel, load
    from rmft.embedded_model.fidelity import CONTEXT, MAX_TOKENS
    from rmft.language.game import GameSettings, RandomNumbers, play_in_words

    model = load(load_params(ROOT / "params.yaml").models["embedded"].model_copy(update={"weights": str(SHIPPED)}))
    protocol = Protocol("dialogue", "action", "bandit", "with-reasoning", 3)
    rewards = draw_rewards(1, "shipped", ["uniform"], (16, 8, 3)).rewards
    ids = np.stack([np.arange(16), np.zeros(16, dtype=int)], axis=1)
    rules = GameSettings(prompts, protocol, temperature=1.0, retries=0, tolerance=TOLERANCE)
    transcript = play_in_words(
        LocalChatModel(model, 16, CONTEXT, MAX_TOKENS), rewards, rules, RandomNumbers(1, "shipped", ids)
    )
    found = [
        shares(protocol, [replies[game] for replies in transcript.replies], rewards[game], transcript.actions[:, game])
        for game in range(16)
    ]
    for check in LEAST:
        assert np.mean([of[check] for of in found]) > 0.97


def test_streams_of_the_corpus_are_named(coverage):
    first, again = (Corpus(3, stream(3, "environment", "corpus"), coverage, None, None).rewards[2] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_muon_in_float32_takes_the_steps_of_torch_but_for_their_rounding():
    torch = pytest.importorskip("torch")
    from rmft.embedded_model.muon import Muon

    torch.manual_seed(0)
    shapes = [(16, 48), (48, 16), (24, 24)]
    start = [torch.randn(shape) for shape in shapes]
    ours, theirs = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = [
        Muon(ours, weight_decay=0.1),
        torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.02
            optimizer.step()
    for before, mine, other in zip(start, ours, theirs, strict=True):
        assert (mine - other).norm() < 0.02 * (other - before).norm()
