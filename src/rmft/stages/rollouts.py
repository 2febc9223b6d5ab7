"""Stage `rollouts`: Algorithm `ssft-language-model`, "sample L": a language model plays a shard of games in words.

Reads the model, its fine-tuned weights if there are any, the templates of the prompts, the scenarios, and the reward
set of an evaluation. Writes the trajectories (parquet).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmft.agents.chat_models import ChatModels, Conversations, at_endpoint, in_llama_cpp, in_process, in_vllm
from rmft.artifacts.json_files import read_json
from rmft.artifacts.rewards import read_rewards
from rmft.artifacts.trajectories import write_trajectories
from rmft.endpoint.session import journal_of, open_connection
from rmft.progress import speed
from rmft.rollouts import Games, roll_out
from rmft.workflow.games import games_of, read_prompts, read_scenarios_of
from rmft.workflow.records import RolloutsJob


def run(job: RolloutsJob, output: Path, weights: Path | None = None, rewards: Path | None = None) -> None:
    """Play the games of one shard: on the reward set, or where there is none on rewards drawn for training."""
    held_out = read_rewards(rewards) if rewards else None
    games = games_of(job, read_prompts(job), read_scenarios_of(job), held_out)
    with (
        open_chat_models(job, games, weights, output) as chat_models,
        speed(f"rollouts {output}", len(games.ids) * job.T) as advance,
    ):
        trajectories = roll_out(games, chat_models.open, chat_models.batch, advance)
        if summary := chat_models.summary():
            print(f"rollouts {output}: {summary}", file=sys.stderr)
    write_trajectories(output, trajectories)


@contextmanager
def open_chat_models(job: RolloutsJob, games: Games, weights: Path | None, output: Path) -> Iterator[ChatModels]:
    """Yield the chat models of a job's games. Raise InputError where the model cannot be loaded or reached.

    weights: the file that fine-tuning wrote; None for the base model. output: the file that the games go into, after
    which the journal of an endpoint's responses is named, and the log of the servers of vLLM or llama.cpp.
    """
    model = job.model
    if model.kind == "language":
        model = model.model_copy(update={"batch": min(model.batch, len(games.ids))})
    conversations = Conversations(games.settings, job.T, job.problem.protocol.max_tokens, games.scenarios)
    if model.kind == "endpoint":
        served = model.model if weights is None else read_json(weights)["id"]
        with open_connection(job.model_name, model, job.served, served, journal_of(output)) as connection:
            yield at_endpoint(connection, conversations, games.words)
    elif model.vllm:
        log = Path("logs", "vllm", output.with_suffix(".log"))
        with in_vllm(model, weights, conversations, log) as chat_models:
            yield chat_models
    elif model.llama_cpp:
        log = Path("logs", "llama_cpp", output.with_suffix(".log"))
        with in_llama_cpp(model, weights, conversations, log) as chat_models:
            yield chat_models
    else:
        with in_process(model, weights, conversations) as chat_models:
            yield chat_models
