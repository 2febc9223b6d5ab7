"""What is drawn and tabulated."""

from typing import Annotated, Literal

from pydantic import Field

from rmft.params.section import Count, Name, Positive, Section

STAGE_FOLDERS = ("figures", "tables", "theory", "models", "scenarios")  # in results/, beside the experiments' own
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$")]  # the paper's, or one of your own
Form = Literal[
    "parameters",
    "regret",
    "regret-and-distribution",
    "exploration",
    "sufficient-failure",
    "min-frac",
    "policies",
    "losses",
    "selection",
    "dialogue",
    "claims",
    "avoidance",
]
# Forms that draw training, and no evaluation.
OF_TRAINING: tuple[Form, ...] = ("parameters", "losses", "selection", "dialogue")
OF_ACTIONS: tuple[Form, ...] = ("exploration", "sufficient-failure", "min-frac")  # which a ball does not have
OF_REPLIES: tuple[Form, ...] = ("claims", "avoidance")  # which `reasoning` examines
OF_NO_EXPERIMENT = ("theorem", "diversity")  # forms of tables
OF_WORDS = ("sensitivity", "replicates", "entropy")  # and such that have games told in words
ONE_EVALUATION: tuple[Form, ...] = ("exploration", "sufficient-failure")


def variant_name(first: str, other: str) -> str:
    """Return what an experiment that varies another is called beside it: its name without the other's."""
    return other.removeprefix(f"{first}_").replace("_", "-")


class Style(Section):
    """How all figures look."""

    width_inches: Positive
    font_points: Positive
    dpi: Count
    colours: dict[Name, Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]]
    labels: dict[Name, str]


class Figure(Section):
    """What one figure shows and in which form: some players, in some evaluations, of some experiments.

    A further experiment is a variant of the first; its models are the players base-<variant> and trained-<variant>.
    """

    form: Form
    experiments: Annotated[list[Name], Field(min_length=1)]
    evaluations: list[Name] = []
    players: list[Name] = []

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Return (experiment, evaluation) of every evaluation that is read, in order."""
        return [(experiment, evaluation) for experiment in self.experiments for evaluation in self.evaluations]


class Figures(Section):
    """The style, and one entry a figure under the paper's label, or your own."""

    style: Style
    drawn: dict[Label, Figure]


class Report(Section):
    """How much the report's pages hold.

    story: the experiment, told in words, that the six pictures of the method show, if any. trajectories: games of each
    such experiment in the trajectory viewer, whole scenarios of all iterations of the first training seed.
    """

    story: Name | None
    trajectories: Count


class Table(Section):
    """Which experiments one table sets beside the paper's values, and in which form.

    form: how fast regret grows (growth), how large it is and how fast it grows, base beside trained (regret), the
    minimiser of Theorem 1 (theorem), or how diverse sets of scenarios are (diversity), the last two without an
    experiment; regret by how a model was trained (sensitivity), over replicates (replicates), how undecided policies
    are (entropy), how many claims of replies are right (claims), or what the first experiment comes to beside others
    that teach the same model in another way (methods). evaluations: those it shows; none: all there are. beside:
    players of ours that are compared with another player of the paper, by our name; of methods, experiments.
    """

    form: Literal[
        "growth", "regret", "theorem", "diversity", "sensitivity", "replicates", "entropy", "claims", "methods"
    ]
    experiments: list[Name]
    evaluations: list[Name] = []
    scenarios: list[Name] = []
    beside: dict[Name, Name] = {}
