"""Language models in `rmft.play`: a model in this process, or a function from messages to the reply.

Symbols: n games.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmft.agents.asked import AskedChatModel, ReplyFunction
from rmft.agents.chat_models import ChatModels, Conversations, in_process
from rmft.algorithms import ALGORITHMS
from rmft.errors import InputError, did_you_mean
from rmft.gym import STREAM, Episodes
from rmft.rollouts import roll_out
from rmft.selection import TrajectoryColumns
from rmft.suite.measuring import ReplySettings
from rmft.suite.models import at_hand
from rmft.suite.parts import PROMPTS, own_part

MISSPELT = 0.8  # how similar a player's name must be to an algorithm's: a folder or a hub repository may be near, too


@dataclass(frozen=True)
class ModelSource:
    """Which model a name means, and where it computes: see the arguments of `api.play`."""

    weights: Path | None = None
    revision: str | None = None
    device: str | None = None


def play_in_words(
    player: str | ReplyFunction,
    source: ModelSource,
    episodes: Episodes,
    ids: np.ndarray,
    seed: int,
    reply: ReplySettings,
) -> TrajectoryColumns:
    """Have a model play games, as `rmft eval` does: a dialogue about numbers. Otherwise see `api.play`.

    ids: (n, 2), scenario and trajectory of each game. reply: how the model replies.
    """
    try:
        part = own_part(episodes.environment, episodes.processes, episodes.d, episodes.T)
    except InputError as error:
        raise InputError(f"play: {error}") from None
    games = reply.games(part, PROMPTS, seed, STREAM, episodes.table, ids)
    conversations = Conversations(games.settings, episodes.T, reply.limit(part))
    with _chat_models(player, source, conversations) as chat_models:
        return roll_out(games, chat_models.open, chat_models.batch)


@contextmanager
def _as_before() -> Iterator[None]:
    """Leave torch's number of threads, and progress bars of transformers, as they were: the process is a user's."""
    import torch
    from transformers.utils import logging

    threads, bars = torch.get_num_threads(), logging.is_progress_bar_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _chat_models(
    player: str | ReplyFunction, source: ModelSource, conversations: Conversations
) -> Iterator[ChatModels]:
    """Yield the chat models of a player that is a model. Raise InputError where it is none."""
    if not isinstance(player, str):
        if not callable(player) or source != ModelSource():
            raise InputError(
                "play: player: must be a name, an algorithm, a function, or an object with `deterministic`, `policy` "
                "and `observe`; weights, revision and device go with a model's name"
            )
        yield ChatModels(lambda _: AskedChatModel(lambda messages, _: player(messages), conversations.max_tokens), 1)
        return
    try:
        model = at_hand(player, source.revision, source.device).settings
    except InputError as error:
        if not str(error).startswith(f"{player}:"):  # about an option of `rmft eval`, an argument here, or a file
            raise InputError(f"play: {str(error).removeprefix('--')}") from None
        if meant := did_you_mean(player, ALGORITHMS, cutoff=MISSPELT):
            raise InputError(f"play: {player}: no algorithm and no model is called so; {meant}") from None
        raise InputError(f"play: no algorithm is called so ({', '.join(ALGORITHMS)}); as a model: {error}") from None
    if model.kind != "language" or model.is_gguf:
        raise InputError(f"play: {player}: does not run in this process; pass a function from messages to the reply")
    with _as_before(), in_process(model, source.weights, conversations) as chat_models:
        yield chat_models
