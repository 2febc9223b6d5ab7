"""One thread that owns the models and gives all replies: whatever is waited for is decoded together, token by token.

A `Table` is a model with its lanes. A lane is a conversation in the model's memory, which stays there when its reply
has been given: a request that goes on with it costs only what is new. Requests enter as soon as a lane is free, and
leave when their reply has ended, so that the others do not wait for the longest one.

Symbols: n replies under way, V vocabulary.
"""

import logging
import queue
import threading
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rmft.agents.chat_tokenizer import text_of
from rmft.agents.local import LanguageModel, LocalChatModel, sample
from rmft.endpoint_server.errors import ApiError, stopping
from rmft.endpoint_server.spelling import BROKEN, Ids, Vocabulary
from rmft.errors import InputError

CHUNK = 64  # tokens of a conversation that are read in one pass, and that it can go back
WORTH_COPYING = 32  # tokens that two conversations have in common
STALE_SECONDS = 120.0  # a lane that nobody has gone on with for so long is used again before a new one is

log = logging.getLogger(__name__)

Key = int | None
Reason = Literal["stop", "length"]


@dataclass(eq=False)
class Reply:
    """A reply that is waited for, and what has been said of it.

    weights: what the base model was fine-tuned to, None for itself. ids: the conversation before it. keys: names of
    the conversation up to each turn, the last one of all of it; to be found by, no more. uniforms: (limit,) in [0, 1),
    one a token. stops: texts that end it. top: alternatives to note for each token, None for no probabilities at all.
    streamed: whether the text is told as it grows; its growth is told where it is clear that it will stay.

    said: ids, the one that ended it among them. logprobs, tops: see `top`. cached: tokens of `ids` that were in memory.
    text, reason, error: when it has ended. told: as much of the text as will stay, and how many tokens that is.
    cancelled: nobody waits any more.
    """

    weights: Path | None
    ids: Ids
    keys: Sequence[Key]
    temperature: float
    uniforms: np.ndarray
    stops: tuple[str, ...] = ()
    top: int | None = None
    streamed: bool = False
    said: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    cached: int = 0
    text: str | None = None
    reason: Reason | None = None
    error: ApiError | None = None
    told: tuple[str, int] = ("", 0)
    cancelled: bool = False


@dataclass(eq=False)
class Lane:
    """A conversation in memory. ids: tokens fed. keys: names under which it is found. idle_since: on a clock."""

    row: int
    ids: Ids = field(default_factory=lambda: array("i"))
    keys: list[Key] = field(default_factory=list)
    idle_since: float = 0.0


def key_of(before: Key, text: str) -> Key:
    """Return the name of a conversation that goes on with a text. Ids are compared before a name is believed."""
    return hash((before, text))


def common(left: Ids, right: Ids) -> int:
    """Return how many ids two lists begin with alike."""
    most = min(len(left), len(right))
    a, b = (np.frombuffer(ids, dtype=np.int32, count=most) if most else np.zeros(0) for ids in (left, right))
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else most


