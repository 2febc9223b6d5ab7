"""Games with a model behind an endpoint over real HTTP, for several test files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from helpers import draw
from upstream import KEY, MODEL

from rmft.agents.endpoint import EndpointChatModel
from rmft.endpoint.access import Endpoint
from rmft.endpoint.budget import SpendingLimit
from rmft.endpoint.connection import Connection, Request
from rmft.endpoint.journal import Journal, key_of, read_journal, usage_of
from rmft.language.game import GameSettings, RandomNumbers, Transcript, play_in_words
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol
from rmft.params import load
from rmft.params.endpoint import Prices

HERE = Path(__file__).parent
PROMPTS = Prompts.load(HERE.parent / "data" / "prompts" / "plain")
PRICES = Prices(input=0.15, cached_input=0.075, output=0.6, training=3.0)
LISTED = next(model for model in load(HERE.parent / "params.yaml").models.values() if model.kind == "endpoint")
SETTINGS = LISTED.model_copy(
    update={
        "model": MODEL, "base_urls": ["https://api.example.com/v1"], "serves": None, "seeded": True, "prices": PRICES,
        "api_key": "OPENAI_API_KEY", "concurrency": 8, "attempts": 4, "timeout_seconds": 20.0, "context": 8000,
    }
)  # fmt: skip
PACE = 0.002  # factor of all waiting times


@contextmanager
def connected(
    journal: Path, *urls: str, key: str | None = KEY, limit: float | None = None, pace: float = PACE, **changed: object
) -> Iterator[Connection]:
    """Yield a connection to an endpoint at urls, with a journal."""
    with Journal.open(journal) as opened:
        settings = SETTINGS.model_copy(update=changed)
        budget = SpendingLimit(limit, {MODEL: settings.prices}, usage_of([journal]))
        with Connection(Endpoint(settings, lambda: (urls, key), opened, budget, pace), settings.model) as connection:
            yield connection


def games_of(n: int) -> np.ndarray:
    """Return scenario and trajectory of n games, two trajectories each."""
    return np.stack(np.divmod(np.arange(n), 2), axis=1)


def play(
    connection: Connection,
    n: int = 6,
    horizon: int = 4,
    environment: str = "mab",
    output: str = "action",
    interaction: str = "dialogue",
    retries: int = 2,
    words: str = "test",
) -> Transcript:
    """Play n games of three actions. words: the name that calls have, which changes no game."""
    feedback = "full" if environment == "fol" else "bandit"
    protocol = Protocol(interaction, output, feedback, "with-reasoning", 3)
    rules = GameSettings(PROMPTS, protocol, temperature=1.0, retries=retries, tolerance=0.02)
    chat_model = EndpointChatModel(
        connection, games_of(n), 40, words, logprobs=feedback == "full" and output == "action"
    )
    return play_in_words(
        chat_model, draw("uniform", n, horizon, 3).rewards, rules, RandomNumbers(0, "test", games_of(n))
    )


def as_json(transcript: Transcript) -> str:
    """Return a transcript as text."""
    arrays = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(transcript).items()
    }
    return json.dumps(arrays)


def ask(connection: Connection, count: int = 1, begin: int = 0, text: str = "Your action?") -> list[str]:
    """Ask for several answers; return their texts."""
    body = {"messages": [{"role": "user", "content": text}], "temperature": 1.0, "max_completion_tokens": 20}
    numbers = range(begin, begin + count)
    answers = connection.send([Request({**body, "seed": i}, ("test", i), ("game", i)) for i in numbers])
    return [answer["choices"][0]["message"]["content"] for answer in answers]


def keys_in(journal: Path) -> list[str]:
    return [key_of(request) for request, _ in read_journal(journal)]
