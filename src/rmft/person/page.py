"""The page of `rmft play --page`: a server on this machine alone, at an address that no one can guess.

A reward is sent to the page when it is earned; the page never holds a later one.
"""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel

from rmft.errors import InputError
from rmft.person.session import Session

HOST = "127.0.0.1"
HTML = Path(__file__).with_name("page.html")
HEADERS = {  # the page loads nothing, tells no one its address, and is in no cache
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Choice(BaseModel):
    """A choice of the person's. round: from 1, so that a key that is pressed twice counts once. action: from 1."""

    round: int
    action: int


def app_of(session: Session, token: str) -> FastAPI:
    """Return the routes, all below the token; no other address says anything."""
    app = FastAPI(openapi_url=None)

    @app.middleware("http")
    async def add_headers(request: Any, call_next: Any) -> Any:  # noqa: ANN401 (starlette's)
        response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(InputError)
    async def refuse(_: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)

    @app.get(f"/{token}/", response_class=HTMLResponse)
    async def page() -> str:
        return HTML.read_text(encoding="utf-8")

    @app.get(f"/{token}/game")
    async def game() -> dict[str, Any]:
        return shown(session)

    @app.post(f"/{token}/choice")
    async def choose(choice: Choice) -> dict[str, Any]:
        if choice.round == len(session.replies) + 1:
            session.reply(str(choice.action))
        return shown(session)

    @app.post(f"/{token}/next")
    async def begin_next() -> dict[str, Any]:
        if session.over:
            session.begin()
        return shown(session)

    return app


def shown(session: Session) -> dict[str, Any]:
    """Return what the page shows: what was earned so far and, once the game is over, what it would have said before."""
    over = session.over
    return {
        "title": session.title,
        "rounds": session.rounds,
        "played": len(session.replies),
        "names": session.game.names,
        "told": None if session.plain else session.position.message,
        "said": session.payments(),
        "regrets": session.regrets() if over else None,
        "means": session.means() if over else None,
        "kept": str(session.path),
    }


class _PageServer(uvicorn.Server):
    """A server that ends at Ctrl-C without an exception."""

    def handle_exit(self, sig: int, frame: object) -> None:
        """Stop."""
        self.should_exit = True


def serve(session: Session, port: int, announce: Callable[[str], object]) -> None:
    """Serve the page until Ctrl-C. announce: is called with its address. Raise InputError where the port is taken."""
    token = secrets.token_urlsafe(16)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise InputError(f"play: --port: {port}: {error.strerror or error}") from None
        listener.listen()
        announce(f"http://{HOST}:{listener.getsockname()[1]}/{token}/")
        config = uvicorn.Config(
            app_of(session, token), access_log=False, log_level="warning", server_header=False, ws="none",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        _PageServer(config).run(sockets=[listener])
