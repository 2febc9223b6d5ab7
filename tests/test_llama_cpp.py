"""Games played by llama.cpp are those that a model in process plays, on a tiny GGUF file made here.

The temperature is almost zero, so that it does not matter who samples.
"""

import re

import numpy as np
import pytest
import torch
from httpx2 import Client
from peft import LoraConfig, get_peft_model
from pydantic import ValidationError
from test_vllm import assert_same_games, job, played, problem
from tiny_gguf import CHATML, write_tiny_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from rmft.agents.checkpoint import load_chat_tokenizer
from rmft.agents.llama_cpp_adapter import permuted, write_adapter
from rmft.agents.llama_cpp_servers import serving, start_llama_cpp
from rmft.agents.local import LocalChatModel, load
from rmft.agents.memory import say_memory_to_play, say_memory_to_play_gguf, size_of_model
from rmft.agents.served import ServedChatModel
from rmft.artifacts.tensors import read_tensors, write_tensors
from rmft.errors import InputError
from rmft.params.language import check_trainable
from rmft.params.language_model import LanguageModelSettings, LlamaCpp
from rmft.training.trainable import to_write

EXACT = ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"]  # by default llama.cpp rounds to half
LLAMA_CPP = LlamaCpp(threads=1, arguments=EXACT)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def in_process(gguf, tmp_path_factory):
    """Return the settings of the same model in process."""
    folder = tmp_path_factory.mktemp("converted")
    config = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=config, dtype=torch.float32
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    return LanguageModelSettings(kind="language", weights=str(folder), dtype="float32", device="cpu", batch=8)


@pytest.fixture(scope="module")
def llama_cpp(gguf, in_process):
    """Return the settings of the model in llama.cpp."""
    found = {"weights": str(gguf), "converted": in_process.weights}
    return in_process.model_copy(update={**found, "llama_cpp": LLAMA_CPP})


@pytest.fixture(scope="module")
def adapter(in_process, tmp_path_factory):
    """Return the file of an adapter with random weights, for all linear layers."""
    model = AutoModelForCausalLM.from_pretrained(in_process.weights, dtype=torch.float32)
    torch.manual_seed(0)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    adapted = get_peft_model(model, lora)
    path = tmp_path_factory.mktemp("adapter") / "adapter.safetensors"
    write_tensors(path, *to_write(adapted, adapted.state_dict(), torch.float32, 0, ()))
    return path


@pytest.fixture(params=["base", "adapter"])
def both(request, in_process, llama_cpp, adapter, tmp_path):
    """Return the chat model in llama.cpp, and the one in process, each in three conversations."""
    weights = adapter if request.param == "adapter" else None
    chat_tokenizer = load_chat_tokenizer(in_process)
    games = np.array([[0, 0], [0, 1], [1, 0]])
    with start_llama_cpp(llama_cpp, weights, chat_tokenizer, 600, tmp_path / "log") as client:
        yield (
            ServedChatModel(client, chat_tokenizer, games, 24),
            LocalChatModel(load(in_process, weights), len(games), 600, 24),
        )


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_games_are_those_of_a_model_in_process(in_process, llama_cpp, interaction, tmp_path, monkeypatch):
    told = problem(interaction)
    told = told.model_copy(update={"protocol": told.protocol.model_copy(update={"max_tokens": 12})})
    monkeypatch.chdir(tmp_path)
    assert_same_games(played(job(llama_cpp, told)), played(job(in_process, told)))


def test_a_server_that_does_not_start_is_told_with_the_file_that_says_why(llama_cpp, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_text("no GGUF file")
    with pytest.raises(InputError, match=r"llama_cpp: a server ended with exit code \d+; logs/llama_cpp/rollouts.log"):
        played(job(llama_cpp.model_copy(update={"weights": str(damaged)}), problem()))


def test_an_adapter_of_another_model_is_refused(gguf, adapter, tmp_path):
    tensors, metadata = read_tensors(adapter)
    wide = {name: torch.zeros(4, 99) if name.endswith("q_proj.lora_A.weight") else of for name, of in tensors.items()}
    write_tensors(tmp_path / "wide.safetensors", wide, metadata)
    with pytest.raises(
        InputError, match=r"wide.safetensors: llama.cpp has no layer .*q_proj of this shape in tiny.gguf"
    ):
        write_adapter(tmp_path / "wide.safetensors", gguf, tmp_path / "adapter.gguf")


def test_query_and_key_rows_of_llamas_are_put_where_llama_cpp_rotates_them():
    rows = np.arange(2 * 6 * 3).reshape(12, 3)  # two heads of six rows, of which row i is rotated with row i + 3
    put = permuted(rows, 2)
    for head in (0, 1):
        for i in range(3):
            np.testing.assert_array_equal(put[6 * head + 2 * i], rows[6 * head + i])
            np.testing.assert_array_equal(put[6 * head + 2 * i + 1], rows[6 * head + i + 3])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weights": "some/folder"}, "llama_cpp: plays GGUF files, and weights: some/folder is none"),
        (
            {"vllm": {"command": ["vllm"], "servers": 1, "gpus": 0, "concurrency": 1}},
            "vllm plays",
        ),
    ],
)
def test_settings_that_llama_cpp_cannot_play_are_refused(change, reason):
    right = {
        "kind": "language",
        "weights": "any.gguf",
        "dtype": "float32",
        "device": "cpu",
        "batch": 1,
        "llama_cpp": {},
    }
    LanguageModelSettings.model_validate(right)
    with pytest.raises(ValidationError, match=reason):
        LanguageModelSettings.model_validate(right | change)


