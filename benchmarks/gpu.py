"""How close playing and fine-tuning come to a GPU's limits, for random weights of Qwen3-8B's shape.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --layers 2 --width 256 --rounds 3   # the same program, small

Games are played in process, as many at a time as fit into memory; adapters are fine-tuned as in an iteration. Exit code
1 if a goal is missed.

decode: the seconds of play against the fewest possible. To sample a token in each of B games takes at least the larger
of 2NB/FLOPs and (weights + keys and values in sight)/bandwidth, to read a token 2N/FLOPs; FLOPs and bandwidth are what
the device reaches in a large matrix product and a large sum, in this run. hits: of the tokens that would be read if
each round read its history anew, the share that is in memory. memory: how far the peak is from the prediction of
`games_at_a_time`. MFU: 4 operations a token and weight (frozen weights need no gradients of their own) against what the
device reaches.
"""

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from goals import verdict
from machine import reached
from rollouts import MESSAGE, OPENING, byte_tokenizer, message_length
from transformers import AutoModelForCausalLM, Qwen3Config

from rmft.agents.cache import size_of
from rmft.agents.context import context_needed
from rmft.agents.local import LanguageModel, LocalChatModel, free_memory, games_at_a_time, load
from rmft.params import load as load_params
from rmft.params.language_model import LanguageModelSettings
from rmft.training.sft import fine_tune

REPLY = 60  # tokens
HEAD = 128
PARAMS = Path(__file__).parents[1] / "params.yaml"
GOALS = {"decode": 2.5, "hits": 0.9, "memory": 0.1, "MFU": 0.4}


def write_model(folder: Path, layers: int, width: int, device: str) -> None:
    """Write a model of Qwen3-8B's shape, or a smaller one, with random weights and a tokenizer of bytes."""
    config = Qwen3Config(
        vocab_size=151_936 * width // 4096, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=width // HEAD, num_key_value_heads=max(1, width // HEAD // 4), head_dim=HEAD,
        tie_word_embeddings=False, max_position_embeddings=40_960, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token = "<end>"
    tokenizer.save_pretrained(folder)


def speed(device: str) -> tuple[float, float]:
    """Return floating-point operations, in bfloat16, and bytes read per second of a device."""
    size, count = (512, 2**25) if device == "cpu" else (8192, 2**30)
    like = {"dtype": torch.bfloat16, "device": device}
    # Random numbers: a product of equal numbers takes less power, and is faster than that of any model.
    return reached(torch.randn(size, size, **like), torch.ones(count // 2, device=device), time.perf_counter)


def wait(device: str) -> None:
    """Wait until a device is idle."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def play(language_model: LanguageModel, most: int, rounds: int, device: str) -> dict[str, float]:
    """Play games, as many at a time as fit; return how decoding, cache hits and memory compare with their limits."""
    capacity = context_needed(None, OPENING, rounds, MESSAGE, REPLY)
    count = games_at_a_time(language_model, capacity, REPLY, most, free_memory(language_model.model.device))
    config = language_model.model.config
    parameters = language_model.model.num_parameters(
        exclude_embeddings=True
    )  # decoding reads one row of the embeddings
    state = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * HEAD  # bytes of a token's keys and values
    flops, bandwidth = speed(device)
    draw, floor, seconds, sampled, fed, anew = np.random.default_rng(0), 0.0, 0.0, 0, 0, 0
    LocalChatModel(language_model, 1, capacity, REPLY).reply(["x"], temperature=1.0, uniforms=draw.random((1, REPLY)))
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    chat_model = LocalChatModel(language_model, count, capacity, REPLY)
    for t in range(rounds):
        before = chat_model.lengths.sum()
        anew += before + count * message_length(t)
        begun = time.perf_counter()
        turns = chat_model.reply(
            ["x" * message_length(t)] * count, temperature=1.0, uniforms=draw.random((count, REPLY))
        )
        wait(device)
        seconds += time.perf_counter() - begun
        sampled += sum(turn.sampled for turn in turns)
        fed += sum(len(turn.prompt_ids) for turn in turns)
        read = 2 * parameters + (before + chat_model.lengths.sum()) / 2 * state
        floor += max(turn.sampled for turn in turns) * max(read / bandwidth, 2 * parameters * count / flops)
        print(f"round {t + 1} of {rounds}: {seconds:.1f} s, floor {floor:.1f} s", file=sys.stderr)
    prefill = fed * 2 * parameters / flops
    print(
        f"{count} games in flight of {rounds} rounds: {sampled / seconds:,.0f} tokens/s; {seconds:.1f} s, of which"
        f" {floor:.1f} to decode and {prefill:.1f} to read at least; {flops / 1e12:.1f} TFLOP/s,"
        f" {bandwidth / 1e9:,.0f} GB/s"
    )
    found = {"decode": seconds / (floor + prefill), "hits": 1 - fed / anew}
    if device != "cpu":
        model = language_model.model
        each = size_of(model.config, capacity, REPLY, model.dtype.itemsize)
        predicted = 2 * model.num_parameters() + count * each
        found["memory"] = abs(torch.cuda.max_memory_allocated(device) / predicted - 1)
    return found


def learn(
    settings: LanguageModelSettings, parameters: int, tokens: int, steps: int, accumulation: int, flops: float
) -> dict[str, float]:
    """Fine-tune adapters on conversations of `tokens` tokens; return the share of the device's operations."""
    sft = load_params(PARAMS).experiments["open_mab_qwen"].sft
    adapters = {"method": "lora", "epochs": 1, "accumulation": accumulation, "gradient_checkpointing": False}
    sft = sft.model_copy(update=adapters)
    draw = np.random.default_rng(0)
    lines = [{"ids": ids, "labels": ids} for ids in draw.integers(200, size=(steps * sft.batch_size, tokens)).tolist()]
    times: list[float] = []
    fine_tune(lines, settings, None, sft, 0, (), lambda *_: times.append(time.perf_counter()))
    each = sft.batch_size * tokens * 4 * parameters  # forward, and the gradients of activations; weights are frozen
    step = float(np.median(np.diff(times)))
    print(f"learning: {step:.2f} s a step of {sft.batch_size} x {tokens} tokens, {accumulation} passes a step")
    return {"MFU": each / step / flops}


def main() -> int:
    """Print what was reached; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument(
        "--accumulation",
        type=int,
        default=2,
        choices=(1, 2, 4),
        help="passes a step, each of a part of its conversations",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), options.layers, options.width, options.device)
        settings = LanguageModelSettings(
            kind="language", weights=folder, dtype="bfloat16", device=options.device, batch=options.games
        )
        language_model = load(settings)
        parameters = language_model.model.num_parameters()
        device = options.device if options.device == "cpu" else torch.cuda.get_device_name(options.device)
        print(f"{parameters / 1e9:.2f}e9 weights on {device}")
        found = play(language_model, options.games, options.rounds, options.device)
        del language_model
        gc.collect()
        torch.cuda.empty_cache()
        flops, _ = speed(options.device)
        tokens = options.rounds * (MESSAGE + REPLY)
        found |= learn(settings, parameters, tokens, options.steps, options.accumulation, flops)
    missed = False
    for name, goal in GOALS.items():
        if name in found:
            reached_goal = found[name] >= goal if name in ("hits", "MFU") else found[name] <= goal
            missed |= not reached_goal
            print(f"{name:8}{found[name]:8.2f}   {verdict(reached_goal)} {goal:g}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
