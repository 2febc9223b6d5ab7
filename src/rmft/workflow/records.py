"""What each job depends on, its code included, as one record a job.

Snakemake sees it as one canonical JSON text, the job reads it back. A job is given nothing of params.yaml but its
record, so nothing can matter to it that Snakemake does not compare.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from rmft import extensions
from rmft.artifacts.files import note_reading
from rmft.artifacts.job import JOB_CONTEXT
from rmft.environments.regret import Mean, Notion
from rmft.params.endpoint import EndpointModel, FineTuningSettings
from rmft.params.evaluation import Algorithm, Evaluation, RewardSet
from rmft.params.grpo import Objective
from rmft.params.language import (
    LanguageModelSettings,
    LanguageProblem,
    LanguageRMFT,
    LanguageSFT,
    Pretraining,
)
from rmft.params.numeric import LinearAttentionModel, NumericProblem, Theory, Training
from rmft.params.outputs import Figure, Label, Style, Table
from rmft.params.scenarios import Generated
from rmft.params.section import Section

COMMANDS = (  # that jobs run
    "scenarios",
    "rewards",
    "models",
    "training",
    "rollouts",
    "distillation",
    "gather",
    "selection",
    "sft",
    "grpo",
    "method",
    "evaluation",
    "reasoning",
    "theory",
    "figures",
    "tables",
    "metrics",
    "report",
)


class Code(Section):
    """What a job runs, see `lineage.code`: a digest, the versions of libraries by name, a user's own files."""

    digest: str
    libraries: dict[str, str]
    extensions: list[str]


class Job(Section):
    """All that a job depends on, besides the files it reads.

    The extensions that its code names are run before the rest of the record is read, which may name what they register.
    """

    code: Code | None = None  # None: run by hand

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `canonical` back, and note it for the receipts of what this process writes.

        Raise InputError with the dotted key.
        """
        JOB_CONTEXT.settings = text
        files = _extensions_named(text)
        note_reading(map(Path, files))
        extensions.load(files)
        return super().parse(text)


def _extensions_named(text: str) -> list[str]:
    """Return the extensions in the code of a record; none where it is no record: `Section.parse` says so."""
    with suppress(ValueError, TypeError, AttributeError):
        return list((json.loads(text).get("code") or {}).get("extensions", []))
    return []


class RewardsJob(Job):
    """All that `rmft rewards` depends on."""

    seed: int
    name: str
    rewards: RewardSet


class ModelsJob(Job):
    """All that `rmft models` depends on, besides the templates of prompts."""

    seed: int
    pretraining: Pretraining


class TrainingJob(Job):
    """All that `rmft training` depends on."""

    seed: int
    training: Training
    model: LinearAttentionModel
    mean: Mean


class Served(Section):
    """What our own server plays, and how it fine-tunes."""

    seed: int
    model: LanguageModelSettings
    sft: LanguageSFT


Speaking = Annotated[LanguageModelSettings | EndpointModel, Field(discriminator="kind")]


class ScenariosJob(Job):
    """All that `rmft scenarios` depends on, besides the prompt's template."""

    seed: int
    name: str
    scenarios: Generated
    model: EndpointModel
    model_name: str
    served: Served | None = None


