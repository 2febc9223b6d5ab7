"""Figures: a form is a class that states which files it reads and what it can draw."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rmft.params.files import REASONING, evaluation_of, iteration_of, of_iterations, reasoning_of, training_log_of
from rmft.params.section import Count, Label, Name, Positive, Section, Several, known

if TYPE_CHECKING:
    from rmft.params.experiment import Experiment
    from rmft.params.whole import Params

Experiments = Annotated[list[Name], Field(min_length=1)]
PLAYERS = Field(
    description="Players that are drawn: base, trained, and reference algorithms of the evaluations; with a further "
    "experiment also base-<variant> and trained-<variant>."
)


def variant_name(first: str, other: str) -> str:
    """Return the name of a variant beside the experiment that it varies: its own without the other's."""
    return other.removeprefix(f"{first}_").replace("_", "-")


def check_variants(key: str, experiments: Sequence[str], params: "Params") -> None:
    """Raise ValueError where an experiment is no variant of the first."""
    first, *others = experiments
    for name in others:
        if params.experiments[name].varies != first:
            raise ValueError(f"{key}.experiments: {name} is no variant of {first}: its varies does not say so")


class Style(Section):
    """How all figures look."""

    width_inches: Positive = Field(description="Width of a figure in inches.")
    font_points: Positive = Field(description="Size of the font in points.")
    dpi: Count = Field(description="Dots per inch of png files.")
    colours: dict[Name, Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]] = Field(
        description="Colour of each player, #rrggbb."
    )
    labels: dict[Name, str] = Field(description="Name of each player in legends.")


class DrawnFigure(Section):
    """What all forms share."""

    experiments: Experiments = Field(
        description="Experiments that are drawn. A further experiment is a variant of the first."
    )

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Return (experiment, evaluation) of every evaluation that is read, in order."""
        return []

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from: its evaluations, unless a form reads others."""
        return [evaluation_of(*source) for source in self.sources]

    def loops(self, params: "Params") -> list[tuple[int, int]]:
        """Return training seeds and iterations of each experiment, where the figure draws training."""
        return []

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where the figure names what is not there, or what it cannot draw."""
        for name in self.experiments:
            known(f"{key}.experiments", name, params.experiments)
        self.check_experiments(key, [params.experiments[name] for name in self.experiments])

    def check_experiments(self, key: str, experiments: "list[Experiment]") -> None:
        """Raise ValueError where the figure cannot draw experiments."""


class TrainingFigure(DrawnFigure):
    """A figure of training, without evaluations."""

    evaluations: ClassVar[list[str]] = []
    players: ClassVar[list[str]] = []

    def loops(self, params: "Params") -> list[tuple[int, int]]:
        """Return training seeds and iterations of each experiment."""
        loops = [params.experiments[name].loop for name in self.experiments]
        return [(loop.training_seeds, loop.iterations) for loop in loops]

    def check_experiments(self, key: str, experiments: "list[Experiment]") -> None:
        """Raise ValueError where the figure cannot draw experiments."""
        if not all(of.selects for of in experiments):
            raise ValueError(f"{key}: form {self.form} needs experiments in words that select games")

    def of_iterations(self, params: "Params", first: int, name: str) -> list[str]:
        """Return the files of one name that all iterations have. first: iteration."""
        loops = zip(self.experiments, self.loops(params), strict=True)
        return [
            path for of, (seeds, last) in loops for path in of_iterations(of, seeds, range(first, first + last), name)
        ]


class ParametersFigure(TrainingFigure):
    """Parameters of linear attention in training, on the ball and on the simplex."""

    form: Literal["parameters"]

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from."""
        return [training_log_of(name) for name in self.experiments]

    def check_experiments(self, key: str, experiments: "list[Experiment]") -> None:
        """Raise ValueError where the figure cannot draw experiments."""
        kinds = [None if of.in_words else (of.space, of.rmft.perturb) for of in experiments]
        if len(kinds) < 2 or kinds != [("ball", "policy"), ("simplex", "policy"), ("simplex", "logits")][: len(kinds)]:
            one = "one on the ball, one on the simplex, and perhaps one on the simplex with perturb: logits"
            raise ValueError(f"{key}: draws numeric experiments in this order: {one}")


