"""The model that `rmft eval` measures: of params.yaml, in a folder, a GGUF file, on a hub, or behind an endpoint."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rmft.agents.chat_models import ChatModels, Conversations, at_endpoint
from rmft.artifacts.files import sha256
from rmft.artifacts.here import without_folder
from rmft.endpoint.access import Endpoint, is_local
from rmft.endpoint.budget import SpendingLimit, Usage, cost
from rmft.endpoint.connection import Connection
from rmft.endpoint.failures import NO_KEY
from rmft.endpoint.journal import SUFFIX, FolderUsage, Journal, usage_of
from rmft.endpoint_server.settings import API_KEY
from rmft.errors import InputError, did_you_mean, first_line
from rmft.package_data import ROOT, find_file
from rmft.params import Params, load
from rmft.params.endpoint import NO_ADDRESS, EndpointSettings, Prices, TokenLimit, host_of
from rmft.params.language_model import LanguageModelSettings, LlamaCpp, model_files
from rmft.params.reading import OUTPUTS, load_extensions
from rmft.params.section import DEVICE, MEANT
from rmft.rollouts import Games
from rmft.stages.rollouts import open_chat_models
from rmft.workflow.records import ModelSettings, OwnServer, RolloutsJob

GGUF = b"GGUF"  # the first bytes of such a file
SLOTS = 16  # conversations that llama.cpp's server holds at a time
CHARACTERS_PER_TOKEN = 2.0  # fewer than models need for English with numbers, so that a server's slots are long enough
ROUND_TOKENS = 16  # about what a chat template adds to a round
SMALL = 100e6  # bytes: a smaller model plays in one thread, since several wait for one another where cores are shared
OPENAI = "api.openai.com"
# With a server on this machine, which may be slow, and starts anew when it is asked again.
PATIENT = {"timeout_seconds": 3600.0, "attempts": 2}
LONG = 20  # characters: as many may be a key, which no message shows
# Of settings, what changes no game, or is a secret's name or a path.
HIDDEN = {
    "api_key", "prices", "tuned_prices", "expected", "concurrency", "attempts", "timeout_seconds", "batch", "threads",
    "vllm", "llama_cpp", "converted",
}  # fmt: skip
FREE = Prices(input=0.0, cached_input=0.0, output=0.0, training=0.0)
Spending = Callable[[Mapping[str, Usage]], SpendingLimit]  # from what was spent on these games before


def _unlimited(spent: Mapping[str, Usage]) -> SpendingLimit:
    return SpendingLimit(None, {}, spent)


@dataclass(frozen=True)
class Measured:
    """A model that can be measured.

    name: as results show it. settings: of the model. made_of: SHA-256 of its files, by name. gguf: the file that
    llama.cpp serves. served: where our own server plays it. key: the API key of an endpoint, where there is one.
    spending: the limit in dollars at an endpoint.
    """

    name: str
    settings: ModelSettings
    made_of: dict[str, str] = field(default_factory=dict)
    gguf: Path | None = None
    served: OwnServer | None = None
    key: str | None = field(default=None, repr=False)
    spending: Spending = _unlimited

    @contextmanager
    def playing(self, job: RolloutsJob, games: Games, stem: Path) -> Iterator[ChatModels]:
        """Yield the chat models of games. stem: begins the paths of a journal and of a server's log."""
        if self.settings.kind == "language":
            with open_chat_models(job, games, None, stem) as chat_models:
                yield chat_models
            return
        conversations = Conversations(games.settings, job.T, job.problem.protocol.max_tokens, games.scenarios)
        with (
            self._server(conversations, stem.with_name(f"{stem.name}.log")) as access,
            Journal.open(journal_beside(stem)) as journal,
        ):
            spending = self.spending(usage_of(sorted(stem.parent.glob(f"*{SUFFIX}"))))
            endpoint = Endpoint(self.settings, lambda: access, journal, spending)
            with Connection(endpoint, self.settings.model) as connection:
                yield at_endpoint(connection, conversations, games.words)

    @contextmanager
    def _server(self, conversations: Conversations, log: Path) -> Iterator[tuple[Sequence[str], str | None]]:
        """Yield addresses and an API key; start the server that plays a GGUF file, or our own."""
        if self.gguf:
            from rmft.agents.llama_cpp_servers import serving

            first, later = conversations.characters()
            rounds, replied = conversations.horizon, conversations.max_tokens
            tokens = int((first + (rounds - 1) * later) / CHARACTERS_PER_TOKEN)
            tokens += rounds * (replied + ROUND_TOKENS)
            with serving(self.gguf, LlamaCpp(), self.settings.concurrency, tokens, log) as (url, key):
                yield [f"{url}/v1"], key
        elif self.served:
            from rmft.endpoint_server.launch import own_server

            url, key = own_server(self.served, self.settings.model, self.settings.name)
            yield [url], key
        else:
            yield self.settings.base_urls, self.key

    def usage(self, stems: Iterable[Path]) -> dict[str, float | None] | None:
        """Return the tokens and dollars that the journals of some games hold; None where no endpoint played."""
        if self.settings.kind == "language":
            return None
        total = sum(usage_of(filter(Path.exists, map(journal_beside, stems))).values(), Usage())
        prices = self.settings.prices
        return {
            "responses": total.answers,
            "prompt": total.prompt,
            "cached": total.cached,
            "completion": total.completion,
            "dollars": None if prices == FREE else round(cost(total, prices), 6),
        }

    def description(self) -> dict[str, Any]:
        """Return what eval.json says of the model: nothing of a path on this machine but the last name in it."""
        settings = self.settings.model_dump(mode="json", exclude=HIDDEN)
        if "weights" in settings:
            settings["weights"] = without_folder(settings["weights"])
        return {"name": self.name, "settings": settings, "files": self.made_of}