def test_full_fine_tuning_is_refused_for_a_model_in_llama_cpp(llama_cpp):
    check_trainable("experiments.mine", "any", llama_cpp, "adapter.safetensors")
    with pytest.raises(ValueError, match=r"^experiments.mine: method: full: any is played by llama_cpp.*lora$"):
        check_trainable("experiments.mine", "any", llama_cpp, "model.safetensors")


def assert_same_completions(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.ids == other.ids
        assert one.prompt_ids == other.prompt_ids
        known = one.top_logprobs[:, 0] > -np.inf  # none inside a character
        assert known.mean() > 0.3
        np.testing.assert_array_equal(one.top_ids[known, 0], other.top_ids[: one.sampled][known, 0])
        np.testing.assert_allclose(one.top_logprobs[known], other.top_logprobs[: one.sampled][known], atol=1e-4)


def test_conversations_are_those_of_a_model_in_process(both):
    numbers = np.random.default_rng(0).random((3, 24))
    for messages in (["Play.", "the action?", "x"], ["reward 1", "", "the round"]):
        replies = [model.reply(messages, temperature=0.0, uniforms=numbers) for model in both]
        assert_same_completions(*replies)
    for model in both:
        model.retract([1, 2])
    again = [model.reply(None, temperature=0.0, uniforms=numbers[1:], rows=[1, 2]) for model in both]
    assert_same_completions(*again)
    assert again[0][0].ids == replies[0][1].ids
    replies = [model.reply(["third"], temperature=0.0, uniforms=numbers[:1], rows=[1]) for model in both]
    assert_same_completions(*replies)


def test_policies_behind_actions_are_those_of_a_model_in_process(both):
    numbers = np.random.default_rng(0).random((3, 24))
    for messages in (["Play.", "the action?", "x"], ["reward 1", "", "the round"]):
        replies = [model.reply(messages, temperature=0.0, uniforms=numbers) for model in both]
    tokenizer = both[1].chat_tokenizer.tokenizer
    rows, spans, names = zip(*could_be_actions(tokenizer, replies[1]), strict=True)
    policies = [
        model.action_policies([completions[row] for row in rows], spans, [0] * len(rows), names, rows)
        for model, completions in zip(both, replies, strict=True)
    ]
    assert np.ptp(policies[1], axis=1).min() > 0.01
    np.testing.assert_allclose(*policies, atol=1e-4)
    replies = [model.reply(["third"] * 3, temperature=0.0, uniforms=numbers) for model in both]
    assert_same_completions(*replies)


def could_be_actions(tokenizer, completions):
    """Return a conversation, the span of a letter in it, and what else could stand there."""
    for row, completion in enumerate(completions):
        for i, sampled in enumerate(completion.ids[: completion.sampled]):
            letter, *others = (tokenizer.decode([int(token)]) for token in (sampled, *completion.top_ids[i]))
            likely = [other for other in others if re.fullmatch("[0-9A-Za-z]", other) and other != letter]
            if re.fullmatch("[0-9A-Za-z]", letter) and likely:
                begin = len(tokenizer.decode(completion.ids[:i]))
                yield row, (begin, begin + 1), [letter, likely[0], letter + likely[0]]
                break


def test_what_a_large_model_needs_of_memory_is_said_before_it_loads(llama_cpp, in_process, capsys, tmp_path):
    say_memory_to_play(in_process, size_of_model(in_process), 1000, 16)
    assert re.fullmatch(r".*: needs about 0.0 GB: weights 0.0, 8 games of 1000 tokens 0.0\n", capsys.readouterr().err)
    with write_tiny_gguf(tmp_path / "large.gguf").open("r+b") as file:
        file.truncate(2_000_000_000)  # takes no room on the disk
    # Two layers with two heads of 16 keys and values of two bytes.
    say_memory_to_play_gguf(llama_cpp, tmp_path / "large.gguf", 1_000_000)
    assert "needs about 4.0 GB: weights 2.0, 8 games of 1000000 tokens 2.0" in capsys.readouterr().err


def test_chat_requests_are_sampled_from_the_whole_distribution_and_no_model_thinks(tmp_path):
    thinking = CHATML + "{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}"
    gguf = write_tiny_gguf(tmp_path / "thinking.gguf", chat_template=thinking)
    with serving(gguf, LLAMA_CPP, 1, 600, tmp_path / "log") as (url, key), Client(base_url=url) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        sampling = client.get("/props").json()["default_generation_settings"]["params"]
        messages = {"messages": [{"role": "user", "content": "Your action?"}]}
        prompt = client.post("/apply-template", json=messages).json()["prompt"]
    assert (sampling["top_k"], sampling["top_p"], sampling["min_p"]) == (0, 1.0, 0.0)
    assert "<think>" not in prompt
