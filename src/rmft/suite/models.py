"""The model that `rmft eval` measures: of params.yaml, in a folder, a GGUF file, on a hub, or behind an endpoint."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmft.agents.chat_models import ChatModels, Conversations, at_endpoint
from rmft.artifacts.files import sha256
from rmft.endpoint.budget import SpendingLimit, Usage, cost
from rmft.endpoint.connection import Connection, Endpoint, is_local
from rmft.endpoint.journal import SUFFIX, Journal, usage_of
from rmft.errors import InputError
from rmft.params.endpoint import EndpointSettings, Expected, Prices, ReplyTokens
from rmft.params.language_model import LanguageModelSettings, LlamaCpp
from rmft.params.section import Section
from rmft.rollouts import Games
from rmft.stages.rollouts import open_chat_models
from rmft.workflow.paths import model_files
from rmft.workflow.records import ModelSettings, OwnServer, RolloutsJob

SLOTS = 16  # conversations that llama.cpp's server holds at a time
CHARACTERS_PER_TOKEN = 3.0  # fewer than models need for English, so that a server's slots are long enough
CONTEXT = 131_072  # tokens; an endpoint itself refuses what is too long for it
EXPECTED = Expected(characters_per_token=4.0, reply_tokens=ReplyTokens(full=8, bandit=8), seconds=1.0)
NO_KEY = "none"  # for a server on this machine that asks for none
FREE = Prices(input=0.0, cached_input=0.0, output=0.0, training=0.0)


@dataclass(frozen=True)
class Connect:
    """How to reach an endpoint. key_name: the variable with its API key. budget: dollars, None for no limit."""

    base_url: str
    key_name: str = "OPENAI_API_KEY"
    concurrency: int = 16
    prices: Prices = FREE
    budget: float | None = None


@dataclass(frozen=True)
class Measured:
    """A model that can be measured.

    name: as results show it. settings: of the model. made_of: SHA-256 of its files, by path. gguf: the file that
    llama.cpp serves. served: where our own server plays it. budget: dollars, for an endpoint.
    """

    name: str
    settings: ModelSettings
    made_of: dict[str, str] = field(default_factory=dict)
    gguf: Path | None = None
    served: OwnServer | None = None
    budget: float | None = None

    @contextmanager
    def playing(self, job: RolloutsJob, games: Games, output: Path) -> Iterator[ChatModels]:
        """Yield the chat models of games. output: the file of the games; a journal or a server's log goes beside it."""
        if self.settings.kind == "language":
            with open_chat_models(job, games, None, output) as chat_models:
                yield chat_models
            return
        conversations = Conversations(games.settings, job.T, job.problem.protocol.max_tokens, games.scenarios)
        with (
            self._server(conversations, output.with_suffix(".log")) as access,
            Journal.open(output.with_suffix(SUFFIX)) as journal,
        ):
            spent = usage_of(sorted(output.parent.glob(f"*{SUFFIX}")))
            budget = SpendingLimit(self.budget, {self.settings.model: self.settings.prices}, spent)
            endpoint = Endpoint(self.settings, lambda: access, journal, budget)
            with Connection(endpoint, self.settings.model) as connection:
                yield at_endpoint(connection, conversations, games.words)

    @contextmanager
    def _server(self, conversations: Conversations, log: Path) -> Iterator[tuple[Sequence[str], str | None]]:
        """Yield addresses and an API key; start the server that plays a GGUF file, or our own."""
        if self.gguf:
            from rmft.agents.llama_cpp_servers import serving

            first, later = conversations.characters()
            rounds = conversations.horizon
            characters = first + (rounds - 1) * later + rounds * conversations.max_tokens * CHARACTERS_PER_TOKEN
            tokens = int(characters / CHARACTERS_PER_TOKEN)
            with serving(self.gguf, LlamaCpp(), self.settings.concurrency, tokens, log) as (url, key):
                yield [f"{url}/v1"], key
        elif self.served:
            from rmft.endpoint_server.launch import own_server

            url, key = own_server(self.served, self.settings.model, self.settings.name)
            yield [url], key
        else:
            local = all(map(is_local, self.settings.base_urls))
            yield self.settings.base_urls, os.environ.get(self.settings.api_key) or (NO_KEY if local else None)

    def usage(self, folder: Path) -> dict[str, float] | None:
        """Return the tokens and dollars that the journals in a folder hold; None where no endpoint played."""
        if self.settings.kind == "language":
            return None
        total = sum(usage_of(sorted(folder.glob(f"*{SUFFIX}"))).values(), Usage())
        tokens = {
            "responses": total.answers,
            "prompt": total.prompt,
            "cached": total.cached,
            "completion": total.completion,
        }
        return tokens | {"dollars": round(cost(total, self.settings.prices), 6)}

    def description(self) -> dict[str, Any]:
        """Return what eval.json says of the model."""
        return {"name": self.name, "settings": _shown_settings(self.settings), "files": self.made_of}