def journal_beside(stem: Path) -> Path:
    """Return the journal of an endpoint's responses in some games."""
    return stem.with_name(f"{stem.name}{SUFFIX}")


def at_url(
    model: str,
    base_url: str,
    key_env: str | None,
    concurrency: int,
    prices: Prices,
    budget: float | None,
    token_limit: TokenLimit,
) -> Measured:
    """Return a model behind an endpoint of the OpenAI protocol. key_env: the environment variable with its API key.

    Raise InputError for an address that is none, or one elsewhere for which no variable is named.
    """
    host = host_of(base_url)
    if host is None:
        given = "" if {"@", "?", "#"} & {*base_url} else f" {base_url}:"  # it may hold a password, or a key
        raise InputError(f"--base-url:{given} {NO_ADDRESS}")
    if key_env is None and host == OPENAI:
        key_env = "OPENAI_API_KEY"
    if key_env is None and not is_local(base_url):
        raise InputError(f"{base_url}: say which environment variable holds its key: --key-env NAME")
    # A server on this machine keeps the caches of about as many conversations as it answers at a time. With more games
    # under way, every round would compute its whole conversation anew.
    options = {"batch": concurrency, **PATIENT} if is_local(base_url) else {}
    options |= {"base_urls": [base_url.rstrip("/")], "token_limit": token_limit}
    with refused("--base-url or --key-env"):
        settings = _endpoint(model, concurrency, prices, key_env or API_KEY, **options)
    key = os.environ.get(key_env) if key_env else os.environ.get(API_KEY, NO_KEY)
    limit = partial(SpendingLimit, budget, {model: prices}, option="--budget")
    return Measured(model, settings, key=key, spending=limit)


def at_hand(words: str, revision: str | None, device: str | None) -> Measured:
    """Return a model that runs on this machine: a name in params.yaml, a folder, a GGUF file, or a hub repository.

    A folder counts where it has a config.json, so that folders of results hide no model of params.yaml. device: None
    for what params.yaml says, or else the CPU. Raise InputError where it is none of these, or takes no such option.
    """
    path = Path(words)
    no_model = path.is_dir() and not (path / "config.json").is_file()
    on_hub = words.count("/") == 1 and words[0] not in "./~" and not path.exists() and path.suffix != ".gguf"
    if revision is not None and not on_hub:
        raise InputError(f"--revision: {words} is no hub repository (owner/name), which alone has revisions")
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"{words}: no such file")
        with path.open("rb") as file:
            if file.read(len(GGUF)) != GGUF:
                raise InputError(f"{words}: is no GGUF file; download it again")
        if device is not None:
            raise InputError(f"--device: llama.cpp plays {words} on the CPU; leave the option out")
        digest = sha256(path)
        options = {"batch": SLOTS, "serves": f"gguf-{digest[:16]}", **PATIENT}
        settings = _endpoint(path.stem, SLOTS, FREE, API_KEY, **options)
        return Measured(path.stem, settings, {path.name: digest}, gguf=path)
    if path.is_dir() and not no_model:
        _check_device(device)
        small = sum(Path(file).stat().st_size for file in model_files(words)) < SMALL
        return Measured(path.resolve().name, _language(path.as_posix(), None, device, small=small), _hashes(words))
    params = _params()
    if words in params.models:
        return _in_params(params, words, device)
    if no_model:
        raise InputError(
            f"{words}: the folder has no config.json, and params.yaml has no model of this name "
            f"({', '.join(params.models)}); if a hub repository is meant, run rmft where no folder has its name"
        )
    if on_hub:
        _check_device(device)  # before the hub is asked
        return Measured(words, _language(words, revision or _newest(words), device))
    meant = did_you_mean(words, params.models) or f"those are {', '.join(params.models)}."
    raise InputError(
        f"{words}: no folder, no GGUF file, no hub repository (owner/name), and no model of params.yaml; {meant} "
        "A model behind an endpoint needs --base-url as well"
    )


