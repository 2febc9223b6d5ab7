"""How an endpoint is reached, and where its responses and their cost are recorded."""

import ipaddress
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rmft.endpoint.budget import SpendingLimit
from rmft.endpoint.failures import required_key
from rmft.endpoint.journal import Journal
from rmft.params.endpoint import EndpointSettings

if TYPE_CHECKING:
    from openai import OpenAI


@dataclass(frozen=True)
class Endpoint:
    """How to reach an endpoint, and where to record its responses.

    locate: returns the addresses and the API key; it is called before the first request is sent, so that a rerun that
    finds every response on record needs no endpoint, and no key. pace: factor of all waiting times.
    """

    settings: EndpointSettings
    locate: Callable[[], tuple[Sequence[str], str | None]]
    journal: Journal = field(repr=False)
    budget: SpendingLimit = field(repr=False)
    pace: float = 1.0

    def access(self) -> tuple[Sequence[str], str]:
        """Return the addresses and the API key. Raise InputError if there is no key, or one that no header can hold."""
        urls, key = self.locate()
        return urls, required_key(self.settings, key)

    def client(self) -> "OpenAI":
        """Return the official client, for one request at a time. Raise InputError if there is no key.

        It sends no organisation or project of the environment, as chat requests send none: a model that was tuned in
        another project would not be found.
        """
        from openai import DefaultHttpx2Client, Omit, OpenAI

        from rmft.endpoint.http_client import usable_proxy

        (url, *_), key = self.access()
        with usable_proxy():
            http = DefaultHttpx2Client(
                timeout=self.settings.timeout_seconds,
                trust_env=not is_local(url),
                follow_redirects=False,  # training data go to the address that is named, and to no other
            )
        unsent = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        return OpenAI(base_url=url, api_key=key, http_client=http, default_headers=unsent)


def is_local(url: str) -> bool:
    """Return whether an address is on this machine: it may be sent any key, and no proxy is asked for it."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
