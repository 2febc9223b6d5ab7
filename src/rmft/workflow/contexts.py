"""Whether the conversations of every experiment fit what its model can read, without the model and its tokenizer."""

import re
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from rmft.agents.chat_models import Conversations
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.language.protocol import Scenario
from rmft.language.scenarios import read_scenarios
from rmft.params import Params
from rmft.workflow.games import game_settings_of, scenarios_for
from rmft.workflow.plan import held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

# Tokenizers seldom cut finer: words, single digits, spaces before digits, and every other character alone. Those of
# Gemma 3 and Qwen 2.5 give 79% to 103% of this count for our messages: tests/test_contexts.py.
PIECE = re.compile(r"[^\W\d]+| (?=\d)|\S|\n")
TURN = 12  # tokens that a chat template puts around a message and its completion


@dataclass(frozen=True)
class EstimatedTokenizer:
    """Counts tokens in place of a `ChatTokenizer`. limit: tokens that the model can read."""

    limit: int

    @property
    def template(self) -> Self:
        """Return what counts the tokens of messages."""
        return self

    def first(self, message: str) -> Sized:
        """Return as many numbers as the message has tokens, about and at most."""
        return range(len(PIECE.findall(message)) + TURN)

    next = first


def check_contexts(params: Params) -> None:
    """Raise InputError for the first experiment whose conversations exceed the `context` of its model."""
    prompts_in = cache(lambda folder: Prompts.load(Path(folder)))  # compiling templates takes most of the time
    bundled_in = cache(lambda file: read_scenarios(Path(file)))
    for name, experiment in params.experiments.items():
        model = params.models[experiment.model]
        if experiment.in_words and getattr(model, "context", None):
            for played, job in _jobs(params, name):
                prompts = prompts_in(job.problem.protocol.prompts)
                scenarios = scenarios_for(job, bundled_in(job.scenario_set)) if job.scenario_set else None
                try:
                    longest_conversation(job, prompts, scenarios, model.context)
                except InputError as error:
                    raise InputError(f"experiments.{name}: {played}, models.{experiment.model}: {error}") from None


def _jobs(params: Params, experiment: str) -> Iterator[tuple[str, RolloutsJob]]:
    """Yield the games of training and of every evaluation, with their name."""
    yield "training", rollouts_job(params, experiment, 0, 0, 1)
    for evaluation in params.experiments[experiment].evaluations:
        yield f"evaluation {evaluation}", held_out_job(params, experiment, evaluation)


def longest_conversation(job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None, limit: int) -> int:
    """Return about how many tokens a conversation of a job has at most. Raise InputError if that exceeds the limit."""
    settings = game_settings_of(job, prompts)
    conversations = Conversations(settings, job.T, job.problem.protocol.max_tokens, scenarios)
    return conversations.capacity(EstimatedTokenizer(limit))
