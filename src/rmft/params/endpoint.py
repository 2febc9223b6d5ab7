"""Models behind an endpoint that speaks the OpenAI protocol, and what they charge: Section 6."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from rmft.params.section import VARIABLE, Count, Name, NotNegative, Positive, ReplyLimit, Section

TokenLimit = Literal["max_completion_tokens", "max_tokens"]
NO_ADDRESS = "must look like http://localhost:8080/v1, without a key in it"
TOKEN_LIMIT: TokenLimit = "max_completion_tokens"


def host_of(address: str) -> str | None:
    """Return the host of an address; None where it is no address, or has a part that could be a key."""
    try:
        parts = urlsplit(address)
        usable = re.match(r"https?://[^@?#\s]+$", address) and parts.port != 0  # a port that is no number raises
    except ValueError:
        return None
    return parts.hostname if usable else None


def _address(text: str) -> str:
    if host_of(text) is None:
        raise ValueError(NO_ADDRESS)
    return text


class Prices(Section):
    """US dollars for a million tokens."""

    input: NotNegative = Field(description="Dollars for a million tokens that the model reads.")
    cached_input: NotNegative = Field(
        description="Dollars for a million tokens that the endpoint reads from its cache."
    )
    output: NotNegative = Field(description="Dollars for a million tokens that the model writes.")
    training: NotNegative = Field(description="Dollars for a million tokens of fine-tuning.")


class ReplyTokens(Section):
    """How long replies are."""

    full: Positive = Field(description="Tokens of a completion under full feedback.")
    bandit: Positive = Field(description="Tokens of a completion under bandit feedback.")


class Expected(Section):
    """What `rmft estimate` calculates with."""

    characters_per_token: Positive = Field(description="Characters of a prompt for each token.")
    reply_tokens: ReplyTokens = Field(description="Length of completions.")
    seconds: Positive = Field(description="Seconds that a completion takes.")


# As `gpt-4o-mini` in params.yaml replies, with reasoning.
EXPECTED = Expected(characters_per_token=4.0, reply_tokens=ReplyTokens(full=100, bandit=80), seconds=1.0)


class EndpointModel(Section):
    """What makes a model's answers what they are."""

    kind: Literal["endpoint"] = Field(description="Kind of the model.")
    model: str = Field(description="The model's name at the endpoint.")
    base_urls: list[Annotated[str, AfterValidator(_address)]] = Field(
        description="Addresses that serve the same model; each game stays at one of them. The first one is part of "
        "what a response is on record for: with another first address everything is asked, and paid, anew. An empty "
        "list: rmft's own server, which plays `serves`."
    )
    serves: Name | None = Field(
        default=None, description="The language model that rmft's own server plays; a run starts the server on demand."
    )
    seeded: bool = Field(default=True, description="Whether requests carry a seed.")
    token_limit: TokenLimit = Field(
        default=TOKEN_LIMIT,
        description="What requests call the most tokens of a completion; some servers know the older name alone.",
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if bool(self.base_urls) == (self.serves is not None):
            raise ValueError("serves: names a model for our own server, and only where base_urls is empty")
        return self

    def options(self, max_tokens: int, seed: int) -> dict[str, Any]:
        """Return what a request says of the most tokens of its completion, and its seed where requests carry one."""
        return {self.token_limit: max_tokens} | ({"seed": seed} if self.seeded else {})

    @property
    def name(self) -> str:
        """Return what distinguishes this endpoint's answers from others': its address, or that it is our own server."""
        return self.base_urls[0].rstrip("/") if self.base_urls else f"own server of {self.serves}"


class EndpointSettings(EndpointModel):
    """A model of an endpoint, and how requests are made, which changes no answer."""

    api_key: Annotated[str, Field(pattern=VARIABLE)] = Field(
        description="The environment variable that holds the API key; a server that rmft starts makes its own key."
    )
    concurrency: Count = Field(default=16, description="Number of simultaneous requests.")
    batch: Count = Field(default=1024, description="Games played at a time.")
    attempts: Count = Field(default=8, description="Attempts at one request while the endpoint is busy or unreachable.")
    timeout_seconds: Positive = Field(default=600.0, description="Seconds that a request may take.")
    context: Count = Field(
        default=131_072, description="Tokens that the model can read; the endpoint refuses more in any case."
    )
    max_tokens: ReplyLimit = None
    prices: Prices = Field(description="What the model costs.")
    tuned_prices: Prices = Field(
        default_factory=lambda settings: settings.get("prices"),
        description="What a model costs that is fine-tuned from it. Default: `prices`.",
    )
    expected: Expected = Field(
        default=EXPECTED,
        description="What `rmft estimate` calculates with. Default: replies of "
        f"{EXPECTED.reply_tokens.bandit:g} tokens ({EXPECTED.reply_tokens.full:g} under full feedback), "
        f"{EXPECTED.characters_per_token:g} characters a token, {EXPECTED.seconds:g} second a reply.",
    )


class FineTuningSettings(Section):
    """A supervised fine-tuning job of an endpoint."""

    method: Literal["api"] = Field(description="How the model is fine-tuned: a job of the endpoint.")
    learning_rate_multiplier: Positive | None = Field(description="The paper's is 1.8; null: the endpoint chooses.")
    epochs: Count | None = Field(description="How often the demonstrations are read; null: the endpoint chooses.")
    batch_size: Count | None = Field(description="Conversations of a step; null: the endpoint chooses.")


class Budget(Section):
    """What a project may cost."""

    dollars: NotNegative | None = Field(
        description="A run stops before all of `journal/` would have cost more, and keeps all responses; null: no "
        "limit. `rmft eval` counts what its own folder has cost besides, and no other evaluation."
    )
