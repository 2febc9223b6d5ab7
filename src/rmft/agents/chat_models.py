"""The chat model that plays a job's games: a language model in process, in vLLM's servers, or behind an endpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmft.artifacts.json_files import read_json
from rmft.language.prompts import Prompts
from rmft.language.protocol import Scenario
from rmft.rollouts import ChatModel, tokens_needed
from rmft.workflow.records import RolloutsJob


@dataclass(frozen=True)
class ChatModels:
    """open: returns a chat model for games (n, 2), the scenario and trajectory of each. batch: games played at a time.

    summary: returns a line about an endpoint's responses, once all games are over; empty for other models.
    """

    open: Callable[[np.ndarray], ChatModel]
    batch: int
    summary: Callable[[], str] = str


@contextmanager
def open_chat_models(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, output: Path
) -> Iterator[ChatModels]:
    """Yield the chat models of a job's games. Raise InputError where the model cannot be loaded or reached.

    weights: the file that fine-tuning wrote; None for the base model. output: the file that the games go into, which
    also names the journal of an endpoint's responses.
    """
    language = job.model.kind == "language"
    opened = _at_endpoint if not language else _in_process if job.model.vllm is None else _in_vllm
    with opened(job, prompts, scenarios, weights, output) as chat_models:
        yield chat_models


@contextmanager
def _at_endpoint(
    job: RolloutsJob, _prompts: Prompts, _scenarios: Sequence[Scenario] | None, weights: Path | None, output: Path
) -> Iterator[ChatModels]:
    from rmft.agents.endpoint import EndpointChatModel
    from rmft.endpoint.access import connection_to, journal_of

    protocol = job.problem.protocol
    model = job.model.model if weights is None else read_json(weights)["id"]
    logprobs = protocol.output == "action" and job.problem.feedback == "full"
    with connection_to(job.model_name, job.served, model, journal_of(output)) as connection:

        def chat_model(games: np.ndarray) -> ChatModel:
            return EndpointChatModel(connection, len(games), games, protocol.max_tokens, job.stream, logprobs)

        yield ChatModels(chat_model, connection.endpoint.settings.batch, lambda: str(connection.counts))


@contextmanager
def _in_process(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, _output: Path
) -> Iterator[ChatModels]:
    from rmft.agents.checkpoint import note_model
    from rmft.agents.local import LocalChatModel, free_memory, games_at_a_time, load

    note_model(job.model)
    model, max_tokens = load(job.model, weights), job.problem.protocol.max_tokens
    capacity = tokens_needed(job, prompts, model.chat_tokenizer, scenarios)
    batch = games_at_a_time(model, capacity, max_tokens, job.model.batch, free_memory(model.model.device))
    yield ChatModels(lambda games: LocalChatModel(model, len(games), capacity, max_tokens), batch)


@contextmanager
def _in_vllm(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, output: Path
) -> Iterator[ChatModels]:
    from rmft.agents.checkpoint import load_chat_tokenizer, note_model
    from rmft.agents.vllm import Engine, VLLMChatModel
    from rmft.agents.vllm_servers import servers

    note_model(job.model)
    chat_tokenizer, max_tokens = load_chat_tokenizer(job.model), job.problem.protocol.max_tokens
    capacity = tokens_needed(job, prompts, chat_tokenizer, scenarios)
    log = Path("logs", "vllm", output.with_suffix(".log"))
    with servers(job.model, weights, job.model.context or capacity, log) as running, Engine(running) as engine:
        yield ChatModels(lambda games: VLLMChatModel(engine, chat_tokenizer, games, max_tokens), job.model.batch)
