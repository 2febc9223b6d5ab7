"""LocalChatModel on a memory of slots play as if everything had been fed anew for every token.

The oracle is the plain model (eager attention, no memory) on the whole history.
"""

import copy
import json
import string
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_chat_template import byte_tokenizer
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3nTextConfig,
    Gemma4TextConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen3Config,
    Qwen3NextConfig,
)
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

from rmft.agents import cache
from rmft.agents.chat_tokenizer import TokenCompletion
from rmft.agents.checkpoint import note_model
from rmft.agents.context import check_in_process, context_limit, context_needed
from rmft.agents.local import USED, LanguageModel, LocalChatModel, games_at_a_time, load
from rmft.agents.norms import fuse_norms
from rmft.agents.policy_from_model import policy
from rmft.agents.sampling import LARGE_VOCABULARY, sample
from rmft.agents.weights import fix_rotary_factors, round_stochastically
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings

VOCABULARY = 280
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None, "initializer_range": 0.4,
}  # fmt: skip
WINDOW = 24
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}
CONFIGS = {
    "qwen3": Qwen3Config(num_hidden_layers=2, max_position_embeddings=512, **SMALL),
    "qwen3-sliding": Qwen3Config(
        num_hidden_layers=2, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=0, **SMALL
    ),
    "gemma": Gemma2Config(
        num_hidden_layers=4, sliding_window=WINDOW, max_position_embeddings=512, query_pre_attn_scalar=8,
        attn_logit_softcapping=5.0, final_logit_softcapping=30.0, **SMALL,
    ),
    "gemma-shared": Gemma3nTextConfig(  # whose last two layers read the keys and values of the two before
        num_hidden_layers=4, num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=WINDOW, max_position_embeddings=512, vocab_size_per_layer_input=VOCABULARY, laurel_rank=4,
        hidden_size_per_layer_input=8, altup_num_inputs=2, activation_sparsity_pattern=[0.0] * 4, **SMALL,
    ),
    "phi3": Phi3Config(num_hidden_layers=2, max_position_embeddings=512, sliding_window=400, **SMALL),
    "phi3-long": Phi3Config(
        num_hidden_layers=2, max_position_embeddings=512, original_max_position_embeddings=64, rope_parameters=LONGROPE,
        **SMALL,
    ),
}  # fmt: skip
TEMPLATES = {"qwen3": "qwen3", "gemma": "gemma", "phi3": "phi3_5"}
B, MAX_TOKENS, LONG, ROUNDS, CAPACITY = 3, 9, 50, 5, 500
MESSAGES = ("Your action, please: 1 or 2 or 3?", "It paid 3.25.", "Go on")


def fresh_model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation="eager").eval()


def ready_model(name: str, context: int | None = None) -> LanguageModel:
    """Return a model that is ready for rollouts."""
    model = fresh_model(name)
    fix_rotary_factors(model, context)
    return LanguageModel.of(model, byte_tokenizer(TEMPLATES[name.partition("-")[0]]), context)


def pair(name: str) -> tuple[PreTrainedModel, LanguageModel]:
    """Return the plain model and the same one made ready for rollouts."""
    plain = fresh_model(name)
    if name == "phi3-long":  # it goes by the longest text that it has to do with, which we say is CAPACITY
        plain(input_ids=torch.zeros((1, CAPACITY), dtype=torch.int64))
        plain.model.rotary_emb.rope_type = "default"
    ready = ready_model(name, CAPACITY if name == "phi3-long" else None)
    for model in (plain, ready.model):  # replies end sooner or later
        incline(model, {ready.chat_tokenizer.template.end: 3.0})
    return plain, ready


def incline(model: PreTrainedModel, inclinations: dict[int, float], otherwise: float = 0.0) -> None:
    """Add to the logits of some tokens, and something else to those of all others."""
    bias = torch.full((VOCABULARY,), otherwise)
    for token, inclination in inclinations.items():
        bias[token] = inclination
    model.lm_head.bias = torch.nn.Parameter(bias)


def start(language_model: LanguageModel, rows: int = B, max_tokens: int = MAX_TOKENS) -> LocalChatModel:
    return LocalChatModel(language_model, rows, CAPACITY, max_tokens)


@torch.no_grad()
def plain_logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    """Return the logits (len(ids), V) of the plain model."""
    return model(input_ids=torch.tensor([ids])).logits[0].float()


def uniforms(turn: int, rows: int = B, max_tokens: int = MAX_TOKENS) -> np.ndarray:
    return np.random.default_rng(turn).random((rows, max_tokens))


