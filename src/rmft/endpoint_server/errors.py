"""Errors of the server in the protocol's shape."""

from starlette.exceptions import HTTPException


class ApiError(HTTPException):
    """An error response. param: the parameter at fault. code: the reason, for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the body of the response."""
        kinds = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status_code >= 500 else kinds.get(self.status_code, "invalid_request_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error for a request that cannot be fulfilled."""
    return ApiError(400, message, param, code)


def missing(kind: str, name: str, param: str = "id") -> ApiError:
    """Return the error for an unknown file or job."""
    return ApiError(404, f"No such {kind}: {name}", param, "not_found")


def stopping() -> ApiError:
    """Return the error for a request that comes while the server stops."""
    return ApiError(503, "The server is stopping.", code="stopping", headers={"Retry-After": "2"})
