"""What a scale changes, by kind of experiment; what is absent stays as it is written."""

from typing import TYPE_CHECKING, Self

from pydantic import Field

from rmft.params.distillation import DistillationBudget
from rmft.params.evaluation import Evaluation
from rmft.params.experiment import Experiment
from rmft.params.grpo import Credit, GRPOExperiment
from rmft.params.language import GameExperiment, WordsExperiment
from rmft.params.numeric import NumericExperiment, SeveralFromTwo, SeveralPositive
from rmft.params.section import AtLeastTwo, Count, Name, Section, known

if TYPE_CHECKING:
    from rmft.params.whole import Params

Override = str | int | float | bool
ITERATIONS = "Largest number of iterations of the loop."
SCENARIOS = "M: scenarios in each iteration."
TRAJECTORIES = "L: trajectories for each scenario."
SEEDS = "Number of training seeds."
SFT = "Settings of fine-tuning that replace the experiment's."


def _iterations(most: int | None, loop: Section) -> dict[str, int]:
    """Return the iterations of a training loop, `most` of them; a scale does not lengthen a short training."""
    return {} if most is None else {"iterations": min(most, loop.iterations)}


class NumericScale(Section):
    """What a scale changes in numeric experiments."""

    iterations: Count | None = Field(default=None, description=ITERATIONS)
    scenarios: Count | None = Field(default=None, description=SCENARIOS)
    training_seeds: Count | None = Field(default=None, description=SEEDS)
    instances: Count | None = Field(default=None, description="Largest number of instances of an evaluation.")
    resamples: Count | None = Field(default=None, description="Bootstrap samples, in place of `evaluation.resamples`.")

    def scaled(self, _name: str, experiment: NumericExperiment) -> NumericExperiment:
        """Return an experiment at this scale."""
        loop = self.model_dump(include={"scenarios", "training_seeds"}, exclude_none=True)
        loop |= _iterations(self.iterations, experiment.rmft)
        evaluations = {
            key: of.model_copy(update={"instances": min(of.instances, self.instances or of.instances)})
            for key, of in experiment.evaluations.items()
        }
        rmft = experiment.rmft.model_copy(update=loop)
        return experiment.model_copy(update={"rmft": rmft, "evaluations": evaluations})


class OneScale(Section):
    """What a scale changes in one experiment, in place of what it changes in all of its kind."""

    iterations: Count | None = Field(default=None, description=ITERATIONS)
    scenarios: Count | None = Field(default=None, description=SCENARIOS)
    trajectories: Count | None = Field(default=None, description=TRAJECTORIES)
    training_seeds: Count | None = Field(default=None, description=SEEDS)
    instances: Count | None = Field(default=None, description="Instances of each evaluation.")
    sft: dict[str, Override] = Field(default={}, description=SFT)


class PlayedScale(Section):
    """What a scale changes in the games of language models, in training and in evaluation."""

    model: Name | None = Field(
        default=None, description="The model that plays in place of every experiment's own model."
    )
    rounds: Count | None = Field(default=None, description="Largest number of rounds.")
    instances: Count | None = Field(
        default=None, description="Instances of each evaluation; may be more or fewer than the paper's."
    )
    powered: dict[Name, Count] = Field(
        default={},
        description="Instances of the evaluations with these names, in place of `instances`: enough to see an effect.",
    )

    def played(self, experiment: GameExperiment, loop: Section) -> dict[str, object]:
        """Return the fields of an experiment that are other ones at this scale: model, T and evaluations.

        loop: how it is trained at this scale.
        """
        horizon = self.rounds or max([experiment.T, *(of.T for of in experiment.evaluations.values())])

        def shortened(key: str, evaluation: Evaluation) -> Evaluation:
            changes = {
                "T": min(evaluation.T, horizon),
                "instances": self.powered.get(key, self.instances) or evaluation.instances,
                "iterations": [i for i in evaluation.iterations if i < loop.iterations],
                "replicates": min(evaluation.replicates, loop.training_seeds),
            }
            return evaluation.model_copy(update=changes)

        return {
            "model": self.model or experiment.model,
            "T": min(experiment.T, horizon),
            "evaluations": {key: shortened(key, of) for key, of in experiment.evaluations.items()},
        }


