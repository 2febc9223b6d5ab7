"""An HTTP client for many requests at once.

It is aiohttp's: httpx takes several times as long over a request, and looks at all connections of its pool each time,
so that many requests at once take longer to send than a small model takes to answer them (`benchmarks/clients.py`).
"""

import asyncio
import json
import ssl
from asyncio import Future
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientPayloadError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)

from rmft.errors import InputError, first_line

# For which an idle connection is kept open: vLLM and llama.cpp close it after five, at times as it is used again.
IDLE_SECONDS = 3.0
LONGEST_HEADER, MOST_HEADERS = 1 << 16, 1000  # in bytes; gateways add long ones, and the response has been paid for
REFUSED_BY_PROXY = (401, 403, 407)
LARGEST_BODY = 256 << 20  # bytes; a completion with all its log-probabilities has far fewer
LOOKS = 2  # of the event loop at its sockets, after which it knows of connections that were closed while it rested
PROXY_SCHEMES = ("http", "https")
UNUSABLE_PROXY = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY: names a proxy that cannot be used"


@dataclass(frozen=True)
class Response:
    """A complete response. headers: by names in any case. content: the body."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Return whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.content.decode(errors="replace")


class NoResponseError(Exception):
    """A request without a complete response. sent: whether the server may have got it. timeout: whether it hung."""

    def __init__(self, message: str, *, sent: bool, timeout: bool) -> None:
        super().__init__(message)
        self.sent, self.timeout = sent, timeout


@contextmanager
def usable_proxy() -> Iterator[None]:
    """Raise InputError where a client of httpx cannot be made because of the proxy that the environment names."""
    from httpx2 import InvalidURL

    try:
        yield
    except (ImportError, ValueError, InvalidURL) as error:  # of SOCKS without its library, of an unknown scheme
        reason = f": {first_line(error)}" if isinstance(error, ImportError) else ""  # others may quote a password
        raise InputError(f"{UNUSABLE_PROXY}{reason}") from None


class HttpClient:
    """Connections to one address, for one event loop.

    connections: the most at a time; further requests wait. headers: of every request. timeout: in seconds, of a request
    with its response, however slowly that arrives. trust_env: whether the environment may name a proxy and
    certificates. Raise InputError where it names ones that cannot be used.
    """

    def __init__(
        self, url: str, connections: int, *, headers: Mapping[str, str], timeout: float, trust_env: bool
    ) -> None:
        self.url, self.connections, self.headers = url.rstrip("/"), connections, headers
        # The limit for connecting is the shorter one, so that what was never sent is told from what was.
        self.timeout = ClientTimeout(total=timeout, connect=timeout / 2)
        self.certificates = _certificates(trust_env) if urlsplit(url).scheme == "https" else True
        self.proxy = _proxy(self.url) if trust_env else None
        self._session: ClientSession | None = None

    def _opened(self) -> ClientSession:
        """Return the connections, which only an event loop that runs can have."""
        if self._session is None:
            connector = TCPConnector(limit=self.connections, keepalive_timeout=IDLE_SECONDS, ssl=self.certificates)
            self._session = ClientSession(
                connector=connector,
                headers=self.headers,
                timeout=self.timeout,
                proxy=self.proxy,
                cookie_jar=DummyCookieJar(),
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
                max_headers=MOST_HEADERS,
            )
        return self._session

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
        """Send a JSON body, and return the response.

        Raise NoResponseError without a complete one, and InputError where no request can be sent to this address.
        """
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        for _ in range(LOOKS):
            await asyncio.sleep(0)
        try:
            # Redirects are not followed: a key goes to the address that is named, and to no other.
            async with self._opened().post(
                self.url + path, data=content, headers=headers, allow_redirects=False
            ) as response:
                return Response(response.status, response.headers, await _body(response))
        except ValueError as error:  # a name that is none, an address that is none, characters that no header has
            cure = "; or the proxy that the environment names cannot" if self.proxy else ""
            raise InputError(f"{self.url}: cannot be asked ({first_line(error)}){cure}") from None
        except ClientHttpProxyError as error:
            if error.status in REFUSED_BY_PROXY:
                raise InputError(f"{UNUSABLE_PROXY}: it answers {error.status} {error.message}") from None
            raise NoResponseError(f"the proxy answers {error.status}", sent=False, timeout=False) from None
        except (ClientError, TimeoutError) as error:
            never_sent = isinstance(error, (ClientConnectorError, ConnectionTimeoutError))
            timeout = isinstance(error, TimeoutError)
            raise NoResponseError(_reason(error), sent=not never_sent, timeout=timeout) from None

    async def close(self) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()


async def _body(response: ClientResponse) -> bytes:
    """Return a response's body. Raise NoResponseError where it is too large; a small one may inflate to any size."""
    body, content = bytearray(), response.content

    def give_up(_: Future[None]) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(ClientPayloadError("the connection was closed within a response"))

    # aiohttp would wait for ever for the rest of a body in chunks that breaks off in a chunk that is none.
    closed = response.connection and response.connection.protocol and response.connection.protocol.closed
    if closed:
        closed.remove_done_callback(_look)  # of an earlier response
        closed.add_done_callback(_look)
        closed.add_done_callback(give_up)
    try:
        async for part in content.iter_any():
            body += part
            if len(body) > LARGEST_BODY:
                raise NoResponseError(f"a response of more than {LARGEST_BODY >> 20} MiB", sent=True, timeout=False)
    finally:
        if closed:
            closed.remove_done_callback(give_up)
    return bytes(body)


def _look(closed: Future[None]) -> None:
    """Look at why a connection was closed; asyncio would warn of an error that nobody looks at."""
    closed.exception()


def _reason(error: Exception) -> str:
    """Return why there is no response: of a server that cannot be reached, what the operating system says."""
    if isinstance(error, ClientResponseError):  # its status is aiohttp's, not the server's
        return f"a response that is not valid HTTP: {error.message}".splitlines()[0]
    if isinstance(error, ClientPayloadError):  # it quotes a status of aiohttp's, too
        return "a response that is cut off or damaged"
    system = getattr(error, "os_error", None)
    return (system and system.strerror) or first_line(error)


def _certificates(trust_env: bool) -> ssl.SSLContext:
    """Return the certificates that servers are checked against."""
    from httpx2 import create_ssl_context

    try:
        return create_ssl_context(trust_env=trust_env)
    except OSError as error:
        raise InputError(f"SSL_CERT_FILE or SSL_CERT_DIR: {first_line(error)}") from None


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address, or None."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    excluded = proxies.get("no", "").split(",")
    if not proxy or proxy_bypass(parts.netloc) or any(_covers(entry, parts.hostname or "") for entry in excluded):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        named = urlsplit(proxy)
        _ = named.port
    except ValueError:  # of a port that is none, say
        raise InputError(UNUSABLE_PROXY) from None
    if named.scheme not in PROXY_SCHEMES or not named.hostname:
        raise InputError(f"{UNUSABLE_PROXY}: only those of {' and '.join(PROXY_SCHEMES)} can")
    return proxy


def _covers(entry: str, host: str) -> bool:
    """Return whether an entry of NO_PROXY is a network or an address, perhaps as a URL, that covers a host."""
    entry = entry.strip().rpartition("://")[2].strip("[]")
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # `proxy_bypass` knows names and domains
        return entry.lower() == host