def ragged(turn: int) -> list[str]:
    """Return messages of different lengths."""
    return [f"{MESSAGES[(turn + row) % 3]}" + "!" * (4 * row) for row in range(B)]


def naive_reply(
    model: PreTrainedModel, ends: frozenset[int], history: list[int], numbers, temperature: float
) -> list[int]:
    """Return the tokens sampled after a history that is fed anew for each of them."""
    written = []
    for number in numbers:
        logits = plain_logits(model, history + written)[-1:]
        written.append(int(sample(logits, torch.tensor([number], dtype=torch.float64), temperature)))
        if written[-1] in ends:
            break
    return written


@pytest.mark.parametrize(("name", "temperature"), [*((name, 1.0) for name in CONFIGS), ("gemma", 0.0)])
def test_replies_are_those_of_a_model_that_reads_everything_anew_for_each_token(name, temperature):
    plain, language_model = pair(name)
    chat_model, histories, lengths = start(language_model), [[] for _ in range(B)], set()
    for t in range(ROUNDS):
        for row, turn in enumerate(chat_model.reply(ragged(t), temperature=temperature, uniforms=uniforms(t))):
            histories[row] += turn.prompt_ids
            expected = naive_reply(
                plain, language_model.chat_tokenizer.ends, histories[row], uniforms(t)[row], temperature
            )
            assert turn.ids[: turn.sampled] == expected
            histories[row] += turn.ids
            lengths.add(turn.sampled)
    assert min(map(len, histories)) > 2 * WINDOW
    assert temperature == 0 or len(lengths) > 2


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_the_plain_forward_pass_past_the_window_and_at_any_length(name):
    plain, language_model = pair(name)
    chat_model, histories = start(language_model), [[] for _ in range(B)]
    random = np.random.default_rng(0)
    for _ in range(12):
        rows = np.sort(random.choice(B, random.integers(1, B + 1), replace=False))
        fed = [
            random.integers(0, VOCABULARY, random.integers(1, 60 if not histories[row] else 9)).tolist() for row in rows
        ]
        logits = chat_model.feed(rows, fed)
        for row, new, after in zip(rows, fed, logits, strict=True):
            histories[row] += new
            torch.testing.assert_close(after, plain_logits(plain, histories[row])[-1], atol=1e-4, rtol=0)
    assert max(map(len, histories)) > 2 * WINDOW


def test_a_reply_cut_short_is_ended_by_us_and_one_that_ended_is_not():
    _, language_model = pair("qwen3")
    chat_model = start(language_model, 40)
    turns = chat_model.reply(["Hello"] * 40, temperature=1.0, uniforms=uniforms(0, 40))
    assert {turn.sampled < MAX_TOKENS for turn in turns} == {True, False}
    for turn in turns:
        ended = turn.ids[turn.sampled - 1] == language_model.chat_tokenizer.template.end
        assert ended or turn.sampled == MAX_TOKENS
        assert len(turn.ids) == turn.sampled + (not ended)
        assert turn.ids[-1] == language_model.chat_tokenizer.template.end
        assert turn.ids.count(turn.ids[-1]) == 1
        chosen = [False] * len(turn.prompt_ids) + [True] * turn.sampled + [False] * (not ended)
        assert turn.replied == chosen
        assert turn.text == language_model.chat_tokenizer.tokenizer.decode(turn.ids[:-1])


def test_a_model_may_end_its_reply_by_a_token_of_its_own_and_the_template_end_is_put_behind():
    plain, _ = pair("qwen3")
    tokenizer = byte_tokenizer("qwen3")
    plain.generation_config.eos_token_id = [100, 101]
    incline(plain, {100: 3.0, 101: 3.0})
    chat_model = start(LanguageModel.of(plain, tokenizer), 40)
    turns = chat_model.reply(["Hello"] * 40, temperature=1.0, uniforms=uniforms(0, 40))
    stopped = [turn for turn in turns if turn.ids[turn.sampled - 1] in (100, 101)]
    assert stopped
    assert all(turn.ids[turn.sampled :] == [chat_model.chat_tokenizer.template.end] for turn in stopped)
    assert all(turn.text == tokenizer.decode(turn.ids[: turn.sampled - 1]) for turn in stopped)