class Table:
    """A model, its lanes, and the replies under way in them."""

    def __init__(self, language_model: LanguageModel, lanes: int) -> None:
        self.model = language_model
        config = language_model.model.config.get_text_config(decoder=True)
        capacity = language_model.chat_tokenizer.limit or config.max_position_embeddings
        self.talk = LocalChatModel(language_model, lanes, capacity, CHUNK)
        self.vocabulary = Vocabulary(language_model.chat_tokenizer.tokenizer)
        self.lanes = [Lane(row) for row in range(lanes)]
        self.unused = deque(self.lanes)
        self.idle: OrderedDict[int, Lane] = OrderedDict()  # by row, the longest idle first
        self.found: dict[Key, list[Lane]] = {}
        self.active: dict[Reply, Lane] = {}
        self.closing = False

    # --- ConnectionPool ---

    def seat(self, reply: Reply) -> bool:
        """Give a reply a lane with as much of its conversation as is in memory. Return False where none is free."""
        for place in range(len(reply.keys) - 1, -1, -1):
            for lane in self.found.get(reply.keys[place], ()):
                same = min(common(lane.ids, reply.ids), len(reply.ids) - 1)
                if not self.talk.can_go_back(lane.row, same):
                    continue
                # What was replied to is one lane's; what was only asked, others may ask as well.
                if place % 2 and lane.row in self.idle:
                    return self._take(reply, lane, same)
                if same >= WORTH_COPYING and (target := self._free(lane)):
                    self.talk.copy(lane.row, target.row)
                    target.ids = lane.ids[:]
                    return self._take(reply, target, same)
        lane = self._free()
        return bool(lane) and self._take(reply, lane, 0)

    def is_read(self, reply: Reply) -> bool:
        """Return whether another reply's lane is reading the same conversation, so that waiting saves reading it."""
        lanes = self.found.get(reply.keys[-1], ())
        return any(len(reply.ids) - len(lane.ids) > WORTH_COPYING and lane.row not in self.idle for lane in lanes)

    def _free(self, but: Lane | None = None) -> Lane | None:
        """Return a lane to begin in, the longest idle one, or None."""
        oldest = next((lane for lane in self.idle.values() if lane is not but), None)
        stale = oldest and time.monotonic() - oldest.idle_since > STALE_SECONDS
        return self.unused[0] if self.unused and not stale else oldest

    def _take(self, reply: Reply, lane: Lane, same: int) -> bool:
        if self.unused and self.unused[0] is lane:
            self.unused.popleft()
        self.idle.pop(lane.row, None)
        self._rename(lane, [reply.keys[-1]])
        self.talk.go_back(lane.row, same)
        del lane.ids[same:]
        reply.cached = same
        self.active[reply] = lane
        return True

    def _rename(self, lane: Lane, keys: list[Key]) -> None:
        for key in lane.keys:
            self.found[key].remove(lane)
            if not self.found[key]:
                del self.found[key]
        lane.keys = keys
        for key in keys:
            self.found.setdefault(key, []).append(lane)

    def leave(self, reply: Reply) -> None:
        """Free a reply's lane, which can be gone on with."""
        lane = self.active.pop(reply)
        if reply.text is not None:
            self._rename(lane, [*lane.keys, key_of(reply.keys[-1], reply.text)])
        lane.idle_since = time.monotonic()
        self.idle[lane.row] = lane

    # --- Tokens ---

    def step(self) -> None:
        """Read a part of what is still to be read, and add a token to every reply that is being given."""
        for reply in [reply for reply in self.active if reply.cancelled]:
            self.leave(reply)
        if reading := [reply for reply, lane in self.active.items() if len(lane.ids) < len(reply.ids)]:
            self._read(reading)
        if talking := [reply for reply in self.active if reply.said]:
            self._feed(talking, [array("i", reply.said[-1:]) for reply in talking])

    def _read(self, reading: list[Reply]) -> None:
        """Read on in the conversation that waits longest, and in those where there is about as much to read."""
        left = [reply.ids[len(self.active[reply].ids) :] for reply in reading]
        most = min(CHUNK, len(left[0]))
        pairs = [(reply, ids[:most]) for reply, ids in zip(reading, left, strict=True) if 2 * len(ids) >= most]
        self._feed(*map(list, zip(*pairs, strict=True)))

    def _feed(self, replies: list[Reply], tokens: list[Ids]) -> None:
        """Feed tokens, and add one to the replies whose conversation has been read."""
        lanes = [self.active[reply] for reply in replies]
        logits = self.talk.feed(np.array([lane.row for lane in lanes]), tokens)
        for lane, new in zip(lanes, tokens, strict=True):
            lane.ids.extend(new)
        read = [
            i for i, (reply, lane) in enumerate(zip(replies, lanes, strict=True)) if len(lane.ids) >= len(reply.ids)
        ]
        if read:
            self._say([replies[i] for i in read], logits if len(read) == len(replies) else logits[read])

    def _say(self, replies: list[Reply], logits: torch.Tensor) -> None:
        """Add a token to replies (n,), sampled from logits (n, V)."""
        numbers = [reply.uniforms[len(reply.said)] for reply in replies]
        drawn = torch.tensor(numbers, dtype=torch.float64, device=logits.device)
        temperatures = np.array([reply.temperature for reply in replies])
        chosen = torch.zeros(len(replies), dtype=torch.int64, device=logits.device)
        for temperature in np.unique(temperatures):
            rows = torch.as_tensor(np.flatnonzero(temperatures == temperature), device=logits.device)
            chosen[rows] = sample(logits[rows], drawn[rows], float(temperature))
        self._note(replies, logits, chosen)
        for reply, token in zip(replies, chosen.tolist(), strict=True):
            reply.said.append(token)
            self._look(reply)

    def _note(self, replies: list[Reply], logits: torch.Tensor, chosen: torch.Tensor) -> None:
        """Note how likely tokens (n,) were, and the likeliest ones, at temperature 1, where that is asked for."""
        rows = [i for i, reply in enumerate(replies) if reply.top is not None]
        if not rows:
            return
        logprobs = logits[rows].log_softmax(dim=-1)
        most = max(1, *(replies[i].top for i in rows))
        best = logprobs.topk(min(most, logprobs.shape[-1]))
        columns = logprobs.gather(1, chosen[rows, None])[:, 0], best.indices, best.values
        for i, logprob, ids, values in zip(rows, *(column.tolist() for column in columns), strict=True):
            replies[i].logprobs.append(logprob)
            replies[i].tops.append(list(zip(ids, values, strict=True))[: replies[i].top])

    def _look(self, reply: Reply) -> None:
        """End a reply if it has ended, and note what of it is certain."""
        ended = reply.said[-1] in self.model.chat_tokenizer.ends
        if reply.stops or reply.streamed or ended or len(reply.said) == len(reply.uniforms):
            text = self._text(reply, ended)
            cuts = [text.find(stop) for stop in reply.stops if stop in text]
            if ended or cuts or len(reply.said) == len(reply.uniforms):
                reply.reason = "stop" if ended or cuts else "length"
                reply.text = text[: min(cuts)] if cuts else text
                self.leave(reply)
            elif reply.streamed and not text.endswith(BROKEN) and not _may_stop(text, reply.stops):
                reply.told = text, len(reply.said)

    def _text(self, reply: Reply, ended: bool) -> str:
        return text_of(self.model.chat_tokenizer.tokenizer, reply.said[:-1] if ended else reply.said)


