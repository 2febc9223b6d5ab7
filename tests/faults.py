"""A proxy on loopback that makes the faults of networks and busy endpoints, and counts each by its kind."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from upstream import Served, Server

from rmft.streams import stream

STATUSES = {  # status and headers of a response that is sent before the request has reached the endpoint
    "408": (408, {}),
    "409": (409, {}),
    "429": (429, {}),
    "429, Retry-After": (429, {"Retry-After": "1"}),
    "429, retry-after-ms": (429, {"retry-after-ms": "300"}),
    "429, used up": (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "200ms"}),
    "500": (500, {}),
    "502": (502, {}),
    "503": (503, {"Retry-After": "0.5"}),
    "529": (529, {}),
}
BEFORE = (*STATUSES, "cut before", "no answer")  # the request does not reach the endpoint
AFTER = (  # the endpoint has responded
    "cut in the body",
    "stuck in the body",
    "dripping body",
    "garbage",
    "HTML",
    "empty object",
    "two lengths",
    "never passed on",
)
NO_USAGE = "no usage"  # each retry of it is paid, so that it is retried once
HARMLESS = ("slow body", "header twice")  # the response arrives whole
KINDS = (*BEFORE, *AFTER, *HARMLESS)
PASSED = ("Content-Type", "Authorization", "Idempotency-Key")  # headers of a request
OURS = ("content-length", "connection", "date", "server", "transfer-encoding")  # headers of a response, set here
DRIPS, DRIP_SECONDS = 100, 0.05
PAGE = b"<html><head><title>Bad gateway</title></head><body>nginx</body></html>"


class FaultProxy(Served):
    """Passes requests on to an endpoint, a share of them with a fault: `with FaultProxy(…) as proxy`, then proxy.url.

    seed: of the stream from which a fault is drawn for each request. most: faults in all. injected: faults by kind.
    """

    def __init__(self, upstream: str, seed: int, share: float, most: int, kinds: Sequence[str] = KINDS) -> None:
        self.upstream, self.share, self.most, self.kinds = urlsplit(upstream), share, most, kinds
        self.injected: Counter[str] = Counter()
        self._random = stream(seed, "sampling", "faults")
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", 0), type("Handler", (_Relay,), {"proxy": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}{self.upstream.path}"

    def draw(self) -> str | None:
        """Return the fault of a request, if it has one."""
        with self._lock:
            unlucky, which = self._random.random(2)
            if unlucky >= self.share or self.injected.total() >= self.most:
                return None
            kind = self.kinds[int(which * len(self.kinds))]
            self.injected[kind] += 1
            return kind


class _Relay(BaseHTTPRequestHandler):
    """What a proxy does with one connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultProxy

    def relay(self) -> None:
        """Read a request; respond to it, or do not."""
        fault, body = self.proxy.draw(), self.rfile.read(int(self.headers["Content-Length"] or 0))
        if fault in STATUSES:
            status, headers = STATUSES[fault]
            self.send(status, json.dumps({"error": {"message": "Later.", "type": "busy"}}).encode(), headers)
        elif fault == "cut before":
            self.cut()
        elif fault == "no answer":
            self.wait_for_the_client_to_give_up()
        else:
            self.pass_on(fault, *self.forward(body))

    do_GET = do_POST = do_DELETE = relay  # noqa: N815 (names that http.server looks for)

    def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request on to the endpoint; return its response."""
        onward = HTTPConnection(self.proxy.upstream.hostname, self.proxy.upstream.port)
        with closing(onward):
            onward.request(
                self.command, self.path, body, {name: self.headers[name] for name in PASSED if name in self.headers}
            )
            reply = onward.getresponse()
            headers = {name.title(): value for name, value in reply.getheaders() if name.lower() not in OURS}
            return reply.status, headers, reply.read()

    def pass_on(self, fault: str | None, status: int, headers: dict[str, str], answer: bytes) -> None:
        """Send a response to the client, with a fault."""
        half = len(answer) // 2
        if fault == "never passed on":
            self.wait_for_the_client_to_give_up()
        elif fault in ("cut in the body", "stuck in the body"):
            self.send_head(status, len(answer), headers)
            self.wfile.write(answer[:half])
            self.cut() if fault == "cut in the body" else self.wait_for_the_client_to_give_up()
        elif fault == "dripping body":  # never silent for long, and not done for long
            self.send_head(status, 10**6, headers)
            for _ in range(DRIPS):  # or until the client has gone
                self.wfile.write(b" ")
                time.sleep(DRIP_SECONDS)
            self.hang_up()
        elif fault == "two lengths":
            self.send_head(status, len(answer), {**headers, "Content-length": str(half)})
            self.wfile.write(answer)
            self.cut()
        elif fault == "slow body":
            self.send_head(status, len(answer), headers)
            for begin in range(0, len(answer), 50):
                self.wfile.write(answer[begin : begin + 50])
        elif fault == "header twice":
            self.send(status, answer, {**headers, "Retry-After": "1", "retry-after": "2"})
        else:
            spoilt = {"garbage": answer[:half] + b"\x00\xff", "HTML": PAGE, "empty object": b"{}"}
            spoilt |= {NO_USAGE: b'{"choices": [{"message": {"content": "1"}}]}'}
            self.send(status, spoilt.get(fault, answer), headers)

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send an answer."""
        self.send_head(status, len(body), headers)
        self.wfile.write(body)

    def send_head(self, status: int, length: int, headers: dict[str, str]) -> None:
        """Send what comes before the body."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": length, **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()

    def cut(self) -> None:
        """End the connection without a goodbye."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.hang_up()

    def wait_for_the_client_to_give_up(self) -> None:
        """Send no more, and keep the connection open."""
        self.connection.recv(1)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, whatever is still being sent."""
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        self.close_connection = True

    def handle(self) -> None:
        """Handle requests until the client or the endpoint is gone."""
        with suppress(OSError, ValueError, HTTPException):
            super().handle()

    def finish(self) -> None:
        """End a connection that may have been cut."""
        with suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