# A long reply overwrites, in the layers with a window, what comes before it: more than the slack.
@pytest.mark.parametrize(("name", "most"), [("gemma", MAX_TOKENS), ("gemma", LONG), ("qwen3-sliding", LONG)])
def test_a_retracted_reply_leaves_no_trace(name, most):
    _, language_model = pair(name)
    if most == LONG:
        incline(language_model.model, {language_model.chat_tokenizer.template.end: -3.0})
    chat_model, other = start(language_model, B, most), start(language_model, B, most)
    assert (most > chat_model.cache.slack) == (most == LONG)
    for t in range(ROUNDS):
        first = chat_model.reply(ragged(t), temperature=1.0, uniforms=uniforms(100 + t, B, most))
        rows = [0, 2] if t % 2 else [1]
        chat_model.retract(rows)
        again = chat_model.reply(None, temperature=1.0, uniforms=uniforms(t, B, most)[rows], rows=rows)
        numbers = uniforms(100 + t, B, most)
        numbers[rows] = uniforms(t, B, most)[rows]
        expected = other.reply(ragged(t), temperature=1.0, uniforms=numbers)
        for row, turn in enumerate(expected):
            answer = again[rows.index(row)] if row in rows else first[row]
            assert (answer.prompt_ids, answer.ids) == (turn.prompt_ids, turn.ids)


def test_a_conversation_is_the_same_whoever_else_talks():
    _, language_model = pair("gemma")
    together, alone = start(language_model), start(language_model, 1)
    for t in range(ROUNDS):
        turns = together.reply(ragged(t), temperature=1.0, uniforms=uniforms(t))
        assert alone.reply(ragged(t)[1:2], temperature=1.0, uniforms=uniforms(t)[1:2])[0].ids == turns[1].ids


def test_a_conversation_that_begins_anew_knows_nothing():
    _, language_model = pair("qwen3-sliding")
    chat_model = start(language_model)
    firsts = []
    for _ in range(3):
        firsts.append([turn.ids for turn in chat_model.reply(ragged(0), temperature=1.0, uniforms=uniforms(0))])
        chat_model.reply(ragged(1), temperature=1.0, uniforms=uniforms(1))
        chat_model.restart()
    assert firsts[0] == firsts[1] == firsts[2]


def test_the_likeliest_tokens_on_record_are_those_of_the_plain_model_at_temperature_one():
    plain, language_model = pair("gemma")
    for turn in start(language_model).reply(ragged(0), temperature=0.5, uniforms=uniforms(0)):
        before = len(turn.prompt_ids)
        logprobs = plain_logits(plain, turn.prompt_ids + turn.ids).log_softmax(-1)[
            before - 1 : before - 1 + turn.sampled
        ]
        best = logprobs.topk(5)
        np.testing.assert_array_equal(turn.top_ids, best.indices)
        np.testing.assert_allclose(turn.top_logprobs, best.values, atol=1e-4)


def test_tokens_are_drawn_from_the_softmax_and_never_one_of_probability_zero():
    logits = torch.tensor([[1.0, -torch.inf, 0.0, 2.0, -torch.inf]]).log_softmax(-1)
    numbers = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1]
    counts = torch.bincount(sample(logits.expand(len(numbers), -1), numbers, 1.0), minlength=5) / len(numbers)
    torch.testing.assert_close(counts, logits[0].exp(), atol=2e-4, rtol=0)
    hot = torch.bincount(sample(logits.expand(len(numbers), -1), numbers, 2.0), minlength=5) / len(numbers)
    torch.testing.assert_close(hot, (logits[0] / 2).softmax(-1), atol=2e-4, rtol=0)
    assert sample(logits.expand(len(numbers), -1), numbers, 0.0).unique().tolist() == [3]


def top(plain: PreTrainedModel, ids: list[int]) -> dict[int, float]:
    """Return the probabilities of the five likeliest tokens after a text."""
    best = plain_logits(plain, ids)[-1].softmax(-1).topk(5)
    return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def enumerated(plain: PreTrainedModel, history: list[int], paths: list[list[int]]) -> np.ndarray:
    """Return the policy over actions that are written as paths, each token by the plain model."""
    weights = []
    for path in paths:
        weight = np.prod([top(plain, history + path[:i]).get(token, 0) for i, token in enumerate(path)])
        onward = {other[len(path)] for other in paths if other[: len(path)] == path and other != path}
        weights.append(weight * (1 - sum(top(plain, history + path).get(token, 0) for token in onward)))
    return np.array(weights) / np.sum(weights)


