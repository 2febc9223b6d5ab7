"""Numeric experiments of Section 4: linear attention as the model, and the theory about it."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rmft.environments import check_policy_space, check_processes
from rmft.params.evaluation import Evaluation
from rmft.params.experiment import RMFT, Experiment
from rmft.params.section import Actions, AtLeastTwo, Betas, Count, Positive, Section, Several, prefixed

if TYPE_CHECKING:
    from rmft.params.whole import Params

SeveralFromTwo = Annotated[list[AtLeastTwo], Field(min_length=1)]
SeveralPositive = Annotated[list[Positive], Field(min_length=1)]


class LinearAttentionModel(Section):
    """The single-layer linear attention of Eq. `single-linear-transformer`; its size is d."""

    kind: Literal["linear-attention"] = Field(description="Kind of the model.")
    initialisation: Positive = Field(description="Weights and biases start uniform on ± initialisation / √d.")


class NumericRMFT(RMFT):
    """Algorithm `ssft-numerical-model`."""

    perturb: Literal["policy", "logits"] = Field(
        description="What the noise is added to: the policy, as in Eq. `perturbation`, or the Operator's input, logits."
    )
    variance: Positive = Field(description="σ²: variance of the noise, by which trajectories differ.")


class NumericSFT(Section):
    """The steps that fit the policy to the demonstrations, Eq. `dist`, by Adam."""

    steps: Count = Field(description="Adam's steps in an iteration, each on all of its demonstrations.")
    distance: Literal["l2", "cross-entropy", "kl"] = Field(
        description="Distance between the policy and the demonstrated one; on the ball l2."
    )
    learning_rate: Positive = Field(description="Step size.")
    betas: Betas = Field(description="Decay rates of Adam's moments.")
    epsilon: Positive = Field(description="ε of Adam.")


class NumericProblem(Section):
    """What is played: enough to put an agent into its environment."""

    kind: Literal["numeric"] = Field(description="Kind of the experiment: a numeric model learns by RMFT (Section 4).")
    environment: Literal["fol", "mab", "ns-mab"] = Field(
        description="Full-information online learning, multi-armed bandits, or non-stationary bandits."
    )
    policy_space: Literal["simplex", "ball"] = Field(description="Π: the simplex, or in fol the ball.")
    radius: Positive | None = Field(default=None, description="Radius of the ball.")
    d: Actions = Field(description="Number of actions.")
    normalise: bool = Field(
        description="Whether the model sees rewards in [0, 1], as algorithms do, or in [0, 10] as they are."
    )

    @model_validator(mode="after")
    def _has_actions(self) -> Self:
        on_ball = self.policy_space == "ball"
        prefixed("policy_space", check_policy_space, self.environment, on_ball=on_ball)
        if on_ball != (self.radius is not None):
            raise ValueError("radius: a ball needs one, and the simplex has none")
        return self

    @property
    def space(self) -> Literal["simplex", "ball"]:
        """Return the policy space."""
        return self.policy_space


class Training(NumericProblem):
    """One run of Algorithm `ssft-numerical-model`."""

    T: Count
    process: Several
    rmft: NumericRMFT = Field(description="The loop, Algorithm `ssft-numerical-model`.")
    sft: NumericSFT = Field(description="The steps that fit the policy to the demonstrations.")
    checkpoints: list[Annotated[int, Field(ge=0)]] = Field(
        description="Iterations whose model is kept, besides the first and the last."
    )

    @model_validator(mode="after")
    def _trainable(self) -> Self:
        prefixed("process", check_processes, self.environment, self.process)
        if self.process == ["adaptive"]:
            raise ValueError("process: adaptive rewards answer each trajectory's policy and cannot be trained on")
        if self.policy_space == "ball" and self.sft.distance != "l2":
            raise ValueError(f"sft.distance: {self.sft.distance} compares distributions; on the ball use l2")
        return self

    @property
    def saved_iterations(self) -> list[int]:
        """Return the iterations whose model is kept: the base, the checkpoints within reach, the last."""
        last = self.rmft.iterations
        return sorted({0, last, *(i for i in self.checkpoints if i < last)})


class NumericExperiment(Experiment, Training):
    """A training, the model that it starts from, and what is evaluated after it."""

    model_kind: ClassVar = "linear-attention"
    defaults_of: ClassVar = ("numeric",)
    scale_of: ClassVar = "numeric"
    in_words: ClassVar = False
    trained_by: ClassVar = "training"

    def check_evaluation(self, key: str, evaluation: Evaluation, params: "Params") -> None:
        """Raise ValueError where an evaluation does not fit the experiment."""
        if evaluation.scenarios is not None:
            raise ValueError(f"{key}.scenarios: the experiment's games are not told in scenarios")
        if evaluation.iterations or evaluation.temperature or evaluation.replicates > 1:
            raise ValueError(f"{key}: iterations, temperature and replicates belong to games in words")
        rewards = params.rewards.get(evaluation.rewards)
        if rewards and rewards.d != self.d:
            raise ValueError(f"{key}.rewards: {evaluation.rewards} has d = {rewards.d}, the model d = {self.d}")
        super().check_evaluation(key, evaluation, params)


class Theory(Section):
    """The grid on which Theorem 1 is checked by training to convergence."""

    d: SeveralFromTwo = Field(description="Numbers of actions.")
    T: SeveralFromTwo = Field(description="Horizons.")
    radius: SeveralPositive = Field(description="Radii of the ball.")
    samples: Count = Field(
        description="Reward sequences that the loss averages over; each also enters with its sign turned."
    )
