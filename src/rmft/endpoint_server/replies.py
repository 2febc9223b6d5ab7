"""Requests for replies, on their way to the engine and back."""

import asyncio
import secrets
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.local import LanguageModel, load
from rmft.endpoint_server.chat import ChatRequest, Chunks, choice, token_entry, usage
from rmft.endpoint_server.completions import CompletionRequest, completion
from rmft.endpoint_server.engine import Engine, Reply, key_of
from rmft.endpoint_server.errors import busy, invalid
from rmft.endpoint_server.messages import turns_of
from rmft.endpoint_server.models import Model, Models
from rmft.endpoint_server.once import Made, Make, digest_of
from rmft.endpoint_server.settings import MANY_LANES, ServerSettings
from rmft.endpoint_server.spelling import Ids, Spelling, Vocabulary
from rmft.streams import stream

Json = dict[str, Any]


@dataclass(eq=False)
class Waiting:
    """A request whose replies are waited for. changed: set when one has grown or ended; ended: when all have."""

    id: str
    model: Model
    replies: list[Reply]
    created: int = field(default_factory=lambda: int(time.time()))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fingerprint(self) -> str:
        """Return a name for what answers depend on beside the request."""
        return f"fp_{digest_of(self.model.identity.encode()).hex()[:10]}"


OnChange = Callable[[Waiting], object]


