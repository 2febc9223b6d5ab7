"""Numeric experiments of Section 4: linear attention as the model, and the theory about it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rmft.environments import check_policy_space, check_processes
from rmft.params.evaluation import Evaluation
from rmft.params.rmft import RMFT
from rmft.params.section import Actions, AtLeastTwo, Betas, Count, Name, Positive, Section, Several, prefixed

SeveralFromTwo = Annotated[list[AtLeastTwo], Field(min_length=1)]
SeveralPositive = Annotated[list[Positive], Field(min_length=1)]


class LinearAttentionModel(Section):
    """The single-layer linear attention of Eq. `single-linear-transformer`; its size is d."""

    kind: Literal["linear-attention"]
    initialisation: Positive
    """Weights and biases start uniform on ± initialisation / √d."""


class NumericRMFT(RMFT):
    """Algorithm `ssft-numerical-model`: trajectories differ by noise of this variance on the policy or the logits."""

    perturb: Literal["policy", "logits"]
    variance: Positive


class NumericSFT(Section):
    """The step that fits the policy to the demonstrations, Eq. `dist`, by Adam."""

    distance: Literal["l2", "cross-entropy", "kl"]
    learning_rate: Positive
    betas: Betas
    epsilon: Positive


class NumericProblem(Section):
    """What is played: enough to put an agent into its environment."""

    kind: Literal["numeric"]
    environment: Literal["fol", "mab", "ns-mab"]
    policy_space: Literal["simplex", "ball"]
    radius: Positive | None = None
    d: Actions
    normalise: bool

    @model_validator(mode="after")
    def _has_actions(self) -> Self:
        on_ball = self.policy_space == "ball"
        prefixed("policy_space", check_policy_space, self.environment, on_ball=on_ball)
        if on_ball != (self.radius is not None):
            raise ValueError("radius: a ball needs one, and the simplex has none")
        return self


class Training(NumericProblem):
    """One run of Algorithm `ssft-numerical-model`."""

    T: Count
    process: Several
    rmft: NumericRMFT
    sft: NumericSFT
    checkpoints: list[Annotated[int, Field(ge=0)]]

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


class NumericExperiment(Training):
    """A training run, the model that it starts from, and what is evaluated after it."""

    model: Name
    evaluations: dict[Name, Evaluation]


class Theory(Section):
    """The grid on which Theorem 1 is checked by training to convergence."""

    d: SeveralFromTwo
    T: SeveralFromTwo
    radius: SeveralPositive
    samples: Count


class NumericScale(Section):
    """What a scale changes in numeric experiments; what is absent stays the paper's."""

    iterations: Count | None = None
    scenarios: Count | None = None
    training_seeds: Count | None = None
    instances: Count | None = None
    resamples: Count | None = None

    def scaled(self, experiment: NumericExperiment) -> NumericExperiment:
        """Return an experiment at this scale."""
        loop = {"iterations", "scenarios", "training_seeds"}
        evaluations = {
            key: asked.model_copy(update={"instances": min(asked.instances, self.instances or asked.instances)})
            for key, asked in experiment.evaluations.items()
        }
        rmft = experiment.rmft.model_copy(update=self.model_dump(include=loop, exclude_none=True))
        return experiment.model_copy(update={"rmft": rmft, "evaluations": evaluations})


class TheoryScale(Section):
    """What a scale changes in the check of Theorem 1; what is absent stays as it is."""

    d: SeveralFromTwo | None = None
    T: SeveralFromTwo | None = None
    radius: SeveralPositive | None = None
    samples: Count | None = None