def _shown_settings(settings: Section) -> dict[str, Any]:
    hidden = {"api_key", "prices", "tuned_prices", "expected", "concurrency", "attempts", "timeout_seconds", "batch"}
    return settings.model_dump(mode="json", exclude=hidden)


def at_url(model: str, connect: Connect) -> Measured:
    """Return a model behind an endpoint of the OpenAI protocol."""
    return Measured(model, _endpoint(model, connect, base_urls=[connect.base_url.rstrip("/")]), budget=connect.budget)


def at_hand(words: str, revision: str | None, device: str) -> Measured:
    """Return a model that runs on this machine: a name in params.yaml, a folder, a GGUF file, or a hub repository.

    Raise InputError where it is none of these.
    """
    path = Path(words)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"eval: {words}: no such file")
        digest = sha256(path)
        settings = _endpoint(path.stem, Connect("", concurrency=SLOTS), serves=f"gguf-{digest[:16]}")
        return Measured(path.stem, settings, {words: digest}, gguf=path)
    if path.is_dir():
        return Measured(path.resolve().name, _language(words, None, device), _hashes(words))
    if named := _in_params(words):
        return named
    if words.count("/") == 1:
        return Measured(words, _language(words, revision or _newest(words), device))
    names = ", ".join(_params_models())
    raise InputError(
        f"eval: {words}: no folder, no GGUF file, no hub repository (owner/name), and no model of params.yaml "
        f"({names or 'which is not here'}); a model behind an endpoint needs --base-url as well"
    )


def _endpoint(model: str, connect: Connect, **where: Any) -> EndpointSettings:  # noqa: ANN401 (base_urls or serves)
    return EndpointSettings(
        kind="endpoint",
        model=model,
        **{"base_urls": [], **where},
        seeded=True,
        api_key=connect.key_name,
        concurrency=connect.concurrency,
        timeout_seconds=600.0,
        context=CONTEXT,
        prices=connect.prices,
        tuned_prices=connect.prices,
        expected=EXPECTED,
    )


def _language(weights: str, revision: str | None, device: str) -> LanguageModelSettings:
    on_cpu = device == "cpu"
    return LanguageModelSettings(
        kind="language",
        weights=weights,
        revision=revision,
        dtype="float32" if on_cpu else "bfloat16",
        device=device,
        batch=16 if on_cpu else 256,
        threads=os.cpu_count() or 1 if on_cpu else 1,
    )


def _hashes(folder: str) -> dict[str, str]:
    return {file: sha256(Path(file)) for file in model_files(folder)}


def _params_models() -> list[str]:
    from rmft.params import load

    return list(load().models) if Path("params.yaml").exists() else []


def _in_params(name: str) -> Measured | None:
    """Return a language model or an endpoint of params.yaml; None where params.yaml has no such name."""
    if name not in _params_models():
        return None
    from rmft.params import load
    from rmft.workflow.plan import served

    params = load()
    settings = params.models[name]
    if settings.kind == "linear-attention":
        in_words = [name for name, of in params.models.items() if of.kind != "linear-attention"]
        raise InputError(f"eval: {name}: plays numbers, not words; one of {', '.join(in_words)}")
    files = _hashes(settings.folder) if settings.kind == "language" and Path(settings.folder).is_dir() else {}
    return Measured(name, settings, files, served=served(params, name), budget=params.budget.dollars)


def _newest(repository: str) -> str:
    """Return the newest commit of a hub repository. Raise InputError where the hub has no answer."""
    from httpx2 import HTTPError
    from huggingface_hub import model_info

    try:
        return str(model_info(repository).sha)
    except (HTTPError, OSError, ValueError) as error:  # what huggingface_hub raises is one of these
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"eval: {repository}: the hub does not name its newest commit ({reason}); give --revision"
        ) from None
