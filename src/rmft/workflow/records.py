"""Job records: all that a job depends on besides its files, its code included.

Snakemake compares a record as one canonical JSON text, which the job reads back. A job gets no other parameters, so
nothing that matters to a job escapes Snakemake's comparison.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from rmft import extensions
from rmft.artifacts.files import note_reading
from rmft.artifacts.job import JOB_CONTEXT
from rmft.environments.regret import Mean
from rmft.params.endpoint import EndpointModel, FineTuningSettings
from rmft.params.evaluation import Algorithm, Evaluation, RewardSet
from rmft.params.grpo import Objective
from rmft.params.language import LanguageProblem, LanguageSFT, Pool, Score
from rmft.params.language_model import Checkpoint, LanguageModelSettings, Pretraining
from rmft.params.numeric import LinearAttentionModel, NumericProblem, Theory, Training
from rmft.params.scenarios import Generated
from rmft.params.section import Section


class Code(Section):
    """The code of a job, see `lineage.code`: a digest, versions of libraries by name, and the user's own files."""

    digest: str
    libraries: dict[str, str]
    extensions: list[str]


class Job(Section):
    """All that a job depends on besides its files.

    The extensions in `code` are loaded before the rest of the record is read, which may use names that they register.
    """

    code: Code | None = None  # None in a record that is part of another one

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the record of a text that `canonical` gave, and note the text for the receipts of this process.

        Raise InputError with the dotted key where the text is no such record.
        """
        JOB_CONTEXT.settings = text
        files = _extensions_named(text)
        note_reading(map(Path, files))
        note_reading(map(Path, extensions.data_of(files)))
        extensions.load(files)
        return super().parse(text)


def _extensions_named(text: str) -> list[str]:
    """Return the extensions in the code of a record; none where the text is no record, see `Section.parse`."""
    with suppress(ValueError, TypeError, AttributeError):
        return list((json.loads(text).get("code") or {}).get("extensions", []))
    return []


class RewardsJob(Job):
    """The record of stage `rewards`."""

    seed: int
    name: str
    rewards: RewardSet


class ModelsJob(Job):
    """The record of stage `models`: an embedded model, pre-trained on a corpus of its own."""

    seed: int
    name: str
    pretraining: Pretraining


class ConversionJob(Job):
    """The record of stage `conversion`: the GGUF file of a model. scenario_sets: files of texts for prompts."""

    name: str
    checkpoint: Checkpoint
    prompts: str
    scenario_sets: list[str]


class TrainingJob(Job):
    """The record of stage `training`."""

    seed: int
    training: Training
    model: LinearAttentionModel
    mean: Mean


class OwnServer(Section):
    """The model that our own server serves, and how the server fine-tunes it. code: a hash of the server's code."""

    code: str | None = None
    seed: int
    model: LanguageModelSettings
    sft: LanguageSFT


ModelSettings = Annotated[LanguageModelSettings | EndpointModel, Field(discriminator="kind")]


class ScenariosJob(Job):
    """The record of stage `scenarios`."""

    seed: int
    name: str
    scenarios: Generated
    model: EndpointModel
    model_name: str
    served: OwnServer | None = None


class RolloutsJob(Job):
    """The record of stage `rollouts`: one shard of the games of one model.

    stream: the words that name the random streams of these games. process: of rewards that are drawn for training; None
    for an evaluation, which has a reward set. scenario_set: the file of the texts that games are about. model_name: in
    params.yaml. served: where the endpoint is our own server. shard: its number, from 1, and the number of shards.
    """

    seed: int
    stream: str
    problem: LanguageProblem
    model: ModelSettings
    model_name: str
    served: OwnServer | None = None
    scenario_set: str | None = None
    process: list[str] | None
    T: int
    scenarios: int
    trajectories: int
    temperature: float
    shard: tuple[int, int]

    @property
    def games(self) -> int:
        """Return the number of games in the shard."""
        shard, shards = self.shard
        return ((self.scenarios + shards - shard) // shards) * self.trajectories


class DistillationJob(Job):
    """The record of stage `distillation`.

    games: as a model would play them. teacher: the algorithm that plays them. rationale: the template of its text
    before an action.
    """

    games: RolloutsJob
    teacher_name: str
    teacher: Algorithm
    rationale: str | None


class GatherJob(Job):
    """The record of stage `gather`."""

    games: int


class SelectionJob(Job):
    """The record of stage `selection`. stream: the words that name the streams of random scores."""

    seed: int
    stream: str
    problem: LanguageProblem
    selected: int
    score: Score = "regret"
    pool: Pool = "scenario"
    mean: Mean


class SFTJob(Job):
    """The record of stage `sft`. stream: the words that name its random streams."""

    seed: int
    stream: str
    model: ModelSettings
    model_name: str
    served: OwnServer | None = None
    sft: Annotated[LanguageSFT | FineTuningSettings, Field(discriminator="method")]


class GRPOJob(Job):
    """The record of stage `grpo`. stream: the words that name its random streams. temperature: of the rollouts."""

    seed: int
    stream: str
    problem: LanguageProblem
    model: LanguageModelSettings
    grpo: Objective
    temperature: float
    mean: Mean


class MethodJob(Job):
    """The record of stage `method`. stream: the words that name its random streams.

    method: the name that an extension has registered. settings: those of the method. sft: the training steps, for
    methods that take them as fine-tuning does. temperature: of the rollouts.
    """

    seed: int
    stream: str
    problem: LanguageProblem
    model: LanguageModelSettings
    method: str
    settings: dict[str, Any]
    sft: LanguageSFT
    temperature: float
    mean: Mean


class EvaluationJob(Job):
    """The record of stage `evaluation`.

    players: name and training seed of the language models whose games are read, in the order of the files.
    """

    seed: int
    players: list[tuple[str, int]]
    problem: Annotated[NumericProblem | LanguageProblem, Field(discriminator="kind")]
    evaluation: Evaluation
    mean: Mean
    algorithms: dict[str, Algorithm]


class JudgeModel(Section):
    """A model behind an endpoint that judges replies. prompt: the file with the template of the question."""

    model: EndpointModel
    model_name: str
    served: OwnServer | None
    prompt: str
    max_tokens: int


class ReasoningJob(Job):
    """The record of stage `reasoning`.

    words: the file of the words that the lexical judge looks for. games: the record of the games that are examined.
    """

    seed: int
    experiment: str
    evaluation: str
    games: RolloutsJob
    mean: Mean
    resamples: int
    words: str
    judge: JudgeModel | None


class TheoryJob(Job):
    """The record of stage `theory`."""

    seed: int
    theory: Theory
