"""The routes of the server."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rmft.endpoint_server.chat import ChatRequest, stream_chunks
from rmft.endpoint_server.completions import CompletionRequest
from rmft.endpoint_server.errors import ApiError, in_use, invalid
from rmft.endpoint_server.files import Files, check_purpose, copy, digest_of_file
from rmft.endpoint_server.fine_tuning_jobs import FineTuningJobs
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.endpoint_server.generation import ResponseGenerator
from rmft.endpoint_server.idempotency import HandlerResult, IdempotentRequests
from rmft.endpoint_server.middleware import RequestGuard, error_response
from rmft.endpoint_server.models import ServedModels
from rmft.endpoint_server.schema import RequestModel, schema_error
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import Json

R = TypeVar("R", bound=RequestModel)
Limit = Annotated[int, Query(ge=1, le=100)]
JSON = "application/json"


@dataclass(frozen=True)
class Services:
    """The objects that routes use."""

    models: ServedModels
    generator: ResponseGenerator
    files: Files
    jobs: FineTuningJobs
    idempotent: IdempotentRequests


def create(
    settings: ServerSettings, services: Services, lifespan: Callable[[FastAPI], AbstractAsyncContextManager]
) -> FastAPI:
    """Return the application."""
    app = FastAPI(openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.add_middleware(RequestGuard, settings=settings)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_query_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_failure)
    for add_routes in (_chat_routes, _model_routes, _file_routes, _job_routes):
        add_routes(app, services)
    return app


# --- Common to all routes ---


async def _on_api_error(_: Request, error: ApiError) -> Response:
    return error_response(error)


async def _on_failure(_: Request, __: Exception) -> Response:
    return error_response(ApiError(500, "The server failed; its log says why."))


async def _on_disconnect(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _on_http_error(_: Request, error: HTTPException) -> Response:
    messages = {404: "There is no such route.", 405: "The route does not take this method."}
    message = messages.get(error.status_code, str(error.detail))
    return error_response(ApiError(error.status_code, message, headers=dict(error.headers or {})))


async def _on_query_error(_: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return error_response(invalid(f"Invalid value for '{name}': {first['msg']}.", name, "invalid_value"))


def parse(schema: type[R], body: bytes) -> R:
    """Return the parsed body of a request. Raise ApiError if it does not follow its schema."""
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        raise schema_error(error) from None


def json_response(value: Json) -> Response:
    """Return a response with a JSON body."""
    return Response(to_json(value), media_type=JSON)


def page(items: Sequence[Json], after: str | None, limit: int) -> Response:
    """Return a page of a list: up to `limit` items after the one with the id `after`."""
    begin = 0
    if after is not None:
        begin = next((place for place, item in enumerate(items, start=1) if item["id"] == after), None)
        if begin is None:
            raise invalid(f"after: there is no {after} in this list", "after", "invalid_value")
    data = items[begin : begin + limit]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return json_response({"object": "list", "data": data, **ends, "has_more": begin + limit < len(items)})


async def idempotent(services: Services, request: Request, body: bytes, change: Callable[[str], Json]) -> Response:
    """Return the JSON response of a change, made once for each idempotency key. change: see `idempotency.Handler`."""

    async def handler(name: str) -> HandlerResult:
        return HandlerResult(to_json(change(name)), {})

    key = request.headers.get("idempotency-key")
    return Response(await services.idempotent.respond(request.url.path, key, body, handler), media_type=JSON)


# --- The routes ---


def _chat_routes(app: FastAPI, services: Services) -> None:
    @app.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        body = await request.body()
        chat = parse(ChatRequest, body)
        response = await services.idempotent.respond(
            "/v1/chat/completions",
            request.headers.get("idempotency-key"),
            body,
            lambda name: services.generator.chat(chat, name),
        )
        if not chat.stream:
            return Response(response, media_type=JSON)
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        chunks = stream_chunks(from_json(response), include_usage)
        return StreamingResponse(_server_sent_events(chunks), media_type="text/event-stream")

    @app.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        return json_response(await services.generator.complete(parse(CompletionRequest, await request.body())))

    @app.get("/usage")
    async def get_usage() -> Response:
        return json_response({**services.idempotent.log.cost, "jobs": len(services.jobs.store.documents)})


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
        if job := services.jobs.using(name):
            raise in_use(name, job)
        models.delete(name)
        return json_response({"id": name, "object": "model", "deleted": True})


def _file_routes(app: FastAPI, services: Services) -> None:
    files = services.files

    @app.post("/v1/files")
    async def create_file(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=8) as form:
            upload, purpose = form.get("file"), check_purpose(form.get("purpose"))
            if not isinstance(upload, UploadFile):
                raise invalid("Missing required parameter: 'file'.", "file", "missing_required_parameter")
            filename = upload.filename or "upload"

            async def handler(name: str) -> HandlerResult:
                name = f"file-{name[:24]}"
                if name not in files.store.documents:
                    await run_in_threadpool(files.write, name, lambda target: copy(upload.file, target))
                    files.register(name, filename, purpose)
                return HandlerResult(to_json(files.get(name)), {})

            # The body itself has a random boundary, so that it differs each time.
            content = await run_in_threadpool(digest_of_file, upload.file)
            body, key = content + json.dumps([filename, purpose]).encode(), request.headers.get("idempotency-key")
            return Response(await services.idempotent.respond("/v1/files", key, body, handler), media_type=JSON)

    @app.get("/v1/files")
    async def list_files(
        purpose: str | None = None,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
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
        if job := services.jobs.using(name):
            raise in_use(name, job)
        files.delete(name)
        return json_response({"id": name, "object": "file", "deleted": True})


def _job_routes(app: FastAPI, services: Services) -> None:
    jobs, root = services.jobs, "/v1/fine_tuning/jobs"

    @app.post(root)
    async def create_job(request: Request) -> Response:
        body = await request.body()
        settings = parse(FineTuningJobRequest, body)
        return await idempotent(services, request, body, lambda name: jobs.create(settings, name))

    @app.get(root)
    async def list_jobs(request: Request, after: str | None = None, limit: Limit = 20) -> Response:
        return page([job for job in jobs.all() if _matches(job, request)], after, limit)

    @app.get(root + "/{name}")
    async def get_job(name: str) -> Response:
        return json_response(jobs.get(name))

    @app.post(root + "/{name}/cancel")
    async def cancel_job(request: Request, name: str) -> Response:
        return await idempotent(services, request, b"", lambda _: jobs.cancel(name))

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
