"""Requests per second and waiting times of our endpoint, of llama.cpp's server and of `transformers serve`.

    python benchmarks/servers.py --games 32 --rounds 8

A tiny model with random weights, made here, is behind each server: a GGUF file for llama.cpp, and its conversion for
the two others. So what is compared is what a server does besides computing a large model: reading requests, forming
batches, keeping caches. Each server has one thread to compute with and as many slots as there are games; each game is a
coroutine that sends its whole conversation each round with the official client. Servers take turns, one at a time.

CPU: of the server's process and its children, which other work on the machine changes little, unlike the rate.
"""

import argparse
import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from endpoint import Game

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # tiny_gguf.py
MAX_TOKENS, SLOT_TOKENS, START_SECONDS = 24, 4096, 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
OURS = """
import sys
from pathlib import Path
from rmft.endpoint_server.server import serve
from rmft.endpoint_server.settings import ServerSettings
from rmft.params import load
from rmft.params.language_model import LanguageModelSettings

gguf, converted, games, port, key, state = sys.argv[1:]
model = LanguageModelSettings(
    kind="language", weights=gguf, converted=converted, dtype="float32", device="cpu", batch=int(games)
)
serve(ServerSettings(model, "tiny", key, Path(state), load().server.sft, 0, port=int(port), slots=int(games)))
"""


@dataclass(frozen=True)
class Model:
    """The model: its GGUF file, and the folder of the conversion."""

    gguf: Path
    converted: Path


@dataclass(frozen=True)
class ServerRun:
    """What clients saw, and the server's CPU seconds. waits: (requests,) seconds."""

    seconds: float
    waits: np.ndarray
    tokens: int
    cpu: float


def make_model(folder: Path) -> Model:
    """Write the GGUF file and convert it, without the comparison that a job makes."""
    from tiny_gguf import write_tiny_gguf

    from rmft.conversion.checkpoint import convert
    from rmft.params.language_model import Checkpoint

    gguf, converted = write_tiny_gguf(folder / "tiny.gguf"), folder / "tiny"
    converted.mkdir()
    convert(Checkpoint(weights=str(gguf), dtype="float32"), gguf, converted)
    return Model(gguf, converted)


def commands(model: Model, games: int, port: int, key: str, folder: Path) -> dict[str, list[str]]:
    """Return the command of each server."""
    of_llama_cpp = {"model": model.gguf, "host": "127.0.0.1", "port": port, "parallel": games, "threads": 1}
    of_llama_cpp |= {"threads-batch": 1, "ctx-size": games * SLOT_TOKENS, "cache-ram": 0}
    options = [f"--{name}={value}" for name, value in of_llama_cpp.items()]
    serve = [str(Path(sys.executable).parent / "transformers"), "serve", str(model.converted)]
    of_transformers = [*serve, f"--port={port}", "--device=cpu", "--dtype=float32", "--log-level=error"]
    return {
        "rmft": [sys.executable, "-c", OURS, *map(str, (model.gguf, model.converted, games, port, key, folder))],
        "llama.cpp": [sys.executable, "-m", "rmft.agents.bundled_llama_cpp", *options, "--no-kv-unified"],
        "transformers": of_transformers,
        "transformers, batched": [*of_transformers, "--continuous-batching", "--attn-implementation=sdpa"],
    }


@contextmanager
def running(command: Sequence[str], port: int, key: str, log: Path) -> Iterator[psutil.Process]:
    """Start a server, wait until it answers, and end it afterwards."""
    environment = {**os.environ, **ONE_THREAD, "LLAMA_API_KEY": key}
    with log.open("wb") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=ROOT)
    try:
        begun = time.monotonic()
        while not answers(port):
            if started.poll() is not None or time.monotonic() - begun > START_SECONDS:
                sys.exit(f"{command[0]} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield psutil.Process(started.pid)
    finally:
        started.kill()
        started.wait()


def answers(port: int) -> bool:
    """Return whether a server answers at all."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code != 503  # which llama.cpp's server gives while it loads the model
    except OSError:
        return False
    return True


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(of.user + of.system for of in times)


async def play(port: int, key: str, model: str, games: int, rounds: int) -> tuple[list[float], int]:
    """Play so many games at once; return the seconds of each request, and the tokens of all replies."""
    from openai import AsyncOpenAI

    from rmft.language.prompts import Prompts

    prompts, waits, tokens = Prompts.load(ROOT / "data/prompts/plain"), [], 0
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=600)

    async def play_game(number: int) -> None:
        nonlocal tokens
        game = Game(prompts, number)
        for _ in range(rounds):
            game.next_message()
            begun = time.monotonic()
            response = await client.chat.completions.create(
                model=model, messages=game.messages, max_completion_tokens=MAX_TOKENS, temperature=1.0
            )
            waits.append(time.monotonic() - begun)
            tokens += response.usage.completion_tokens
            game.play(response.choices[0].message.content)

    await asyncio.gather(*(play_game(number) for number in range(games)))
    await client.close()
    return waits, tokens


def measure(name: str, model: Model, games: int, rounds: int, folder: Path) -> ServerRun:
    """Start a server, play once to warm it up, and measure the next games."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = secrets.token_hex(8)
    called = str(model.converted) if name.startswith("transformers") else "tiny"
    state = folder / f"state of {name}"
    state.mkdir()
    command = commands(model, games, port, key, state)[name]
    with running(command, port, key, folder / f"{name}.log") as server:
        asyncio.run(play(port, key, called, games, 2))
        cpu, begun = cpu_seconds(server), time.monotonic()
        waits, tokens = asyncio.run(play(port, key, called, games, rounds))
        return ServerRun(time.monotonic() - begun, np.array(waits), tokens, cpu_seconds(server) - cpu)


def show(measured: Mapping[str, ServerRun]) -> None:
    """Print a line for each server."""
    print(
        f"{'':22}{'requests/s':>11}{'tokens/s':>10}{'median, ms':>12}{'p99, ms':>9}{'CPU ms a request':>18}{'ratio':>7}"
    )
    ours = measured["rmft"].cpu / len(measured["rmft"].waits)
    for name, of in measured.items():
        requests = len(of.waits)
        median, late = 1e3 * np.quantile(of.waits, [0.5, 0.99])
        cpu = of.cpu / requests
        print(
            f"{name:22}{requests / of.seconds:11.1f}{of.tokens / of.seconds:10,.0f}{median:12.0f}{late:9.0f}"
            f"{1e3 * cpu:18.1f}{cpu / ours:7.2f}"
        )


def main() -> None:
    """Measure each server in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        names = commands(model, 1, 0, "", Path())
        print(f"{options.games} games at once, {options.rounds} rounds, replies of at most {MAX_TOKENS} tokens")
        show({name: measure(name, model, options.games, options.rounds, Path(folder)) for name in names})


if __name__ == "__main__":
    main()
