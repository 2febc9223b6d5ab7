"""A job's way to its endpoint: where that is, the key, the journal of its answers, and what may still be spent.

How an endpoint is asked (addresses, prices, budget) is read from params.yaml here, at the last moment: it changes no
answer, so it is no part of what jobs depend on.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmft.artifacts.files import note_reading, sha256
from rmft.artifacts.json_files import read_json
from rmft.endpoint.budget import Budget, Usage
from rmft.endpoint.connection import Call, Connection, Endpoint, behind_proxies
from rmft.endpoint.failures import required_key
from rmft.endpoint.journal import SUFFIX, Journal, Spending, usage_of
from rmft.errors import InputError
from rmft.params import Params, load
from rmft.params.endpoint import EndpointSettings, FineTuningSettings, Prices
from rmft.streams import stream
from rmft.workflow.paths import model_files
from rmft.workflow.records import Served, SFTJob

if TYPE_CHECKING:
    from openai import OpenAI

JOURNALS = Path("journal")
EPOCHS = 3  # ASSUME: what an endpoint takes if it is left to it
SUFFIX_CHARACTERS = 40  # of a fine-tuned model's name, that say what it is
TUNED = "ft:"  # what the names of fine-tuned models begin with, before the name of what they were tuned from


class PriceList(dict[str, Prices]):
    """Prices by model id: those of params.yaml, and of whatever is fine-tuned from them."""

    def __init__(self, params: Params) -> None:
        endpoints = [of for of in params.models.values() if of.kind == "endpoint"]
        super().__init__({of.model: of.prices for of in endpoints})
        self.tuned = {f"{TUNED}{of.model}:": of.tuned_prices for of in endpoints}

    def __missing__(self, model: str) -> Prices:
        """Return the prices of a fine-tuned model. Raise KeyError for any other."""
        for beginning, prices in self.tuned.items():
            if model.startswith(beginning):
                return prices
        raise KeyError(model)


@dataclass(frozen=True)
class Access:
    """What a job needs to ask an endpoint. served: what our own server plays, where the endpoint is that."""

    settings: EndpointSettings
    served: Served | None
    journal: Journal
    budget: Budget

    @property
    def key(self) -> str | None:
        """Return the key to the endpoint. None where there is none: that does no harm until something is asked."""
        if self.served is None:
            return os.environ.get(self.settings.api_key)
        from rmft.endpoint_server.on_demand import own_key

        return own_key(self.settings.name)

    def client(self) -> "OpenAI":
        """Return a client for one call at a time. Raise InputError where the key is missing."""
        from openai import DefaultHttpx2Client, OpenAI

        key, url = required_key(self.settings, self.key), self.addresses()[0]
        http = DefaultHttpx2Client(timeout=self.settings.timeout_seconds, trust_env=behind_proxies(url))
        return OpenAI(base_url=url, api_key=key, http_client=http)

    def addresses(self) -> list[str]:
        """Return where the endpoint is; start our own server if it is that and does not run."""
        if self.served is None:
            return self.settings.base_urls
        from rmft.agents.checkpoint import note_model
        from rmft.endpoint_server.on_demand import own_server

        note_model(self.served.model)
        return [own_server(self.served, self.settings.model, self.settings.name)]


def journal_of(output: Path) -> Path:
    """Return the journal of the responses that an artifact in results/ is made from.

    Journals are named after experiments alone, so that moving an experiment's folder loses no response.
    """
    folders = [folder for folder in ("results/experiments", "results") if output.is_relative_to(folder)]
    inside = output.relative_to(folders[0]) if folders else Path(output.name)
    return JOURNALS / inside.with_suffix(SUFFIX)


@contextmanager
def access_to(model_name: str, served: Served | None, path: Path) -> Iterator[Access]:
    """Yield access to the endpoint of a model of params.yaml. path: the journal.

    Raise InputError where params.yaml does not name such a model, or the journal cannot be had.
    """
    params = load()
    settings = params.models.get(model_name)
    if settings is None or settings.kind != "endpoint":
        raise InputError(f"params.yaml: models.{model_name}: is not there any more; run snakemake again")
    with Journal.open(path) as journal:
        elsewhere = Spending(JOURNALS, but=path).usage
        budget = Budget(params.budget.dollars, PriceList(params), usage_of([path]), elsewhere)
        yield Access(_told_apart(settings, served), served, journal, budget)


@contextmanager
def connection_to(model_name: str, served: Served | None, model: str, path: Path) -> Iterator[Connection]:
    """Yield a connection for many calls at once. model: its id at the endpoint. The rest as in `access_to`."""
    with access_to(model_name, served, path) as access:
        endpoint = Endpoint(access.settings, model, access.addresses, access.key, access.journal, access.budget)
        with Connection(endpoint) as connection:
            yield connection


def answering(connection: Connection, words: str, temperature: float, max_tokens: int) -> Callable[[str, int], str]:
    """Return what answers a prompt, given a seed: one call at a time. words: the name of what is asked for."""

    def ask(prompt: str, seed: int) -> str:
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": temperature}
        body |= {"max_completion_tokens": max_tokens} | ({"seed": seed} if connection.endpoint.settings.seeded else {})
        (answer,) = connection.ask([Call(body, (words, seed))])
        return answer["choices"][0]["message"].get("content") or ""

    return ask


def fine_tune_at_endpoint(
    job: SFTJob,
    demonstrations: Sequence[Mapping[str, Any]],
    start: Path | None,
    output: Path,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Fine-tune a model at its endpoint on demonstrations; return what there is to say of the new one, and its log.

    start: what an earlier iteration has written; None for the base model.
    """
    from rmft.endpoint.fine_tuning import (
        FineTuningRequest,
        Patience,
        file_of,
        fine_tune,
        recorded,
        training_lines,
        validate,
    )

    with access_to(job.model_name, job.served, journal_of(output)) as access:
        lines = training_lines(demonstrations)
        validate(lines, access.settings.context, access.settings.expected.characters_per_token)
        base = access.settings.model if start is None else read_json(start)["id"]
        seed = int(stream(job.seed, "shuffle", job.stream).integers(2**31))
        suffix = job.stream.replace("/", "-")[-SUFFIX_CHARACTERS:].strip("-")
        request = FineTuningRequest(access.settings.name, base, file_of(lines), job.sft, seed, suffix, job.stream)
        tuned = recorded(access.journal, request)
        if tuned is None:
            tuned = fine_tune(
                access.client(),
                access.journal,
                request,
                lambda event: say(event.message),
                lambda: access.budget.require({base: _trained(access, lines, job.sft)}, "fine-tuning"),
                Patience(attempts=access.settings.attempts),
            )
    return asdict(tuned)


def _trained(access: Access, lines: Sequence[Mapping[str, Any]], asked: FineTuningSettings) -> Usage:
    """Return what fine-tuning on these lines will use, as far as it can be told before."""
    from rmft.endpoint.fine_tuning import cost_tokens

    tokens = cost_tokens(lines, access.settings.expected.characters_per_token)
    return Usage(trained=tokens * (asked.epochs or EPOCHS))


def _told_apart(settings: EndpointSettings, served: Served | None) -> EndpointSettings:
    """Return settings of which the name tells what our own server plays: other weights give other answers."""
    if served is None:
        return settings
    files = [Path(name) for name in model_files(served.model.weights)]  # of the hub's none: a revision tells them apart
    note_reading(files)
    digests = " ".join(map(sha256, files))
    digest = hashlib.sha256(f"{digests} {served.canonical()}".encode()).hexdigest()
    return settings.model_copy(update={"serves": f"{settings.serves}-{digest[:12]}"})