def _may_stop(text: str, stops: Sequence[str]) -> bool:
    """Return whether a text ends like the beginning of a stop."""
    return any(text.endswith(stop[:length]) for stop in stops for length in range(1, len(stop)))


class Engine:
    """The thread.

    load: gives the model of some weights, None for the base model. deliver: told, in the engine's thread, of replies
    that have grown or ended. lanes: of each model. models: loaded at a time.
    """

    def __init__(
        self,
        load: Callable[[Path | None], LanguageModel],
        deliver: Callable[[list[Reply]], object],
        lanes: int,
        models: int,
    ) -> None:
        self.load, self.deliver, self.lanes, self.models = load, deliver, lanes, models
        self.tables: OrderedDict[Path | None, Table] = OrderedDict()  # the longest unused first
        self.waiting: dict[Path | None, deque[Reply]] = {}
        self.inbox: queue.SimpleQueue[list[Reply] | None] = queue.SimpleQueue()
        self.stopped = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # --- For the thread that asks ---

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def ask(self, replies: list[Reply]) -> None:
        """Have replies given."""
        if self.stopped:
            raise stopping()
        self.inbox.put(replies)

    def stop(self) -> None:
        """End the thread; what is under way is refused."""
        self.stopped = True
        self.inbox.put(None)

    # --- For the engine's own thread ---

    def _run(self) -> None:
        torch.set_num_threads(1)
        while self._receive():
            try:
                self._open_tables()
                for weights, table in list(self.tables.items()):
                    self._serve(weights, table)
            except Exception:
                log.exception("the engine")
                self._fail(ApiError(500, "The model failed; the server's log says why."), list(self._all()))
                self.tables.clear()
        self._fail(stopping(), list(self._all()))

    def _receive(self) -> bool:
        """Take what has come in; wait for it if there is nothing to do. Return False at the end."""
        idle = not any(self.waiting.values()) and not any(table.active for table in self.tables.values())
        while idle or not self.inbox.empty():
            replies = self.inbox.get()
            if replies is None:
                return False
            for reply in replies:
                self.waiting.setdefault(reply.weights, deque()).append(reply)
            idle = False
        return True

    def _open_tables(self) -> None:
        """Load models that are waited for, in the place of those that are not; if all are, of the longest unused."""
        for table in self.tables.values():
            table.closing = False
        for weights in [weights for weights, waiting in self.waiting.items() if waiting and weights not in self.tables]:
            if len(self.tables) >= self.models:
                resting = [key for key, table in self.tables.items() if not table.active]
                if not resting:
                    next(iter(self.tables.values())).closing = True  # takes no one on until it is empty
                    continue
                unneeded = [key for key in resting if not self.waiting.get(key)]
                del self.tables[(unneeded or resting)[0]]
            try:
                self.tables[weights] = Table(self.load(weights), self.lanes)
            except InputError as error:
                self._fail(ApiError(500, str(error)), list(self.waiting.pop(weights)))

    def _serve(self, weights: Path | None, table: Table) -> None:
        """Take on who waits for a model, and go a step on with all who are there."""
        waiting, later = self.waiting.get(weights, deque()), []
        while waiting and not table.closing:
            if table.is_read(waiting[0]):
                later.append(waiting[0])
            elif not waiting[0].cancelled and not table.seat(waiting[0]):
                break
            waiting.popleft()
        waiting.extendleft(reversed(later))
        if not waiting:
            self.waiting.pop(weights, None)
        if table.active:
            self.tables.move_to_end(weights)
            there = list(table.active)
            before = [len(reply.told[0]) for reply in there]
            table.step()
            news = [r for r, told in zip(there, before, strict=True) if r.reason or len(r.told[0]) > told]
            if news:
                self.deliver(news)

    def _all(self) -> Iterator[Reply]:
        """Yield all replies that somebody waits for."""
        for table in self.tables.values():
            yield from list(table.active)
            table.active.clear()
        for waiting in self.waiting.values():
            yield from waiting
        self.waiting.clear()
        while not self.inbox.empty():
            yield from self.inbox.get() or ()

    def _fail(self, error: ApiError, replies: list[Reply]) -> None:
        for reply in replies:
            reply.error = error
        if replies:
            self.deliver(replies)