class Replies:
    """Gives replies. Start it in an event loop; requests are taken in that loop alone."""

    def __init__(self, settings: ServerSettings, models: Models) -> None:
        self.settings, self.models = settings, models
        base = load(settings.model)
        # The engine's thread has tokenizers of its own: none may be used by two threads at a time.
        tokenizer = deepcopy(base.chat_tokenizer.tokenizer)
        self.spelling, self.vocabulary = Spelling(ChatTemplate.probe(tokenizer)), Vocabulary(tokenizer)
        self.ends, self.limit = base.chat_tokenizer.ends, base.chat_tokenizer.limit
        self.known = base.model.get_input_embeddings().num_embeddings
        self.spare: LanguageModel | None = base
        self.waiting: dict[Reply, Waiting] = {}
        lanes = settings.lanes or (settings.model.batch if self.limit else max(settings.model.batch, MANY_LANES))
        self.engine = Engine(self._load, self._deliver, lanes, settings.models)

    def start(self) -> None:
        """Start the engine."""
        self.loop = asyncio.get_running_loop()
        self.engine.start()

    # --- The engine's thread ---

    def _load(self, weights: Path | None) -> LanguageModel:
        base, self.spare = self.spare, None
        return base if base and weights is None else load(self.settings.model, weights)

    def _deliver(self, replies: list[Reply]) -> None:
        self.loop.call_soon_threadsafe(self._arrived, replies)

    # --- The event loop's thread ---

    def _arrived(self, replies: list[Reply]) -> None:
        for reply in replies:
            if waiting := self.waiting.get(reply):
                waiting.changed.set()
                if reply.reason or reply.error:
                    del self.waiting[reply]
                    if not any(other in self.waiting for other in waiting.replies):
                        waiting.ended.set()

    async def complete(self, request: ChatRequest, name: str, on_change: OnChange | None = None) -> Made:
        """Return the answer to a request. name: for its id. on_change: told when a reply has grown, in a stream."""
        waiting = self._waiting(request, name, on_change is not None)
        await self._given(waiting, on_change)
        return self._made(waiting)

    async def complete_tokens(self, request: CompletionRequest) -> Json:
        """Return what follows a list of ids."""
        model = self.models.get(request.model)
        if max(request.prompt) >= self.known:
            raise invalid(f"prompt has ids that are no tokens: there are {self.known}.", "prompt")
        if request.max_tokens > self.settings.max_tokens:
            raise invalid(f"A reply has at most {self.settings.max_tokens} tokens here.", "max_tokens")
        ids = array("i", request.prompt)
        self._check_room(len(ids), request.max_tokens, "prompt")
        seed = secrets.token_hex(16) if request.seed is None else request.seed
        words = ["endpoint", model.identity, digest_of(ids.tobytes()).hex(), seed, repr(request.temperature)]
        uniforms = stream(self.settings.seed, "sampling", *words).random(request.max_tokens)
        reply = Reply(model.weights, ids, [key_of(None, words[2])], request.temperature, uniforms, (), request.logprobs)
        waiting = Waiting(f"cmpl-{secrets.token_hex(12)}", model, [reply])
        await self._given(waiting)
        cost = usage(len(ids), reply.cached, len(reply.said))
        return {
            "id": waiting.id,
            "object": "text_completion",
            "created": waiting.created,
            "model": model.id,
            "choices": [completion(reply.text, reply.reason, reply.said, reply.tops)],
            "usage": cost,
        }

    async def _given(self, waiting: Waiting, on_change: OnChange | None = None) -> None:
        """Wait until replies have been given. Raise ApiError where they cannot be."""
        if len(self.waiting) + len(waiting.replies) > self.settings.queue and self.waiting:
            raise busy(len(self.waiting))
        self.waiting |= dict.fromkeys(waiting.replies, waiting)
        try:
            self.engine.ask(waiting.replies)
            while on_change and not waiting.ended.is_set():
                await waiting.changed.wait()
                waiting.changed.clear()
                on_change(waiting)
            await waiting.ended.wait()
        finally:
            for reply in waiting.replies:
                reply.cancelled = True  # in the engine's eyes, unless it has ended
                self.waiting.pop(reply, None)
        for reply in waiting.replies:
            if reply.error:
                raise reply.error

    def _waiting(self, request: ChatRequest, name: str, streamed: bool) -> Waiting:
        """Return the replies that a request is for, yet to be given. Raise ApiError where they cannot be."""
        request.check()
        model = self.models.get(request.model)
        turns = turns_of(request.messages, "user")
        limit = request.limit(self.settings.max_tokens)
        keys = []
        for turn in turns:
            keys.append(key_of(keys[-1] if keys else None, turn))
        temperature = 1.0 if request.temperature is None else request.temperature
        words = self._words(request, model, turns, temperature)
        common = {
            "weights": model.weights,
            "ids": self._ids(turns, limit),
            "keys": keys,
            "temperature": temperature,
            "stops": request.stops(),
            "top": (request.top_logprobs or 0) if request.logprobs else None,
            "streamed": streamed,
        }
        uniforms = (
            stream(self.settings.seed, "sampling", *words, number).random(limit) for number in range(request.n or 1)
        )
        return Waiting(f"chatcmpl-{name}", model, [Reply(uniforms=numbers, **common) for numbers in uniforms])

    def _ids(self, turns: tuple[str, ...], limit: int) -> Ids:
        """Return the ids of a conversation to which a reply of so many tokens is wanted."""
        first, *others = self.spelling.spell(turns)
        ids = first[:]
        for turn in others:
            ids.extend(turn)
        self._check_room(len(ids), limit, "messages")
        return ids

    def _check_room(self, told: int, limit: int, where: str) -> None:
        """Raise ApiError where so many tokens, and a reply of so many, are more than the model reads."""
        if self.limit is not None and told + limit > self.limit:
            raise invalid(
                f"This model's maximum context length is {self.limit} tokens. However, you requested "
                f"{told + limit} tokens ({told} in the {where}, {limit} in the completion). "
                f"Please reduce the length of the {where} or completion.",
                where,
                "context_length_exceeded",
            )

    def _words(self, request: ChatRequest, model: Model, turns: tuple[str, ...], temperature: float) -> list[str | int]:
        """Return the name of the stream that a request's replies are sampled by."""
        seed = secrets.token_hex(16) if request.seed is None else request.seed
        return ["endpoint", model.identity, digest_of(to_json(turns)).hex(), seed, repr(temperature)]

    def _made(self, waiting: Waiting) -> Made:
        """Return the answer that replies make, and what they cost."""
        replies = waiting.replies
        cost = usage(len(replies[0].ids), replies[0].cached, sum(len(reply.said) for reply in replies))
        answer = {
            "id": waiting.id,
            "object": "chat.completion",
            "created": waiting.created,
            "model": waiting.model.id,
            "choices": [
                choice(number, reply.text, reply.reason, self._content(reply, reply.text))
                for number, reply in enumerate(replies)
            ],
            "usage": cost,
            "service_tier": "default",
            "system_fingerprint": waiting.fingerprint,
        }
        paid = {name: cost[name] for name in ("prompt_tokens", "completion_tokens")}
        return Made(to_json(answer), {"requests": 1, "answers": len(replies), **paid})

    def _content(self, reply: Reply, text: str) -> list[Json] | None:
        """Return what is told of a reply's tokens up to where it has this text, if it is to be told."""
        if reply.top is None:
            return None
        ids = reply.said[:-1] if reply.said[-1] in self.ends else reply.said
        content, begin, end = [], 0, len(text.encode())
        for token, logprob, tops in zip(self.vocabulary.told(ids, text), reply.logprobs, reply.tops, strict=False):
            if begin >= end:
                break
            begin += len(token[1])
            likeliest = [token_entry(self.vocabulary.token(other), value) for other, value in tops]
            content.append({**token_entry(token, logprob), "top_logprobs": likeliest})
        return content

    # --- Streams ---

    async def events(
        self, request: ChatRequest, answer: Callable[[Make], Awaitable[bytes]], include_usage: bool
    ) -> AsyncIterator[Json]:
        """Yield the events of a stream. answer: has something made, or finds what was made before."""
        grown, seen = asyncio.Event(), []

        def on_change(waiting: Waiting) -> None:
            seen[:] = [waiting]
            grown.set()

        task = asyncio.ensure_future(answer(lambda name: self.complete(request, name, on_change)))
        task.add_done_callback(lambda _: grown.set())
        told = _Told(include_usage)
        try:
            while not task.done():
                await grown.wait()
                grown.clear()
                for waiting in seen if not task.done() else ():
                    for number, reply in enumerate(waiting.replies):
                        text, count = reply.told
                        content = self._content(reply, text)
                        for event in told.grown(waiting, number, text, content and content[:count]):
                            yield event
            for event in told.rest(from_json(await task)):
                yield event
        finally:
            task.cancel()


