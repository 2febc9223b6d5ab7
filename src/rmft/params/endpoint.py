"""Models behind an endpoint that speaks the OpenAI protocol, and what they charge: Section 6."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rmft.params.section import Count, Name, NotNegative, Positive, Section


class Prices(Section):
    """US dollars for a million tokens: read, read again from the endpoint's cache, written, trained on."""

    input: NotNegative
    cached_input: NotNegative
    output: NotNegative
    training: NotNegative


class ReplyTokens(Section):
    """How long replies are, where all rewards are shown and where one is."""

    full: Positive
    bandit: Positive


class Expected(Section):
    """What `rmft estimate` reckons with: characters of a prompt a token, tokens of a reply, and seconds it takes."""

    characters_per_token: Positive
    reply_tokens: ReplyTokens
    seconds: Positive


class EndpointModel(Section):
    """What makes a model's answers what they are.

    model: its name at the endpoint. base_urls: where the endpoint is; of several, which must serve the same model, each
    game keeps to one; none: our own server, which plays `serves`, a language model of `models`, and is started when it
    is needed. seeded: whether requests carry a seed.
    """

    kind: Literal["endpoint"]
    model: str
    base_urls: list[Annotated[str, Field(pattern=r"^https?://[^@?#]+$")]]
    serves: Name | None = None
    seeded: bool

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if bool(self.base_urls) == (self.serves is not None):
            raise ValueError("serves: names a model for our own server, and only where base_urls is empty")
        return self

    @property
    def name(self) -> str:
        """Return what tells this endpoint's answers from others': where it is, or that it is our own server."""
        return self.base_urls[0].rstrip("/") if self.base_urls else f"own server of {self.serves}"


class EndpointSettings(EndpointModel):
    """A model of an endpoint, and how it is asked, which changes no answer.

    api_key: the environment variable that holds the key. concurrency: requests under way at once. batch: games played
    at a time. attempts: at one answer, where the endpoint is busy or out of reach. context: tokens that the model can
    read. tuned_prices: of what is fine-tuned from it.
    """

    api_key: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    concurrency: Count
    batch: Count
    attempts: Count
    timeout_seconds: Positive
    context: Count
    prices: Prices
    tuned_prices: Prices
    expected: Expected


class FineTuningSettings(Section):
    """A supervised fine-tuning job of an endpoint; what is null is left to the endpoint."""

    method: Literal["api"]
    learning_rate_multiplier: Positive | None
    epochs: Count | None
    batch_size: Count | None


class Budget(Section):
    """What a project may cost: a run stops, with all answers kept, before it would have spent more."""

    dollars: NotNegative | None
