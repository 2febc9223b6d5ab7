"""Fine-tuning beside a plain PyTorch loop and beside the operations of the machine.

    python benchmarks/fine_tuning.py --games 64 --rounds 25

The embedded model plays bandits in words, and all its games are learnt from, full fine-tuning in float32 on one thread.
The plain loop pads each batch to its longest conversation, and has the same optimiser, clipping and loss, and no
trainer. Both take the same batches in turn, several times, and the median of a step's CPU time counts, so that other
work on the machine matters little.

floor: 6 · N · tokens over FLOPs, for N weights and the tokens of the conversations without padding; attention is left
out. FLOPs are measured on one core between the repetitions. padding: the share of all positions in batches that hold no
token. Exit code 1 if a goal is missed.

large vocabulary: a step of a LoRA adapter on a small random model in bfloat16 with the vocabulary of Gemma 3, with the
output layer at learnt tokens alone, as we compute it, and at all tokens, as TRL alone would; then the same of GRPO, all
steps of a few games with the start of the trainer.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from machine import reached
from rollouts import byte_tokenizer
from scaling import ROOT, embedded, play
from transformers import AutoModelForCausalLM, Qwen3Config
from trl import GRPOTrainer
from trl.trainer import utils

from rmft.agents.weights import load_pretrained
from rmft.artifacts.trajectories import read_trajectories, trajectory_batches
from rmft.language.protocol import NOT_LEARNT
from rmft.params import load
from rmft.params.grpo import Objective
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings
from rmft.selection import Scoring, demonstrations_in
from rmft.training import sft
from rmft.training.grpo import TokenCreditTrainer, reinforce

GOALS = {"of the plain loop": 1.1, "padding": 0.05}
REPEATS = 3
LARGE_VOCABULARY, FEW = 262_144, 5  # tokens; conversations that are learnt with them
SQUARE, MANY = 1024, 2**24  # numbers in the product and in the sum that measure the machine

Line = dict[str, Any]


def games(count: int, rounds: int) -> list[Line]:
    """Return the games of the embedded model as demonstrations."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        play(scenarios=count, trajectories=1, rounds=rounds)
        return list(demonstrations_in(trajectory_batches(Path("games.parquet")), np.ones(count, dtype=bool)))


def seconds_a_step(lines: Sequence[Line], settings: LanguageSFT, model: LanguageModelSettings) -> list[float]:
    """Return the CPU seconds of each step of ours, but the first, which also starts the trainer."""
    times: list[float] = []
    sft.fine_tune(lines, model, None, settings, 0, (), lambda *_: times.append(time.process_time()))
    return np.diff(times).tolist()


def plain_seconds_a_step(lines: Sequence[Line], settings: LanguageSFT) -> list[float]:
    """Return the CPU seconds of each step of the plain loop, but the first."""
    model, _ = load_pretrained(embedded(1))
    model = model.float().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    times = []
    for batch in batches(lines, settings.batch_size):
        ids, labels, mask = padded(batch)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=NOT_LEARNT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimiser.step()
        optimiser.zero_grad()
        times.append(time.process_time())
    return np.diff(times).tolist()