@contextmanager
def refused(option: str) -> Iterator[None]:
    """Turn what pydantic refuses into an InputError that names an option."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        given = f" {first['input']!r}:" if len(str(first["input"])) < LONG else ""  # it may be the key itself
        meant = MEANT.get(first.get("ctx", {}).get("pattern"), first["msg"])
        raise InputError(f"{option}:{given} {meant}") from None


def _endpoint(model: str, concurrency: int, prices: Prices, key_env: str, **where: Any) -> EndpointSettings:  # noqa: ANN401 (base_urls or serves, batch, token_limit, PATIENT)
    return EndpointSettings(
        kind="endpoint",
        model=model,
        **{"base_urls": [], **where},
        api_key=key_env,
        concurrency=concurrency,
        prices=prices,
    )


def _language(weights: str, revision: str | None, device: str | None, *, small: bool = False) -> LanguageModelSettings:
    device = device or "cpu"
    on_cpu = device == "cpu"
    with refused("--revision"):
        return LanguageModelSettings(
            kind="language",
            weights=weights,
            revision=revision,
            dtype="float32" if on_cpu else "bfloat16",
            device=device,
            batch=16 if on_cpu else 256,
            threads=os.cpu_count() or 1 if on_cpu and not small else 1,
        )


def _check_device(device: str | None) -> None:
    """Raise InputError where a device has another name than torch's, and where torch has no such device.

    device: None for the CPU.
    """
    if device is None:
        return
    if not isinstance(device, str) or not re.match(DEVICE, device):
        raise InputError(f"--device: {device!r}: {MEANT[DEVICE]}")
    if device != "cpu":
        from rmft.agents.weights import check_device

        check_device(device)


def _hashes(folder: str) -> dict[str, str]:
    return {Path(file).name: sha256(Path(file)) for file in model_files(folder)}


def _params() -> Params:
    """Return the parameters of this folder, or else, as in another project's, those that the package brings."""
    path = find_file("params.yaml")
    try:
        if not path.with_name(OUTPUTS).exists():
            load_extensions(path)  # those of this folder, beside the package's models
            path = ROOT / path.name
        return load(path)
    except InputError as error:
        raise InputError(f"{error} (if this params.yaml is of another project, run rmft in another folder)") from None


def _in_params(params: Params, name: str, device: str | None) -> Measured:
    """Return a language model or an endpoint of params.yaml. device: None for what it says there.

    Raise InputError for a model that plays numbers, and for a device of an endpoint.
    """
    from rmft.endpoint.session import JOURNALS, PriceList, with_digest
    from rmft.workflow.plan import served

    settings = params.models[name]
    if settings.kind == "linear-attention":
        in_words = [name for name, of in params.models.items() if of.kind != "linear-attention"]
        raise InputError(f"{name}: plays numbers, not words; one of {', '.join(in_words)}")
    if settings.kind == "language":
        if device is not None:
            settings = settings.model_copy(update={"device": device})
        _check_device(settings.device)
        return Measured(name, settings, _hashes(settings.folder) if Path(settings.folder).is_dir() else {})
    if device is not None:
        raise InputError(f"--device: {name} is a model behind an endpoint; leave the option out")
    if plays := served(params, name):
        return Measured(name, with_digest(settings, plays), served=plays)
    limit = partial(SpendingLimit, params.budget.dollars, PriceList(params), elsewhere=FolderUsage(JOURNALS).usage)
    return Measured(name, settings, key=os.environ.get(settings.api_key), spending=limit)


def _newest(repository: str) -> str:
    """Return the newest commit of a hub repository. Raise InputError where the hub has no answer."""
    from httpx2 import HTTPError
    from huggingface_hub import model_info

    try:
        return str(model_info(repository).sha)
    except (HTTPError, OSError, ValueError) as error:  # what huggingface_hub raises is one of these
        here = f"{repository}: no such folder here, and the hub does not name its newest commit ({first_line(error)})"
        raise InputError(f"{here}; give its revision if it is a hub repository") from None
