"""The routes of the server."""

import asyncio
import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from fastapi import FastAPI, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rmft.endpoint_server.chat import ChatRequest, CompletionRequest, stream_chunks
from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.fine_tuning_jobs import FineTuningJobs
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.endpoint_server.generation import ResponseGenerator
from rmft.endpoint_server.idempotency import Handler, IdempotentRequests
from rmft.endpoint_server.middleware import RequestGuard, error_response
from rmft.endpoint_server.models import ServedModels
from rmft.endpoint_server.schema import RequestModel, schema_error
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import Json, Store
from rmft.errors import InputError

R = TypeVar("R", bound=RequestModel)
Limit = Annotated[int, Query(ge=1, le=100)]
JSON = "application/json"


@dataclass(frozen=True)
class Services:
    """The objects that routes use."""

    store: Store
    models: ServedModels
    generator: ResponseGenerator
    files: Files
    jobs: FineTuningJobs
    idempotent: IdempotentRequests

    async def respond(self, request: Request, body: bytes, handler: Handler) -> bytes:
        """Return the body of the response to a POST request, made once for each idempotency key."""
        key = request.headers.get("idempotency-key")
        return await self.idempotent.respond(request.url.path, key, body, handler)

    async def generate(self, request: Request, body: bytes, handler: Handler) -> bytes:
        """Return what `respond` does. Give generation up where the client has gone and cannot ask for it again."""
        response = self.respond(request, body, handler)
        return await (response if "idempotency-key" in request.headers else _while_connected(request, response))

    def require_unused(self, name: str) -> None:
        """Raise ApiError for deleting a file or model that a job needs."""
        if job := self.jobs.using(name):
            raise ApiError(409, f"{name} is in use by {job}, which has not ended.", "id", "in_use")


