"""What all kinds of experiments share, and the facts that each kind states."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rmft.algorithms import check_algorithm
from rmft.environments import check_processes
from rmft.params.evaluation import Evaluation
from rmft.params.section import Count, Name, Section, Several, known, prefixed

if TYPE_CHECKING:
    from rmft.params.whole import Params

Model = Literal["linear-attention", "language", "endpoint"]


class RMFT(Section):
    """The sizes of the loop of Algorithm `ssft-meta-algorithm`, whatever the model."""

    iterations: Count = Field(description="How often the model plays, and learns from the games that are selected.")
    scenarios: Count = Field(description="M: scenarios of an iteration.")
    trajectories: Count = Field(description="L: trajectories of each scenario.")
    selected: Count = Field(description="k: trajectories of lowest regret that are kept of each scenario.")
    training_seeds: Count = Field(description="How often the whole loop runs, each time with other random numbers.")

    @model_validator(mode="after")
    def _selection_possible(self) -> Self:
        if self.selected > self.trajectories:
            raise ValueError(f"selected: {self.selected} is more than trajectories: {self.trajectories}")
        return self


class Experiment(Section):
    """A model, how it is trained, and what is evaluated. A kind of experiments is a subclass, which states its facts.

    model_kind: kind of the models that it may name. defaults_of: kinds whose defaults it takes, the weakest first.
    scale_of: section of a scale that resizes it. in_words: whether games are played in words. selects: whether the
    games of lowest regret are selected. sharded: whether rollouts are split into shards. trained_by: rule that trains
    the model. iteration_files: what an iteration writes besides shards, weights and training log.
    """

    model_kind: ClassVar[Model]
    defaults_of: ClassVar[tuple[str, ...]]
    scale_of: ClassVar[str]
    in_words: ClassVar[bool] = True
    selects: ClassVar[bool] = False
    sharded: ClassVar[bool] = True
    trained_by: ClassVar[str]
    iteration_files: ClassVar[tuple[str, ...]] = ()

    varies: Name | None = Field(
        default=None,
        description="Another experiment, of which this one is a variant. The variant inherits every value that it does "
        "not set. If a language model plays, both also share rewards, random numbers and games of the base model.",
    )
    scale: Literal["own"] | None = Field(
        default=None,
        description="`own`: the experiment runs at its own size and with its own model at every scale.",
    )
    model: Name = Field(description="The model of `models` that the experiment starts from.")
    T: Count = Field(description="Rounds of a game in training.")
    process: Several = Field(description="Reward processes of training; several make an even mixture.")
    evaluations: dict[Name, Evaluation] = Field(description="What is evaluated, by name.")

    @property
    def loop(self) -> RMFT:
        """Return how often, and how many games, the model plays to learn."""
        return self.rmft

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages that the experiment has jobs of."""
        return self.trained_by, "evaluation"

    def shards(self, wanted: int) -> int:
        """Return how many shards the rollouts of an iteration have. wanted: by `rollouts.shards`."""
        return wanted

    def check(self, name: str, params: "Params") -> None:
        """Raise ValueError where what the experiment names is not there, or does not fit it. name: its own."""
        key = f"experiments.{name}"
        fitting = {model: of for model, of in params.models.items() if of.kind == self.model_kind}
        known(f"{key}.model", self.model, fitting)
        if self.varies is not None:
            self.check_variant(f"{key}.varies", name, params)
        for evaluation_name, evaluation in self.evaluations.items():
            self.check_evaluation(f"{key}.evaluations.{evaluation_name}", evaluation, params)

    def check_variant(self, key: str, name: str, params: "Params") -> None:
        """Raise ValueError where the experiment that this one varies is none that can be varied."""
        originals = {
            other: of
            for other, of in params.experiments.items()
            if other != name and self.can_vary(of) and not of.varies
        }
        known(key, self.varies, originals)

    def can_vary(self, other: "Experiment") -> bool:
        """Return whether this experiment can be a variant of another one."""
        return other.model_kind == self.model_kind and other.trained_by in ("training", "sft") and other.sharded

    def check_evaluation(self, key: str, evaluation: Evaluation, params: "Params") -> None:
        """Raise ValueError where an evaluation does not fit the experiment."""
        evaluation.check_size(key, params)
        rewards = params.rewards[evaluation.rewards]
        prefixed(f"{key}.rewards", check_processes, self.environment, rewards.process)
        for algorithm in evaluation.algorithms:
            known(f"{key}.algorithms", algorithm, params.evaluation.algorithms)
            settings, game = params.evaluation.algorithms[algorithm], (self.environment, self.space)
            prefixed(f"{key}.algorithms: {algorithm}", check_algorithm, settings, *game)
