"""Record every request to an endpoint and its response on disk, so that nothing is paid for twice.

A journal is a file of zstd frames (`zstdcat` reads it), each with complete lines of JSON, to which frames are only ever
appended:

    {"kind":"message","hash":…,"after":…,"role":…,"content":…}
    {"kind":"answer","key":…,"usage":{"model":…,"prompt":…,…},"request":{…,"messages":…},"response":{…}}

A message names its predecessor, so that a conversation is stored once however often it is sent; a request holds the
hash of its last message. A request whose response was lost, and may have been paid for, has its key under `lost`, an
empty response, and the most that it can have used. A frame is synced to the disk before any response in it is used.
Responses that arrive while a frame is being written go into the next frame together, so that many responses cost one
sync. A killed process leaves at most one incomplete frame at the end, which is cut off when the journal is opened for
writing. A file without write permission, such as a link into a cache, is replayed and never changed.

Requests are recorded as callers give them: callers put no header, key or address with credentials into a request.
"""

import hashlib
import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from rmft.endpoint.budget import Usage
from rmft.endpoint.failures import LARGEST_COUNT
from rmft.endpoint.journal_file import append, compress, damaged, frame_at, frames, open_file, read_from, unwritable
from rmft.errors import InputError

SUFFIX = ".jsonl.zst"
MESSAGE = b'{"kind":"message","hash":"'
RESPONSE = b'{"kind":"answer","key":"'
REQUEST = b',"request":'  # ends the first part of a response's line, which has its key and its usage
HASH_LENGTH = 64
FRAMES_CACHED = 32  # decompressed: a rerun reads responses in almost the order in which they arrived

Json = dict[str, Any]
Place = tuple[int, int, int]  # of a response: begin and end of its frame in the file, and its line in the frame