class LanguageScale(PlayedScale):
    """What a scale changes in experiments in words."""

    iterations: Count | None = Field(default=None, description=ITERATIONS)
    scenarios: Count | None = Field(default=None, description=SCENARIOS)
    trajectories: Count | None = Field(default=None, description=TRAJECTORIES)
    training_seeds: Count | None = Field(default=None, description=SEEDS)
    taught: dict[DistillationBudget, Count] = Field(
        default={}, description="Largest number of a teacher's games in distillation, for each budget."
    )
    sft: dict[str, Override] = Field(default={}, description=SFT)
    experiments: dict[Name, OneScale] = Field(default={}, description="Other values for some experiments, by name.")

    def of(self, name: str) -> Self:
        """Return what the scale changes in one experiment."""
        own = self._one(name).model_dump(exclude={"sft"}, exclude_none=True)
        return self.model_copy(update={**own, "powered": {} if "instances" in own else self.powered})

    def _one(self, name: str) -> OneScale:
        return self.experiments.get(name, OneScale())

    def scaled(self, name: str, experiment: WordsExperiment) -> WordsExperiment:
        """Return an experiment at this scale."""
        scaled, key = self.of(name)._scaled(experiment), f"{experiment.scale_of}.experiments.{name}.sft"
        return scaled.model_copy(update={"sft": scaled.sft.changed(key, self._one(name).sft)})

    def _scaled(self, experiment: WordsExperiment) -> WordsExperiment:
        loop = self.model_dump(include={"scenarios", "trajectories", "training_seeds"}, exclude_none=True)
        loop |= _iterations(self.iterations, experiment.rmft)
        rmft, taught = experiment.rmft.model_copy(update=loop), {}
        if experiment.kind == "distillation" and experiment.distillation.budget in self.taught:
            most = self.taught[experiment.distillation.budget]
            taught["distillation"] = experiment.distillation.model_copy(update={"most": most})
        return experiment.model_copy(
            update={
                **self.played(experiment, rmft),
                **taught,
                "rmft": rmft,
                "sft": experiment.sft.changed(f"{experiment.scale_of}.sft", self.sft),
            }
        )

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where an experiment is named that there is not."""
        kind = key.rpartition(".")[2]
        there = {name: of for name, of in params.experiments.items() if of.scale_of == kind}
        for name in self.experiments:
            known(f"{key}.experiments", name, there)


class GRPOScale(PlayedScale):
    """What a scale changes in GRPO experiments."""

    iterations: Count | None = Field(default=None, description=ITERATIONS)
    trajectories: AtLeastTwo | None = Field(default=None, description="G: trajectories of a group.")
    scenarios: dict[Credit, Count] = Field(
        default={}, description="M for each value of `reward`: the paper's two GRPO runs have different budgets."
    )
    grpo: dict[str, Override] = Field(default={}, description="Settings of GRPO that replace the experiment's.")

    def scaled(self, _name: str, experiment: GRPOExperiment) -> GRPOExperiment:
        """Return an experiment at this scale."""
        whole = experiment.grpo
        changed = self.model_dump(include={"trajectories"}, exclude_none=True) | _iterations(self.iterations, whole)
        changed["scenarios"] = self.scenarios.get(whole.reward, whole.scenarios)
        grpo = whole.changed("grpo.grpo", {**changed, **self.grpo})
        return experiment.model_copy(update={**self.played(experiment, grpo), "grpo": grpo})


class TheoryScale(Section):
    """What a scale changes in the check of Theorem 1."""

    d: SeveralFromTwo | None = Field(default=None, description="Numbers of actions.")
    T: SeveralFromTwo | None = Field(default=None, description="Horizons.")
    radius: SeveralPositive | None = Field(default=None, description="Radii of the ball.")
    samples: Count | None = Field(default=None, description="Reward sequences that the loss averages over.")


class Scale(Section):
    """What a scale changes, by kind of experiment."""

    numeric: NumericScale = Field(default=NumericScale(), description="Changes in numeric experiments.")
    language: LanguageScale = Field(
        default=LanguageScale(), description="Changes in experiments of kinds language, distillation and method."
    )
    endpoint: LanguageScale = Field(default=LanguageScale(), description="Changes in endpoint experiments.")
    grpo: GRPOScale = Field(default=GRPOScale(), description="Changes in GRPO experiments.")
    theory: TheoryScale = Field(default=TheoryScale(), description="Changes in the check of Theorem 1.")

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where an experiment is named that there is not."""
        self.language.check(f"{key}.language", params)
        self.endpoint.check(f"{key}.endpoint", params)

    def scaled(self, name: str, experiment: Experiment) -> Experiment:
        """Return an experiment at this scale; one that has its own size as it is."""
        if experiment.scale == "own":
            return experiment
        return getattr(self, experiment.scale_of).scaled(name, experiment)
