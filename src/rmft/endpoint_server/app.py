"""The routes, and who may take them."""

import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rmft.endpoint_server import files as contents
from rmft.endpoint_server.batches import Batches, BatchRequest
from rmft.endpoint_server.chat import ChatRequest
from rmft.endpoint_server.completions import CompletionRequest
from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.jobs import JobRequest, Jobs
from rmft.endpoint_server.messages import Part, refusal
from rmft.endpoint_server.models import Models
from rmft.endpoint_server.once import Made, Once
from rmft.endpoint_server.replies import Replies
from rmft.endpoint_server.settings import ServerSettings

Json = dict[str, Any]
P = TypeVar("P", bound=Part)
Limit = Annotated[int, Query(ge=1, le=100)]
FREE: Mapping[str, int] = {}  # what is made costs nothing that is counted


@dataclass(frozen=True)
class Parts:
    """All that the routes lead to."""

    models: Models
    replies: Replies
    files: Files
    jobs: Jobs
    batches: Batches
    once: Once


def create(
    settings: ServerSettings, parts: Parts, lifespan: Callable[[FastAPI], AbstractAsyncContextManager]
) -> FastAPI:
    """Return the application."""
    app = FastAPI(openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.add_middleware(Gate, settings=settings)
    app.add_exception_handler(ApiError, _refusal)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    app.add_exception_handler(ClientDisconnect, _nobody)
    app.add_exception_handler(Exception, _failure)
    for routes in (_chat_routes, _model_routes, _file_routes, _job_routes, _batch_routes):
        routes(app, parts)
    return app


# --- What all routes have in common ---


class Gate:
    """Lets in who shows the token and brings no more than there is room for; gives every request a name."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
        self.token = f"Bearer {settings.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = b"req_" + secrets.token_hex(12).encode()
        headers = dict(scope["headers"])
        upload = scope["path"] == "/v1/files"
        room = self.settings.upload_bytes if upload else self.settings.body_bytes

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", name)]
            await send(message)

        async def measured() -> Message:
            nonlocal room
            message = await receive()
            room -= len(message.get("body", b""))
            if room < 0:
                raise too_large(self.settings, upload)
            return message

        length = headers.get(b"content-length", b"0")
        if not hmac.compare_digest(headers.get(b"authorization", b""), self.token):
            message = "Incorrect API key provided: show the server's token, Authorization: Bearer …"
            await refused(ApiError(401, message, code="invalid_api_key"))(scope, receive, named)
        elif length.isdigit() and int(length) > room:
            await refused(too_large(self.settings, upload))(scope, receive, named)
        else:
            await self.app(scope, measured, named)


def too_large(settings: ServerSettings, upload: bool) -> ApiError:
    """Return the error for a request of too many bytes."""
    most = settings.upload_bytes if upload else settings.body_bytes
    return ApiError(413, f"The request is too large: it may have {most} bytes.", code="request_too_large")


def refused(error: ApiError) -> Response:
    """Return an error as it is sent."""
    return Response(to_json(error.body), error.status, error.headers, "application/json")


async def _refusal(_: Request, error: ApiError) -> Response:
    return refused(error)


async def _failure(_: Request, __: Exception) -> Response:
    return refused(ApiError(500, "The server failed; its log says why."))


async def _nobody(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)  # there is nobody to read it


async def _http_error(_: Request, error: HTTPException) -> Response:
    messages = {404: "There is no such route.", 405: "The route does not take this method."}
    message = messages.get(error.status_code, str(error.detail))
    return refused(ApiError(error.status_code, message, headers=dict(error.headers or {})))


async def _query_error(_: Request, error: RequestValidationError) -> Response:
    found = error.errors()[0]
    name = str(found["loc"][-1])
    return refused(invalid(f"Invalid value for '{name}': {found['msg']}.", name, "invalid_value"))


def parsed(kind: type[P], body: bytes) -> P:
    """Return what a body says. Raise ApiError where it is not of its schema."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None


def told(value: Json) -> Response:
    """Return a value as it is sent."""
    return Response(to_json(value), media_type="application/json")


def page(items: Sequence[Json], after: str | None, limit: int) -> Response:
    """Return a part of a list: up to so many items after one."""
    begin = 0
    if after is not None:
        begin = next((place for place, item in enumerate(items, start=1) if item["id"] == after), None)
        if begin is None:
            raise invalid(f"after: there is no {after} in this list", "after", "invalid_value")
    data = items[begin : begin + limit]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return told({"object": "list", "data": data, **ends, "has_more": begin + limit < len(items)})


async def made_once(parts: Parts, request: Request, body: bytes, made: Callable[[str], Json]) -> Response:
    """Return what a request has made, once if it has a key. made: makes it, from a name that it may have."""

    async def make(name: str) -> Made:
        return Made(to_json(made(name)), FREE)

    key = request.headers.get("idempotency-key")
    return Response(await parts.once.answer(request.url.path, key, body, make), media_type="application/json")


# --- The routes ---


def _chat_routes(app: FastAPI, parts: Parts) -> None:
    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        body = await request.body()
        asked = parsed(ChatRequest, body)
        key = request.headers.get("idempotency-key")

        async def answer(make: Callable) -> bytes:
            return await parts.once.answer("/v1/chat/completions", key, body, make)

        if not asked.stream:
            return Response(
                await answer(lambda name: parts.replies.complete(asked, name)), media_type="application/json"
            )
        options = asked.stream_options
        events = parts.replies.events(asked, answer, bool(options and options.include_usage))
        first = await anext(events)  # what is refused is refused with its status
        return StreamingResponse(_lines(first, events), media_type="text/event-stream")

    @app.post("/v1/completions")
    async def complete_tokens(request: Request) -> Response:
        return told(await parts.replies.complete_tokens(parsed(CompletionRequest, await request.body())))

    @app.get("/usage")
    async def usage() -> Response:
        jobs = len(parts.jobs.shelf.documents)
        return told({**parts.once.answers.cost, "jobs": jobs})


async def _lines(first: Json, events: AsyncIterator[Json]) -> AsyncIterator[bytes]:
    """Yield the events of a stream as they are sent."""
    yield b"data: " + to_json(first) + b"\n\n"
    try:
        async for event in events:
            yield b"data: " + to_json(event) + b"\n\n"
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield b"data: " + to_json(error.body) + b"\n\n"
    finally:
        await events.aclose()


def _model_routes(app: FastAPI, parts: Parts) -> None:
    @app.get("/v1/models")
    async def models() -> Response:
        return told({"object": "list", "data": [model.told for model in parts.models.known.values()]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return told(parts.models.get(name).told)

    @app.delete("/v1/models/{name:path}")
    async def delete_model(name: str) -> Response:
        if job := parts.jobs.needing(name):
            raise contents.in_use(name, job)
        parts.models.delete(name)
        return told({"id": name, "object": "model", "deleted": True})


def _file_routes(app: FastAPI, parts: Parts) -> None:
    files = parts.files

    @app.post("/v1/files")
    async def create_file(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=8) as form:
            upload, purpose = form.get("file"), contents.check_purpose(form.get("purpose"))
            if not isinstance(upload, UploadFile):
                raise invalid("Missing required parameter: 'file'.", "file", "missing_required_parameter")
            filename = upload.filename or "upload"

            async def make(name: str) -> Made:
                name = f"file-{name[:24]}"
                if name not in files.shelf.documents:
                    await run_in_threadpool(files.write, name, lambda target: contents.copy(upload.file, target))
                    files.register(name, filename, purpose)
                return Made(to_json(files.get(name)), FREE)

            # Not the body itself, which has a boundary that differs each time.
            body = await run_in_threadpool(contents.digest, upload.file) + json.dumps([filename, purpose]).encode()
            key = request.headers.get("idempotency-key")
            return Response(await parts.once.answer("/v1/files", key, body, make), media_type="application/json")

    @app.get("/v1/files")
    async def all_files(
        purpose: str | None = None,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    ) -> Response:
        return page(files.told(purpose)[:: -1 if order == "desc" else 1], after, limit)

    @app.get("/v1/files/{name}")
    async def file(name: str) -> Response:
        return told(files.get(name))

    @app.get("/v1/files/{name}/content")
    async def content(name: str) -> Response:
        return FileResponse(files.data(files.get(name)["id"]), media_type="application/octet-stream")

    @app.delete("/v1/files/{name}")
    async def delete_file(name: str) -> Response:
        if by := parts.jobs.needing(name) or parts.batches.needing(name):
            raise contents.in_use(name, by)
        files.delete(name)
        return told({"id": name, "object": "file", "deleted": True})


def _job_routes(app: FastAPI, parts: Parts) -> None:
    jobs, root = parts.jobs, "/v1/fine_tuning/jobs"

    @app.post(root)
    async def create_job(request: Request) -> Response:
        body = await request.body()
        asked = parsed(JobRequest, body)
        return await made_once(parts, request, body, lambda name: jobs.create(asked, name))

    @app.get(root)
    async def all_jobs(request: Request, after: str | None = None, limit: Limit = 20) -> Response:
        return page([job for job in jobs.all_told() if _matches(job, request)], after, limit)

    @app.get(root + "/{name}")
    async def job(name: str) -> Response:
        return told(jobs.told(name))

    @app.post(root + "/{name}/cancel")
    async def cancel_job(request: Request, name: str) -> Response:
        return await made_once(parts, request, b"", lambda _: jobs.cancel(name))

    @app.get(root + "/{name}/events")
    async def events(name: str, after: str | None = None, limit: Limit = 20) -> Response:
        return page(jobs.events(name), after, limit)

    @app.get(root + "/{name}/checkpoints")
    async def checkpoints(name: str, after: str | None = None, limit: Limit = 10) -> Response:
        return page(jobs.checkpoints(name), after, limit)


def _matches(job: Json, request: Request) -> bool:
    """Return whether a job has the metadata that a query asks for: metadata[key]=value, or metadata=null."""
    asked = {
        key.removeprefix("metadata[").removesuffix("]"): value
        for key, value in request.query_params.items()
        if key.startswith("metadata[")
    }
    if request.query_params.get("metadata") == "null":
        return job["metadata"] is None
    return asked.items() <= (job["metadata"] or {}).items()


def _batch_routes(app: FastAPI, parts: Parts) -> None:
    batches, root = parts.batches, "/v1/batches"

    @app.post(root)
    async def create_batch(request: Request) -> Response:
        body = await request.body()
        asked = parsed(BatchRequest, body)
        return await made_once(parts, request, body, lambda name: batches.create(asked, name))

    @app.get(root)
    async def all_batches(after: str | None = None, limit: Limit = 20) -> Response:
        return page(batches.all_told(), after, limit)

    @app.get(root + "/{name}")
    async def batch(name: str) -> Response:
        return told(batches.told(name))

    @app.post(root + "/{name}/cancel")
    async def cancel_batch(request: Request, name: str) -> Response:
        return await made_once(parts, request, b"", lambda _: batches.cancel(name))
