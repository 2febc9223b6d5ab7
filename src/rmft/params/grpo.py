"""Experiments in which a language model learns by GRPO: a rival method of Table `qwen-ad-grpo-comparison`."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from rmft.params.language import GameExperiment, LanguageSFT
from rmft.params.section import AtLeastTwo, Count, NotNegative, Positive

Credit = Literal["step", "round", "regret"]


class Objective(LanguageSFT):
    """What GRPO maximises, and the steps that it takes, which are as in SFT."""

    reward: Credit = Field(
        description="What the tokens of a round are credited with: the reward of that round (round), all rewards from "
        "that round on (step), or minus the regret of the game (regret)."
    )
    clip: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="How far the ratio of a token's probability to that of the model which played may leave 1 for a "
        "gain."
    )
    kl: NotNegative = Field(description="Weight of the divergence from the base model.")

    @field_validator("processes")
    @classmethod
    def _alone(cls, processes: int) -> int:
        if processes > 1:
            raise ValueError(f"{processes}: GRPO is one process here; several are for sft of other experiments")
        return processes


class GRPO(Objective):
    """The loop: the model plays groups of trajectories, one group a scenario, and learns from all of them."""

    iterations: Count = Field(description="How often the model plays, and learns from the games.")
    scenarios: Count = Field(description="M: scenarios of an iteration, a group each.")
    trajectories: AtLeastTwo = Field(description="G: trajectories of a group.")
    temperature: Positive = Field(description="Temperature of sampling, by which trajectories differ.")
    training_seeds: Count = Field(description="How often the whole loop runs, each time with other random numbers.")

    @model_validator(mode="after")
    def _whole_batches(self) -> Self:
        games = self.scenarios * self.trajectories
        if games % self.batch_size:
            raise ValueError(f"batch_size: {self.batch_size} must divide the {games} games of an iteration")
        return self


class GRPOExperiment(GameExperiment):
    """Iterations of rollouts and GRPO from a model, and what is evaluated."""

    model_kind: ClassVar = "language"
    defaults_of: ClassVar = ("language", "grpo")
    scale_of: ClassVar = "grpo"
    trained_by: ClassVar = "grpo"
    iteration_files: ClassVar = ("rollouts.parquet",)

    kind: Literal["grpo"] = Field(description="Kind of the experiment: a language model learns by GRPO.")
    grpo: GRPO = Field(description="The loop, and the steps that it takes.")

    @property
    def loop(self) -> GRPO:
        """Return how often, and how many games, the model plays to learn."""
        return self.grpo

    def shards(self, wanted: int) -> int:
        """Return how many shards the rollouts of an iteration have: each has at least one of the few scenarios."""
        return min(wanted, self.grpo.scenarios)

    @property
    def learnt(self) -> int:
        """Return how many trajectories the model learns from: all that are played."""
        return self.played

    @property
    def method_name(self) -> str:
        """Return what tables call the way in which the model learns."""
        return f"GRPO by {self.grpo.reward}"

    @property
    def weights(self) -> str:
        """Return the name of the file that GRPO writes."""
        return self.grpo.file
