"""Tokens per second of the engines that play a real model, beside the limits of the machine.

    python benchmarks/engines.py gemma-3-270m --games 1 16 64

The model is one of params.yaml with a GGUF file that is converted (snakemake results/models/NAME/conversion.csv). Each
engine plays the same bandit messages: a round feeds one message to every game and samples a short reply. A rate is
tokens fed and sampled over the wall time of whole rounds, so nothing else should run beside it. With --output, a line
for each engine and number of games is written to a csv.

floor: for each token that is fed, 2 · (weights of the layers) / FLOPs. For each step in which all games sample a
token, the larger of 2 · (all weights) · games / FLOPs and the bytes of all weights / bandwidth. FLOPs are those of a
large matrix product in the model's dtype and bandwidth that of a large sum, both on all threads, measured before each
game. A quantised file has fewer bytes to read; its floor has them. Exit code 1 if the goal is missed at 16 games or
more.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from machine import reached

from rmft.agents.checkpoint import gguf_file, load_chat_tokenizer
from rmft.agents.llama_cpp_servers import start_llama_cpp
from rmft.agents.local import LocalChatModel, load
from rmft.agents.served import ServedChatModel
from rmft.params import load as load_params
from rmft.params.language_model import LanguageModelSettings, LlamaCpp
from rmft.workflow.plan import model_of

GOAL, FROM_GAMES = 2.0, 16
OPENING = (
    "You choose one of three actions in each of many rounds and see what it paid, from 0 to 10. "
    "Earn as much as you can. Reply with a single line and nothing else. "
    'Round 1. Reply "Action: " and a number from 1 to 3.'
)
LATER = 'Round {last}: your action 2 paid **{paid:.2f}**.\nRound {t}. Reply "Action: " and a number from 1 to 3.'
REPLY = 6  # tokens of a reply, at most


@dataclass(frozen=True)
class Rate:
    """One line of the result. tokens_per_second: fed and sampled. times_floor: seconds over those of the floor."""

    model: str
    engine: str
    games: int
    rounds: int
    threads: int
    fed: int
    sampled: int
    seconds: float
    tokens_per_second: float
    times_floor: float
    gflops: float
    gigabytes_per_second: float


def messages(t: int, games: int) -> list[str]:
    """Return the messages of round t = 1, 2, …; they differ between games in a number."""
    if t == 1:
        return [OPENING] * games
    return [LATER.format(last=t - 1, paid=(7 * game + 3 * t) % 100 / 10, t=t) for game in range(games)]


@contextmanager
def opened(engine: str, settings: LanguageModelSettings, games: int, capacity: int) -> Iterator[object]:
    """Yield a chat model of an engine."""
    rows = np.array([[game, 0] for game in range(games)])
    if engine == "in process":
        torch.set_num_threads(settings.threads)
        yield LocalChatModel(load(settings, None), games, capacity, REPLY)
        return
    served = settings.model_copy(update={"batch": games, "llama_cpp": LlamaCpp(threads=settings.threads)})
    chat_tokenizer = load_chat_tokenizer(settings)
    with (
        TemporaryDirectory() as folder,
        start_llama_cpp(served, None, chat_tokenizer, capacity, Path(folder, "log")) as client,
    ):
        yield ServedChatModel(client, chat_tokenizer, rows, REPLY)


def measured(name: str, engine: str, settings: LanguageModelSettings, games: int, rounds: int) -> Rate:
    """Return the rate of an engine."""
    draw, fed, sampled, steps = np.random.default_rng(0), 0, 0, 0
    capacity = 160 + rounds * (60 + REPLY)
    layers, everything, size = weights_of(engine, settings)
    with opened(engine, settings, games, capacity) as chat_model:
        flops, bandwidth = machine(settings)
        start = time.perf_counter()
        for t in range(1, rounds + 1):
            uniforms = draw.random((games, REPLY))
            replies = chat_model.reply(messages(t, games), temperature=1.0, uniforms=uniforms)
            fed += sum(len(reply.prompt_ids) for reply in replies)
            sampled += sum(len(reply.ids) for reply in replies)
            steps += max(len(reply.ids) for reply in replies)
        seconds = time.perf_counter() - start
    step = max(2 * everything * games / flops, size / bandwidth)
    floor = fed * 2 * layers / flops + steps * step
    return Rate(
        model=name,
        engine=engine,
        games=games,
        rounds=rounds,
        threads=settings.threads,
        fed=fed,
        sampled=sampled,
        seconds=round(seconds, 2),
        tokens_per_second=round((fed + sampled) / seconds, 1),
        times_floor=round(seconds / floor, 2),
        gflops=round(flops / 1e9),
        gigabytes_per_second=round(bandwidth / 1e9, 1),
    )


def weights_of(engine: str, settings: LanguageModelSettings) -> tuple[int, int, int]:
    """Return the numbers of weights in the layers and in all, and the bytes that an engine reads for a token."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(settings.folder))
    head = model.get_output_embeddings().weight.numel()
    tables = {id(of): of.numel() for of in (model.get_input_embeddings().weight, model.get_output_embeddings().weight)}
    layers = sum(weight.numel() for weight in model.parameters()) - sum(tables.values())
    in_file = gguf_file(settings).stat().st_size
    return (
        layers,
        layers + head,
        in_file if engine == "llama.cpp" else (layers + head) * getattr(torch, settings.dtype).itemsize,
    )


def machine(settings: LanguageModelSettings) -> tuple[float, float]:
    """Return floating-point operations per second in the model's dtype, and bytes read per second, on all threads."""
    torch.set_num_threads(settings.threads)
    return reached(torch.ones(2048, 2048, dtype=getattr(torch, settings.dtype)), torch.ones(2**27), time.perf_counter)


def main() -> int:
    """Print the rates; return 1 if the goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a model of params.yaml with a GGUF file")
    parser.add_argument("--games", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, help="a csv")
    options = parser.parse_args()

    settings = model_of(load_params(), options.model)["model"].model_copy(update={"threads": options.threads})
    rates = []
    print("engine        games      fed  sampled  seconds  tokens/s  × floor  goal   GFLOP/s    GB/s")
    for games in options.games:
        for engine in ("in process", "llama.cpp"):
            rate = measured(options.model, engine, settings, games, options.rounds)
            rates.append(rate)
            goal = f"{GOAL:g}" if games >= FROM_GAMES else "–"
            sizes = f"{engine:<12}{games:>7}{rate.fed:>9}{rate.sampled:>9}{rate.seconds:>9.1f}"
            sizes += f"{rate.tokens_per_second:>10.1f}"
            print(
                f"{sizes}{rate.times_floor:>9.1f}{goal:>6}{rate.gflops:>10.0f}{rate.gigabytes_per_second:>8.1f}",
                flush=True,
            )
    if options.output:
        with options.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Rate)])
            writer.writeheader()
            writer.writerows(map(asdict, rates))
    return int(any(rate.times_floor > GOAL for rate in rates if rate.games >= FROM_GAMES))


if __name__ == "__main__":
    sys.exit(main())
