"""params.yaml as frozen, checked records: the only reader of that file, and the only place where `scale` acts.

Unknown keys, wrong types and impossible values are refused with the dotted key.
"""

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator, with_config

from rmft.algorithms import AlgorithmSettings, check_algorithm, check_settings
from rmft.environments import check_policy_space, check_processes
from rmft.errors import InputError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
SeveralFromTwo = Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]
SeveralPositive = Annotated[list[Positive], Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$")]

# The record itself belongs to `algorithms`, which does not know pydantic; a YAML map may stand for it.
Algorithm = with_config(ConfigDict(extra="forbid", strict=False))(AlgorithmSettings)


STAGE_FOLDERS = ("figures", "tables", "theory")  # in results/, beside the experiments' own
FigureLabel = Literal["parameter", "regret-dynamics-noisy", "tfbandit", "simplex-tf-all", "ball-tf-all", "tfgamma"]
TableLabel = Literal["simplex-table", "l2ball-table", "theorem-1"]


def variant_name(first: str, other: str) -> str:
    """Return what an experiment that varies another is called beside it: its name without the other's."""
    return other.removeprefix(f"{first}_").replace("_", "-")


class Section(BaseModel):
    """A part of params.yaml: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def canonical(self) -> str:
        """Return the one JSON text of these values; Snakemake compares it to see whether a job must rerun."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `canonical` back. Raise InputError with the dotted key."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(f"settings: {_first_error(error)}") from None


class RewardSet(Section):
    """A stored set of reward tables, held out for evaluation; several processes make an even mixture."""

    process: Annotated[list[str], Field(min_length=1)]
    d: Annotated[int, Field(ge=2)]
    T: Count
    instances: Count

    @model_validator(mode="after")
    def _known(self) -> Self:
        # Whether an environment allows it is checked where an experiment uses the set.
        environment = "ns-mab" if self.process == ["gradual-variation"] else "fol"
        _prefixed("process", check_processes, environment, self.process)
        return self


class Model(Section):
    """The single-layer linear attention of Eq. `single-linear-transformer`; its size is d."""

    kind: Literal["linear-attention"]
    initialisation: Positive
    """Weights and biases start uniform on ± initialisation / √d."""


class NumericRMFT(Section):
    """Algorithm `ssft-numerical-model`: M scenarios, L trajectories each, the k of lowest regret kept."""

    iterations: Count
    scenarios: Count
    trajectories: Count
    selected: Count
    perturb: Literal["policy", "logits"]
    variance: Positive
    training_seeds: Count

    @model_validator(mode="after")
    def _selection_possible(self) -> Self:
        if self.selected > self.trajectories:
            raise ValueError(f"selected: {self.selected} is more than trajectories: {self.trajectories}")
        return self


class NumericSFT(Section):
    """The step that fits the policy to the demonstrations, Eq. `dist`, by Adam."""

    distance: Literal["l2", "cross-entropy", "kl"]
    learning_rate: Positive
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)]
    epsilon: Positive


class Evaluation(Section):
    """Base model, trained model and reference algorithms on the first instances and rounds of one reward set."""

    rewards: str
    T: Count
    instances: Count
    algorithms: list[str]


class Measures(Section):
    """What all evaluations share: how regret is measured, and the reference algorithms by name."""

    mean: Literal["nominal", "clipped"]
    floor: Positive | None
    resamples: Count
    algorithms: dict[Name, Algorithm]


class Problem(Section):
    """What is played: enough to put an agent into its environment."""

    environment: Literal["fol", "mab", "ns-mab"]
    policy_space: Literal["simplex", "ball"]
    radius: Positive | None = None
    d: Annotated[int, Field(ge=2)]
    normalise: bool

    @model_validator(mode="after")
    def _has_actions(self) -> Self:
        on_ball = self.policy_space == "ball"
        _prefixed("policy_space", check_policy_space, self.environment, on_ball=on_ball)
        if on_ball != (self.radius is not None):
            raise ValueError("radius: a ball needs one, and the simplex has none")
        return self


class Training(Problem):
    """One run of Algorithm `ssft-numerical-model`."""

    T: Count
    process: Annotated[list[str], Field(min_length=1)]
    rmft: NumericRMFT
    sft: NumericSFT
    checkpoints: list[Annotated[int, Field(ge=0)]]

    @model_validator(mode="after")
    def _trainable(self) -> Self:
        _prefixed("process", check_processes, self.environment, self.process)
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


class Experiment(Training):
    """A training run, the model that it starts from, and what is evaluated after it."""

    kind: Literal["numeric"]
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


