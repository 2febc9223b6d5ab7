"""What a server keeps: JSON documents in folders, and the answers that were paid for.

Whole files appear under their names when they are complete; a list of lines only grows, and a last line that a kill
has torn is cut off when it is opened again.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts.files import atomic
from rmft.errors import InputError

Json = dict[str, Any]
ROTATE_BYTES = 256 << 20  # of answers, after which those of before the last rotation are forgotten
RESPONSE = b',"response":'
COUNTED = ("requests", "answers", "prompt_tokens", "completion_tokens")


class Shelf:
    """Documents by their ids, each in a file <id>.json, in the order in which they were made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found = [(path.stem, read_json(path)) for path in folder.glob("*.json") if not path.name.startswith(".")]
        self.documents: dict[str, Json] = dict(sorted(found, key=lambda item: item[1]["number"]))

    def put(self, name: str, document: Json) -> None:
        """Keep a document, in the place of an older one of its name."""
        known = self.documents.get(name)
        number = known["number"] if known else 1 + max((one["number"] for one in self.documents.values()), default=0)
        document = {**document, "number": number}
        write_json(self.folder / f"{name}.json", document)
        self.documents[name] = document

    def delete(self, name: str) -> None:
        """Forget a document."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        self.documents.pop(name, None)


def write_json(path: Path, value: Json) -> None:
    """Write a document, all of it or nothing."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> Json:
    """Read a document. Raise InputError where it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}); delete it, and the server forgets what was in it") from None


class Lines:
    """A file of lines that grows. Every line is with the system, though maybe not on the disk, when `add` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = self._whole()
        os.ftruncate(self.file, self.size)

    def _whole(self) -> int:
        """Return how much of the file is whole lines."""
        size = os.fstat(self.file).st_size
        while size:
            begin = max(0, size - (1 << 16))
            end = os.pread(self.file, size - begin, begin).rfind(b"\n")
            if end >= 0:
                return begin + end + 1
            size = begin
        return 0

    def add(self, line: bytes) -> int:
        """Add a line, with its end, and return where it begins."""
        begin = self.size
        written = os.write(self.file, line)
        if written != len(line):
            os.ftruncate(self.file, begin)
            raise OSError(f"{self.path}: the disk is full")
        self.size += written
        return begin

    def at(self, begin: int) -> bytes:
        """Return the line that begins somewhere."""
        size = 1 << 13
        while True:
            line, end, _ = os.pread(self.file, size, begin).partition(b"\n")
            if end:
                return line
            size *= 4

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield where each line begins, and the line."""
        begin = 0
        with self.path.open("rb") as file:
            for line in file:
                yield begin, line
                begin += len(line)

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)


@dataclass(frozen=True)
class Answer:
    """What was answered to a request with a key. body: the request's hash."""

    body: str
    response: bytes


class Answers:
    """The answers of all POST requests that had a key of idempotency, and what all answers cost.

    A line has a head, with the hashes of key and request and what the answer cost, and then the response as it was
    sent. Answers without a key are a head alone. When a file has grown to ROTATE_BYTES another one is begun; the one
    before it is still looked into.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = folder / "answers.jsonl", folder / "answers.previous.jsonl"
        self.cost = dict.fromkeys(COUNTED, 0)
        previous = self._read(Lines(self.paths[1])) if self.paths[1].exists() else None
        fresh = not self.paths[0].exists()
        self.files = [self._read(Lines(self.paths[0])), *([previous] if previous else [])]
        if fresh:
            self._begin()

    def _read(self, lines: Lines) -> tuple[Lines, dict[bytes, int]]:
        """Return a file with its index. Its first line says what answers have cost so far, the others add to it."""
        index = {}
        for begin, line in lines:
            try:
                head = json.loads(line.partition(RESPONSE)[0].rstrip().removesuffix(b"}") + b"}")
            except ValueError as error:
                raise InputError(f"{lines.path}: damaged at byte {begin} ({error}); put it back as it was") from None
            if head.get("total"):
                self.cost = dict.fromkeys(COUNTED, 0)
            for name in COUNTED:
                self.cost[name] += head.get(name, 0)
            if "key" in head:
                index[bytes.fromhex(head["key"])] = begin
        return lines, index

    def _begin(self) -> None:
        self.files[0][0].add(json.dumps({"total": True, **self.cost}).encode() + b"\n")

    def find(self, key: bytes) -> Answer | None:
        """Return what was answered to a key."""
        for lines, index in self.files:
            if key in index:
                head, _, response = lines.at(index[key]).partition(RESPONSE)
                return Answer(json.loads(head + b"}")["body"], response[:-1])
        return None

    def record(self, key: bytes | None, body: str, response: bytes, cost: dict[str, int]) -> None:
        """Keep an answer, before it is sent. response: JSON in one line. cost: see COUNTED."""
        lines, index = self.files[0]
        if key is None:
            lines.add(json.dumps(cost).encode() + b"\n")
        else:
            head = json.dumps({"key": key.hex(), "body": body, **cost}).removesuffix("}")
            index[key] = lines.add(head.encode() + RESPONSE + response + b"}\n")
        for name in COUNTED:
            self.cost[name] += cost.get(name, 0)
        if lines.size > ROTATE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        for lines, _ in self.files[1:]:
            lines.close()
        self.paths[0].replace(self.paths[1])
        self.files = [(Lines(self.paths[0]), {}), self.files[0]]
        self._begin()