class RolloutsJob(Job):
    """All that `rmft rollouts` depends on, besides the files it reads: one shard of the games of one model.

    stream: the words that name the random streams of these games. process: of the rewards, drawn afresh for training;
    None for evaluation, which is given a reward set. scenario_set: the file of the texts that games are told in.
    model_name: in params.yaml. served: where the endpoint is our own server. shard: which one, from 1, of how many.
    """

    seed: int
    stream: str
    problem: LanguageProblem
    model: Speaking
    model_name: str
    served: Served | None = None
    scenario_set: str | None = None
    process: list[str] | None
    T: int
    scenarios: int
    trajectories: int
    temperature: float
    shard: tuple[int, int]

    @property
    def games(self) -> int:
        """Return how many games the shard has."""
        shard, shards = self.shard
        return ((self.scenarios + shards - shard) // shards) * self.trajectories


class DistillationJob(Job):
    """All that `rmft distillation` depends on, besides the files it reads.

    games: what is played, as of a model that plays it. teacher: who plays it instead. rationale: the template of what
    it says before its actions.
    """

    games: RolloutsJob
    teacher_name: str
    teacher: Algorithm
    rationale: str | None


class GatherJob(Job):
    """All that `rmft gather` depends on, besides the shards it reads."""

    games: int


class SelectionJob(Job):
    """All that `rmft selection` depends on, besides the rollouts. stream, process: as they were drawn with."""

    seed: int
    stream: str
    problem: LanguageProblem
    process: list[str]
    selected: int
    score: Literal["regret", "reward", "rerolled"] = "regret"
    pool: Literal["scenario", "iteration"] = "scenario"
    mean: Mean
    rerolls: int


class SFTJob(Job):
    """All that `rmft sft` depends on, besides the files it reads. stream: names the random streams of this run."""

    seed: int
    stream: str
    model: Speaking
    model_name: str
    served: Served | None = None
    sft: Annotated[LanguageSFT | FineTuningSettings, Field(discriminator="method")]


class GRPOJob(Job):
    """All that `rmft grpo` depends on, besides the files it reads. stream: names the random streams of this run.

    temperature: at which the games were sampled.
    """

    seed: int
    stream: str
    problem: LanguageProblem
    model: LanguageModelSettings
    grpo: Objective
    temperature: float
    mean: Mean


class MethodJob(Job):
    """All that `rmft method` depends on, besides the files it reads. stream: names the random streams of this run.

    method: the name that an extension has registered; settings: its own. sft: the steps, where they are as in
    fine-tuning. temperature: at which the games were sampled.
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
    """All that `rmft evaluation` depends on, besides the files it reads.

    players: name and training seed of the models whose games told in words are read, in order.
    """

    seed: int
    players: list[tuple[str, int]]
    problem: Annotated[NumericProblem | LanguageProblem, Field(discriminator="kind")]
    evaluation: Evaluation
    mean: Mean
    algorithms: dict[str, Algorithm]


class Judging(Section):
    """A model behind an endpoint that judges replies. prompt: the file of the question."""

    model: EndpointModel
    model_name: str
    served: Served | None
    prompt: str
    max_tokens: int


class ReasoningJob(Job):
    """All that `rmft reasoning` depends on, besides the files it reads.

    words: the file of those that the lexical judge looks for. games: how those were told that are examined.
    """

    seed: int
    experiment: str
    evaluation: str
    games: RolloutsJob
    mean: Mean
    resamples: int
    words: str
    judge: Judging | None


class TheoryJob(Job):
    """All that `rmft theory` depends on."""

    seed: int
    theory: Theory


class FigureJob(Job):
    """All that `rmft figures` depends on, besides the files it reads.

    titles, experiment_titles: of what it draws, by the name of the evaluation or experiment. loops: training seeds and
    iterations of each experiment, where it draws training.
    """

    label: str
    figure: Figure
    titles: dict[str, str]
    experiment_titles: dict[str, str]
    style: Style
    loops: list[tuple[int, int]]
    scale_note: str | None


class Method(Section):
    """How an experiment teaches its model: by name, with the trajectories that are played for it, and learnt from.

    cut: whether these are fewer than its budget, by the scale.
    """

    experiment: str
    name: str
    played: int
    learnt: int
    cut: bool = False


class TableJob(Job):
    """All that `rmft tables` depends on, besides the files it reads.

    models: that of each experiment. loops: how each was trained, where that is what varies. methods: those that are
    compared. generated: whether a model wrote all sets of scenarios that stand beside the paper's. theory_rows: of the
    file of minimisers.
    """

    seed: int
    label: str
    table: Table
    models: list[str]
    loops: list[LanguageRMFT] = Field(default=[])
    methods: tuple[Method, ...] = ()
    generated: bool = False
    sources: list[tuple[str, str]]
    floor: float | None
    resamples: int
    theory_rows: int
    scale_note: str | None


class MetricsJob(Job):
    """All that `rmft metrics` depends on, besides the files it reads."""

    seed: int
    floor: float | None
    sources: list[tuple[str, str]]


class ReportedExperiment(Section):
    """An experiment with games in words, as the trajectory viewer describes it, and how its regret is computed."""

    model: str
    environment: str
    T: int
    iterations: int
    selected: int
    regret: Notion
    mean: Mean


class ReportJob(Job):
    """All that `rmft report` depends on, besides the files it reads.

    models: of every experiment, by name. notes: on the scale of figures and tables, by label. players: their names in
    legends. story: experiment and evaluation of the pictures of the method, if any. in_words: the experiments of the
    trajectory viewer. trajectories: of each of them.
    """

    scale: str
    figures: dict[Label, Figure]
    tables: dict[Label, Table]
    figure_notes: dict[Label, str | None]
    table_notes: dict[Label, str | None]
    models: dict[str, str]
    players: dict[str, str]
    story: tuple[str, str] | None
    in_words: dict[str, ReportedExperiment]
    trajectories: int
