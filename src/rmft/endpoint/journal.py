"""What was asked of an endpoint and what it answered: on disk before it is used, so that nothing is paid for twice.

A journal is a file of zstd frames (`zstdcat` reads it), each with whole lines of JSON, and is only ever appended to:

    {"kind":"message","hash":…,"after":…,"role":…,"content":…}
    {"kind":"answer","key":…,"usage":{"model":…,"prompt":…,…},"request":{…,"messages":…},"response":{…}}

A message names the one that it follows, so that a conversation is stored once however often it is sent; a request has
the hash of its last one. A frame is synced to the disk before any answer in it is used. Answers that arrive while a
frame is being written go into the next one together, so that many at once cost one sync. A process that is killed
leaves at most one torn frame, at the end, which is cut off when the journal is opened to be written again. A file
whose permissions forbid writing, such as a link into a cache, can be replayed and is never touched.

What is recorded is what was said: callers put no header, token or address with credentials into a request.
"""

import hashlib
import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from rmft.endpoint.budget import Usage
from rmft.endpoint.frames import append, damaged, failed, frames, opened, packed, read, unpacked
from rmft.errors import InputError

SUFFIX = ".jsonl.zst"
MESSAGE = b'{"kind":"message","hash":"'
ANSWER = b'{"kind":"answer","key":"'
REQUEST = b',"request":'  # what ends the beginning of an answer's line, which has its key and its usage
HASH_LENGTH = 64
FRAMES_KEPT = 32  # unpacked ones: a rerun asks in almost the order in which answers came

Json = dict[str, Any]
Place = tuple[int, int, int]  # of an answer: where its frame begins and ends in the file, and which line of it


def key_of(request: Mapping[str, Any]) -> str:
    """Return the key of a request: a hash of its canonical JSON, with the hash of the conversation in its place.

    Requests for different answers have to differ, so whoever asks twice adds words that tell the two apart.
    """
    return hashlib.sha256(_canonical(_linked(request))).hexdigest()


