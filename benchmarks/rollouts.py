"""Tokens per second of the rollout engine, beside re-reading histories and beside the limits of the machine.

    python benchmarks/rollouts.py --conversations 256 --rounds 25 100

One thread, float32, random weights of the embedded model's shape. A rate is sampled tokens over the time of whole
rounds, which includes feeding messages. Times are CPU times, so that other work on the machine counts little. Exit code
1 if a goal is missed.

anew: the usual way, in which no cache outlives a reply. Each round reads its whole history in one pass and decodes with
the library's own cache and attention. A sixth of the conversations are played this way, all of the same length, so that
nothing is lost to padding. A few rounds spread evenly over the game are timed, and the times of the others are
interpolated. The engine plays every round of every conversation.

floor: for each sampled token the larger of 2N/FLOPs and (weights/B + visible keys and values)/bandwidth, and for each
token of a message 2N/FLOPs. FLOPs and bandwidth are measured on one core before and after the game, in a large matrix
product and a large sum (the median of five, the mean of before and after).
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from machine import reached
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, PreTrainedTokenizerFast

from rmft.agents.local import LanguageModel, LocalChatModel
from rmft.agents.sampling import sample
from rmft.embedded_model.tokenizer import architecture

SHAPE = architecture(vocabulary=900, end=None, pad=None)
WINDOW, LAYERS, HEADS, SIZE = SHAPE.sliding_window, SHAPE.num_hidden_layers, SHAPE.num_attention_heads, SHAPE.head_dim
OPENING, MESSAGE, REPLY = 100, 10, 16  # tokens
GOALS = {25: 6, 100: 15}  # times faster than anew
FLOOR_GOAL = 4
TIMED_ROUNDS = 5  # timed rounds of a game played anew
FEWER = 6  # times fewer conversations are played anew
# A message, or a reply, and one special token.
TEMPLATE = """{% for m in messages %}{{ m.content }}{{ '<end>' if m.role == 'assistant' else '<reply>' }}{% endfor %}"""


def random_model() -> PreTrainedModel:
    """Return a model of the embedded one's architecture."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(SHAPE).eval()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each byte, so that the lengths of messages are known."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(letters, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, additional_special_tokens=["<end>", "<reply>"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def message_length(t: int) -> int:
    """Return the characters in the message of round t = 0, 1, …; the template adds a token."""
    return (OPENING if t == 0 else MESSAGE) - 1


@dataclass(frozen=True)
class Played:
    """Sampled tokens per second; the floor in seconds for each, without messages and with them; what the core does."""

    rate: float
    decoding_floor: float
    floor: float
    flops: float
    bandwidth: float


def play(language_model: LanguageModel, count: int, rounds: int) -> Played:
    """Play a game with the engine."""
    draw = np.random.default_rng(0)
    capacity = OPENING + rounds * (MESSAGE + REPLY + 1)
    seen = sampled = fed = 0
    before = measure_core()
    start = time.process_time()
    chat_model = LocalChatModel(language_model, count, capacity, REPLY)
    for t in range(rounds):
        messages = ["x" * message_length(t)] * count
        for turn in chat_model.reply(messages, temperature=1.0, uniforms=draw.random((count, REPLY))):
            sampled += turn.sampled
            fed += len(turn.prompt_ids)
        seen += count * REPLY * min(chat_model.lengths.mean(), WINDOW)
    rate = sampled / (time.process_time() - start)
    flops, bandwidth = np.mean([before, measure_core()], axis=0)
    parameters = sum(weight.numel() for weight in language_model.model.parameters())
    read = 4 * (parameters / count + seen / (count * REPLY * rounds) * LAYERS * 2 * HEADS * SIZE)
    strict = max(2 * parameters / flops, read / bandwidth)
    return Played(rate, strict, strict + fed / sampled * 2 * parameters / flops, flops, bandwidth)


def measure_core() -> tuple[float, float]:
    """Return floating-point operations and bytes read per second of one core."""
    return reached(torch.ones(1536, 1536), torch.ones(2**27), time.process_time)


@torch.inference_mode()
def reply_anew(model: PreTrainedModel, history: torch.Tensor) -> float:
    """Return the seconds of reading histories (n, tokens) and decoding a reply to each."""
    draw = torch.Generator().manual_seed(0)
    start = time.process_time()
    cache, ids = DynamicCache(config=model.config), history
    for _ in range(REPLY):
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        ids = sample(logits, torch.rand(len(history), generator=draw, dtype=torch.float64), 1.0)[:, None]
        logits.log_softmax(dim=-1).topk(5)
    return time.process_time() - start


def rate_anew(model: PreTrainedModel, count: int, rounds: int) -> float:
    """Return sampled tokens per second of a game in which every round reads its history anew."""
    timed = np.unique(np.linspace(0, rounds - 1, TIMED_ROUNDS).round().astype(int))
    lengths = OPENING + timed * (MESSAGE + REPLY)
    seconds = [reply_anew(model, torch.randint(0, 900, (count, length))) for length in lengths]
    return count * rounds * REPLY / np.interp(np.arange(rounds), timed, seconds).sum()


def main() -> int:
    """Print the rates; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--rounds", type=int, nargs="+", default=list(GOALS))
    options = parser.parse_args()

    torch.set_num_threads(1)
    plain, language_model = random_model(), LanguageModel.of(random_model(), byte_tokenizer())
    count, fewer = options.conversations, max(1, options.conversations // FEWER)
    parameters = sum(weight.numel() for weight in plain.parameters())
    print(
        f"{parameters / 1e6:.2f}M parameters, {count} conversations ({fewer} anew), {REPLY} tokens a reply, one thread"
    )
    print("rounds  tokens/s    anew  faster  goal  floor, µs  × floor  goal  (decoding only: floor, ×)  GFLOP/s  GB/s")
    missed = False
    for rounds in options.rounds:
        played, anew = play(language_model, count, rounds), rate_anew(plain, fewer, rounds)
        faster, goal = played.rate / anew, GOALS.get(rounds, 1)
        slower, strict = 1 / played.rate / played.floor, 1 / played.rate / played.decoding_floor
        missed |= faster < goal or slower > FLOOR_GOAL
        rates = f"{rounds:>6}{played.rate:>10,.0f}{anew:>8,.0f}{faster:>8.1f}{goal:>6}"
        floors = f"{played.floor * 1e6:>11.1f}{slower:>9.1f}{FLOOR_GOAL:>6}{played.decoding_floor * 1e6:>23.1f}"
        print(f"{rates}{floors}{strict:>5.1f}{played.flops / 1e9:>10.0f}{played.bandwidth / 1e9:>6.0f}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