class TheoryScale(Section):
    """What a scale changes in the check of Theorem 1; what is absent stays as it is."""

    d: SeveralFromTwo | None = None
    T: SeveralFromTwo | None = None
    radius: SeveralPositive | None = None
    samples: Count | None = None


class Scale(Section):
    """What a scale changes, by kind of experiment."""

    numeric: NumericScale = NumericScale()
    theory: TheoryScale = TheoryScale()


class Style(Section):
    """How all figures look."""

    width_inches: Positive
    font_points: Positive
    dpi: Count
    colours: dict[Name, Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]]
    labels: dict[Name, str]


class Figure(Section):
    """What one figure shows: some players, in some evaluations, of some experiments.

    A further experiment is a variant of the first; its models are the players base-<variant> and trained-<variant>.
    """

    experiments: Annotated[list[Name], Field(min_length=1)]
    evaluations: list[Name] = []
    players: list[Name] = []

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Return (experiment, evaluation) of every evaluation that is read, in order."""
        return [(experiment, evaluation) for experiment in self.experiments for evaluation in self.evaluations]


class Figures(Section):
    """The style, and one entry a figure under the paper's label."""

    style: Style
    drawn: dict[FigureLabel, Figure]


class Table(Section):
    """Which experiments one table sets beside the paper's values.

    beside: players of ours that are compared with another player of the paper, by our name.
    """

    experiments: list[Name]
    beside: dict[Name, Name] = {}


class Params(Section):
    """All of params.yaml, at its scale."""

    seed: Annotated[int, Field(ge=0)]
    scale: Name
    scales: dict[Name, Scale]
    models: dict[Name, Model]
    rewards: dict[Name, RewardSet]
    evaluation: Measures
    experiments: dict[Name, Experiment]
    theory: Theory
    figures: Figures
    tables: dict[TableLabel, Table]

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        _known("scale", self.scale, self.scales)
        for name, settings in self.evaluation.algorithms.items():
            if name.startswith(("base", "trained")):
                raise ValueError(f"evaluation.algorithms.{name}: names like this are those of models")
            _prefixed(f"evaluation.algorithms.{name}", check_settings, settings)
        for name, experiment in self.experiments.items():
            if name in STAGE_FOLDERS:
                raise ValueError(f"experiments.{name}: this name is taken by the folder results/{name}")
            _known(f"experiments.{name}.model", experiment.model, self.models)
            for evaluation_name, evaluation in experiment.evaluations.items():
                key = f"experiments.{name}.evaluations.{evaluation_name}"
                self._check_evaluation(key, experiment, evaluation)
        for label, figure in self.figures.drawn.items():
            self._check_figure(f"figures.drawn.{label}", label, figure)
        for label, table in self.tables.items():
            self._check_table(f"tables.{label}", label, table)
        return self

    def _check_table(self, key: str, label: TableLabel, table: Table) -> None:
        if (label == "theorem-1") != (not table.experiments):
            raise ValueError(f"{key}.experiments: theorem-1 has none, every other table at least one")
        for name in table.experiments:
            _known(f"{key}.experiments", name, self.experiments)
            playing = {player for of in self.experiments[name].evaluations.values() for player in of.algorithms}
            for player in table.beside:
                _known(f"{key}.beside", player, dict.fromkeys(sorted(playing)))

    def _check_figure(self, key: str, label: FigureLabel, figure: Figure) -> None:
        for name in figure.experiments:
            _known(f"{key}.experiments", name, self.experiments)
        spaces = [self.experiments[name].policy_space for name in figure.experiments]
        if label == "parameter":
            if spaces != ["ball", "simplex"] or figure.evaluations:
                raise ValueError(
                    f"{key}: draws the training of two experiments, one on the ball and one on the simplex"
                )
            return
        if not figure.evaluations or not figure.players:
            raise ValueError(f"{key}: needs evaluations and players")
        if label in ("tfbandit", "tfgamma") and (len(figure.evaluations) > 1 or "ball" in spaces):
            raise ValueError(f"{key}: draws one evaluation, and actions, which a ball does not have")
        for name in figure.experiments:
            for evaluation in figure.evaluations:
                _known(f"{key}.evaluations", evaluation, self.experiments[name].evaluations)
        first, *others = figure.experiments
        variants = ["", *(f"-{variant_name(first, other)}" for other in others)]
        models = [f"{model}{variant}" for variant in variants for model in ("base", "trained")]
        for evaluation in figure.evaluations:
            playing = [*models, *self.experiments[first].evaluations[evaluation].algorithms]
            for player in figure.players:
                _known(f"{key}.players", player, dict.fromkeys(playing))

    def _check_evaluation(self, key: str, experiment: Experiment, evaluation: Evaluation) -> None:
        _known(f"{key}.rewards", evaluation.rewards, self.rewards)
        rewards = self.rewards[evaluation.rewards]
        if rewards.d != experiment.d:
            raise ValueError(f"{key}.rewards: {evaluation.rewards} has d = {rewards.d}, the model d = {experiment.d}")
        if evaluation.T > rewards.T:
            raise ValueError(f"{key}.T: {evaluation.T} is more than the {rewards.T} rounds of {evaluation.rewards}")
        if evaluation.instances > rewards.instances:
            stored = f"the {rewards.instances} instances of {evaluation.rewards}"
            raise ValueError(f"{key}.instances: {evaluation.instances} is more than {stored}")
        _prefixed(f"{key}.rewards", check_processes, experiment.environment, rewards.process)
        if len(set(evaluation.algorithms)) < len(evaluation.algorithms):
            raise ValueError(f"{key}.algorithms: one is there twice")
        for algorithm in evaluation.algorithms:
            _known(f"{key}.algorithms", algorithm, self.evaluation.algorithms)
            settings, game = self.evaluation.algorithms[algorithm], (experiment.environment, experiment.policy_space)
            _prefixed(f"evaluation.algorithms.{algorithm}", check_algorithm, settings, *game)

    def at_scale(self) -> Self:
        """Return these parameters with the scale's changes made. At scale paper nothing changes."""
        numeric = self.scales[self.scale].numeric

        def scaled(experiment: Experiment) -> Experiment:
            changes = numeric.model_dump(include={"iterations", "scenarios", "training_seeds"}, exclude_none=True)
            evaluations = {
                name: evaluation.model_copy(update={"instances": min(evaluation.instances, numeric.instances)})
                if numeric.instances
                else evaluation
                for name, evaluation in experiment.evaluations.items()
            }
            rmft = experiment.rmft.model_copy(update=changes)
            return experiment.model_copy(update={"rmft": rmft, "evaluations": evaluations})

        experiments = {name: scaled(experiment) for name, experiment in self.experiments.items()}
        theory = self.theory.model_copy(update=self.scales[self.scale].theory.model_dump(exclude_none=True))
        evaluation = self.evaluation.model_copy(update={"resamples": numeric.resamples or self.evaluation.resamples})
        return self.model_copy(update={"experiments": experiments, "theory": theory, "evaluation": evaluation})

    def scale_note(self, experiments: list[str]) -> str | None:
        """Return what a figure or table of these experiments (none: of the theory) must say of its size."""
        scaled = self.at_scale()
        parts = [(scaled.experiments[name], self.experiments[name]) for name in experiments]
        if all(ours == full for ours, full in parts or [(scaled.theory, self.theory)]):
            return None
        return f"scale {self.scale}: smaller than the paper's, not its result"


