"""What happens to every request: the API key is checked, the size limited, and a request id added."""

import hmac
import secrets

from fastapi import Response
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.settings import ServerSettings

UPLOADS = "/v1/files"  # the route whose requests may be larger


class RequestGuard:
    """Middleware that refuses requests without the API key or over the size limit."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
        self.authorization = f"Bearer {settings.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = b"req_" + secrets.token_hex(12).encode()
        headers = dict(scope["headers"])
        limit = self.settings.upload_bytes if scope["path"] == UPLOADS else self.settings.body_bytes
        received = 0

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise too_large(limit)
            return message

        length = headers.get(b"content-length", b"0")
        if not hmac.compare_digest(headers.get(b"authorization", b""), self.authorization):
            message = "Incorrect API key provided: send the server's key, Authorization: Bearer …"
            error = ApiError(401, message, code="invalid_api_key")
            await error_response(error)(scope, receive, send_with_id)
        elif length.isdigit() and int(length) > limit:
            await error_response(too_large(limit))(scope, receive, send_with_id)
        else:
            await self.app(scope, receive_limited, send_with_id)


def too_large(limit: int) -> ApiError:
    """Return the error for a request of too many bytes."""
    return ApiError(413, f"The request is too large: it may have {limit} bytes.", code="request_too_large")


def error_response(error: ApiError) -> Response:
    """Return the response that reports an error."""
    return Response(to_json(error.body), error.status_code, error.headers, "application/json")
