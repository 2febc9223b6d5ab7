"""Measure requests and tokens per second of our own endpoint with many games, against the model called in process.

    python benchmarks/endpoint.py --games 64 --rounds 25
    python benchmarks/endpoint.py --soak 10

The embedded model plays bandits in words and states policies. Over HTTP every game is a coroutine, which sends its
whole conversation each round with the official client. In process all games are played together, round by round, and
the model keeps its cache. Times are CPU times of threads, so that other work on the machine counts little: the server's
engine, the server's protocol (its main thread), and the caller of the model here.

--soak MINUTES: play games over HTTP for so long, and report errors and the server's memory, in the first quarter and at
the end. Exit code 1 if a goal is missed, or if there was an error.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import psutil

from rmft.language.parsing import parse
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round
from rmft.params.reading import load as load_params

PROTOCOL = Protocol("dialogue", "distribution", "bandit", "with-reasoning", d=3)
TOKEN, MAX_TOKENS, TOLERANCE = "benchmark", 64, 0.02
GOAL_MS = 3.0  # of protocol in the server for each request
GROWTH_GOAL = 0.1  # of the server's memory in the last three quarters of a soak
LOOK_SECONDS = 5  # between looks at memory
SERVE = """
import sys
from pathlib import Path
from rmft.endpoint_server.server import serve
from rmft.endpoint_server.settings import ServerSettings
from rmft.params.reading import load

