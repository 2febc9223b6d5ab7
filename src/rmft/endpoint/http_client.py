"""An HTTP client for many requests at once.

For each request, httpx looks at all connections of its pool, and asks the operating system about each: 256 requests at
once in one pool take longer to send than a small model takes to answer them (`benchmarks/endpoint.py`). So the
connections are spread over small pools.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from httpx2 import AsyncClient, InvalidURL, Limits, Response, create_ssl_context

from rmft.errors import InputError, first_line

IN_A_POOL = 16  # connections
# For which an idle connection is kept open: vLLM and llama.cpp close it after five, at times as it is used again.
IDLE_SECONDS = 3.0


@contextmanager
def usable_proxy() -> Iterator[None]:
    """Raise InputError where a client cannot be made because of the proxy that the environment names."""
    try:
        yield
    except (ImportError, ValueError, InvalidURL) as error:  # of SOCKS without its library, of an unknown scheme
        names = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY"
        reason = f": {first_line(error)}" if isinstance(error, ImportError) else ""  # others may quote a password
        raise InputError(f"{names}: names a proxy that cannot be used{reason}") from None


class HttpClient:
    """Connections to one address, for one event loop.

    connections: the most at a time; the caller sends no more requests at once. options: as for `httpx2.AsyncClient`.
    Raise InputError where the environment names certificates that cannot be read, or a proxy that cannot be used.
    """

    def __init__(self, connections: int, *, trust_env: bool, **options: object) -> None:
        pools = -(-connections // IN_A_POOL)
        limits = Limits(max_connections=-(-connections // pools), keepalive_expiry=IDLE_SECONDS)
        try:
            certificates = create_ssl_context(trust_env=trust_env)
        except OSError as error:
            raise InputError(f"SSL_CERT_FILE or SSL_CERT_DIR: {first_line(error)}") from None
        options |= {"limits": limits, "verify": certificates, "trust_env": trust_env}
        with usable_proxy():
            self._pools = [AsyncClient(**options) for _ in range(pools)]
        self._sending = [0] * pools

    @property
    def url(self) -> str:
        """Return the address."""
        return str(self._pools[0].base_url).rstrip("/")

    async def post(self, path: str, **content: object) -> Response:
        """Return the response to a request, which goes through the pool that is least busy."""
        pool = min(range(len(self._pools)), key=self._sending.__getitem__)
        self._sending[pool] += 1
        try:
            return await self._pools[pool].post(path, **content)
        finally:
            self._sending[pool] -= 1

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.aclose()