def create(
    settings: ServerSettings, services: Services, lifespan: Callable[[FastAPI], AbstractAsyncContextManager]
) -> FastAPI:
    """Return the application."""
    app = FastAPI(openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.add_middleware(RequestGuard, settings=settings)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_schema_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    for unwritable in (InputError, sqlite3.OperationalError):
        app.add_exception_handler(unwritable, _on_full_disk)
    app.add_exception_handler(Exception, _on_failure)
    for add_routes in (_chat_routes, _model_routes, _file_routes, _job_routes):
        add_routes(app, services)
    return app


# --- Common to all routes ---


async def _while_connected(request: Request, response: Coroutine[None, None, bytes]) -> bytes:
    """Return what a coroutine returns; cancel it and raise ClientDisconnect where the client goes before."""
    working, gone = asyncio.ensure_future(response), asyncio.ensure_future(_disconnection(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _disconnection(request: Request) -> None:
    """Wait until the client has gone; the body of its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_http_error(_: Request, error: HTTPException) -> Response:
    if not isinstance(error, ApiError):
        messages = {404: "There is no such route.", 405: "The route does not take this method."}
        message = messages.get(error.status_code, str(error.detail))
        error = ApiError(error.status_code, message, headers=error.headers)
    return error_response(error)


async def _on_schema_error(_: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    return error_response(schema_error({**first, "loc": first["loc"][1:]}))  # without "query" or "body"


async def _on_disconnect(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _on_full_disk(_: Request, error: Exception) -> Response:
    print(f"rmft serve: {error}", file=sys.stderr, flush=True)
    return error_response(ApiError(507, "The server cannot write to its disk; its log says why."))


async def _on_failure(_: Request, __: Exception) -> Response:
    return error_response(ApiError(500, "The server failed; its log says why."))


def parse(schema: type[R], body: bytes) -> R:
    """Return the parsed body of a request. Raise ApiError if it does not follow its schema."""
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        raise schema_error(error.errors()[0]) from None


def json_response(value: Json) -> Response:
    """Return a response with a JSON body."""
    return Response(to_json(value), media_type=JSON)


def page(items: Sequence[Json], after: str | None, limit: int) -> Response:
    """Return a page of a list: up to `limit` items after the one with the id `after`."""
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise invalid(f"after: there is no {after} in this list", "after", "invalid_value")
    begin = 0 if after is None else ids.index(after) + 1
    data = items[begin : begin + limit]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return json_response({"object": "list", "data": data, **ends, "has_more": begin + limit < len(items)})


# --- The routes ---


def _chat_routes(app: FastAPI, services: Services) -> None:
    @app.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        body = await request.body()
        chat = parse(ChatRequest, body)
        response = await services.generate(request, body, lambda name: services.generator.chat(chat, name))
        if not chat.stream:
            return Response(response, media_type=JSON)
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        chunks = stream_chunks(from_json(response), include_usage)
        return StreamingResponse(_server_sent_events(chunks), media_type="text/event-stream")

    @app.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        body = await request.body()
        completion = parse(CompletionRequest, body)
        response = await services.generate(request, body, lambda name: services.generator.complete(completion, name))
        return Response(response, media_type=JSON)

    @app.get("/usage")
    async def get_usage() -> Response:
        return json_response({**services.store.cost, "jobs": len(services.jobs.all())})


def _server_sent_events(chunks: Iterator[Json]) -> Iterator[bytes]:
    for chunk in chunks:
        yield b"data: " + to_json(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _model_routes(app: FastAPI, services: Services) -> None:
    models = services.models

    @app.get("/v1/models")
    async def list_models() -> Response:
        return json_response({"object": "list", "data": [model.description for model in models.by_id.values()]})

    @app.get("/v1/models/{name:path}")
    async def get_model(name: str) -> Response:
        return json_response(models.get(name).description)

    @app.delete("/v1/models/{name:path}")
    async def delete_model(name: str) -> Response:
        services.require_unused(name)
        models.delete(name)
        return json_response({"id": name, "object": "model", "deleted": True})


def _file_routes(app: FastAPI, services: Services) -> None:
    files = services.files

    @app.post("/v1/files")
    async def create_file(
        request: Request, file: UploadFile, purpose: Annotated[Literal["fine-tune"], Form()]
    ) -> Response:
        filename = file.filename or "upload"
        # The body itself has a random boundary, so that it differs each time.
        digest = await run_in_threadpool(hashlib.file_digest, file.file, "sha256")
        body = digest.digest() + json.dumps([filename, purpose]).encode()
        response = await services.respond(
            request, body, lambda name: files.create(f"file-{name[:24]}", filename, purpose, file.file)
        )
        return Response(response, media_type=JSON)

    @app.get("/v1/files")
    async def list_files(
        purpose: str | None = None,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        return page(files.all(purpose)[:: -1 if order == "desc" else 1], after, limit)

    @app.get("/v1/files/{name}")
    async def get_file(name: str) -> Response:
        return json_response(files.get(name))

    @app.get("/v1/files/{name}/content")
    async def get_file_content(name: str) -> Response:
        return FileResponse(files.path(files.get(name)["id"]), media_type="application/octet-stream")

    @app.delete("/v1/files/{name}")
    async def delete_file(name: str) -> Response:
        services.require_unused(name)
        files.delete(name)
        return json_response({"id": name, "object": "file", "deleted": True})


def _job_routes(app: FastAPI, services: Services) -> None:
    jobs, root = services.jobs, "/v1/fine_tuning/jobs"

    @app.post(root)
    async def create_job(request: Request) -> Response:
        body = await request.body()
        settings = parse(FineTuningJobRequest, body)
        response = await services.respond(request, body, lambda name: jobs.create(settings, name))
        return Response(response, media_type=JSON)

    @app.get(root)
    async def list_jobs(request: Request, after: str | None = None, limit: Limit = 20) -> Response:
        return page([job for job in jobs.all()[::-1] if _matches(job, request)], after, limit)

    @app.get(root + "/{name}")
    async def get_job(name: str) -> Response:
        return json_response(jobs.get(name))

    @app.post(root + "/{name}/cancel")
    async def cancel_job(request: Request, name: str) -> Response:
        return Response(await services.respond(request, b"", lambda _: jobs.cancel(name)), media_type=JSON)

    @app.get(root + "/{name}/events")
    async def list_events(name: str, after: str | None = None, limit: Limit = 20) -> Response:
        return page(jobs.events(name), after, limit)

    @app.get(root + "/{name}/checkpoints")
    async def list_checkpoints(name: str, after: str | None = None, limit: Limit = 10) -> Response:
        return page(jobs.checkpoints(name), after, limit)


def _matches(job: Json, request: Request) -> bool:
    """Return whether a job has the metadata of a query: metadata[key]=value, or metadata=null."""
    if request.query_params.get("metadata") == "null":
        return job["metadata"] is None
    wanted = {
        key.removeprefix("metadata[").removesuffix("]"): value
        for key, value in request.query_params.items()
        if key.startswith("metadata[")
    }
    return wanted.items() <= (job["metadata"] or {}).items()