def links(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a hash of every message and all that is before it."""
    after, found = "", []
    for message in messages:
        after = _link(after, message["role"], message["content"])
        found.append(after)
    return found


@lru_cache(maxsize=1 << 16)
def _link(after: str, role: str, content: str) -> str:
    return hashlib.sha256(f"{after}\n{role}\n{content}".encode(errors="surrogatepass")).hexdigest()


def _linked(request: Mapping[str, Any]) -> Json:
    """Return a request whose messages are the hash of the last one."""
    messages = request.get("messages")
    return {**request, "messages": links(messages)[-1]} if messages else dict(request)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Journal:
    """A journal that this process, and no other, writes to: `Journal.open`."""

    def __init__(self, path: Path, file: int, *, writable: bool) -> None:
        self.path, self.writable = path, writable
        self._file, self._end = file, 0
        self._places: dict[str, Place] = {}
        self._known: set[str] = set()  # hashes of messages that are stored
        self._waiting: list[tuple[str, Mapping[str, Any], Mapping[str, Any], Json, Future[None]]] = []
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, f"journal {path.name}")
        self._frame = lru_cache(FRAMES_KEPT)(self._read_frame)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a journal, or begin one; cut off what a killed process left torn at its end.

        Raise InputError where it is damaged before its end, or another process is writing to it.
        """
        file, writable = opened(path)
        journal = cls(path, file, writable=writable)
        try:
            data = read(path)
            for begin, end, lines in frames(path, data):
                journal._index(begin, end, lines)
                journal._end = end
            if writable and journal._end < len(data):
                os.ftruncate(file, journal._end)
        except BaseException:
            journal.close()
            raise
        return journal

    def _index(self, begin: int, end: int, lines: list[bytes]) -> None:
        for number, line in enumerate(lines):
            if line.startswith(ANSWER):
                self._places[_named(line, ANSWER)] = (begin, end, number)
            else:
                self._known.add(_named(line, MESSAGE))

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, key: str) -> Json | None:
        """Return the answer that is on record under a key, the last one if there are several, or None."""
        place = self._places.get(key)
        if place is None:
            return None
        begin, end, number = place
        return json.loads(self._frame(begin, end)[number])["response"]

    def _read_frame(self, begin: int, end: int) -> list[bytes]:
        lines = unpacked(os.pread(self._file, end - begin, begin))
        if lines is None:
            raise damaged(self.path, begin)
        return lines

    def require_writable(self) -> None:
        """Raise InputError if nothing may be recorded: it has to be known before anything is asked for."""
        if not self.writable:
            raise InputError(f"{self.path}: may not be written to, and has no answer to what is asked now")

    def record(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Usage | None = None
    ) -> None:
        """Put a request and its answer on the disk, and return when they are there. For any thread.

        usage: what was paid for, if it is not what the answer says. Raise InputError if it cannot be written.
        """
        self.record_soon(key, request, response, usage).result()

    def record_soon(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Usage | None = None
    ) -> "Future[None]":
        """Put a request and its answer on the disk, and return what is done when they are there.

        For coroutines: `await asyncio.wrap_future(journal.record_soon(…))`. To give up waiting does not take it back.
        """
        self.require_writable()
        used = Usage.of(response) if usage is None else usage
        written: Future[None] = Future()
        written.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        with self._lock:
            self._waiting.append((key, request, response, {"model": request.get("model"), **asdict(used)}, written))
        self._writer.submit(self._write)
        return written

    def _write(self) -> None:
        """Write all that waits as one frame."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            self._append([line for key, *entry, _ in waiting for line in self._lines(key, *entry)])
        except Exception as error:  # whatever it is, those who wait have to hear of it
            self._known.clear()  # since some were not written; that others are stored once more does no harm
            reason = failed(self.path, error) if isinstance(error, OSError) else error
            for *_, written in waiting:
                written.set_exception(reason)
            return
        for *_, written in waiting:
            written.set_result(None)

    def _lines(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Mapping[str, Any]
    ) -> Iterator[bytes]:
        """Yield the lines of an answer and, before it, of messages that are new."""
        messages, after = request.get("messages") or [], ""
        for message, link in zip(messages, links(messages), strict=True):
            if link not in self._known:
                self._known.add(link)
                said = {"role": message["role"], "content": message["content"]}
                yield _line({"kind": "message", "hash": link, "after": after, **said})
            after = link
        # Key and usage come first, so that they can be read without the rest.
        yield _line(
            {"kind": "answer", "key": key, "usage": usage, "request": _linked(request), "response": dict(response)}
        )

    def _append(self, lines: list[bytes]) -> None:
        begin, self._end = self._end, append(self._file, self._end, packed(lines))
        self._index(begin, self._end, lines)

    def close(self) -> None:
        """Wait until everything is on the disk, and let go of the journal."""
        self._writer.shutdown()
        os.close(self._file)


def read_journal(path: Path) -> Iterator[tuple[Json, Json]]:
    """Yield every request, with all its messages, and its answer. The journal may be one that is being written."""
    messages: dict[str, Json] = {}
    for *_, lines in frames(path, read(path)):
        for line in map(json.loads, lines):
            if line["kind"] == "message":
                messages[line["hash"]] = line
            else:
                request = line["request"]
                if "messages" in request:
                    request["messages"] = _conversation(path, messages, request["messages"])
                yield request, line["response"]


def _conversation(path: Path, messages: Mapping[str, Json], last: str) -> list[Json]:
    """Return the messages up to the one with a hash."""
    said = []
    while last:
        try:
            message = messages[last]
        except KeyError:
            raise InputError(f"{path}: damaged: a message of a conversation is not in it") from None
        said.append({"role": message["role"], "content": message["content"]})
        last = message["after"]
    return said[::-1]


def usage_of(paths: Iterable[Path]) -> dict[str, Usage]:
    """Return what all answers in journals have used, by model. Those that are being written are read as they are."""
    return _total(_usage(path, read(path))[0] for path in paths)


class Spending:
    """What all journals in a folder, and in folders in it, have used; each byte of them is read once.

    but: a journal that is not counted, because whoever writes it counts for himself.
    """

    def __init__(self, folder: Path, but: Path | None = None) -> None:
        self.folder, self.but = folder, but.resolve() if but else None
        self._seen: dict[Path, tuple[int, dict[str, Usage]]] = {}  # bytes that were read of each, and what they say

    def usage(self) -> dict[str, Usage]:
        """Return the usage so far, by model."""
        for path in self.folder.rglob(f"*{SUFFIX}"):
            if path.resolve() != self.but:
                with suppress(FileNotFoundError):  # it may be gone by now
                    self._look(path, path.stat().st_size)
        return _total(used for _, used in self._seen.values())

    def _look(self, path: Path, size: int) -> None:
        end, used = self._seen.get(path, (0, {}))
        if size < end:  # another one has its name
            end, used = 0, {}
        if size > end:
            new, more = _usage(path, read(path, end))
            self._seen[path] = end + more, _total([used, new])


def _usage(path: Path, data: bytes) -> tuple[dict[str, Usage], int]:
    """Return the usage in whole frames, by model, and how many bytes they are."""
    used, size = defaultdict(Usage), 0
    for _, end, lines in frames(path, data):
        for line in lines:
            if line.startswith(ANSWER):
                stated = json.loads(line[: line.index(REQUEST)] + b"}")["usage"]
                used[stated.pop("model")] += Usage(**stated)
        size = end
    return used, size


def _total(parts: Iterable[Mapping[str, Usage]]) -> dict[str, Usage]:
    total: dict[str, Usage] = defaultdict(Usage)
    for part in parts:
        for model, used in part.items():
            if used != Usage():
                total[model] += used
    return dict(total)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _named(line: bytes, beginning: bytes) -> str:
    """Return the key or hash that a line begins with."""
    return line[len(beginning) : len(beginning) + HASH_LENGTH].decode()
