"""The HTTP client: where its requests go, by what way, and what they hold."""

import asyncio
import gzip
import re
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import httpx2
import pytest
from upstream import Served, Server

from rmft.endpoint.http_client import HttpClient, NoResponseError, Response
from rmft.errors import InputError

FOREIGN = "http://endpoint.invalid/v1"  # no such host: only a proxy can pass a request on


class Noting(Served):
    """A server that notes the path and headers of each request, and sends its body back, or one of its own.

    hangs_up: whether it closes the connection after a response. raw: bytes that it sends in place of a response. It
    lets nobody connect through it, and answers `status` to who tries.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.status, self.headers, self.hangs_up, self.body, self.raw = 200, {}, False, b"", b""
        self.ended = threading.Event()  # a connection
        noting = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = noting.body or body
                noting.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                if noting.raw:
                    self.wfile.write(noting.raw)
                    self.close_connection = True
                    return
                self.send_response(noting.status)
                for name, value in {"Content-Length": str(len(body)), **noting.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = noting.hangs_up

            def do_CONNECT(self) -> None:
                self.send_error(noting.status)

            def finish(self) -> None:
                super().finish()
                noting.ended.set()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.authority = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.authority}/v1"


def post(
    url: str, times: int = 1, *, trust_env: bool = True, timeout: float = 5.0, rest: Callable[[], object] = int
) -> list[Response]:
    """Return the responses to as many requests, one after the other. rest: what happens between them."""
    client = HttpClient(url, 1, headers={"Authorization": "Bearer key"}, timeout=timeout, trust_env=trust_env)
    responses = []
    with asyncio.Runner() as runner:
        try:
            for _ in range(times):
                responses.append(runner.run(client.post("/chat/completions", {"name": "é"})))
                rest()
        finally:
            runner.run(client.close())
    return responses


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with Noting() as noting:
        yield noting


def test_a_request_is_sent_in_the_same_bytes_each_time(server):
    (response,) = post(server.url)
    assert (response.status, response.content) == (200, '{"name":"é"}'.encode())
    assert server.seen[0][0] == "/v1/chat/completions"
    assert server.seen[0][1]["content-type"] == "application/json"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_the_environment_names_a_proxy_with_its_password(server, variable, monkeypatch):
    monkeypatch.setenv(variable, f"someone:secret@{server.authority}")  # without a scheme, as curl takes it
    post(FOREIGN)
    path, headers = server.seen[0]
    assert path == f"{FOREIGN}/chat/completions"
    assert headers["proxy-authorization"] == "Basic " + b64encode(b"someone:secret").decode()
    assert headers["authorization"] == "Bearer key"


def test_no_proxy_is_asked_where_the_environment_excludes_the_address_or_is_not_trusted(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NoResponseError, match=r"'127\.0\.0\.1', 1"):
        post(server.url)
    post(server.url, trust_env=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    post(server.url)
    assert [path for path, _ in server.seen] == ["/v1/chat/completions"] * 2


@pytest.mark.parametrize(
    ("excluded", "url"),
    [
        ("10.0.0.0/8", "http://10.0.0.5:8000/v1"),
        ("other, fd00::/16", "http://[fd00::5]:8000/v1"),
        ("[fd00::5]", "http://[fd00::5]/v1"),
        ("http://gpu1", "http://GPU1:8000/v1"),
        (".lan", "http://gpu1.lan/v1"),
    ],
)
def test_the_environment_excludes_addresses_from_the_proxy_as_in_httpx(excluded, url, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    def proxies() -> tuple[bool, bool]:
        ours = HttpClient(url, 1, headers={}, timeout=1.0, trust_env=True).proxy
        with httpx2.Client() as theirs:
            return ours is not None, theirs._transport_for_url(httpx2.URL(url)) is not theirs._transport

    assert proxies() == (True, True)
    monkeypatch.setenv("NO_PROXY", excluded)
    assert proxies() == (False, False)


@pytest.mark.parametrize("status", [407, 403])
def test_a_proxy_that_lets_nobody_through_ends_the_run_with_a_line_that_names_its_variable(server, status, monkeypatch):
    server.status = status
    monkeypatch.setenv("HTTPS_PROXY", server.url)
    with pytest.raises(InputError, match=f"NO_PROXY: names a proxy that cannot be used: it answers {status}"):
        post("https://endpoint.invalid/v1")


@pytest.mark.parametrize(
    "url", ["http://256.256.256.256/v1", "http://api..example.com/v1", f"http://{'a' * 64}.org/v1"]
)
def test_an_address_that_is_none_is_a_line(url):
    with pytest.raises(InputError, match=f"{re.escape(url)}: cannot be asked"):
        post(url)


def test_the_key_is_neither_replaced_by_a_netrc_nor_sent_on_to_another_address(server, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login someone password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.status, server.headers = 307, {"Location": "/elsewhere"}
    assert [response.status for response in post(server.url)] == [307]
    assert [headers["authorization"] for _, headers in server.seen] == ["Bearer key"]


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used_again(server):
    server.hangs_up = True

    def until_closed() -> None:
        assert server.ended.wait(20)
        server.ended.clear()
        time.sleep(0.1)  # from the end of the handler to the end of the connection

    assert [response.status for response in post(server.url, times=5, rest=until_closed)] == [200] * 5


def test_a_small_response_that_inflates_without_end_is_given_up(server):
    server.body = gzip.compress(bytes(1 << 20)) * 300  # members of a megabyte each
    server.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(NoResponseError, match="a response of more than 256 MiB") as too_large:
        post(server.url)
    assert too_large.value.sent


def test_a_header_may_be_long(server):
    server.headers = {"Content-Security-Policy": "a" * 20_000}
    assert [response.status for response in post(server.url)] == [200]


def test_a_body_that_breaks_off_in_its_framing_is_noticed_at_once(server):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.raw = head + b"2\r\n{}\r\n" + b"upstream error\r\n"
    begun = time.monotonic()
    with pytest.raises(NoResponseError) as broken:
        post(server.url, timeout=60.0)
    assert (broken.value.sent, broken.value.timeout) == (True, False)
    assert time.monotonic() - begun < 30


def test_what_never_reached_a_server_is_told_from_what_may_have_been_paid(server):
    with pytest.raises(NoResponseError) as never:
        post("http://127.0.0.1:1/v1")
    assert (never.value.sent, never.value.timeout) == (False, False)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NoResponseError) as hanging:
        post(f"https://127.0.0.1:{silent.getsockname()[1]}/v1", timeout=3.0)  # TLS needs an answer
    assert (hanging.value.sent, hanging.value.timeout) == (False, True)
    server.headers = {"Content-Length": "1000"}  # of which few come
    server.hangs_up = True
    with pytest.raises(NoResponseError) as cut:
        post(server.url)
    assert (cut.value.sent, cut.value.timeout) == (True, False)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "socks://127.0.0.1:1080", "http://u:s3cret/x@host:80"])
def test_a_proxy_that_cannot_be_used_is_a_line_that_names_its_variable(proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match="ALL_PROXY or NO_PROXY: names a proxy that cannot be used") as refusal:
        post(FOREIGN)
    assert "s3cret" not in str(refusal.value)


def test_certificates_that_cannot_be_read_are_a_line_that_names_their_variable(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(InputError, match="SSL_CERT_FILE or SSL_CERT_DIR: "):
        post("https://localhost/v1")