params, state = load(), Path(sys.argv[1])
model = params.models["embedded"]
serve(ServerSettings(model, "embedded", sys.argv[2], state, params.server.sft, 0, announce=state / "announce.json"))
"""


@dataclass
class Game:
    """A bandit in words. number: of its random stream."""

    prompts: Prompts
    number: int
    messages: list[dict[str, str]] = field(default_factory=list)
    past: list[Round] = field(default_factory=list)

    def next_message(self) -> str:
        """Return the next message, and append it to the conversation."""
        message = self.prompts.message(PROTOCOL, self.past)
        self.messages.append({"role": "user", "content": message})
        return message

    def play(self, text: str) -> None:
        """Play a round as a response says, or at random if the response is invalid."""
        self.messages.append({"role": "assistant", "content": text})
        draw = np.random.default_rng([self.number, len(self.past)])
        reply = parse(text, PROTOCOL, TOLERANCE)
        policy = np.array(reply.policy) if reply else np.full(PROTOCOL.d, 1 / PROTOCOL.d)
        action = int(draw.choice(PROTOCOL.d, p=policy / policy.sum()))
        rewards = tuple(draw.uniform(0, 10, PROTOCOL.d))
        self.past.append(Round(len(self.past) + 1, action, tuple(policy), rewards))


@dataclass
class Tally:
    """Counts of requests, and of tokens: prompt, those of them that were cached, and completion."""

    requests: int = 0
    completion: int = 0
    prompt: int = 0
    cached: int = 0
    errors: list[str] = field(default_factory=list)


@contextmanager
def server() -> Iterator[tuple[str, psutil.Process]]:
    """Start a server; yield its address and its process."""
    with tempfile.TemporaryDirectory() as state:
        announced = Path(state) / "announce.json"
        started = subprocess.Popen([sys.executable, "-c", SERVE, state, TOKEN])
        while not announced.exists():
            if started.poll() is not None:
                sys.exit("the server did not start")
            time.sleep(0.1)
        try:
            port = json.loads(announced.read_text())["port"]
            yield f"http://127.0.0.1:{port}/v1", psutil.Process(started.pid)
        finally:
            started.terminate()
            started.wait()


def threads(process: psutil.Process) -> tuple[float, float]:
    """Return the CPU seconds of a server's main thread and of its busiest other thread."""
    seconds = {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
    main = seconds.pop(process.pid)
    return main, max(seconds.values())


async def play_over_http(address: str, games: int, rounds: int, until: float | None = None) -> Tally:
    """Play so many games at once; until a time, if given, with a new game after each that ends."""
    from openai import APIError, AsyncOpenAI

    prompts, tally, numbers = Prompts.load(Path("data/prompts/plain")), Tally(), count()
    client = AsyncOpenAI(base_url=address, api_key=TOKEN, max_retries=0)

    async def play_games() -> None:
        while True:
            game = Game(prompts, next(numbers))
            for _ in range(rounds):
                game.next_message()
                try:
                    answer = await client.chat.completions.create(
                        model="embedded", messages=game.messages, seed=game.number, max_completion_tokens=MAX_TOKENS,
                        extra_headers={"Idempotency-Key": f"{game.number} {len(game.past)}"},
                    )  # fmt: skip
                except APIError as error:
                    tally.errors.append(repr(error))
                    break
                game.play(answer.choices[0].message.content)
                tally.requests += 1
                tally.completion += answer.usage.completion_tokens
                tally.prompt += answer.usage.prompt_tokens
                tally.cached += answer.usage.prompt_tokens_details.cached_tokens
            if until is None or time.monotonic() > until:
                return

    await asyncio.gather(*(play_games() for _ in range(games)))
    await client.close()
    return tally


def play_in_process(games: int, rounds: int) -> tuple[Tally, float]:
    """Play so many games at once; also return the CPU seconds of the model."""
    from rmft.agents.local import LocalChatModel, load

    chat_model = LocalChatModel(load(load_params().models["embedded"]), games, 1 << 16, MAX_TOKENS)
    prompts, tally, seconds = Prompts.load(Path("data/prompts/plain")), Tally(), 0.0
    all_games = [Game(prompts, number) for number in range(games)]
    draw = np.random.default_rng(0)
    for _ in range(rounds):
        messages = [game.next_message() for game in all_games]
        start = time.thread_time()
        turns = chat_model.reply(messages, temperature=1.0, uniforms=draw.random((games, MAX_TOKENS)))
        seconds += time.thread_time() - start
        for game, turn in zip(all_games, turns, strict=True):
            game.play(turn.text)
            tally.completion += turn.sampled
        tally.requests += games
    return tally, seconds


def compare(games: int, rounds: int) -> bool:
    """Print the rates over HTTP and in process; return whether the goal is met."""
    with server() as (address, process):
        asyncio.run(play_over_http(address, games, 2))  # the first passes of a model are slow
        main, engine = threads(process)
        start = time.monotonic()
        tally = asyncio.run(play_over_http(address, games, rounds))
        wall = time.monotonic() - start
        main, engine = (after - before for after, before in zip(threads(process), (main, engine), strict=True))
    direct, seconds = play_in_process(games, rounds)
    if tally.errors:
        print(f"{len(tally.errors)} errors, the first: {tally.errors[0]}")
        return False
    protocol = 1e3 * main / tally.requests
    print(f"{games} games of {rounds} rounds, {tally.completion / tally.requests:.1f} tokens a response; over HTTP:")
    print(f"  {tally.requests / wall:.0f} requests/s, {tally.completion / wall:.0f} tokens/s (client included)")
    print(f"  {tally.cached / tally.prompt:.1%} of the tokens of conversations were cached")
    print("by CPU time of threads:        ms a request   tokens/s")
    for name, spent, of in (("engine, in process", seconds, direct), ("engine, in server", engine, tally)):
        print(f"  {name:<26}{1e3 * spent / of.requests:>15.2f}{of.completion / spent:>11,.0f}")
    print(
        f"  {'protocol, in server':<26}{protocol:>15.2f}   goal {GOAL_MS}: {'met' if protocol < GOAL_MS else 'missed'}"
    )
    ratio = (tally.completion / (main + engine)) / (direct.completion / seconds)
    print(f"  engine and protocol together give {ratio:.0%} of the tokens a second of the engine in process")
    return protocol < GOAL_MS


def soak(games: int, rounds: int, minutes: float) -> bool:
    """Play for so long; print errors and the growth of memory. Return whether the goals are met."""
    with server() as (address, process):
        used = []

        async def watched() -> Tally:
            playing = asyncio.create_task(play_over_http(address, games, rounds, time.monotonic() + 60 * minutes))
            while not playing.done():
                used.append(process.memory_info().rss / 2**20)
                await asyncio.wait([playing], timeout=LOOK_SECONDS)
            return playing.result()

        tally = asyncio.run(watched())
        early, late = max(used[: max(1, len(used) // 4)]), used[-1]
        print(f"{games} games at once for {minutes:g} minutes: {tally.requests} requests, {len(tally.errors)} errors")
        print(f"memory: {used[0]:.0f} MiB at the start, {early:.0f} in the first quarter, {late:.0f} at the end")
        print(f"  minute by minute: {' '.join(f'{mebibytes:.0f}' for mebibytes in used[:: 60 // LOOK_SECONDS])}")
        print(f"file descriptors: {process.num_fds()}, threads: {process.num_threads()}")
    for error in tally.errors[:3]:
        print(error)
    return not tally.errors and late <= (1 + GROWTH_GOAL) * early


def main() -> int:
    """Print the rates, or how a soak went; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    options = parser.parse_args()
    if options.soak:
        return int(not soak(options.games, options.rounds, options.soak))
    return int(not compare(options.games, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
