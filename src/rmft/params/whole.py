"""All of params.yaml, and the only place where `scale` acts."""

import re
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rmft.algorithms import check_algorithm, check_settings
from rmft.environments import check_processes
from rmft.params.distillation import DistillationExperiment
from rmft.params.endpoint import Budget, EndpointSettings
from rmft.params.evaluation import Evaluation, Measures, RewardSet
from rmft.params.grpo import GRPOExperiment, GRPOScale
from rmft.params.language import (
    VARIANTS,
    WHOLE,
    EndpointExperiment,
    LanguageExperiment,
    LanguageModelSettings,
    LanguageScale,
    LanguageSFT,
    Pretraining,
)
from rmft.params.numeric import LinearAttentionModel, NumericExperiment, NumericScale, Theory, TheoryScale
from rmft.params.outputs import (
    OF_ACTIONS,
    OF_NO_EXPERIMENT,
    OF_REPLIES,
    OF_TRAINING,
    OF_WORDS,
    ONE_EVALUATION,
    STAGE_FOLDERS,
    Figure,
    Figures,
    Label,
    Report,
    Table,
    variant_name,
)
from rmft.params.reasoning import LEXICAL, Reasoning
from rmft.params.scenarios import ScenarioSet
from rmft.params.section import Count, Name, Section, known, prefixed

Model = Annotated[LinearAttentionModel | LanguageModelSettings | EndpointSettings, Field(discriminator="kind")]
Experiment = Annotated[
    NumericExperiment | LanguageExperiment | EndpointExperiment | GRPOExperiment | DistillationExperiment,
    Field(discriminator="kind"),
]
MODEL_OF = {  # kinds, by experiment's
    "numeric": "linear-attention",
    "language": "language",
    "endpoint": "endpoint",
    "grpo": "language",
    "distillation": "language",
}
SCALE_OF = {**{kind: kind for kind in MODEL_OF}, "distillation": "language"}


EXTENSION = re.compile(r"[\w-][\w./-]*\.py")  # a user's own file, in the repository so that it is versioned


class Rollouts(Section):
    """How rollouts of one iteration are split: a shard is what is lost, or moved to another machine, at most.

    Those of an endpoint are not: they wait together, and what has been answered is in the journal.
    """

    shards: Count


class Selection(Section):
    """How selection is looked at: demonstrations are played again, action by action, on so many re-drawn rewards."""

    rerolls: Count


class Server(Section):
    """Our own endpoint. sft: how it fine-tunes; jobs ask for other epochs, batch sizes and multiples of its rate."""

    sft: LanguageSFT

    @field_validator("sft")
    @classmethod
    def _alone(cls, sft: LanguageSFT) -> LanguageSFT:
        if sft.processes > 1:
            raise ValueError(f"processes: {sft.processes}: our own endpoint fine-tunes in one process")
        return sft


class Scale(Section):
    """What a scale changes, by kind of experiment."""

    numeric: NumericScale = NumericScale()
    language: LanguageScale = LanguageScale()
    endpoint: LanguageScale = LanguageScale()
    grpo: GRPOScale = GRPOScale()
    theory: TheoryScale = TheoryScale()


