"""Language models behind an endpoint of the OpenAI protocol: every request holds its whole conversation.

`EndpointChatModel` is the counterpart of `local.LocalChatModel`. It sees texts and no tokens, so that models fine-tuned
on its games are fine-tuned on texts.

Symbols: B conversations, n of them in a call, d actions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmft.agents.policy_from_logprobs import Token, policy, tokens_of
from rmft.agents.policy_from_model import TOP
from rmft.endpoint.connection import Connection, Json, Request
from rmft.endpoint.failures import text_of
from rmft.errors import InputError

SEEDS = 1 << 31


@dataclass(frozen=True)
class EndpointCompletion:
    """A response. tokens: with the likeliest alternatives, if log-probabilities are wanted.

    cut: whether the limit of tokens ended it, as far as is known. ids, prompt_ids, replied: empty, since an endpoint
    returns no ids.
    """

    text: str
    tokens: tuple[Token, ...] = ()
    cut: bool = False
    ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    replied: list[bool] = field(default_factory=list)


class EndpointChatModel:
    """Conversations with a model behind an endpoint.

    games: (B, 2), scenario and trajectory of each. max_tokens: of the longest response. words: the name of
    the random streams of these games. logprobs: whether `action_policies` will be called.

    Game, round and attempt tell a request from all others, since two trajectories of a scenario begin with the same
    messages and must get different responses. Rounds are counted over all conversations of a game.
    """

    def __init__(self, connection: Connection, games: np.ndarray, max_tokens: int, words: str, logprobs: bool) -> None:
        self.connection, self.max_tokens, self.words = connection, max_tokens, words
        self.games = [(int(scenario), int(trajectory)) for scenario, trajectory in games]
        self.options = {"logprobs": True, "top_logprobs": TOP} if logprobs else {}
        self.count = len(games)
        self.rounds = [0] * self.count  # messages sent
        self.attempts = [0] * self.count  # retracted responses to the last message
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.messages: list[list[Json]] = [[] for _ in range(self.count)]

    def retract(self, rows: Iterable[int]) -> None:
        """Remove the last response of some conversations, so that `reply` can generate it again."""
        for row in rows:
            del self.messages[row][-1]
            self.attempts[row] += 1

    def reply(
        self,
        messages: Sequence[str] | None,
        *,
        temperature: float,
        uniforms: np.ndarray,
        rows: Sequence[int] | None = None,
    ) -> list[EndpointCompletion]:
        """Send messages (n,) and return the responses; with messages None, generate retracted responses again.

        uniforms: (n, …) in [0, 1); the first one becomes the seed of a request. rows: (n,) the conversations, None for
        all.
        """
        rows = range(self.count) if rows is None else [int(row) for row in rows]
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                self.messages[row].append({"role": "user", "content": message})
                self.rounds[row] += 1
                self.attempts[row] = 0
        requests = [self._request(row, temperature, numbers[0]) for row, numbers in zip(rows, uniforms, strict=True)]
        completions = [_completion(response) for response in self.connection.send(requests)]
        for row, completion in zip(rows, completions, strict=True):
            self.messages[row].append({"role": "assistant", "content": completion.text})
        return completions

    def _request(self, row: int, temperature: float, uniform: float) -> Request:
        body = {"messages": list(self.messages[row]), "temperature": temperature, **self.options}
        body |= self.connection.endpoint.settings.options(self.max_tokens, int(uniform * SEEDS))
        game = (self.words, *self.games[row])
        return Request(body, (*game, self.rounds[row], self.attempts[row]), game)

    def action_policies(
        self,
        completions: Sequence[EndpointCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) of the model at the position of its actions, see `policy_from_logprobs.policy`.

        completions: the last responses of conversations (n,). spans: the position of the action in each text. actions:
        the 0-based actions there. names: how each of the d actions would be written there.
        """
        cases = zip(completions, spans, actions, names, strict=True)
        try:
            return np.array([policy(one.text, one.tokens, *case) for one, *case in cases])
        except InputError as error:
            raise InputError(f"{self.connection.endpoint.settings.name}: {error}") from None


def _completion(response: Json) -> EndpointCompletion:
    # A text that ends within a surrogate pair could not be sent back.
    text, choice = text_of(response).encode(errors="replace").decode(), response["choices"][0]
    return EndpointCompletion(text, tokens_of(choice), choice.get("finish_reason") == "length")
