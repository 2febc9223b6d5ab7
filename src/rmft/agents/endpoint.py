"""Language models behind an endpoint that speaks the OpenAI protocol: many conversations, each of which is sent whole.

`EndpointChatModel` is to an endpoint what `local.EndpointChatModel` is to a model in process. It sees texts and no tokens, so
that what is learnt from its games is learnt from texts.

Symbols: B conversations, n of them asked, d actions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmft.agents.policy_from_logprobs import Token, policy, tokens_of
from rmft.agents.policy_from_model import TOP
from rmft.endpoint.connection import Call, Connection, Json
from rmft.errors import InputError

SEEDS = 1 << 31


@dataclass(frozen=True)
class EndpointCompletion:
    """A reply. tokens: with the likeliest ones in each place, where they were asked for.

    ids, prompt_ids, replied: of a model in process; an endpoint tells no ids.
    """

    text: str
    tokens: tuple[Token, ...] = ()
    ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    replied: list[bool] = field(default_factory=list)


class EndpointChatModel:
    """EndpointChatModel with a model of an endpoint.

    count: B of them. games: (B, 2), scenario and trajectory of each. max_tokens: of the longest reply. words: the name
    of these games' streams. logprobs: whether `action_policies` will be asked for. stop: texts that end a reply.

    What tells a request from all others is its game, the round, counted over all conversations that one game consists
    of, and the attempt: two trajectories of a scenario begin with the same messages, and are not to be given the same
    reply.
    """

    def __init__(
        self,
        connection: Connection,
        count: int,
        games: np.ndarray,
        max_tokens: int,
        words: str,
        logprobs: bool,
        stop: Sequence[str] = (),
    ) -> None:
        self.connection, self.max_tokens, self.words = connection, max_tokens, words
        self.games = [(int(scenario), int(trajectory)) for scenario, trajectory in games]
        self.asked_always = {"max_completion_tokens": max_tokens}
        if logprobs:
            self.asked_always |= {"logprobs": True, "top_logprobs": TOP}
        if stop:
            self.asked_always |= {"stop": list(stop)}
        self.count = count
        self.rounds = [0] * count  # messages that were sent
        self.attempts = [0] * count  # replies to the last one that were retracted
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.messages: list[list[Json]] = [[] for _ in range(self.count)]

    def retract(self, rows: Iterable[int]) -> None:
        """Forget the last reply of some conversations; what they were asked stands, to be answered again."""
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
        """Send messages (n) and return the replies; with messages None, have retracted replies given anew.

        uniforms: (n, …) in [0, 1); a request has one seed, made of the first. rows: (n,) the conversations that are
        meant, None for all.
        """
        rows = range(self.count) if rows is None else [int(row) for row in rows]
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                self.messages[row].append({"role": "user", "content": message})
                self.rounds[row] += 1
                self.attempts[row] = 0
        calls = [self._call(row, temperature, numbers[0]) for row, numbers in zip(rows, uniforms, strict=True)]
        turns = [_turn(answer) for answer in self.connection.ask(calls)]
        for row, turn in zip(rows, turns, strict=True):
            self.messages[row].append({"role": "assistant", "content": turn.text})
        return turns

    def _call(self, row: int, temperature: float, number: float) -> Call:
        body = {"messages": list(self.messages[row]), "temperature": temperature, **self.asked_always}
        if self.connection.endpoint.settings.seeded:
            body["seed"] = int(number * SEEDS)
        game = (self.words, *self.games[row])
        return Call(body, (*game, self.rounds[row], self.attempts[row]), game)

    def action_policies(
        self,
        turns: Sequence[EndpointCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) that the model had in mind where it wrote its actions, see `policy_from_logprobs.policy`.

        turns: the last replies of conversations (n,). spans: where in each text the action stands. actions: the
        0-based ones that stand there. names: what each of the d actions would be written like in its place.
        """
        cases = zip(turns, spans, actions, names, strict=True)
        try:
            return np.array([policy(turn.text, turn.tokens, *case) for turn, *case in cases])
        except InputError as error:
            raise InputError(f"{self.connection.endpoint.settings.name}: {error}") from None


def _turn(answer: Json) -> EndpointCompletion:
    """Return the reply in an answer; one that was refused, or filtered out, is empty."""
    choice = answer["choices"][0]
    text = choice["message"].get("content") or ""
    return EndpointCompletion(
        text.encode(errors="replace").decode(), tokens_of(choice)
    )  # halves of characters cannot be sent back
