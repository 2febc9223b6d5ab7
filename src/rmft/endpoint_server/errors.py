"""What a request is refused with, in the protocol's shape."""

from dataclasses import dataclass, field


@dataclass
class ApiError(Exception):
    """An answer that says no. param: the part of the request that is meant. code: for programs to read."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """Return what is sent."""
        kinds = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error for a request that asks for what cannot be."""
    return ApiError(400, message, param, code)


def missing(what: str, name: str, param: str = "id") -> ApiError:
    """Return the error for something that is not there."""
    return ApiError(404, f"No such {what}: {name}", param, "not_found")


def no_model(name: str) -> ApiError:
    """Return the error for a model that is not there."""
    return ApiError(404, f"The model `{name}` does not exist or is no longer here.", "model", "model_not_found")


def busy(waiting: int) -> ApiError:
    """Return the error for a request that came when too many were waiting."""
    message = f"{waiting} replies are waited for, and no more can be; come again"
    return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})


def stopping() -> ApiError:
    """Return the error for a request that a server on its way out does not answer any more."""
    return ApiError(503, "The server is being stopped.", code="stopping", headers={"Retry-After": "2"})