def key_of(request: Mapping[str, Any]) -> str:
    """Return the key of a request: a hash of its canonical JSON, in which a hash stands for the conversation.

    Requests that may get different responses must differ: callers add words that tell them apart.
    """
    canonical = json.dumps(_with_link(request), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def links(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return for each message a hash of it and all messages before it."""
    after, hashes = "", []
    for message in messages:
        after = _link(after, message["role"], message["content"])
        hashes.append(after)
    return hashes


@lru_cache(maxsize=1 << 16)
def _link(after: str, role: str, content: str) -> str:
    return hashlib.sha256(f"{after}\n{role}\n{content}".encode(errors="surrogatepass")).hexdigest()


def _with_link(request: Mapping[str, Any]) -> Json:
    """Return a request with the hash of the last message in place of its messages."""
    messages = request.get("messages")
    return {**request, "messages": links(messages)[-1]} if messages else dict(request)


class Journal:
    """A journal that this process alone writes to; `Journal.open` opens it."""

    def __init__(self, path: Path, file: int, *, writable: bool) -> None:
        self.path, self.writable = path, writable
        self._file, self._end = file, 0
        self._places: dict[str, Place] = {}
        self._stored: set[str] = set()  # hashes of messages
        self._queue: list[tuple[str, Mapping[str, Any], Mapping[str, Any], Json, Future[None]]] = []
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, f"journal {path.name}")
        self._frame = lru_cache(FRAMES_CACHED)(self._read_frame)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a journal, or create it; cut off an incomplete frame at its end.

        Raise InputError if it is damaged before its end, or another process is writing to it.
        """
        file, writable = open_file(path)
        journal = cls(path, file, writable=writable)
        try:
            data = read_from(path)
            for begin, end, lines in frames(path, data):
                with _understood(path, begin):
                    journal._index(begin, end, lines)
                journal._end = end
            if writable and journal._end < len(data):
                os.ftruncate(file, journal._end)
        except BaseException:  # the file is closed whatever happens
            journal.close()
            raise
        return journal

    def _index(self, begin: int, end: int, lines: list[bytes]) -> None:
        for number, line in enumerate(lines):
            if line.startswith(RESPONSE):
                self._places[_hash_in(line, RESPONSE)] = (begin, end, number)
            else:
                self._stored.add(_hash_in(line, MESSAGE))

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def response(self, key: str) -> Json | None:
        """Return the recorded response with a key, the last one if there are several, or None."""
        if key not in self._places:
            return None
        begin, end, number = self._places[key]
        with _understood(self.path, begin):
            return json.loads(self._frame(begin, end)[number])["response"]

    def _read_frame(self, begin: int, end: int) -> list[bytes]:
        frame = frame_at(os.pread(self._file, end - begin, begin), 0)
        if frame is None:
            raise damaged(self.path, begin)
        return frame[1]

    def require_writable(self) -> None:
        """Raise InputError if nothing can be recorded; call this before a request is sent."""
        if not self.writable:
            raise InputError(f"{self.path}: may not be written to, and lacks the response to a request")

    def record(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Usage | None = None
    ) -> None:
        """Write a request and its response to the disk, and return when they are there. Thread-safe.

        usage: what was paid for, if the response does not state it. Raise InputError if the journal cannot be written.
        """
        self.record_soon(key, request, response, usage).result()

    def record_soon(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Usage | None = None
    ) -> "Future[None]":
        """Begin to write a request and its response to the disk. Return a future that is done when they are there.

        For coroutines: `await asyncio.wrap_future(journal.record_soon(…))`. The future cannot be cancelled.
        """
        self.require_writable()
        used = Usage.of(response) if usage is None else usage
        written: Future[None] = Future()
        written.set_running_or_notify_cancel()  # so that nobody can cancel it
        with self._lock:
            self._queue.append((key, request, response, {"model": request.get("model"), **asdict(used)}, written))
        self._writer.submit(self._write)
        return written

    def _write(self) -> None:
        """Write everything in the queue as one frame."""
        with self._lock:
            entries, self._queue = self._queue, []
        if not entries:
            return
        try:
            lines = [line for *entry, _ in entries for line in self._lines(*entry)]
            begin, self._end = self._end, append(self._file, self._end, compress(lines))
            self._index(begin, self._end, lines)
        except Exception as error:  # any error must reach those who wait for the futures
            self._stored.clear()  # some messages were not written; storing others again does no harm
            reason = unwritable(self.path, error) if isinstance(error, OSError) else error
            for *_, written in entries:
                written.set_exception(reason)
            return
        for *_, written in entries:
            written.set_result(None)

    def _lines(
        self, key: str, request: Mapping[str, Any], response: Mapping[str, Any], usage: Mapping[str, Any]
    ) -> Iterator[bytes]:
        """Yield the lines of new messages, and then the line of the response."""
        messages, after = request.get("messages") or [], ""
        for message, link in zip(messages, links(messages), strict=True):
            if link not in self._stored:
                self._stored.add(link)
                text = {"role": message["role"], "content": message["content"]}
                yield _line({"kind": "message", "hash": link, "after": after, **text})
            after = link
        # Key and usage come first, so that they can be read without the rest.
        head = {"kind": "answer", "key": key, "usage": usage}
        yield _line({**head, "request": _with_link(request), "response": dict(response)})

    def close(self) -> None:
        """Wait until everything is on the disk, and close the file."""
        self._writer.shutdown()
        os.close(self._file)


def read_journal(path: Path) -> Iterator[tuple[Json, Json]]:
    """Yield every request, with all its messages, and its response. Another process may be writing to the journal."""
    messages: dict[str, Json] = {}
    for begin, _, lines in frames(path, read_from(path)):
        with _understood(path, begin):
            entries = list(_entries(messages, lines))
        yield from entries


def _entries(messages: dict[str, Json], lines: Iterable[bytes]) -> Iterator[tuple[Json, Json]]:
    """Yield the requests and responses of a frame. messages: by hash; those of the frame are added."""
    for line in map(json.loads, lines):
        if line["kind"] == "message":
            messages[line["hash"]] = line
        else:
            request = line["request"]
            if "messages" in request:
                request["messages"] = _conversation(messages, request["messages"])
            yield request, line["response"]


def _conversation(messages: Mapping[str, Json], last: str) -> list[Json]:
    """Return the messages up to the one with a hash. Raise KeyError where one is missing, ValueError for a circle."""
    conversation = []
    while last:
        if len(conversation) == len(messages):
            raise ValueError
        message = messages[last]
        conversation.append({"role": message["role"], "content": message["content"]})
        last = message["after"]
    return conversation[::-1]


def usage_of(paths: Iterable[Path]) -> dict[str, Usage]:
    """Return the usage of all responses in journals, by model. Other processes may be writing to them."""
    total: dict[str, Usage] = defaultdict(Usage)
    for path in paths:
        _add_usage(total, path, read_from(path))
    return dict(total)


class FolderUsage:
    """The usage of all journals in a folder and its subfolders; each byte of them is read once.

    but: a journal that is not counted.
    """

    def __init__(self, folder: Path, but: Path | None = None) -> None:
        self.folder, self.but = folder, but.resolve() if but else None
        self._read: dict[Path, tuple[int, dict[str, Usage]]] = {}  # bytes read of each journal, and their usage

    def usage(self) -> dict[str, Usage]:
        """Return the usage so far, by model."""
        for path in self.folder.rglob(f"*{SUFFIX}"):
            if path.resolve() != self.but:
                with suppress(FileNotFoundError):  # somebody may have deleted it
                    self._update(path, path.stat().st_size)
        total: dict[str, Usage] = defaultdict(Usage)
        for _, usage in self._read.values():
            for model, used in usage.items():
                total[model] += used
        return dict(total)

    def _update(self, path: Path, size: int) -> None:
        end, usage = self._read.get(path, (0, defaultdict(Usage)))
        if size < end:  # another journal has its name now
            end, usage = 0, defaultdict(Usage)
        if size > end:
            self._read[path] = end + _add_usage(usage, path, read_from(path, end), end), usage


def _add_usage(total: defaultdict[str, Usage], path: Path, data: bytes, begin: int = 0) -> int:
    """Add the usage in complete frames to a total by model. Return the length of these frames in bytes.

    begin: where the data begin in the file.
    """
    size = 0
    for start, end, lines in frames(path, data):
        size = end
        with _understood(path, begin + start):
            for line in lines:
                if line.startswith(RESPONSE):
                    model, used = _usage_in(line)
                    if used != Usage():
                        total[model] += used
    return size


def _usage_in(line: bytes) -> tuple[str, Usage]:
    """Return the model and the usage of a response's line. Raise ValueError where its numbers are no counts."""
    stated = json.loads(line[: line.index(REQUEST)] + b"}")["usage"]
    model, used = stated.pop("model"), Usage(**stated)
    if not all(abs(count) < LARGEST_COUNT for count in stated.values()):  # below 0: fewer were trained on than expected
        raise ValueError
    return model, used


@contextmanager
def _understood(path: Path, begin: int) -> Iterator[None]:
    """Raise InputError where the lines of a frame are not what a journal holds."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path, begin) from None


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _hash_in(line: bytes, beginning: bytes) -> str:
    """Return the key or hash at the beginning of a line."""
    return line[len(beginning) : len(beginning) + HASH_LENGTH].decode()
