"""Batches: files of requests that are answered beside all others, in the order of their lines."""

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json

from rmft.endpoint_server.chat import ChatRequest
from rmft.endpoint_server.errors import ApiError, invalid, missing
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.messages import Metadata, Part, refusal
from rmft.endpoint_server.once import Once
from rmft.endpoint_server.replies import Replies
from rmft.endpoint_server.store import Shelf

Json = dict[str, Any]
URL = "/v1/chat/completions"
ENDED = ("completed", "failed", "cancelled", "expired")
MOST_LINES = 50_000
TOGETHER = 64  # lines that are asked for at once
DAY_SECONDS = 24 * 3600

log = logging.getLogger(__name__)


class BatchRequest(Part):
    """A request for a batch. output_expires_after: not done."""

    input_file_id: str
    endpoint: str
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: Any = None


class Line(Part):
    """A request of a batch."""

    custom_id: Annotated[str, Field(min_length=1)]
    method: Literal["POST"]
    url: Literal["/v1/chat/completions"]
    body: dict[str, Any]


class Batches:
    """The batches by their ids. What they were answered is with all answers, so that none is asked for twice."""

    def __init__(self, folder: Path, files: Files, replies: Replies, once: Once) -> None:
        self.files, self.replies, self.once = files, replies, once
        self.shelf = Shelf(folder)
        self.news = asyncio.Event()

    # --- Asked by clients ---

    def create(self, request: BatchRequest, name: str) -> Json:
        """Return a new batch; the one that was made of this request before, if a kill came before its answer."""
        name = f"batch_{name[:24]}"
        if name in self.shelf.documents:
            return self.told(name)
        if request.endpoint != URL:
            raise invalid(f"endpoint: only {URL} is answered in batches here", "endpoint", "invalid_value")
        self.files.for_purpose(request.input_file_id, "batch", "input_file_id")
        now = int(time.time())
        names = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
        told = {
            "id": name,
            "object": "batch",
            "endpoint": URL,
            "errors": None,
            "input_file_id": request.input_file_id,
            "completion_window": request.completion_window,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "expires_at": now + DAY_SECONDS,
            **{f"{step}_at": None for step in names},
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": request.metadata,
        }
        self.shelf.put(name, {"batch": told})
        self.news.set()
        return told

    def told(self, name: str) -> Json:
        """Return what the protocol says of a batch. Raise ApiError where there is none of this name."""
        if name not in self.shelf.documents:
            raise missing("batch", name, "batch_id")
        return self.shelf.documents[name]["batch"]

    def all_told(self) -> list[Json]:
        """Return what the protocol says of all batches, the latest first."""
        return [document["batch"] for document in reversed(self.shelf.documents.values())]

    def cancel(self, name: str) -> Json:
        """Cancel a batch: what was answered so far is its output. Raise ApiError where it is over."""
        if self.told(name)["status"] in ENDED:
            raise ApiError(409, f"Batch {name} is {self.told(name)['status']}; it cannot be cancelled.", "batch_id")
        self._move(name, "cancelling")
        return self.told(name)

    def needing(self, file: str) -> str | None:
        """Return a batch that is not over and needs a file, or None."""
        asked = ((name, document["batch"]) for name, document in self.shelf.documents.items())
        return next((n for n, one in asked if one["status"] not in ENDED and one["input_file_id"] == file), None)

    # --- Done meanwhile ---

    async def work(self) -> None:
        """Answer the batches that are not over, in the order in which they came, and wait for more."""
        while True:
            self.news.clear()
            open_batches = [name for name, one in self.shelf.documents.items() if one["batch"]["status"] not in ENDED]
            if not open_batches:
                await self.news.wait()
            for name in open_batches[:1]:
                try:
                    await self._do(name)
                except Exception as error:  # the other batches are still to be answered
                    log.exception("batch %s", name)
                    self._move(name, "failed", errors=_errors([(None, "server_error", str(error))]))

    async def _do(self, name: str) -> None:
        lines = list(read_lines(self.files.data(self.told(name)["input_file_id"])))
        if faults := [line for line in lines if not isinstance(line, Line)]:
            self._move(name, "failed", errors=_errors(faults))
            return
        if self.told(name)["status"] != "cancelling":
            self._move(name, "in_progress", request_counts={"total": len(lines), "completed": 0, "failed": 0})
        good, bad = [], []
        for begin in range(0, len(lines), TOGETHER):
            part = range(begin, min(begin + TOGETHER, len(lines)))
            for said in await asyncio.gather(*(self._answer(name, number, lines[number]) for number in part)):
                if said:
                    (bad if said["error"] or said["response"]["status_code"] != 200 else good).append(to_json(said))
            counts = {"total": len(lines), "completed": len(good), "failed": len(bad)}
            self._update(name, request_counts=counts)
        cancelled = self.told(name)["status"] == "cancelling"
        if not cancelled:
            self._move(name, "finalizing")
        made = {
            f"{kind}_file_id": self._file(f"file-{name.removeprefix('batch_')}-{kind}", said)
            for kind, said in (("output", good), ("error", bad))
            if said
        }
        self._move(name, "cancelled" if cancelled else "completed", **made)

    async def _answer(self, name: str, number: int, line: Line) -> Json | None:
        """Return the line of the output that answers a line; None if the batch is cancelled and it has no answer."""
        said = {"id": f"batch_req_{name.removeprefix('batch_')}{number:06d}", "custom_id": line.custom_id}
        body = to_json(line.body)

        async def make(identity: str):  # noqa: ANN202 (as Make has it)
            if self.told(name)["status"] == "cancelling":
                raise _CancelledError
            try:
                request = ChatRequest.model_validate_json(body)
            except ValidationError as error:
                raise refusal(error) from None
            if request.stream:
                raise invalid("stream cannot be true in a batch.", "stream")
            return await self.replies.complete(request, identity)

        while True:
            try:
                answer = from_json(await self.once.answer(URL, f"{name}:{number}", body, make))
                return {**said, "response": _response(200, said["id"], answer), "error": None}
            except _CancelledError:
                return None
            except ApiError as error:
                if error.status not in (429, 503):
                    return {**said, "response": _response(error.status, said["id"], error.body), "error": None}
                await asyncio.sleep(1.0)  # the others come first

    def _file(self, name: str, lines: list[bytes]) -> str:
        """Keep an output, and return its id."""

        def write(file: BinaryIO) -> None:
            file.writelines(line + b"\n" for line in lines)

        self.files.write(name, write)
        return self.files.register(name, f"{name.removeprefix('file-')}.jsonl", "batch_output")["id"]

    # --- State ---

    def _move(self, name: str, status: str, **changed: Any) -> None:  # noqa: ANN401 (fields of a batch)
        self._update(name, status=status, **{f"{status}_at": int(time.time())}, **changed)

    def _update(self, name: str, **changed: Any) -> None:  # noqa: ANN401 (fields of a batch)
        self.shelf.put(name, {"batch": {**self.told(name), **changed}})


class _CancelledError(Exception):
    """The batch is cancelled."""


Fault = tuple[int | None, str, str]  # a line's number, a code and a message


def read_lines(path: Path) -> Iterator[Line | Fault]:
    """Yield the requests of a batch, or what is wrong with them."""
    seen: set[str] = set()
    texts = [(number, text) for number, text in enumerate(path.read_bytes().split(b"\n"), start=1) if text.strip()]
    if not texts:
        yield None, "empty_file", "The file has no requests."
    if len(texts) > MOST_LINES:
        yield None, "too_many_requests", f"A batch has at most {MOST_LINES} requests."
        return
    for number, text in texts:
        try:
            line = Line.model_validate_json(text)
        except ValidationError as error:
            yield number, "invalid_json_line", refusal(error).message
            continue
        if line.custom_id in seen:
            yield number, "duplicate_custom_id", f"custom_id {line.custom_id!r} is there twice."
        seen.add(line.custom_id)
        yield line


def _errors(faults: list[Fault]) -> Json:
    data = [{"line": line, "code": code, "message": message, "param": None} for line, code, message in faults]
    return {"object": "list", "data": data[:100]}


def _response(status: int, name: str, body: Json) -> Json:
    return {"status_code": status, "request_id": name, "body": body}
