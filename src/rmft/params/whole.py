"""All of params.yaml and outputs.yaml, and the only place where `scale` acts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from rmft.params.endpoint import Budget, EndpointSettings
from rmft.params.evaluation import Measures, RewardSet
from rmft.params.files import model_folder_of
from rmft.params.kinds import AnyExperiment
from rmft.params.language import LanguageSFT, WordsExperiment, check_trainable
from rmft.params.language_model import Conversion, LanguageModelSettings, Pretraining
from rmft.params.numeric import LinearAttentionModel, Theory
from rmft.params.outputs import Figure, Outputs, Table
from rmft.params.reasoning import Reasoning
from rmft.params.scales import Scale
from rmft.params.scenarios import ScenarioSet
from rmft.params.section import EXTENSION, Count, Name, Section, known

Model = Annotated[LinearAttentionModel | LanguageModelSettings | EndpointSettings, Field(discriminator="kind")]


class Rollouts(Section):
    """How the games of one iteration are split."""

    shards: Count = Field(
        description="Parts of an iteration's games: what a kill loses at most, and what another machine can run. Games "
        "at an endpoint are not split."
    )


class Server(Section):
    """Our own endpoint, `rmft serve`."""

    sft: LanguageSFT = Field(
        description="How the server fine-tunes; a job may ask for other epochs, batch size and multiple of the rate."
    )

    @field_validator("sft")
    @classmethod
    def _alone(cls, sft: LanguageSFT) -> LanguageSFT:
        if sft.processes > 1:
            raise ValueError(f"processes: {sft.processes}: our own endpoint fine-tunes in one process")
        return sft


class Science(Section):
    """All of params.yaml, with its inheritance done."""

    seed: Annotated[int, Field(ge=0)] = Field(description="Root of every random stream.")
    extensions: list[Annotated[str, Field(pattern=f"^{EXTENSION.pattern}$")]] = Field(
        default=[],
        description="Files in `extensions/` with reward processes, algorithms and training methods of your own.",
    )
    scale: Name = Field(description="The scale of `scales` that everything runs at.")
    scales: dict[Name, Scale] = Field(description="What a scale changes, by name.")
    models: dict[Name, Model] = Field(description="Models, by name.")
    conversion: Conversion = Field(description="How a converted GGUF file is compared with llama.cpp.")
    pretraining: Pretraining = Field(description="How `snakemake models` makes the embedded models.")
    rollouts: Rollouts = Field(description="How the games of one iteration are split.")
    server: Server = Field(description="Our own endpoint, `rmft serve`.")
    budget: Budget = Field(description="How much endpoints may charge.")
    scenarios: dict[Name, ScenarioSet] = Field(
        description="Sets of scenarios, by name; a scenario says what the actions stand for."
    )
    rewards: dict[Name, RewardSet] = Field(description="Held-out reward sets, by name.")
    evaluation: Measures = Field(description="What all evaluations share.")
    experiments: dict[Name, AnyExperiment] = Field(description="Experiments, by name.")
    on_request: dict[Name, AnyExperiment] = Field(
        default={},
        description="Further experiments, written like those of `experiments`, that only their own target builds "
        "(`snakemake exp_NAME`, or `make real` for all of them): they take hours, or need a model's files.",
    )
    quick: dict[Name, Name] = Field(
        description="What `make quick` builds: experiments with all their training, and one evaluation of each."
    )
    theory: Theory = Field(description="The grid on which Theorem 1 is checked by training to convergence.")
    reasoning: Reasoning = Field(description="Which completions are examined, and how.")

    @field_validator("models")
    @classmethod
    def _converted(cls, models: dict[str, Model]) -> dict[str, Model]:
        """Name the folder that each GGUF file is converted into."""
        for name, of in models.items():
            if of.kind == "language" and of.converted not in (None, model_folder_of(name)):
                raise ValueError(f"{name}.converted: rmft names this folder")
        of_gguf = [name for name, of in models.items() if of.kind == "language" and of.is_gguf]
        return models | {name: models[name].model_copy(update={"converted": model_folder_of(name)}) for name in of_gguf}


class Params(Outputs, Science):
    """All parameters, at full size; `at_scale` resizes them."""

    _whole: Self | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        known("scale", self.scale, self.scales)
        for name, scale in self.scales.items():
            scale.check(f"scales.{name}", self)
        for name, model in self.models.items():
            self._check_model(f"models.{name}", model)
            if model.kind == "language" and model.is_gguf and name in self.pretraining.corpora:
                raise ValueError(f"models.{name}: pretraining.corpora makes a model of this name; take another name")
        self._check_prices()
        for name in self.conversion.scenarios:
            known("conversion.scenarios", name, self.scenarios)
        for name, scenarios in self.scenarios.items():
            scenarios.check(f"scenarios.{name}", self)
        self.evaluation.check()
        for name, experiment in self.experiments.items():
            experiment.check(name, self)
        for name, evaluation in self.quick.items():
            known("quick", name, self.experiments)
            known(f"quick.{name}", evaluation, self.experiments[name].evaluations)
        self.reasoning.check(self)
        for label, figure in self.figures.drawn.items():
            figure.check(f"figures.drawn.{label}", self)
        for label, table in self.tables.items():
            table.check(f"tables.{label}", self)
        self.report.check(self)
        return self

    def _check_model(self, key: str, model: Model) -> None:
        if model.kind == "endpoint" and model.serves is not None:
            known(
                f"{key}.serves", model.serves, {name: of for name, of in self.models.items() if of.kind == "language"}
            )
            check_trainable("server.sft", model.serves, self.models[model.serves], self.server.sft.file)

    def _check_prices(self) -> None:
        """Raise ValueError where models of one id have several prices: the budget finds a price by the id alone."""
        names: dict[str, str] = {}  # of the first model of each id
        for name, of in self.models.items():
            if of.kind == "endpoint":
                first = names.setdefault(of.model, name)
                for key in ("prices", "tuned_prices"):
                    if getattr(of, key) != getattr(self.models[first], key):
                        raise ValueError(
                            f"models.{name}.{key}: must be as in models.{first}.{key}, since both models are "
                            f"{of.model}, and budget.dollars knows one price of each"
                        )

    @property
    def selecting(self) -> dict[str, WordsExperiment]:
        """Return the experiments that select games in words, which the report shows."""
        return {name: of for name, of in self.experiments.items() if of.selects}

    @property
    def by_default(self) -> Self:
        """Return these parameters without the experiments on request, their figures and their tables."""
        experiments = {name: of for name, of in self.experiments.items() if name not in self.on_request}
        return self._part(experiments, lambda names: not self._requested(names))

    @property
    def by_request(self) -> Self:
        """Return these parameters with the experiments on request alone, their figures and their tables."""
        experiments = {name: of for name, of in self.experiments.items() if name in self.on_request}
        return self._part(experiments, self._requested)

    def only(self, *experiments: str) -> Self:
        """Return these parameters with some experiments alone, and the figures and tables that need no other."""
        own = {name: self.experiments[name] for name in experiments}
        return self._part(own, lambda names: bool(names) and {*names} <= {*experiments})

    def _requested(self, names: Sequence[str]) -> bool:
        return any(name in self.on_request for name in names)

    def _part(self, experiments: dict[str, AnyExperiment], kept: Callable[[Sequence[str]], bool]) -> Self:
        """Return a part of these parameters. kept: whether a figure or table of some experiments is in this part."""

        def part_of(outputs: Mapping[str, Figure | Table]) -> dict[str, Figure | Table]:
            return {label: of for label, of in outputs.items() if kept(of.experiments)}

        story = self.report.story
        if story is not None and story not in experiments:
            story = next((name for name, of in experiments.items() if of.selects and of.evaluations), None)
        changes = {
            "experiments": experiments,
            "figures": self.figures.model_copy(update={"drawn": part_of(self.figures.drawn)}),
            "tables": part_of(self.tables),
            "report": self.report.model_copy(update={"story": story}),
        }
        part = self.model_copy(update=changes)
        part._whole = self.whole
        return part

    @property
    def whole(self) -> Self:
        """Return all parameters, of which these may be a part."""
        return self._whole or self

    def first_evaluation(self, experiment: str) -> str:
        """Return the evaluation of an experiment that stands for it."""
        return next(iter(self.experiments[experiment].evaluations))

    def shards(self, experiment: str) -> int:
        """Return how many shards the rollouts of an experiment's iteration have."""
        return self.experiments[experiment].shards(self.rollouts.shards)

    def played_here(self, model: str) -> str | None:
        """Return the model that a job or our own server plays as `model`; None where an endpoint elsewhere does."""
        settings = self.models[model]
        return settings.serves if settings.kind == "endpoint" else model

    def at_scale(self) -> Self:
        """Return these parameters with the scale's changes made. At scale paper nothing changes."""
        scale = self.scales[self.scale]
        experiments = {name: scale.scaled(name, experiment) for name, experiment in self.experiments.items()}
        resamples = scale.numeric.resamples or self.evaluation.resamples
        evaluation = self.evaluation.model_copy(update={"resamples": resamples})
        changes = {"experiments": experiments, "theory": self._theory_at_scale(), "evaluation": evaluation}
        return self.model_copy(update=changes)

    def _theory_at_scale(self) -> Theory:
        return self.theory.model_copy(update=self.scales[self.scale].theory.model_dump(exclude_none=True))

    def scale_note(self, experiments: list[str]) -> str | None:
        """Return what a figure or table of these experiments (none: of the theory) must say of its size."""
        scale = self.scales[self.scale]
        parts = [(scale.scaled(name, self.experiments[name]), self.experiments[name]) for name in experiments]
        if all(ours == full for ours, full in parts or [(self._theory_at_scale(), self.theory)]):
            return None
        swapped = sorted({f"{ours.model} in place of {full.model}" for ours, full in parts if ours.model != full.model})
        if swapped:
            return f"scale {self.scale}: {' and '.join(swapped)}, not the paper's result"
        return f"scale {self.scale}: smaller than the paper's, not its result"