def large_vocabulary(folder: Path) -> LanguageModelSettings:
    """Write a random model with many tokens, most of whose work is its output layer."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=LARGE_VOCABULARY,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        tie_word_embeddings=True,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token = "<end>"
    tokenizer.save_pretrained(folder)
    return LanguageModelSettings(kind="language", weights=str(folder), dtype="bfloat16", device="cpu", batch=1)


def seconds_with_large_vocabulary(lines: Sequence[Line], settings: LanguageSFT) -> tuple[float, float]:
    """Return the CPU seconds of a step with the output layer at learnt tokens, and at all tokens."""
    lora = settings.model_copy(update={"method": "lora", "batch_size": 1})
    with tempfile.TemporaryDirectory() as folder:
        model = large_vocabulary(Path(folder))
        with patch.object(utils, "_use_triton", utils._use_triton):  # restored at the end
            learnt = seconds_a_step(lines, lora, model)
        with patch.object(sft, "learnt_positions_only"):
            return float(np.median(learnt)), float(np.median(seconds_a_step(lines, lora, model)))


def seconds_of_grpo(rounds: int, settings: Objective) -> tuple[float, float]:
    """Return the CPU seconds of GRPO with the output layer at the tokens that the model chose, and at all tokens."""
    probabilities = "_get_per_token_logps_and_entropies"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        play(scenarios=FEW // 2, trajectories=2, rounds=rounds)
        played, model = read_trajectories(Path("games.parquet")), large_vocabulary(Path(folder))

        def seconds() -> float:
            start = time.process_time()
            reinforce(played, model, None, settings, Scoring("mab", "realized"), 1.0, 0)
            return time.process_time() - start

        chosen = seconds()
        with patch.object(TokenCreditTrainer, probabilities, getattr(GRPOTrainer, probabilities)):
            return chosen, seconds()


def batches(lines: Sequence[Line], size: int) -> Iterator[Sequence[Line]]:
    """Yield the batches of an epoch in random order."""
    order = np.random.default_rng(0).permutation(len(lines))
    for start in range(0, len(lines), size):
        yield [lines[place] for place in order[start : start + size]]


def padded(batch: Sequence[Line]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, labels and the mask of a batch, each (B, longest)."""

    def column(rows: Sequence[Sequence[int]], rest: int) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=rest)

    ids = [line["ids"] for line in batch]
    labels = column([line["labels"] for line in batch], NOT_LEARNT)
    return column(ids, 0), labels, column([[1] * len(row) for row in ids], 0)


def padding(lines: Sequence[Line], size: int) -> float:
    """Return the share of all positions of an epoch's batches that hold no token."""
    masks = [padded(batch)[2] for batch in batches(lines, size)]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def main() -> int:
    """Print seconds of a step and their ratios; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = load(ROOT / "params.yaml").at_scale().experiments["open_mab_qwen"].sft
    settings = settings.model_copy(update={"epochs": 1, "gradient_checkpointing": False})
    lines = games(options.games, options.rounds)
    tokens = sum(len(line["ids"]) for line in lines) / len(lines)
    weights = load_pretrained(embedded(1))[0].num_parameters()

    learnt, all_tokens = seconds_with_large_vocabulary(lines[:FEW], settings)
    lora = {"method": "lora", "batch_size": 1, "accumulation": 1, "gradient_checkpointing": False}
    grpo = load(ROOT / "params.yaml").at_scale().experiments["mab_grpo_step"].grpo.model_copy(update=lora)
    chosen, all_of_grpo = seconds_of_grpo(options.rounds, grpo)
    speed, ours, plain = [], [], []
    for _ in range(REPEATS):
        speed.append(reached(torch.randn(SQUARE, SQUARE), torch.ones(MANY), time.process_time)[0])
        ours += seconds_a_step(lines, settings, embedded(1))
        plain += plain_seconds_a_step(lines, settings)
    step, plain_step = float(np.median(ours)), float(np.median(plain))
    floor = 6 * weights * settings.batch_size * tokens / float(np.median(speed))
    found = {"of the plain loop": step / plain_step, "padding": padding(lines, settings.batch_size)}

    print(f"{len(lines)} games of {options.rounds} rounds, {tokens:.0f} tokens each; batches of {settings.batch_size}")
    print(f"{'':12}{'s a step':>9}{'× floor':>9}")
    for name, seconds in {"rmft (TRL)": step, "plain loop": plain_step}.items():
        print(f"{name:12}{seconds:9.2f}{seconds / floor:9.1f}")
    for name, value in found.items():
        print(f"{name}: {value:.4f}; goal {GOALS[name]:g}: {'met' if value <= GOALS[name] else 'missed'}")
    print(
        f"large vocabulary, a game a step: {learnt:.2f} s, at all tokens {all_tokens:.2f} s ({learnt / all_tokens:.2f})"
    )
    print(f"GRPO, {FEW // 2 * 2} games: {chosen:.1f} s, at all tokens {all_of_grpo:.1f} s ({chosen / all_of_grpo:.2f})")
    return int(any(value > GOALS[name] for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())