def _known(key: str, name: str, among: dict[str, Any]) -> None:
    if name not in among:
        raise ValueError(f"{key}: unknown {name!r}; one of {', '.join(among)}")


def _prefixed(key: str, check: Callable[..., None], *arguments: object, **options: object) -> None:
    try:
        check(*arguments, **options)
    except InputError as error:
        raise ValueError(f"{key}: {error}") from None


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key given twice, where YAML itself would let the second win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a map, after a look at its keys."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"line {node.start_mark.line}: {key!r} is there twice")
        return super().construct_mapping(node, deep)


def load(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml, at full size; `at_scale` shrinks it. Raise InputError with the dotted key."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; run from the root of the repository") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a text file: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_error(error)}") from None


def _first_error(error: ValidationError) -> str:
    """Say the first thing wrong in one line: dotted key, what is wrong, and how many more there are.

    An unknown key comes first, since a misspelt one is missing under its right name as well.
    """
    first, *others = sorted(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    *parents, last = first["loc"] or ("",)
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        missing = [
            found["loc"][-1] for found in others if found["type"] == "missing" and [*found["loc"][:-1]] == parents
        ]
        meant = difflib.get_close_matches(str(last), missing, n=1)
        message = f"unknown key; did you mean {meant[0]}?" if meant else "unknown key"
    elif "input" in first and first["type"] not in ("value_error", "missing"):
        message += f", not {first['input']!r}"
    line = f"{key}: {message}" if key else message
    return line + (f" (and {len(others)} more)" if others else "")
