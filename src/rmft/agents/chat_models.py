"""Who speaks in a job's games: a language model in process, or one behind an endpoint."""

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
    """open: gives a speaker for games, scenario and trajectory of each (n, 2). batch: games played at a time.

    said: what there is to tell of the answers when all games are over.
    """

    open: Callable[[np.ndarray], ChatModel]
    batch: int
    said: Callable[[], str] = str


@contextmanager
def open_chat_models(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, output: Path
) -> Iterator[ChatModels]:
    """Yield who speaks in a job's games. Raise InputError where the model cannot be had.

    weights: what fine-tuning has written; None for the base model. output: the file that the games go into, which
    gives the journal of an endpoint's answers its name.
    """
    if job.model.kind == "language":
        by = _local if job.model.vllm is None else _in_vllm
        with by(job, prompts, scenarios, weights, output) as speakers:
            yield speakers
        return
    from rmft.agents.endpoint import EndpointChatModel
    from rmft.endpoint.access import connection_to, journal_of

    telling = job.problem.protocol
    model = job.model.model if weights is None else read_json(weights)["id"]
    logprobs = telling.output == "action" and job.problem.feedback == "full"
    with connection_to(job.model_name, job.served, model, journal_of(output)) as connection:

        def opened(games: np.ndarray) -> ChatModel:
            return EndpointChatModel(connection, len(games), games, telling.max_tokens, job.stream, logprobs)

        yield ChatModels(opened, connection.endpoint.settings.batch, lambda: str(connection.counts))


@contextmanager
def _local(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, _output: Path
) -> Iterator[ChatModels]:
    from rmft.agents.local import LocalChatModel, free_memory, in_flight, load
    from rmft.agents.pretrained import note_model

    note_model(job.model)
    model = load(job.model, weights)
    needed = tokens_needed(job, prompts, model.reader, scenarios)
    most = job.problem.protocol.max_tokens
    batch = in_flight(model, needed, most, job.model.batch, free_memory(model.model.device))
    yield ChatModels(lambda games: LocalChatModel(model, len(games), needed, most), batch)


@contextmanager
def _in_vllm(
    job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, weights: Path | None, output: Path
) -> Iterator[ChatModels]:
    from rmft.agents.pretrained import load_chat_tokenizer, note_model
    from rmft.agents.vllm import Engine, VLLMChatModel
    from rmft.agents.vllm_servers import servers

    note_model(job.model)
    reader = load_chat_tokenizer(job.model)
    needed = tokens_needed(job, prompts, reader, scenarios)
    log = Path("logs", "vllm", output.with_suffix(".log"))
    with servers(job.model, weights, job.model.context or needed, log) as found, Engine(found) as engine:
        most = job.problem.protocol.max_tokens
        yield ChatModels(lambda games: VLLMChatModel(engine, reader, games, most), job.model.batch)