@pytest.mark.parametrize(("name", "most"), [("qwen3-sliding", MAX_TOKENS), ("qwen3-sliding", LONG), ("gemma", LONG)])
def test_a_policy_is_what_enumerating_the_tokens_of_all_actions_gives_and_asking_for_it_changes_nothing(name, most):
    plain, language_model = pair(name)
    letters = list(string.ascii_letters[:45] + string.digits)  # the tokenizer makes the same tokens of them again
    for model in (plain, language_model.model):
        incline(
            model,
            dict.fromkeys(language_model.chat_tokenizer.tokenizer.convert_tokens_to_ids(letters), 0.0),
            otherwise=-1e4,
        )
    chat_model, twin = start(language_model, B, most), start(language_model, B, most)
    decode, place = language_model.chat_tokenizer.tokenizer.decode, 2
    histories, several = [[] for _ in range(B)], 0

    def reply(model: LocalChatModel, t: int) -> list[TokenCompletion]:
        """Return completions, of which the second one is a second attempt."""
        turns = model.reply(ragged(t), temperature=1.0, uniforms=uniforms(t, B, most))
        model.retract([1])
        again = model.reply(None, temperature=1.0, uniforms=uniforms(100 + t, 1, most), rows=[1])
        return [turns[0], *again, turns[2]]

    for t in range(ROUNDS):
        turns = reply(chat_model, t)
        assert [turn.ids for turn in turns] == [turn.ids for turn in reply(twin, t)]
        rows, spans, names, paths = [], [], [], []
        for row, turn in enumerate(turns):
            histories[row] += turn.prompt_ids
            if turn.sampled > place + 2:
                before = histories[row] + turn.ids[:place]
                firsts = [token for token in top(plain, before) if token != turn.ids[place]]
                seconds = list(top(plain, [*before, firsts[0]]))
                sampled = turn.ids[place : place + 2]
                paths.append([sampled, sampled[:1], firsts[:1], [firsts[0], seconds[0]], [firsts[0], *seconds[:2]],
                              [firsts[1], seconds[0]], [firsts[2]]])  # fmt: skip
                names.append([decode(path) for path in paths[-1]])
                spans.append((len(decode(turn.ids[:place])), len(decode(turn.ids[: place + 2]))))
                rows.append(row)
        policies = chat_model.action_policies([turns[row] for row in rows], spans, [0] * len(rows), names, rows)
        for row, ours, spelled in zip(rows, policies, paths, strict=True):
            expected = enumerated(plain, histories[row] + turns[row].ids[:place], spelled)
            np.testing.assert_allclose(ours, expected, atol=1e-5)
            several += (ours > 1e-3).sum() > 3
        for row, turn in enumerate(turns):
            histories[row] += turn.ids
    assert several > 3


def test_an_action_that_begins_another_has_not_to_go_on_like_it():
    one, ten, two = (10,), (10, 11), (12,)
    known = {(): {10: 0.6, 12: 0.1}, (10,): {11: 0.25, 13: 0.5}}
    np.testing.assert_allclose(policy([one, ten, two], known, 0), np.array([0.45, 0.15, 0.1]) / 0.7)


def test_an_action_outside_the_likeliest_tokens_is_not_in_the_policy_and_if_none_is_inside_it_is_the_action_taken():
    assert policy([(10,), (12,), (14,)], {(): {10: 0.3, 12: 0.1}}, 2).tolist() == pytest.approx([0.75, 0.25, 0])
    assert policy([(10,), (12,)], {(): {1: 1.0}}, 1).tolist() == [0, 1]


def test_a_longer_conversation_than_the_model_reads_is_refused_before_with_the_sum():
    assert context_needed(None, 100, 50, 30, 20) == 100 + 49 * 30 + 50 * 21
    with pytest.raises(
        InputError, match=r"100 \(opening\) \+ 49 × 30 \(feedback\) .* = 2620 tokens; the model reads 2619"
    ):
        context_needed(2619, 100, 50, 30, 20)
    assert context_needed(2620, 100, 50, 30, 20) == 2620


def test_only_a_model_whose_every_layer_slides_reads_without_end():
    assert context_limit(CONFIGS["qwen3-sliding"], None) is None
    assert context_limit(CONFIGS["gemma"], None) == 512
    assert context_limit(CONFIGS["gemma"], 100) == 100
    assert LanguageModel.of(fresh_model("gemma"), byte_tokenizer("gemma"), context=99).chat_tokenizer.limit == 99


def test_long_rope_turns_all_positions_by_the_factors_of_short_texts_unless_the_context_is_longer():
    plain, ids = fresh_model("phi3-long"), torch.arange(60)[None]
    short = ready_model("phi3-long")
    assert short.chat_tokenizer.limit == 64
    assert torch.allclose(short.model(ids, attention_mask=None).logits, plain(ids).logits, atol=1e-5)
    assert not torch.allclose(ready_model("phi3-long", 65).model(ids).logits, plain(ids).logits, atol=1e-2)
    assert ready_model("phi3-long", 65).chat_tokenizer.limit == 65


