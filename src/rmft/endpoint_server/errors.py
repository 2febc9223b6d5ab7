"""Errors of the server in the protocol's shape."""

from dataclasses import dataclass, field


@dataclass
class ApiError(Exception):
    """An error response. param: the parameter at fault. code: the reason, for programs."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the body of the response."""
        kinds = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error for a request that cannot be fulfilled."""
    return ApiError(400, message, param, code)


def missing(kind: str, name: str, param: str = "id") -> ApiError:
    """Return the error for an unknown file or job."""
    return ApiError(404, f"No such {kind}: {name}", param, "not_found")


def no_model(name: str) -> ApiError:
    """Return the error for an unknown model."""
    return ApiError(404, f"The model `{name}` does not exist or was deleted.", "model", "model_not_found")


def in_use(name: str, job: str) -> ApiError:
    """Return the error for deleting a file or model that a job needs."""
    return ApiError(409, f"{name} is in use by {job}, which has not ended.", "id", "in_use")


def busy(queued: int) -> ApiError:
    """Return the error for a request that finds the queue full."""
    message = f"The queue is full with {queued} responses; send the request again later."
    return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})


def stopping() -> ApiError:
    """Return the error for a request that comes while the server stops."""
    return ApiError(503, "The server is stopping.", code="stopping", headers={"Retry-After": "2"})
