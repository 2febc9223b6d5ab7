"""A model that generates many responses together, token by token, with a cache of conversations.

A cache slot holds a conversation, which stays after its response has ended: a request that continues the conversation
only has to feed what is new. A request starts as soon as a slot is free and leaves when its response has ended, so
that no response waits for the longest one.

Symbols: n responses in generation, V vocabulary.
"""

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rmft.agents.chat_tokenizer import text_of
from rmft.agents.local import LanguageModel, LocalChatModel
from rmft.agents.sampling import sample
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.tokenisation import Ids

CHUNK = 64  # tokens that are fed in one forward pass, and by which a slot can be truncated
WORTH_COPYING = 32  # common tokens for which a slot is copied rather than a conversation fed again
PATIENCE = 4  # tokens of responses in generation for which a prompt may wait, so that several are fed together
STALE_SECONDS = 120.0  # a slot that is idle for so long is reused before an unused one is taken
# Where conversations in generation fill less than this share of the cache's rows from the first to the last of them,
# some change rows. To move one takes about as long as to compute a token of another one that lies between them.
TOGETHER = 0.8

PrefixKey = int


@dataclass(eq=False)
class Generation:
    """A response in generation.

    weights: those of a fine-tuned model, None for the base model. prompt_ids: the conversation before the response.
    prefixes: keys of the conversation up to each message, by which slots are found. uniforms: (limit,) in [0, 1), one
    for each token. stops: texts that end the response. top: alternatives to record for each token, None for no
    log-probabilities at all. ids: the sampled tokens, with the one that ends the response. logprobs, tops: see `top`.
    cached: tokens of prompt_ids that were in the cache. text, reason: set at the end. done: ends with the response or
    an error; cancelled if the client has gone.
    """

    weights: Path | None
    prompt_ids: Ids
    prefixes: Sequence[PrefixKey]
    temperature: float
    uniforms: np.ndarray
    stops: tuple[str, ...] = ()
    top: int | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    cached: int = 0
    text: str | None = None
    reason: Literal["stop", "length"] | None = None
    done: Future[None] = field(default_factory=Future)

    def end(self, error: ApiError | None = None) -> None:
        """Wake up whoever waits for the response."""
        with suppress(InvalidStateError):  # where nobody waits any more
            self.done.set_exception(error) if error else self.done.set_result(None)


@dataclass(eq=False)
class CacheSlot:
    """A conversation in the cache. ids: tokens fed. prefixes: keys by which it is found. idle_since: on a clock.

    row: of the cache; the runner may exchange the rows of two slots.
    """

    row: int
    ids: Ids = field(default_factory=lambda: array("i"))
    prefixes: list[PrefixKey] = field(default_factory=list)
    idle_since: float = 0.0


def prefix_key(before: PrefixKey, text: str) -> PrefixKey:
    """Return the key of a conversation extended by a text. Keys may collide: ids are compared before a slot is used."""
    return hash((before, text))


def prefix_keys(texts: Iterable[str]) -> list[PrefixKey]:
    """Return the key of a conversation up to each of its texts."""
    return list(accumulate(texts, prefix_key, initial=0))[1:]


def common_length(left: Ids, right: Ids) -> int:
    """Return the length of the common beginning of two lists of ids."""
    most = min(len(left), len(right))
    a, b = (np.frombuffer(ids, dtype=np.int32, count=most) if most else np.zeros(0) for ids in (left, right))
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else most


