"""What a job does with its endpoint: settings, API key, address, journal and budget come together here.

Settings that change no response (prices, budget, how many requests at a time) are read from params.yaml when the
endpoint is opened, so that jobs do not depend on them.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmft.artifacts.files import SCRATCH, note_reading, note_response, sha256
from rmft.endpoint.access import Endpoint
from rmft.endpoint.budget import SpendingLimit, Usage
from rmft.endpoint.connection import Connection, Request, sendable
from rmft.endpoint.failures import how_to_restore, text_of
from rmft.endpoint.journal import SUFFIX, FolderUsage, Journal, usage_of
from rmft.errors import InputError
from rmft.params import Params, load
from rmft.params.endpoint import EndpointModel, EndpointSettings, FineTuningSettings, Prices
from rmft.params.language_model import model_files
from rmft.streams import stream
from rmft.workflow.records import OwnServer

if TYPE_CHECKING:
    from rmft.endpoint.fine_tuning import FineTuningRequest, TunedModel

JOURNALS = Path("journal")
COPIES = "/.dvc/tmp/exps/"  # in the path of DVC's temporary copies
IN_COPY = "DVC deletes this copy, with all responses, where a run fails: run it in the workspace"
EPOCHS = 3  # ASSUME: an endpoint's default
SUFFIX_CHARACTERS = 40  # of a fine-tuned model's name, for the part that we choose
TUNED = "ft:"  # the name of a fine-tuned model begins with this and the name of its base model


class PriceList(dict[str, Prices]):
    """Prices by model id: those in params.yaml, and those of models fine-tuned from these."""

    def __init__(self, params: Params) -> None:
        endpoints = [model for model in params.models.values() if model.kind == "endpoint"]
        super().__init__({model.model: model.prices for model in endpoints})
        self.tuned = {f"{TUNED}{model.model}:": model.tuned_prices for model in endpoints}

    def __missing__(self, model: str) -> Prices:
        """Return the prices of a fine-tuned model. Raise KeyError for any other."""
        for prefix, prices in self.tuned.items():
            if model.startswith(prefix):
                return prices
        raise KeyError(model)


def journal_of(output: Path) -> Path:
    """Return the journal of the responses from which an artifact in results/ is made.

    Journals are named after experiments alone, so that moving an experiment's folder loses no response, and so that a
    stage that is run by hand, which writes to SCRATCH, pays for none again.
    """
    output = output.relative_to(SCRATCH) if output.is_relative_to(SCRATCH) else output
    folders = [folder for folder in ("results/experiments", "results") if output.is_relative_to(folder)]
    inside = output.relative_to(folders[0]) if folders else Path(output.name)
    return JOURNALS / inside.with_suffix(SUFFIX)


@contextmanager
def open_endpoint(
    model_name: str, recorded: EndpointModel, served: OwnServer | None, journal_path: Path
) -> Iterator[Endpoint]:
    """Yield the endpoint of a model in params.yaml. served: what our own server plays, if it is the endpoint.

    recorded: the model in the job's record. Raise InputError if params.yaml has another model under this name, or none,
    or the journal cannot be opened.
    """
    params = load()
    settings = params.models.get(model_name)
    if settings is None or settings.kind != "endpoint":
        raise InputError(f"params.yaml: models.{model_name}: is not there any more; run snakemake again")
    if edited := [key for key, value in recorded if getattr(settings, key) != value]:
        key = f"models.{model_name}.{edited[0]}"
        raise InputError(f"params.yaml: {key}: has been edited since this job was planned; run snakemake again")
    if served:
        settings = with_digest(settings, served)

    def locate() -> tuple[Sequence[str], str | None]:
        if served is None:
            return settings.base_urls, os.environ.get(settings.api_key)
        from rmft.endpoint_server.launch import own_server

        url, key = own_server(served, settings.model, settings.name)
        return [url], key

    with Journal.open(journal_path) as journal:
        elsewhere = FolderUsage(JOURNALS, but=journal_path).usage
        if COPIES in Path.cwd().as_posix():
            budget = SpendingLimit(0.0, PriceList(params), option="dvc exp run", cure=IN_COPY)
        else:
            budget = SpendingLimit(params.budget.dollars, PriceList(params), usage_of([journal_path]), elsewhere)
        yield Endpoint(settings, locate, journal, budget)


@contextmanager
def open_connection(
    model_name: str, recorded: EndpointModel, served: OwnServer | None, model: str, journal_path: Path
) -> Iterator[Connection]:
    """Yield a connection for many requests at once. model: its id at the endpoint. Otherwise like `open_endpoint`."""
    with (
        open_endpoint(model_name, recorded, served, journal_path) as endpoint,
        Connection(endpoint, model) as connection,
    ):
        yield connection


def text_generator(
    connection: Connection, words: str, temperature: float, max_tokens: int
) -> Callable[[str, int], str]:
    """Return a function that sends a prompt with a seed and returns the text of the response.

    words: a name that tells these requests from others.
    """

    def generate(prompt: str, seed: int) -> str:
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": temperature}
        body |= connection.endpoint.settings.options(max_tokens, seed)
        (response,) = connection.send([Request(body, (words, seed))])
        return text_of(response)

    return generate


def fine_tune_at_endpoint(
    endpoint: Endpoint,
    demonstrations: Sequence[Mapping[str, Any]],
    base: str,
    settings: FineTuningSettings,
    seed: int,
    words: str,
    on_message: Callable[[str], object],
) -> "TunedModel":
    """Fine-tune a model at its endpoint on demonstrations.

    base: the model's id. seed: root of the random streams. words: the name of this training, unique in the project.
    A model that is on record is not trained again, unless our own server has lost it. Raise InputError where the server
    has lost the base model, or the endpoint refuses.
    """
    from rmft.endpoint.fine_tuning import FineTuningRequest, recorded_model
    from rmft.endpoint.training_file import as_text, estimated_tokens, training_lines, validate

    lines = training_lines(demonstrations, dict if endpoint.settings.serves else sendable)
    per_token = endpoint.settings.expected.characters_per_token
    validate(lines, endpoint.settings.context, per_token)
    seed = int(stream(seed, "shuffle", words).integers(2**31))
    suffix = words.replace("/", "-")[-SUFFIX_CHARACTERS:].strip("-")
    request = FineTuningRequest(endpoint.settings.name, base, as_text(lines), settings, seed, suffix, words)
    tuned = recorded_model(endpoint.journal, request)  # without a client, which needs a key
    if tuned is None or _has_lost(endpoint, tuned.id):
        expected = Usage(trained=estimated_tokens(lines, per_token) * (settings.epochs or EPOCHS))
        tuned = _tune(endpoint, request, expected, tuned, on_message)
    note_response(request.digest("model"), asdict(tuned))
    return tuned


def _tune(
    endpoint: Endpoint,
    request: "FineTuningRequest",
    expected: Usage,
    lost: "TunedModel | None",
    on_message: Callable[[str], object],
) -> "TunedModel":
    """Have a job fine-tune a model. expected: what it will cost. lost: the model, where our own server had made it."""
    from rmft.endpoint.fine_tuning import RetryPolicy, fine_tune

    client, base = endpoint.client(), request.base
    if base != endpoint.settings.model and _has_lost(endpoint, base):
        raise InputError(f"{endpoint.settings.name}: there is no model {base!r} any more; {how_to_restore(base)}")
    once = {"looks": 1} if endpoint.settings.serves else {}  # our own server knows a request that comes twice
    tune = partial(
        fine_tune,
        client,
        request=request,
        on_event=on_message,
        before_paying=lambda: endpoint.budget.require({base: expected}, "fine-tuning"),
        expected_tokens=expected.trained,
        retry_policy=RetryPolicy(endpoint.settings.attempts, **once),
    )
    if lost is None:
        return tune(endpoint.journal)
    on_message(f"our own server has lost {lost.id}, and fine-tunes it again")
    with TemporaryDirectory() as folder, Journal.open(Path(folder) / SUFFIX) as none_yet:
        return tune(none_yet, begin_again="run again", lost=lost.id)


def _has_lost(endpoint: Endpoint, model: str) -> bool:
    """Return whether an endpoint is our own server, and has lost a model that it fine-tuned."""
    from rmft.endpoint_server.launch import has_lost

    return endpoint.settings.serves is not None and has_lost(endpoint.settings.name, model)


def with_digest(settings: EndpointSettings, served: OwnServer) -> EndpointSettings:
    """Return settings whose name has a hash of what our own server plays: other weights give other responses."""
    files = [Path(name) for name in model_files(served.model.folder)]  # a hub's model has none: it has a revision
    note_reading(files)
    digests = " ".join(map(sha256, files))
    digest = hashlib.sha256(f"{digests} {served.canonical()}".encode()).hexdigest()
    return settings.model_copy(update={"serves": f"{settings.serves}-{digest[:12]}"})