class LossesFigure(TrainingFigure):
    """Losses of fine-tuning by step."""

    form: Literal["losses"]

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from."""
        return self.of_iterations(params, 1, "training-log.csv")


class SelectionFigure(TrainingFigure):
    """Regret of selected and of all trajectories, as played and on rewards drawn again."""

    form: Literal["selection"]

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from."""
        return self.of_iterations(params, 0, "selection.parquet")


class DialogueFigure(TrainingFigure):
    """A game in words."""

    form: Literal["dialogue"]
    experiments: Annotated[Experiments, Field(max_length=1)] = Field(description="The experiment whose game is drawn.")

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from."""
        first = [iteration_of(name, 0, 0) for name in self.experiments]
        return [f"{folder}/{name}.parquet" for folder in first for name in ("rollouts", "selection")]


class EvaluationFigure(DrawnFigure):
    """A figure of evaluations."""

    evaluations: Several = Field(description="Evaluations that are drawn, of each experiment.")
    players: Several = PLAYERS

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Return (experiment, evaluation) of every evaluation that is read, in order."""
        return [(experiment, evaluation) for experiment in self.experiments for evaluation in self.evaluations]

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where the figure names what is not there, or what it cannot draw."""
        super().check(key, params)
        check_variants(key, self.experiments, params)
        for experiment, evaluation in self.sources:
            known(f"{key}.evaluations", evaluation, params.experiments[experiment].evaluations)
        first, *others = self.experiments
        variants = ["", *(f"-{variant_name(first, other)}" for other in others)]
        models = [f"{model}{variant}" for variant in variants for model in ("base", "trained")]
        for evaluation in self.evaluations:
            playing = [*models, *params.experiments[first].evaluations[evaluation].algorithms]
            for player in self.players:
                known(f"{key}.players", player, dict.fromkeys(playing))


class RegretFigure(EvaluationFigure):
    """Regret by round, alone or beside the distribution of final regrets."""

    form: Literal["regret", "regret-and-distribution"]


class MinFracFigure(EvaluationFigure):
    """How rarely the least played action is played: d · MinFrac(t)."""

    form: Literal["min-frac"]

    def check_experiments(self, key: str, experiments: "list[Experiment]") -> None:
        """Raise ValueError where the figure cannot draw experiments."""
        if "ball" in [of.space for of in experiments]:
            raise ValueError(f"{key}: draws actions, which a ball does not have")


class ExplorationFigure(MinFracFigure):
    """Regret of one evaluation beside how players explore, or beside how often they never find the best action."""

    form: Literal["exploration", "sufficient-failure"]
    evaluations: Annotated[Several, Field(max_length=1)] = Field(description="The evaluation that is drawn.")


class PoliciesFigure(EvaluationFigure):
    """Policies of games in words."""

    form: Literal["policies"]

    def check_experiments(self, key: str, experiments: "list[Experiment]") -> None:
        """Raise ValueError where the figure cannot draw experiments."""
        if not all(of.in_words for of in experiments):
            raise ValueError(f"{key}: form policies draws games in words")


class RepliesFigure(EvaluationFigure):
    """A figure of replies that `reasoning` examines."""

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where the figure names what is not there, or what it cannot draw."""
        DrawnFigure.check(self, key, params)
        params.reasoning.check_examined(key, self.experiments, self.evaluations)
        for player in self.players:
            known(f"{key}.players", player, dict.fromkeys(["base", "trained"]))


class ClaimsFigure(RepliesFigure):
    """Claims of replies, and how many of them are right."""

    form: Literal["claims"]

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from."""
        return [path for source in self.sources for path in reasoning_of(*source)]


class AvoidanceFigure(RepliesFigure):
    """How often replies pass over the best action because they call rewards unstable."""

    form: Literal["avoidance"]

    def inputs(self, params: "Params") -> list[str]:
        """Return the files that the figure is drawn from: replies alone."""
        return [reasoning_of(*source)[REASONING.index("replies.parquet")] for source in self.sources]


Figure = Annotated[
    ParametersFigure
    | LossesFigure
    | SelectionFigure
    | DialogueFigure
    | RegretFigure
    | ExplorationFigure
    | MinFracFigure
    | PoliciesFigure
    | ClaimsFigure
    | AvoidanceFigure,
    Field(discriminator="form"),
]


class Figures(Section):
    """The style, and one entry a figure."""

    style: Style = Field(description="How all figures look.")
    drawn: dict[Label, Figure] = Field(description="Figures, under the paper's label or your own.")