class _Told:
    """What of an answer has been told in a stream."""

    def __init__(self, include_usage: bool) -> None:
        self.include_usage = include_usage
        self.chunks: Chunks | None = None
        self.so_far: dict[int, tuple[int, int]] = {}  # by reply, characters and tokens

    def grown(self, waiting: Waiting, number: int, text: str, content: list[Json] | None) -> list[Json]:
        """Return the events that tell how far a reply has come. content: what is told of its tokens, if it is."""
        if not text:
            return []
        self._begin(waiting.id, waiting.created, waiting.model.id, waiting.fingerprint)
        return self._more(number, text, content)

    def rest(self, answer: Json) -> list[Json]:
        """Return the events that tell all of an answer that has not been told."""
        self._begin(*(answer[name] for name in ("id", "created", "model", "system_fingerprint")))
        events = []
        for said in answer["choices"]:
            number, content = said["index"], (said["logprobs"] or {}).get("content")
            events += [*self._more(number, said["message"]["content"], content)]
            events.append(self.chunks.end(number, said["finish_reason"]))
        return [*events, self.chunks.total(answer["usage"])] if self.include_usage else events

    def _begin(self, *common: Any) -> None:  # noqa: ANN401 (what Chunks takes)
        self.chunks = self.chunks or Chunks(*common, self.include_usage)

    def _more(self, number: int, text: str, content: list[Json] | None) -> list[Json]:
        events = [] if number in self.so_far else [self.chunks.begin(number)]
        characters, tokens = self.so_far.get(number, (0, 0))
        if len(text) > characters or len(content or ()) > tokens:
            events.append(self.chunks.text(number, text[characters:], None if content is None else content[tokens:]))
        self.so_far[number] = max(characters, len(text)), max(tokens, len(content or ()))
        return events
