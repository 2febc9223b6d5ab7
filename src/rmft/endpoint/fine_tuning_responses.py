"""Read an endpoint's responses about fine-tuning jobs: jobs, lists, events and losses.

A response that does not follow the protocol raises MalformedError, so that the request is retried.
"""

import base64
import binascii
import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import openai
from openai.pagination import SyncCursorPage
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent

from rmft.endpoint.failures import UNPAID, MalformedError, is_retried

LOG_COLUMNS = ("step", "epoch", "loss", "learning_rate")  # of a training log
PAGE = 100  # items of a list in one response

Loss = tuple[int, float, float | None]  # of a step: its number, the loss, and the learning rate if known
T = TypeVar("T")


def checked_job(job: FineTuningJob) -> FineTuningJob:
    """Return a job that has everything that is used of it."""
    if not isinstance(job, FineTuningJob) or not isinstance(job.id, str) or not isinstance(job.status, str):
        raise MalformedError("the response is no job")
    if job.status == "succeeded" and not job.fine_tuned_model:
        raise MalformedError("the job has succeeded and names no model")
    return job


def list_items(call: Callable[..., SyncCursorPage[T]]) -> Iterator[T]:
    """Yield the items of all pages of a list, up to a page without new ones: some gateways repeat one for ever."""
    seen: set[str] = set()
    try:
        page = call(limit=PAGE)
        while True:
            if not isinstance(page.data, list) or not all(isinstance(item.id, str) for item in page.data):
                raise MalformedError("the response is no list")
            new = [item for item in page.data if item.id not in seen]
            yield from new
            seen.update(item.id for item in new)
            if not new or not page.has_next_page():
                return
            page = page.get_next_page()
    except AttributeError:  # raised by the client for a page that is no JSON
        raise MalformedError("the response is no list") from None


def unless_missing(call: Callable[[], T]) -> T | None:
    """Return the result of a call, or None where the endpoint does not offer it."""
    try:
        return call()
    except openai.NotFoundError:
        return None


def losses_in_events(events: Iterable[FineTuningJobEvent]) -> Iterator[Loss]:
    """Yield the loss of every step that events report."""
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        if data.get("step") is not None and data.get("train_loss") is not None:
            yield data["step"], data["train_loss"], None


def losses_in_file(content: bytes) -> Iterator[Loss]:
    """Yield the loss of every step in a job's result file, which OpenAI encodes as base64."""
    if content.lstrip().startswith((b"<", b"{")):
        raise MalformedError("the response is no result file")
    if b"," not in content:
        with suppress(binascii.Error):
            content = base64.b64decode(content)
    for row in csv.DictReader(io.StringIO(content.decode())):
        if row.get("step") and row.get("train_loss"):
            rate = row.get("learning_rate")
            try:
                yield int(float(row["step"])), float(row["train_loss"]), float(rate) if rate else None
            except ValueError:
                raise MalformedError("the response is no result file") from None


def training_log(losses: list[Loss], epochs: int) -> list[dict[str, float | None]]:
    """Return the rows of a training log. Steps are equal parts of the epochs, as in training.sft."""
    last = max((step for step, *_ in losses), default=0)
    rows = ((step, epochs * step / last, loss, rate) for step, loss, rate in sorted(losses))
    return [dict(zip(LOG_COLUMNS, row, strict=True)) for row in rows]


def advice(error: openai.APIStatusError, if_refused: str) -> str | None:
    """Return what to do about an error that a retry cannot fix, else None. if_refused: advice for 403, 404, …."""
    status = error.status_code
    lines = {
        401: "the key is not accepted: set the environment variable that api_key names",
        413: "the training file is too large: select fewer demonstrations",
        **dict.fromkeys((403, 404, 405, 501), if_refused),
    }
    if UNPAID & {error.code, error.type}:
        return "the key's quota is used up: raise it at the endpoint and run again"
    if error.code == "model_not_found" and status != 401:
        return f"it has no such model to fine-tune: correct `model`; or {if_refused}"
    if is_retried(status):
        return None
    return lines.get(status, "it refuses the request")
