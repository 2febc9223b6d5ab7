"""Experiments in which a language model learns by GRPO: a rival method of Table `qwen-ad-grpo-comparison`."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rmft.environments import check_processes
from rmft.params.evaluation import Evaluation
from rmft.params.language import LanguageProblem, LanguageSFT, PlayedScale
from rmft.params.section import AtLeastTwo, Count, Name, NotNegative, Positive, Several, prefixed

Credit = Literal["step", "round", "regret"]


class Objective(LanguageSFT):
    """What GRPO maximises, and the steps that it takes, which are as in SFT; batch_size: conversations a step.

    reward: what the tokens of a round are credited with, in the order of how much of a game it looks at: the reward of
    that round alone (round), all rewards from that round on (step), or minus the regret of the game (regret); see
    `training.advantages`. clip: how far a token's probability may leave that of the model which played, as a ratio, for
    a gain. kl: the weight of the divergence from the base model. epochs: how often an iteration's games are read.
    """

    reward: Credit
    clip: Annotated[float, Field(gt=0, lt=1)]
    kl: NotNegative

    @field_validator("processes")
    @classmethod
    def _alone(cls, processes: int) -> int:
        if processes > 1:
            raise ValueError(f"{processes}: GRPO is one process here; several are for sft of other experiments")
        return processes


class GRPO(Objective):
    """The loop: in each iteration M scenarios are played, G trajectories each (a group), and all are learnt from."""

    iterations: Count
    scenarios: Count
    trajectories: AtLeastTwo
    temperature: Positive
    training_seeds: Count

    @model_validator(mode="after")
    def _whole_batches(self) -> Self:
        games = self.scenarios * self.trajectories
        if games % self.batch_size:
            raise ValueError(f"batch_size: {self.batch_size} must divide the {games} games of an iteration")
        return self


class GRPOExperiment(LanguageProblem):
    """Iterations of rollouts and GRPO from a model, and what is evaluated. varies: as of a LanguageExperiment."""

    kind: Literal["grpo"]
    model: Name
    T: Count
    process: Several
    grpo: GRPO
    evaluations: dict[Name, Evaluation]
    varies: Name | None = None

    @model_validator(mode="after")
    def _playable(self) -> Self:
        prefixed("process", check_processes, self.environment, self.process)
        if self.process == ["adaptive"]:
            raise ValueError("process: adaptive rewards answer each trajectory's policy, so no group shares them")
        return self

    @property
    def loop(self) -> GRPO:
        """Return how often, and how many games, the model plays to learn."""
        return self.grpo

    @property
    def learnt(self) -> int:
        """Return how many trajectories are learnt from: all that are played."""
        return self.grpo.iterations * self.grpo.scenarios * self.grpo.trajectories

    @property
    def method(self) -> str:
        """Return what tables call the way in which the model learns."""
        return f"GRPO by {self.grpo.reward}"

    @property
    def weights(self) -> str:
        """Return the name of the file that GRPO writes."""
        return self.grpo.file


class GRPOScale(PlayedScale):
    """What a scale changes in GRPO experiments; what is absent stays the paper's.

    scenarios: M by what is rewarded, since the paper's two runs have budgets of their own. grpo: other settings.
    """

    iterations: Count | None = None
    trajectories: AtLeastTwo | None = None
    scenarios: dict[Credit, Count] = {}
    grpo: dict[str, str | int | float | bool] = {}

    def scaled(self, experiment: GRPOExperiment) -> GRPOExperiment:
        """Return an experiment at this scale."""
        whole = experiment.grpo
        changed = self.model_dump(include={"iterations", "trajectories"}, exclude_none=True)
        changed["scenarios"] = self.scenarios.get(whole.reward, whole.scenarios)
        grpo = whole.changed("grpo.grpo", {**changed, **self.grpo})
        return experiment.model_copy(update={**self.played(experiment, grpo), "grpo": grpo})