@pytest.mark.parametrize("name", ["qwen3-sliding", "gemma", "gemma-shared"])
def test_conversations_that_begin_alike_are_read_once_and_go_on_by_themselves(name, monkeypatch):
    _, language_model = pair(name)
    fed = []
    feed = LocalChatModel.feed
    monkeypatch.setattr(
        LocalChatModel, "feed", lambda self, rows, *more: fed.append(len(rows)) or feed(self, rows, *more)
    )
    messages, order = ["Hello", "Hi, you", "Hello", "Hello"], [0, 1, 2, 3]
    together, apart = start(language_model, 4), start(language_model, 4)
    for t in range(3):
        sampled = uniforms(t, 4)
        replies = together.reply(messages, temperature=1.0, uniforms=sampled)
        assert t > 0 or fed[0] == 2
        for row in order:
            (alone,) = apart.reply([messages[row]], temperature=1.0, uniforms=sampled[[row]], rows=[row])
            assert alone.ids == replies[row].ids


@pytest.mark.parametrize("config", [Gemma4TextConfig(), Qwen3NextConfig()], ids=lambda config: config.model_type)
def test_models_with_layers_that_the_cache_does_not_hold_are_refused_in_process_and_have_a_context_elsewhere(config):
    assert context_limit(config, None) == config.max_position_embeddings
    with pytest.raises(InputError, match=f"^{config.model_type}: its kind of attention is not computed in process"):
        check_in_process(config)


def test_a_conversation_that_overflows_is_refused():
    _, language_model = pair("qwen3")
    chat_model = LocalChatModel(language_model, 1, capacity=60, max_tokens=MAX_TOKENS)
    chat_model.reply(["Hi"], temperature=1.0, uniforms=uniforms(0, 1))
    with pytest.raises(InputError, match=r"may grow to \d+ tokens, past 60"):
        chat_model.reply(["Hi" * 20], temperature=1.0, uniforms=uniforms(1, 1))


def peak_bytes(work) -> int:
    """Return the most memory that some work has of torch at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).max())


@pytest.mark.parametrize("name", ["qwen3", "qwen3-sliding", "gemma", "gemma-shared"])
def test_so_many_games_are_played_at_a_time_as_fit_into_memory(name):
    config = copy.deepcopy(CONFIGS[name])
    config.num_hidden_layers = 12
    if kinds := getattr(config, "layer_types", None):
        config.layer_types = kinds[:2] * 6
    for name_of_list in ("intermediate_size", "activation_sparsity_pattern"):
        if isinstance(of_layers := getattr(config, name_of_list, None), list):
            setattr(config, name_of_list, of_layers[:1] * 12)
    model = AutoModelForCausalLM.from_config(config)
    language_model, free = LanguageModel.of(model, byte_tokenizer(TEMPLATES[name.partition("-")[0]])), 15_000_000
    capacity = 400
    fitting = games_at_a_time(language_model, capacity, MAX_TOKENS, 1000, free)
    assert 1 < fitting < 1000
    chat_model = LocalChatModel(language_model, fitting, capacity, MAX_TOKENS)

    def play() -> None:
        chat_model.reply(
            [f"{game:03}" + "Hi" * 138 for game in range(fitting)], temperature=1.0, uniforms=uniforms(0, fitting)
        )
        few = np.r_[: fitting // 4, fitting - 1]
        chat_model.reply(["Hi"] * len(few), temperature=1.0, uniforms=uniforms(1, len(few)), rows=few)

    taken = peak_bytes(play) + sum(memory.nbytes for pair in chat_model.cache.keys_and_values for memory in pair)
    assert 0.7 < taken / (USED * free) <= 1
    assert games_at_a_time(language_model, capacity, MAX_TOKENS, 3, free) == 3
    assert games_at_a_time(language_model, capacity, MAX_TOKENS, 1000, None) == 1000


@pytest.mark.parametrize("name", ["qwen3", "qwen3-sliding"])
def test_our_passes_of_qwen3_give_the_logits_of_transformers(name):
    language_model = ready_model(name)
    ours, theirs = start(language_model), start(replace(language_model, passes=None))
    assert ours.passes
    for length in (30, 1, 7):
        tokens = [[3 + row, *range(10, 10 + length + row)] for row in range(B)]
        logits = [chat_model.feed(np.arange(B), tokens) for chat_model in (ours, theirs)]
        torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


def test_other_models_than_a_plain_qwen3_on_a_cpu_are_left_to_transformers():
    from peft import LoraConfig, get_peft_model

    assert ready_model("gemma").passes is None
    assert LanguageModel.of(fresh_model("qwen3").bfloat16(), byte_tokenizer("qwen3")).passes is None
    adapted = get_peft_model(fresh_model("qwen3"), LoraConfig(r=2, target_modules="all-linear"))
    assert LanguageModel.of(adapted.base_model.model, byte_tokenizer("qwen3")).passes is None


def test_frozen_weights_in_bfloat16_are_not_copied_for_each_conversation():
    """As a merged adapter's are. Torch copies them in products with parts of a tensor."""
    config, rows = copy.deepcopy(CONFIGS["gemma"]), 64
    config.vocab_size = 20_000
    model = AutoModelForCausalLM.from_config(config).bfloat16().requires_grad_(False)
    chat_model = start(LanguageModel.of(model, byte_tokenizer("gemma")), rows)

    def feed() -> None:
        chat_model.feed(np.arange(rows), [[7] * MAX_TOKENS] * rows)

    feed()  # which makes the cache
    assert peak_bytes(feed) < rows * model.lm_head.weight.nbytes / 2


