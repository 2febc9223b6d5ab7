"""The server's state on disk: JSON documents in folders, and a log of the responses that were paid for.

Documents are replaced as whole files. Files of lines only grow: a last line that a killed process left incomplete is
cut off when the file is opened again.
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
ROTATE_BYTES = 256 << 20  # size of a response log at which a new one is begun; the previous one is kept
RESPONSE = b',"response":'
COUNTED = ("requests", "answers", "prompt_tokens", "completion_tokens")


class DocumentStore:
    """Documents by their ids, each in a file <id>.json, in the order of their creation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found = [(path.stem, read_json(path)) for path in folder.glob("*.json") if not path.name.startswith(".")]
        self.documents: dict[str, Json] = dict(sorted(found, key=lambda item: item[1]["number"]))

    def put(self, name: str, document: Json) -> None:
        """Write a document, or replace it."""
        old = self.documents.get(name)
        number = old["number"] if old else 1 + max((other["number"] for other in self.documents.values()), default=0)
        document = {**document, "number": number}
        write_json(self.folder / f"{name}.json", document)
        self.documents[name] = document

    def delete(self, name: str) -> None:
        """Delete a document."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        self.documents.pop(name, None)


def write_json(path: Path, value: Json) -> None:
    """Write a document, all of it or nothing."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> Json:
    """Read a document. Raise InputError if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}); delete it, and the server forgets its content") from None


class LineFile:
    """A file of lines that only grows. After `append` a line survives a kill of the process, not a power cut."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = self._complete_bytes()
        os.ftruncate(self.file, self.size)

    def _complete_bytes(self) -> int:
        """Return the size of the file up to the end of its last complete line."""
        size = os.fstat(self.file).st_size
        while size:
            begin = max(0, size - (1 << 16))
            end = os.pread(self.file, size - begin, begin).rfind(b"\n")
            if end >= 0:
                return begin + end + 1
            size = begin
        return 0

    def append(self, line: bytes) -> int:
        """Append a line, given with its line end. Return its position in the file."""
        begin = self.size
        written = os.write(self.file, line)
        if written != len(line):
            os.ftruncate(self.file, begin)
            raise OSError(f"{self.path}: the disk is full")
        self.size += written
        return begin

    def line_at(self, begin: int) -> bytes:
        """Return the line at a position, without its line end."""
        size = 1 << 13
        while True:
            line, end, _ = os.pread(self.file, size, begin).partition(b"\n")
            if end:
                return line
            size *= 4

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position of each line, and the line."""
        begin = 0
        with self.path.open("rb") as file:
            for line in file:
                yield begin, line
                begin += len(line)

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)


@dataclass(frozen=True)
class StoredResponse:
    """The response to a request with an idempotency key. request: the request's hash."""

    request: str
    response: bytes


class ResponseLog:
    """The responses to POST requests that had an idempotency key, and the cost of all responses.

    A line holds the hashes of key and request, the cost of the response, and then the response as it was sent. Of a
    response without a key only the cost is kept. When the file has ROTATE_BYTES, a new file is begun; the previous
    file is still searched.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = folder / "answers.jsonl", folder / "answers.previous.jsonl"
        self.cost = dict.fromkeys(COUNTED, 0)
        previous = self._read(LineFile(self.paths[1])) if self.paths[1].exists() else None
        is_new = not self.paths[0].exists()
        self.files = [self._read(LineFile(self.paths[0])), *([previous] if previous else [])]
        if is_new:
            self._write_total()

    def _read(self, lines: LineFile) -> tuple[LineFile, dict[bytes, int]]:
        """Return a file with the position of each key, and add up costs. The first line is the total so far."""
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

    def _write_total(self) -> None:
        self.files[0][0].append(json.dumps({"total": True, **self.cost}).encode() + b"\n")

    def find(self, key: bytes) -> StoredResponse | None:
        """Return the response to the request with a key, or None."""
        for lines, index in self.files:
            if key in index:
                head, _, response = lines.line_at(index[key]).partition(RESPONSE)
                return StoredResponse(json.loads(head + b"}")["body"], response[:-1])
        return None

    def record(self, key: bytes | None, request: str, response: bytes, cost: dict[str, int]) -> None:
        """Record a response before it is sent. response: JSON in one line. cost: numbers by the names in COUNTED."""
        lines, index = self.files[0]
        if key is None:
            lines.append(json.dumps(cost).encode() + b"\n")
        else:
            head = json.dumps({"key": key.hex(), "body": request, **cost}).removesuffix("}")
            index[key] = lines.append(head.encode() + RESPONSE + response + b"}\n")
        for name in COUNTED:
            self.cost[name] += cost.get(name, 0)
        if lines.size > ROTATE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        for lines, _ in self.files[1:]:
            lines.close()
        self.paths[0].replace(self.paths[1])
        self.files = [(LineFile(self.paths[0]), {}), self.files[0]]
        self._write_total()