class Params(Section):
    """All of params.yaml, at its scale. extensions: files with a user's own processes and algorithms."""

    seed: Annotated[int, Field(ge=0)]
    extensions: list[Annotated[str, Field(pattern=f"^{EXTENSION.pattern}$")]] = []
    scale: Name
    scales: dict[Name, Scale]
    models: dict[Name, Model]
    pretraining: Pretraining
    rollouts: Rollouts
    selection: Selection
    server: Server
    budget: Budget
    scenarios: dict[Name, ScenarioSet]
    rewards: dict[Name, RewardSet]
    evaluation: Measures
    experiments: dict[Name, Experiment]
    quick: dict[Name, Name]
    theory: Theory
    reasoning: Reasoning
    figures: Figures
    tables: dict[Label, Table]
    report: Report

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        known("scale", self.scale, self.scales)
        for scale, of in self.scales.items():
            for kind in ("language", "endpoint"):
                there = {name: its for name, its in self.experiments.items() if its.kind == kind}
                for name in getattr(of, kind).experiments:
                    known(f"scales.{scale}.{kind}.experiments", name, there)
        for name, model in self.models.items():
            self._check_model(f"models.{name}", model)
        for name, of in self.scenarios.items():
            if of.source == "generated":
                endpoints = {model: its for model, its in self.models.items() if its.kind == "endpoint"}
                known(f"scenarios.{name}.model", of.model, endpoints)
        for name, settings in self.evaluation.algorithms.items():
            if name.startswith(("base", "trained")):
                raise ValueError(f"evaluation.algorithms.{name}: names like this are those of models")
            prefixed(f"evaluation.algorithms.{name}", check_settings, settings)
        for name, experiment in self.experiments.items():
            if name in STAGE_FOLDERS:
                raise ValueError(f"experiments.{name}: this name is taken by the folder results/{name}")
            fitting = {model: of for model, of in self.models.items() if of.kind == MODEL_OF[experiment.kind]}
            known(f"experiments.{name}.model", experiment.model, fitting)
            if experiment.kind != "numeric":
                self._check_learnt(f"experiments.{name}", experiment.model, experiment.weights)
            if experiment.kind != "numeric" and experiment.protocol.scenarios:
                self._check_scenarios(f"experiments.{name}.protocol", experiment.protocol.scenarios)
            if experiment.kind == "language" and self.rollouts.shards > experiment.rmft.scenarios:
                scenarios = f"the {experiment.rmft.scenarios} scenarios of {name}"
                raise ValueError(f"rollouts.shards: {self.rollouts.shards} is more than {scenarios}")
            if experiment.kind in VARIANTS and experiment.varies is not None:
                self._check_variant(f"experiments.{name}.varies", experiment)
            if experiment.kind == "distillation":
                self._check_teacher(f"experiments.{name}.distillation.teacher", experiment)
            for evaluation_name, evaluation in experiment.evaluations.items():
                key = f"experiments.{name}.evaluations.{evaluation_name}"
                self._check_evaluation(key, experiment, evaluation)
        for name, evaluation in self.quick.items():
            known("quick", name, self.experiments)
            known(f"quick.{name}", evaluation, self.experiments[name].evaluations)
        self._check_reasoning()
        for label, figure in self.figures.drawn.items():
            self._check_figure(f"figures.drawn.{label}", figure)
        for label, table in self.tables.items():
            self._check_table(f"tables.{label}", table)
        if self.report.story is not None:
            known(
                "report.story", self.report.story, {name: of for name, of in self.selecting.items() if of.evaluations}
            )
        return self

    def _check_model(self, key: str, model: Model) -> None:
        if model.kind == "endpoint" and model.serves is not None:
            at_hand = {name: of for name, of in self.models.items() if of.kind == "language"}
            known(f"{key}.serves", model.serves, at_hand)
            self._check_learnt("server.sft", model.serves, self.server.sft.file)

    def _check_learnt(self, key: str, name: str, file: str) -> None:
        """Refuse full fine-tuning of quantised weights. file: that it writes."""
        model = self.models[name]
        if model.kind == "language" and model.quantised and file == WHOLE:
            reason = f"{name} has quantised weights, beside which adapters are learnt: lora"
            raise ValueError(f"{key}: method: full: {reason}")

    def _check_variant(
        self, key: str, experiment: LanguageExperiment | GRPOExperiment | DistillationExperiment
    ) -> None:
        """Raise ValueError where the games of an experiment's base model are not among those of what it varies."""
        originals = {name: of for name, of in self.experiments.items() if of.kind == "language" and of.varies is None}
        known(key, experiment.varies, originals)
        original = originals[experiment.varies]
        for part in ("model", "environment", "d", "protocol"):
            if getattr(experiment, part) != getattr(original, part):
                raise ValueError(f"{key}: {experiment.varies} has another {part}")
        for name, asked in experiment.evaluations.items():
            known(f"{key}: evaluations of {experiment.varies}", name, original.evaluations)
            theirs = original.evaluations[name]
            for part in ("rewards", "T", "scenarios"):
                if getattr(asked, part) != getattr(theirs, part):
                    raise ValueError(f"{key}: its evaluation {name} has another {part}")
            if (asked.temperature or experiment.loop.temperature) != (theirs.temperature or original.loop.temperature):
                raise ValueError(f"{key}: its evaluation {name} is sampled at another temperature")
            if asked.instances > theirs.instances:
                raise ValueError(f"{key}: its evaluation {name} has only {theirs.instances} instances")

    def _check_teacher(self, key: str, experiment: DistillationExperiment) -> None:
        teacher = experiment.distillation.teacher
        known(key, teacher, self.evaluation.algorithms)
        prefixed(key, check_algorithm, self.evaluation.algorithms[teacher], experiment.environment, "simplex")

    def _check_scenarios(self, key: str, name: str) -> None:
        known(f"{key}.scenarios", name, self.scenarios)

    def _check_reasoning(self) -> None:
        told = {name: of for name, of in self.experiments.items() if of.kind != "numeric"}
        for name, evaluations in self.reasoning.of.items():
            known("reasoning.of", name, told)
            for evaluation in evaluations:
                known(f"reasoning.of.{name}", evaluation, told[name].evaluations)
        judges = [name for name, of in self.models.items() if of.kind == "endpoint"]
        known("reasoning.judge", self.reasoning.judge, dict.fromkeys([LEXICAL, *judges]))

    def _check_examined(self, key: str, experiments: list[str], evaluations: list[str]) -> None:
        for name in experiments:
            known(f"{key}.experiments", name, self.reasoning.of)
            for evaluation in evaluations:
                known(f"{key}.evaluations", evaluation, dict.fromkeys(self.reasoning.of[name]))

    def _check_table(self, key: str, table: Table) -> None:
        if (table.form in OF_NO_EXPERIMENT) != (not table.experiments):
            has = "has none" if table.experiments else "has at least one"
            raise ValueError(f"{key}.experiments: form {table.form} {has}")
        if (table.form == "diversity") != bool(table.scenarios):
            raise ValueError(f"{key}.scenarios: form diversity has at least one set, every other form none")
        for name in table.scenarios:
            known(f"{key}.scenarios", name, self.scenarios)
        if table.form in ("regret", "replicates") and len(table.experiments) > 1:
            raise ValueError(f"{key}.experiments: form {table.form} has one")
        if table.form in ("sensitivity", "replicates") and len(table.evaluations) != 1:
            raise ValueError(f"{key}.evaluations: form {table.form} has one")
        if table.form == "methods":
            self._check_methods(key, table)
        if table.form == "claims":
            self._check_examined(key, table.experiments, table.evaluations)
        for name in table.experiments:
            known(f"{key}.experiments", name, self.experiments)
            if table.form in OF_WORDS and self.experiments[name].kind == "numeric":
                raise ValueError(f"{key}.experiments: form {table.form} is of games told in words, not {name}")
            for evaluation in table.evaluations:
                known(f"{key}.evaluations", evaluation, self.experiments[name].evaluations)
            playing = {player for of in self.experiments[name].evaluations.values() for player in of.algorithms}
            if table.form == "methods":
                playing = {"base", *table.experiments}
            for player in table.beside:
                known(f"{key}.beside", player, dict.fromkeys(sorted(playing)))

    def _check_methods(self, key: str, table: Table) -> None:
        """Refuse what cannot be compared: all but the first are variants of it, on as many instances."""
        if not table.evaluations:
            raise ValueError(f"{key}.evaluations: form methods has at least one")
        for name in table.experiments:
            known(f"{key}.experiments", name, self.experiments)
        first, *others = table.experiments
        for name in others:
            of = self.experiments[name]
            if of.kind not in VARIANTS or of.varies != first:
                raise ValueError(f"{key}.experiments: {name} is no variant of {first}: its varies does not say so")
            for evaluation in table.evaluations:
                known(f"{key}.evaluations", evaluation, of.evaluations)
                known(f"{key}.evaluations", evaluation, self.experiments[first].evaluations)
                if of.evaluations[evaluation].instances != self.experiments[first].evaluations[evaluation].instances:
                    raise ValueError(f"{key}.experiments: {name} has other instances of {evaluation} than {first}")

    def _check_figure(self, key: str, figure: Figure) -> None:
        for name in figure.experiments:
            known(f"{key}.experiments", name, self.experiments)
        experiments = [self.experiments[name] for name in figure.experiments]
        spaces = [of.policy_space if of.kind == "numeric" else "language" for of in experiments]
        selecting = set(figure.experiments) <= self.selecting.keys()
        if figure.form in OF_TRAINING:
            if figure.evaluations:
                raise ValueError(f"{key}.evaluations: form {figure.form} draws training, and no evaluation")
            if figure.form == "parameters" and spaces != ["ball", "simplex"]:
                raise ValueError(f"{key}: draws two numeric experiments, one on the ball and one on the simplex")
            if figure.form != "parameters" and not selecting:
                raise ValueError(f"{key}: form {figure.form} draws games told in words, and what is selected of them")
            return
        if not figure.evaluations or not figure.players:
            raise ValueError(f"{key}: needs evaluations and players")
        if figure.form in OF_ACTIONS and "ball" in spaces:
            raise ValueError(f"{key}: draws actions, which a ball does not have")
        if figure.form in ONE_EVALUATION and len(figure.evaluations) > 1:
            raise ValueError(f"{key}: draws one evaluation")
        if figure.form == "policies" and set(spaces) != {"language"}:
            raise ValueError(f"{key}: form policies draws games told in words")
        for name in figure.experiments:
            for evaluation in figure.evaluations:
                known(f"{key}.evaluations", evaluation, self.experiments[name].evaluations)
        if figure.form in OF_REPLIES:
            self._check_examined(key, figure.experiments, figure.evaluations)
            for player in figure.players:
                known(f"{key}.players", player, dict.fromkeys(["base", "trained"]))
            return
        first, *others = figure.experiments
        variants = ["", *(f"-{variant_name(first, other)}" for other in others)]
        models = [f"{model}{variant}" for variant in variants for model in ("base", "trained")]
        for evaluation in figure.evaluations:
            playing = [*models, *self.experiments[first].evaluations[evaluation].algorithms]
            for player in figure.players:
                known(f"{key}.players", player, dict.fromkeys(playing))

    def _check_evaluation(self, key: str, experiment: Experiment, evaluation: Evaluation) -> None:
        known(f"{key}.rewards", evaluation.rewards, self.rewards)
        if evaluation.scenarios is not None:
            if experiment.kind == "numeric" or experiment.protocol.scenarios is None:
                raise ValueError(f"{key}.scenarios: the experiment's games are not told in scenarios")
            self._check_scenarios(key, evaluation.scenarios)
        rewards = self.rewards[evaluation.rewards]
        if experiment.kind == "numeric" and rewards.d != experiment.d:
            raise ValueError(f"{key}.rewards: {evaluation.rewards} has d = {rewards.d}, the model d = {experiment.d}")
        if experiment.kind == "numeric" and (
            evaluation.iterations or evaluation.temperature or evaluation.replicates > 1
        ):
            raise ValueError(f"{key}: iterations, temperature and replicates are of games told in words")
        if experiment.kind != "numeric":
            if rewards.process == ["adaptive"]:
                raise ValueError(
                    f"{key}.rewards: adaptive rewards answer policies, and games in words are drawn before"
                )
            last, seeds = experiment.loop.iterations, experiment.loop.training_seeds
            if any(i >= last for i in evaluation.iterations):
                raise ValueError(f"{key}.iterations: are those before the last; the last, {last}, plays as `trained`")
            if evaluation.replicates not in (1, seeds):
                several = f"{evaluation.replicates} of the base model are not the {seeds} training seeds"
                raise ValueError(f"{key}.replicates: {several}")
        if evaluation.T > rewards.T:
            raise ValueError(f"{key}.T: {evaluation.T} is more than the {rewards.T} rounds of {evaluation.rewards}")
        if evaluation.instances > rewards.instances:
            stored = f"the {rewards.instances} instances of {evaluation.rewards}"
            raise ValueError(f"{key}.instances: {evaluation.instances} is more than {stored}")
        prefixed(f"{key}.rewards", check_processes, experiment.environment, rewards.process)
        if len(set(evaluation.algorithms)) < len(evaluation.algorithms):
            raise ValueError(f"{key}.algorithms: one is there twice")
        for algorithm in evaluation.algorithms:
            known(f"{key}.algorithms", algorithm, self.evaluation.algorithms)
            space = experiment.policy_space if experiment.kind == "numeric" else "simplex"
            settings, game = self.evaluation.algorithms[algorithm], (experiment.environment, space)
            prefixed(f"evaluation.algorithms.{algorithm}", check_algorithm, settings, *game)

    @property
    def selecting(self) -> dict[str, LanguageExperiment | EndpointExperiment]:
        """Return the experiments that select games told in words, which the report shows."""
        return {name: of for name, of in self.experiments.items() if of.kind in ("language", "endpoint")}

    def first_evaluation(self, experiment: str) -> str:
        """Return the evaluation of an experiment that stands for it."""
        return next(iter(self.experiments[experiment].evaluations))

    def shards(self, experiment: str) -> int:
        """Return how many shards an experiment's rollouts have; of GRPO's few scenarios, one each at most."""
        of = self.experiments[experiment]
        most = {"endpoint": 1, "grpo": of.loop.scenarios}.get(of.kind, self.rollouts.shards)
        return min(self.rollouts.shards, most)

    def at_scale(self) -> Self:
        """Return these parameters with the scale's changes made. At scale paper nothing changes."""
        scale = self.scales[self.scale]

        def scaled(name: str, experiment: Experiment) -> Experiment:
            changes = getattr(scale, SCALE_OF[experiment.kind])
            return (changes.of(name) if isinstance(changes, LanguageScale) else changes).scaled(experiment)

        experiments = {name: scaled(name, experiment) for name, experiment in self.experiments.items()}
        theory = self.theory.model_copy(update=scale.theory.model_dump(exclude_none=True))
        resamples = scale.numeric.resamples or self.evaluation.resamples
        evaluation = self.evaluation.model_copy(update={"resamples": resamples})
        return self.model_copy(update={"experiments": experiments, "theory": theory, "evaluation": evaluation})

    def scale_note(self, experiments: list[str]) -> str | None:
        """Return what a figure or table of these experiments (none: of the theory) must say of its size."""
        scaled = self.at_scale()
        parts = [(scaled.experiments[name], self.experiments[name]) for name in experiments]
        if all(ours == full for ours, full in parts or [(scaled.theory, self.theory)]):
            return None
        swapped = sorted({f"{ours.model} in place of {full.model}" for ours, full in parts if ours.model != full.model})
        if swapped:
            return f"scale {self.scale}: {' and '.join(swapped)}, not the paper's result"
        return f"scale {self.scale}: smaller than the paper's, not its result"