def test_a_conversation_that_fits_into_no_memory_is_refused():
    with pytest.raises(InputError, match=r"cpu has 0\.0 GB beside the weights, .* 500 tokens takes 0\.\d"):
        games_at_a_time(ready_model("qwen3"), CAPACITY, MAX_TOKENS, 1000, 10_000)


def test_rows_may_come_in_any_order():
    _, language_model = pair("gemma")
    chat_model, other = start(language_model), start(language_model)
    order = [2, 0, 1]
    for t in range(2):
        turns = chat_model.reply(ragged(t), temperature=1.0, uniforms=uniforms(t))
        shuffled = [ragged(t)[row] for row in order]
        for row, turn in zip(
            order, other.reply(shuffled, temperature=1.0, uniforms=uniforms(t)[order], rows=order), strict=True
        ):
            assert turn.ids == turns[row].ids


@pytest.mark.parametrize("name", CONFIGS)
def test_a_conversation_goes_on_from_its_beginning_or_from_anothers_as_if_the_rest_had_not_been(name):
    plain, language_model = pair(name)
    chat_model, rows = start(language_model, 5), np.array([1, 3])
    random = np.random.default_rng(0)
    history, other, new = (random.integers(0, VOCABULARY, (2, length)).tolist() for length in (90, 40, 6))
    assert chat_model.chunk > max(map(len, new))
    chat_model.feed(rows, other)
    for row in rows:
        chat_model.go_back(row, 0)
    chat_model.feed(rows, history)
    for back in (chat_model.chunk, 2 * chat_model.chunk, 70, 0):
        kept = len(history[0]) - back
        if chat_model.way_back(1, kept) == kept:
            chat_model.copy(1, 4)
            chat_model.go_back(4, kept)
            logits = chat_model.feed(np.array([4]), new[:1])
            torch.testing.assert_close(
                logits[0], plain_logits(plain, history[0][:kept] + new[0])[-1], atol=1e-4, rtol=0
            )
        else:
            assert chat_model.cache.slack is not None
            assert back > chat_model.chunk
    chat_model.copy(1, 4)
    chat_model.go_back(4, len(history[0]) - chat_model.chunk)
    further = len(history[0]) - chat_model.chunk - 1
    assert chat_model.way_back(4, further) == (further if chat_model.cache.slack is None else 0)  # in two steps neither
    chat_model.go_back(3, len(history[1]) - 5)
    logits = chat_model.feed(rows, new)
    for row, text in enumerate((history[0] + new[0], history[1][:-5] + new[1])):
        torch.testing.assert_close(logits[row], plain_logits(plain, text)[-1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_bookmark_leads_back_however_many_tokens_follow_it(name):
    plain, language_model = pair(name)
    chat_model, random = start(language_model, 5), np.random.default_rng(0)
    begun, rest, new = (random.integers(0, VOCABULARY, length).tolist() for length in (40, 60, 6))
    chat_model.feed(np.array([1]), [begun])
    chat_model.bookmark(1, 38)
    for _ in range(2):  # it may be used again
        chat_model.feed(np.array([1]), [rest])
        chat_model.copy(1, 4)
        for row in (4, 1):
            assert chat_model.way_back(row, 39) == (39 if chat_model.cache.slack is None else 38)
            chat_model.go_back(row, 38)
            logits = chat_model.feed(np.array([row]), [new])
            torch.testing.assert_close(logits[0], plain_logits(plain, begun[:38] + new)[-1], atol=1e-4, rtol=0)
        chat_model.go_back(1, 38)
        chat_model.feed(np.array([1]), [begun[38:]])
    chat_model.go_back(1, 0)
    chat_model.feed(np.array([1]), [begun + rest])
    assert chat_model.way_back(1, 39) == (39 if chat_model.cache.slack is None else 0)  # not in another conversation


@pytest.mark.parametrize("rows", [[0, 4], [2, 3, 4], [1, 2, 4, 5, 6, 7], [7], list(range(8))])
def test_whether_few_lanes_are_gathered_or_many_computed_in_place_is_all_the_same(rows):
    plain, language_model = pair("gemma")
    chat_model, random = start(language_model, 8), np.random.default_rng(0)
    histories = [[] for _ in range(8)]
    for length in (40, 1, 1, 7):
        fed = random.integers(0, VOCABULARY, (len(rows), length)).tolist()
        logits = chat_model.feed(np.array(rows), fed)
        for row, new, after in zip(rows, fed, logits, strict=True):
            histories[row] += new
            torch.testing.assert_close(after, plain_logits(plain, histories[row])[-1], atol=1e-4, rtol=0)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model and its tokenizer."""
    fresh_model("qwen3").save_pretrained(tmp_path / "model")
    byte_tokenizer("qwen3").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def settings_of(weights, revision=None) -> LanguageModelSettings:
    return LanguageModelSettings(
        kind="language", weights=str(weights), revision=revision, dtype="float32", device="cpu", batch=8
    )


def said_by(language_model: LanguageModel) -> list[list[int]]:
    return [turn.ids for turn in start(language_model).reply(ragged(0), temperature=1.0, uniforms=uniforms(0))]


def test_a_loaded_model_talks_as_the_one_that_was_saved_and_tuned_weights_replace_its_own(folder, tmp_path):
    language_model = LanguageModel.of(fresh_model("qwen3"), byte_tokenizer("qwen3"))
    assert said_by(load(settings_of(folder))) == said_by(language_model)
    other = fresh_model("qwen3")
    with torch.no_grad():
        other.model.norm.weight += 0.5
    save_file({name: tensor.clone() for name, tensor in other.state_dict().items()}, tmp_path / "tuned.safetensors")
    tuned = load(settings_of(folder), tmp_path / "tuned.safetensors")
    assert said_by(tuned) == said_by(LanguageModel.of(other, byte_tokenizer("qwen3"))) != said_by(language_model)


def test_fused_norms_give_the_logits_of_plain_ones_and_norms_of_another_form_stay():
    model, ids = fresh_model("qwen3"), list(range(2, 40))
    plain = plain_logits(model, ids)
    fuse_norms(model)
    assert sum(is_replaced(module) for module in model.modules()) == 4 * CONFIGS["qwen3"].num_hidden_layers + 1
    assert torch.allclose(plain_logits(model, ids), plain, atol=1e-5)
    plain = LlamaRMSNorm(8)
    centred, gated, optionally_gated = CohereLayerNorm(8), Qwen3NextRMSNormGated(8), MambaRMSNormGated(8, 8)
    norms = torch.nn.ModuleList([plain, LlamaRMSNorm(8).double(), centred, gated, optionally_gated, Gemma3RMSNorm(8)])
    norms.dtype = torch.float32
    fuse_norms(norms)
    assert [norm for norm in norms if is_replaced(norm)] == [plain]


def is_replaced(module: torch.nn.Module) -> bool:
    return "forward" in vars(module)


def test_attention_takes_what_a_kernel_returns_in_whichever_layout(monkeypatch):
    history = said_by(ready_model("qwen3"))

    def as_on_gpus(*arguments, **options):  # those of PyTorch's memory-efficient kernel are stored token by token
        return scaled_dot_product_attention(*arguments, **options).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(cache, "scaled_dot_product_attention", as_on_gpus)
    assert said_by(ready_model("qwen3")) == history


def test_an_adapter_in_one_file_is_merged_into_the_weights(folder, tmp_path):
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(fresh_model("qwen3"), config)
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(weight, std=0.3)
    settings = {key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()}
    metadata = {"adapter_config": json.dumps(settings)}
    save_file(get_peft_model_state_dict(adapted), tmp_path / "adapter.safetensors", metadata)
    tuned = load(settings_of(folder), tmp_path / "adapter.safetensors")
    assert not any("lora" in name for name, _ in tuned.model.named_parameters())
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(tuned.model(ids).logits, adapted(ids).logits, atol=1e-4, rtol=0)


def test_what_an_adapter_adds_survives_in_weights_of_few_digits_as_it_would_not_by_rounding_to_the_nearest():
    generator = torch.Generator().manual_seed(0)
    weight, added = (torch.randn(512, 512, generator=generator) * std for std in (2e-2, 4e-5))
    weight = weight.bfloat16().float()

    def survives(rounded: torch.Tensor) -> float:
        return float(((rounded.float() - weight) * added).sum() / (added**2).sum())

    rounded = round_stochastically(weight + added, torch.bfloat16, 0, "q_proj")
    assert survives(rounded) == pytest.approx(1, abs=0.02)
    assert survives((weight + added).bfloat16()) < 0.9
    neighbours = torch.stack([torch.nextafter(rounded, torch.full_like(rounded, end)) for end in (-9, 9)])
    assert (((weight + added) >= neighbours[0].float()) & ((weight + added) <= neighbours[1].float())).all()
    assert torch.equal(rounded, round_stochastically(weight + added, torch.bfloat16, 0, "q_proj"))
    assert not torch.equal(rounded, round_stochastically(weight + added, torch.bfloat16, 0, "k_proj"))
    assert not torch.equal(rounded, round_stochastically(weight + added, torch.bfloat16, 0, "open_mab/1", "q_proj"))
    assert torch.equal(round_stochastically(weight + added, torch.float32, 0, "q_proj"), weight + added)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (settings_of("no/such-folder"), "pinned revision"),
        (settings_of("nobody/nothing", revision="0" * 40), "Download it first .* or use scale: demo"),
        (settings_of("/no/such/folder", revision="0" * 40), "/no/such/folder: Repo id must be"),
    ],
)
@pytest.mark.parametrize("have", [load, note_model])
def test_a_model_that_cannot_be_had_is_a_line_that_says_what_to_do(settings, words, have, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=words) as refusal:
        have(settings)
    assert "\n" not in str(refusal.value)


def test_a_damaged_folder_is_a_line_that_names_it(folder):
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(InputError, match="a file in it is damaged") as refusal:
        load(settings_of(folder))
    assert "\n" not in str(refusal.value)


def test_a_folder_that_lacks_a_tensor_is_refused(folder):
    """Transformers would draw it at random."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.0.mlp.down_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"its weights lack model\.layers\.0\.mlp\.down_proj\.weight"):
        load(settings_of(folder))


@pytest.mark.parametrize("vocabulary", [8, LARGE_VOCABULARY + 1])
def test_probabilities_that_are_not_finite_are_refused(vocabulary):
    logits = torch.zeros(2, vocabulary)
    logits[1, 3] = torch.nan
    with pytest.raises(InputError, match="probabilities are not finite"):
        sample(logits, torch.tensor([0.5, 0.5], dtype=torch.float64), 1.0)


def test_weights_of_another_model_are_refused(folder, tmp_path):
    save_file({"stranger": torch.zeros(3)}, tmp_path / "tuned.safetensors")
    with pytest.raises(InputError, match=r"tuned\.safetensors: not weights of a qwen3"):
        load(settings_of(folder), tmp_path / "tuned.safetensors")


@pytest.mark.parametrize("temperature", [0.0, 1e-40, 1e-30, 1e-12])
def test_next_to_no_temperature_is_the_likeliest_token(temperature):
    logits = torch.tensor([[3.0, 60.0, -50.0], [0.0, -1.0, 2.0]])
    assert sample(logits, torch.tensor([0.999, 0.001]), temperature).tolist() == [1, 2]


def test_a_large_vocabulary_is_sampled_as_a_small_one_is():
    vocabulary = LARGE_VOCABULARY + 777
    logits = torch.randn((40, vocabulary), generator=torch.Generator().manual_seed(0)) * 4
    logits[0, :] = -torch.inf  # all the mass is on the first token, or on the last
    logits[0, 0] = 0.0
    logits[1, :] = -torch.inf
    logits[1, -1] = 0.0
    numbers = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    numbers[2], numbers[3] = 0.0, 1 - 2**-53
    below = logits.softmax(dim=-1).double().cumsum(dim=-1)
    exact = torch.searchsorted(below, (numbers * below[:, -1])[:, None], right=True)[:, 0]
    sampled = sample(logits, numbers, 1.0)
    # Sums in single precision may put a token's bound elsewhere by 1e-7, where a number hardly ever falls.
    assert (sampled == exact).double().mean() >= 0.95
    assert logits.gather(1, sampled[:, None]).isfinite().all()
