"""Records of the jobs that show results: figures, tables, metrics, the report."""

from pydantic import Field

from rmft.environments.regret import Mean, Notion
from rmft.params.language import LanguageRMFT
from rmft.params.outputs import Figure, Label, Style, Table
from rmft.params.section import Section
from rmft.workflow.records import Job


class FigureJob(Job):
    """The record of stage `figures`.

    titles, experiment_titles: by the name of the evaluation or experiment. loops: training seeds and iterations of each
    experiment, in a figure of training.
    """

    label: str
    figure: Figure
    titles: dict[str, str]
    experiment_titles: dict[str, str]
    style: Style
    loops: list[tuple[int, int]]
    scale_note: str | None


class TrainingBudget(Section):
    """The method by which an experiment trains its model, and how many trajectories it plays and learns from.

    learnt: None where only the method of an extension knows. cut: whether the scale makes these fewer than the budget
    of the method.
    """

    experiment: str
    name: str
    played: int
    learnt: int | None
    cut: bool = False


class TableJob(Job):
    """The record of stage `tables`.

    models: of each experiment. loops: how each was trained, in a table of sensitivity. methods: in one that compares
    methods. generated: whether a model wrote all sets of scenarios beside the paper's. theory_rows: the number of rows
    in the file of minimisers.
    """

    seed: int
    label: str
    table: Table
    models: list[str]
    loops: list[LanguageRMFT] = Field(default=[])
    methods: tuple[TrainingBudget, ...] = ()
    generated: bool = False
    sources: list[tuple[str, str]]
    floor: float | None
    resamples: int
    theory_rows: int
    scale_note: str | None


class MetricsJob(Job):
    """The record of stage `metrics`."""

    seed: int
    floor: float | None
    sources: list[tuple[str, str]]


class ReportedExperiment(Section):
    """An experiment with games in words, as the trajectory viewer describes it, and how its regret is computed.

    held_out: the files with games of each evaluation, by player.
    """

    model: str
    environment: str
    T: int
    iterations: int
    selected: int
    regret: Notion
    mean: Mean
    held_out: dict[str, dict[str, str]]


class TrainedExperiment(Section):
    """An experiment that trains on games of low regret, with parameters of the paper.

    environment: in words. numeric: whether its agent sees numbers, and starts from random weights. stands_for: the
    model that plays at full size. as_trained: the evaluations whose reward processes are those of training.
    """

    environment: str
    numeric: bool
    stands_for: str
    as_trained: list[str]


class ReportJob(Job):
    """The record of stage `report`.

    models: of every experiment, by name. notes: on the scale of figures and tables, by label. players: their names in
    legends. titles: of evaluations, by experiment. trained: the experiments that answer the report's question.
    story: experiment and evaluation of the pictures of the method, if any. in_words: the experiments of the trajectory
    viewer. trajectories: of each of them. prefix: of the names of the pages.
    """

    scale: str
    prefix: str
    figures: dict[Label, Figure]
    tables: dict[Label, Table]
    figure_notes: dict[Label, str | None]
    table_notes: dict[Label, str | None]
    models: dict[str, str]
    players: dict[str, str]
    titles: dict[str, dict[str, str]]
    trained: dict[str, TrainedExperiment]
    story: tuple[str, str] | None
    in_words: dict[str, ReportedExperiment]
    trajectories: int