class ModelRunner:
    """A model with its cache slots and the responses that it generates."""

    def __init__(self, language_model: LanguageModel, slots: int) -> None:
        self.model = language_model
        config = language_model.model.config.get_text_config(decoder=True)
        capacity = language_model.chat_tokenizer.limit or config.max_position_embeddings
        self.chat_model = LocalChatModel(language_model, slots, capacity, CHUNK, slack=CHUNK)
        self.unused = deque(CacheSlot(row) for row in range(slots))
        self.idle: OrderedDict[CacheSlot, None] = OrderedDict()  # the longest idle first
        self.by_prefix: dict[PrefixKey, list[CacheSlot]] = {}
        self.active: dict[Generation, CacheSlot] = {}
        self.waited = 0  # steps for which prompts have waited for others
        self.closing = False

    # --- Slots ---

    def start(self, generation: Generation) -> bool:
        """Give a response the slot that its conversation continues, else one with the longest cached prefix of it.

        Return False if none is free.
        """
        if slot := self._continued_by(generation):
            return self._take(generation, slot, self._held(slot, generation))
        for place in range(len(generation.prefixes) - 1, -1, -1):
            for slot in self.by_prefix.get(generation.prefixes[place], ()):
                same = self._held(slot, generation)
                if not same:
                    continue
                # A conversation that ends in a response continues in its slot. One that ends in a user's message may
                # begin several conversations, and is copied.
                if place % 2 and slot in self.idle:
                    return self._take(generation, slot, same)
                if same >= WORTH_COPYING and (target := self._free_slot(slot)):
                    self.chat_model.copy(slot.row, target.row)
                    target.ids = slot.ids[:]
                    return self._take(generation, target, same)
        slot = self._free_slot()
        return bool(slot) and self._take(generation, slot, 0)

    def should_wait(self, generation: Generation) -> bool:
        """Return whether another slot is being fed the same conversation, which must be copied afterwards."""
        if self._continued_by(generation):
            return False
        slots = self.by_prefix.get(generation.prefixes[-1], ())
        length = len(generation.prompt_ids)
        return any(length - len(slot.ids) > WORTH_COPYING and slot not in self.idle for slot in slots)

    def _continued_by(self, generation: Generation) -> CacheSlot | None:
        """Return the idle slot that holds a conversation up to its last message, or None.

        Such a slot is better than a copy of a twin (a conversation with the same messages), though that holds the last
        message, too: the copy would take one more slot.
        """
        if len(generation.prefixes) < 2:
            return None
        for slot in self.by_prefix.get(generation.prefixes[-2], ()):
            if slot in self.idle and self._held(slot, generation):
                return slot
        return None

    def _held(self, slot: CacheSlot, generation: Generation) -> int:
        """Return how many tokens of a response's prompt a slot has: all but the last one at most, which must be fed."""
        same = min(common_length(slot.ids, generation.prompt_ids), len(generation.prompt_ids) - 1)
        return self.chat_model.way_back(slot.row, same)

    def _free_slot(self, other_than: CacheSlot | None = None) -> CacheSlot | None:
        """Return a slot for a new conversation: an unused one or the longest idle one, or None."""
        oldest = next((slot for slot in self.idle if slot is not other_than), None)
        stale = oldest and time.monotonic() - oldest.idle_since > STALE_SECONDS
        return self.unused[0] if self.unused and not stale else oldest

    def _take(self, generation: Generation, slot: CacheSlot, same: int) -> bool:
        if self.unused and self.unused[0] is slot:
            self.unused.popleft()
        self.idle.pop(slot, None)
        self._set_prefixes(slot, [generation.prefixes[-1]])
        self.chat_model.go_back(slot.row, same)
        del slot.ids[same:]
        generation.cached = same
        self.active[generation] = slot
        return True

    def _set_prefixes(self, slot: CacheSlot, prefixes: list[PrefixKey]) -> None:
        for key in slot.prefixes:
            self.by_prefix[key].remove(slot)
            if not self.by_prefix[key]:
                del self.by_prefix[key]
        slot.prefixes = prefixes
        for key in prefixes:
            self.by_prefix.setdefault(key, []).append(slot)

    def release(self, generation: Generation) -> None:
        """Free the slot of a response, and keep its conversation there."""
        slot = self.active.pop(generation)
        if generation.text is not None:
            self._set_prefixes(slot, [*slot.prefixes, prefix_key(generation.prefixes[-1], generation.text)])
        slot.idle_since = time.monotonic()
        self.idle[slot] = None

    def _bring_together(self) -> None:
        """Have conversations in generation change rows with others, where too many others lie between them.

        A pass for a token of each computes those that lie between them, too, or gathers the cache of each.
        """
        rows = [slot.row for slot in self.active.values()]
        count = len(rows)
        if count >= TOGETHER * (max(rows) + 1 - min(rows)):
            return
        rows = np.sort(rows)
        held = np.searchsorted(rows, rows + count) - np.arange(count)  # by how many of them, from each of them on
        first = min(int(rows[held.argmax()]), self.chat_model.count - count)
        together = range(first, first + count)
        moved = [slot for slot in self.active.values() if slot.row not in together]
        others = [slot for slot in (*self.idle, *self.unused) if slot.row in together]
        self.chat_model.swap([slot.row for slot in moved], [slot.row for slot in others])
        for slot, other in zip(moved, others, strict=True):
            slot.row, other.row = other.row, slot.row

    # --- Tokens ---

    def step(self) -> None:
        """Feed a part of the prompts, and add a token to every response whose prompt has been fed."""
        for generation in [generation for generation in self.active if generation.done.cancelled()]:
            self.release(generation)
        if prefill := [one for one, slot in self.active.items() if len(slot.ids) < len(one.prompt_ids)]:
            self.waited += 1
            if self.waited >= PATIENCE or self._worth_a_pass(prefill):
                self._prefill(prefill)
                self.waited = 0
        if decode := [generation for generation in self.active if generation.ids]:
            self._bring_together()
            self._feed(decode, [array("i", generation.ids[-1:]) for generation in decode])

    def _worth_a_pass(self, generations: list[Generation]) -> bool:
        """Return whether prompts have as many tokens to feed as there are responses in generation.

        A pass takes some time however few tokens it feeds.
        """
        tokens = sum(min(CHUNK, len(one.prompt_ids) - len(self.active[one].ids)) for one in generations)
        return tokens >= len(self.active) - len(generations)

    def _prefill(self, generations: list[Generation]) -> None:
        """Feed the prompt that waits longest, and those of which about as many tokens are left."""
        left = [one.prompt_ids[len(self.active[one].ids) :] for one in generations]
        most = min(CHUNK, len(left[0]))
        pairs = [(one, ids[:most]) for one, ids in zip(generations, left, strict=True) if 2 * len(ids) >= most]
        self._feed(*map(list, zip(*pairs, strict=True)))

    def _feed(self, generations: list[Generation], tokens: list[Ids]) -> None:
        """Feed tokens, and sample the next one of each response whose prompt has been fed."""
        slots = [self.active[generation] for generation in generations]
        logits = self.chat_model.feed(np.array([slot.row for slot in slots]), tokens)
        for slot, new in zip(slots, tokens, strict=True):
            slot.ids.extend(new)
        for generation, slot in zip(generations, slots, strict=True):
            self._bookmark_before_overwriting(generation, slot)
        ready = [
            i
            for i, (one, slot) in enumerate(zip(generations, slots, strict=True))
            if len(slot.ids) >= len(one.prompt_ids)
        ]
        if ready:
            self._sample([generations[i] for i in ready], logits if len(ready) == len(generations) else logits[ready])

    def _bookmark_before_overwriting(self, generation: Generation, slot: CacheSlot) -> None:
        """Bookmark the end of a prompt once its response is as long as can be taken back: it may be asked again."""
        prompt, slack = len(generation.prompt_ids) - 1, self.chat_model.cache.slack
        if prompt and slack is not None and len(slot.ids) == prompt + slack:
            self.chat_model.bookmark(slot.row, prompt)

    def _sample(self, generations: list[Generation], logits: torch.Tensor) -> None:
        """Add a token to responses (n,), sampled from logits (n, V)."""
        uniforms = [generation.uniforms[len(generation.ids)] for generation in generations]
        uniforms = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
        temperatures = np.array([generation.temperature for generation in generations])
        different = set(temperatures.tolist())
        if len(different) == 1:
            tokens = sample(logits, uniforms, different.pop())
        else:
            tokens = torch.zeros(len(generations), dtype=torch.int64, device=logits.device)
            for temperature in different:
                rows = torch.as_tensor(temperatures == temperature, device=logits.device)
                tokens[rows] = sample(logits[rows], uniforms[rows], temperature)
        self._record_logprobs(generations, logits, tokens)
        for generation, token in zip(generations, tokens.tolist(), strict=True):
            generation.ids.append(token)
            self._end_if_complete(generation)

    def _record_logprobs(self, generations: list[Generation], logits: torch.Tensor, tokens: torch.Tensor) -> None:
        """Record log-probabilities of tokens (n,) and of the likeliest ones, at temperature 1, where wanted."""
        rows = [i for i, generation in enumerate(generations) if generation.top is not None]
        if not rows:
            return
        logprobs = logits[rows].log_softmax(dim=-1)
        most = max(1, *(generations[i].top for i in rows))
        best = logprobs.topk(min(most, logprobs.shape[-1]))
        columns = logprobs.gather(1, tokens[rows, None])[:, 0], best.indices, best.values
        for i, logprob, ids, values in zip(rows, *(column.tolist() for column in columns), strict=True):
            generations[i].logprobs.append(logprob)
            generations[i].tops.append(list(zip(ids, values, strict=True))[: generations[i].top])

    def _end_if_complete(self, generation: Generation) -> None:
        """End a response at an end token, a stop or its limit."""
        ended = generation.ids[-1] in self.model.chat_tokenizer.ends
        at_limit = len(generation.ids) == len(generation.uniforms)
        if not (ended or at_limit or generation.stops):
            return
        text = text_of(self.model.chat_tokenizer.tokenizer, generation.ids[:-1] if ended else generation.ids)
        cuts = [text.find(stop) for stop in generation.stops if stop in text]
        if ended or at_limit or cuts:
            generation.reason = "stop" if ended or cuts else "length"
            generation.text = text[: min(cuts)] if cuts else text
            self.release(generation)
            generation.end()
