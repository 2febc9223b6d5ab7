"""A small endpoint on loopback, over HTTP, whose responses depend on the request alone; it counts what was paid."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np

KEY = "sk-test-0123456789abcdef"
MODEL = "teller"

Body = dict[str, Any]


def numbers_of(body: Body) -> np.random.Generator:
    """Return random numbers that depend on the whole request."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def tell(body: Body) -> str:
    """Return one of three actions, or a policy if the prompt asks for one; now and then nothing valid."""
    numbers = numbers_of(body)
    if numbers.random() < 0.15:
        return "Hm."
    if "Policy:" in body["messages"][-1]["content"]:
        shares = numbers.dirichlet(np.ones(3))
        return "Policy: [{:.4f}, {:.4f}, {:.4f}]".format(*shares)
    return f"Why not.\nAction: {1 + numbers.integers(3)}"


def completion(body: Body, text: str) -> Body:
    """Return the response with this text; its tokens are characters."""
    prompt = sum(len(message["content"]) // 4 + 3 for message in body["messages"])
    answer = {
        "id": "chatcmpl-" + numbers_of(body).bytes(8).hex(),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": len(text), "total_tokens": prompt + len(text)},
    }
    answer["usage"]["prompt_tokens_details"] = {"cached_tokens": prompt // 2}
    if body.get("logprobs"):
        answer["choices"][0]["logprobs"] = {"content": [_place(body, character) for character in text]}
    return answer


def _place(body: Body, character: str) -> Body:
    """Return a token with the most likely ones in its place: for a digit, 1, 2 and 3 and two others."""
    likeliest = {character: 0.5, "x": 0.1}
    if character.isdecimal():
        likeliest |= dict(zip("123", (0.5, 0.2, 0.1), strict=True))
    tops = [
        {"token": token, "bytes": list(token.encode()), "logprob": float(np.log(p))} for token, p in likeliest.items()
    ]
    return {**tops[0], "top_logprobs": tops[: body["top_logprobs"]]}


class Server(ThreadingHTTPServer):
    """A server for many connections at once."""

    daemon_threads = True
    request_queue_size = 128


class Served:
    """Runs the server in `_server` during a `with` block."""

    _server: ThreadingHTTPServer

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Upstream(Served):
    """The endpoint: `with Upstream() as upstream`, then upstream.url.

    say: returns the text of a response. Each response is paid for, but for one that is repeated for its
    Idempotency-Key, if the endpoint honours those. paid, bodies: of responses, by key. received: requests, by key.
    refusals: (status, body of the error) for the next requests, before any response. quota: number of responses after
    which there is no credit. hold: called before each response, while other requests may arrive. connections: made so
    far; open: still open.
    """

    def __init__(self, say: Callable[[Body], str] = tell, *, honours_keys: bool = True) -> None:
        self.say, self.honours_keys = say, honours_keys
        self.paid: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.bodies: dict[str, Body] = {}
        self.refusals: list[tuple[int, Body]] = []
        self.quota: int | None = None
        self.hold: Callable[[], None] = lambda: None
        self.connections = self.open = 0
        self.headers: dict[str, str] = {}  # that every answer has
        self._answers: dict[str, Body] = {}
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def reply(self, key: str, body: Body, authorised: bool) -> tuple[int, Body]:
        """Return a status and a body for a request."""
        with self._lock:
            self.received[key] += 1
            if self.refusals:
                return self.refusals.pop(0)
        if not authorised:
            return 401, {"error": {"message": f"Incorrect API key provided: {KEY[:8]}****{KEY[-4:]}."}}
        self.hold()
        answer = completion(body, self.say(body))
        with self._lock:
            if self.honours_keys and key in self._answers:
                return 200, self._answers[key]
            if self.paid.total() == self.quota:
                return 429, {"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}}
            self._answers[key] = answer
            self.paid[key] += 1
            self.bodies[key] = body
        return 200, answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with upstream._lock:
                    upstream.connections += 1
                    upstream.open += 1

            def finish(self) -> None:
                with upstream._lock:
                    upstream.open -= 1
                super().finish()

            def handle(self) -> None:
                with suppress(OSError, ValueError):  # the client is gone
                    super().handle()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                authorised = self.headers["Authorization"] == f"Bearer {KEY}"
                status, answer = upstream.reply(self.headers["Idempotency-Key"], body, authorised)
                data = json.dumps(answer).encode()
                self.send_response(status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **upstream.headers}
                for name, value in {**headers, **answer.pop("headers", {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler
