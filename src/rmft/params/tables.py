"""Tables: a form is a class that states which files it reads and what it can compare."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rmft.params.figures import Experiments, check_variants
from rmft.params.files import JARGON, THEORY, evaluation_of, reasoning_of
from rmft.params.section import Name, Section, Several, known

if TYPE_CHECKING:
    from rmft.params.experiment import RMFT
    from rmft.params.whole import Params

Sources = list[tuple[str, str]]
SomeExperiments = Annotated[Experiments, Field(description="Experiments of the table.")]
OneExperiment = Annotated[Experiments, Field(max_length=1, description="The experiment of the table.")]
OneEvaluation = Annotated[
    list[Name], Field(min_length=1, max_length=1, description="The evaluation that the table shows.")
]
BESIDE = Field(
    default={},
    description="Players that stand beside another player of the paper, by our name; of methods, experiments.",
)
ALL_EVALUATIONS = Field(default=[], description="Evaluations that the table shows; none: all of its experiments.")


class MadeTable(Section):
    """What all forms share. A form states `experiments`, `evaluations` and `beside`, be it as fixed empty ones.

    has_values_of_paper: whether there is a file of the paper's values. compares_methods: whether each experiment is a
    method.
    """

    has_values_of_paper: ClassVar[bool] = True
    compares_methods: ClassVar[bool] = False

    def inputs(self, label: str, sources: Sources, params: "Params") -> list[str]:
        """Return the files that the table is made from, the paper's values last. sources: evaluations that it shows."""
        return [*(evaluation_of(*source) for source in sources), *self.values_of_paper(label)]

    def values_of_paper(self, label: str) -> list[str]:
        """Return the file of the paper's values, if there is one."""
        return [f"data/paper/{label}.csv"] if self.has_values_of_paper else []

    def loops(self, params: "Params") -> "list[RMFT]":
        """Return how each experiment was trained, where the table shows that."""
        return []

    def theory_rows(self, params: "Params") -> int:
        """Return how many rows the file of minimisers has, where the table reads it."""
        return 0

    def generated(self, params: "Params") -> bool:
        """Return whether a model wrote all sets of scenarios that stand beside the paper's."""
        return True

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where the table names what is not there, or what it cannot compare."""
        for name in self.experiments:
            known(f"{key}.experiments", name, params.experiments)
        self.check_experiments(key, params)
        for name in self.experiments:
            for evaluation in self.evaluations:
                known(f"{key}.evaluations", evaluation, params.experiments[name].evaluations)
            for player in self.beside:
                known(f"{key}.beside", player, dict.fromkeys(sorted(self.players(name, params))))

    def check_experiments(self, key: str, params: "Params") -> None:
        """Raise ValueError where the table cannot compare its experiments."""

    def players(self, experiment: str, params: "Params") -> set[str]:
        """Return the players that may stand beside another one of the paper."""
        return {player for of in params.experiments[experiment].evaluations.values() for player in of.algorithms}


class GrowthTable(MadeTable):
    """How fast regret grows."""

    form: Literal["growth"]
    experiments: SomeExperiments
    evaluations: list[Name] = ALL_EVALUATIONS
    beside: dict[Name, Name] = BESIDE


class RegretTable(MadeTable):
    """How large regret is and how fast it grows, base beside trained."""

    form: Literal["regret"]
    experiments: OneExperiment
    evaluations: list[Name] = ALL_EVALUATIONS
    beside: dict[Name, Name] = BESIDE


class WordsTable(MadeTable):
    """A table of games in words."""

    beside: ClassVar[dict[str, str]] = {}

    def check_experiments(self, key: str, params: "Params") -> None:
        """Raise ValueError where an experiment is not in words."""
        for name in self.experiments:
            if not params.experiments[name].in_words:
                raise ValueError(f"{key}.experiments: form {self.form} is of games in words, not {name}")


class SensitivityTable(WordsTable):
    """Regret by how a model was trained."""

    form: Literal["sensitivity"]
    experiments: SomeExperiments
    evaluations: OneEvaluation

    def loops(self, params: "Params") -> "list[RMFT]":
        """Return how each experiment was trained."""
        return [params.experiments[name].rmft for name in self.experiments]

    def check_experiments(self, key: str, params: "Params") -> None:
        """Raise ValueError where an experiment does not train on selected games in words."""
        for name in self.experiments:
            if not params.experiments[name].selects:
                raise ValueError(f"{key}.experiments: form {self.form} needs experiments that select games, not {name}")


class ReplicatesTable(WordsTable):
    """Regret of all replicates and training seeds of one experiment."""

    form: Literal["replicates"]
    experiments: OneExperiment
    evaluations: OneEvaluation


class EntropyTable(WordsTable):
    """How undecided policies are."""

    has_values_of_paper: ClassVar = False

    form: Literal["entropy"]
    experiments: SomeExperiments
    evaluations: list[Name] = ALL_EVALUATIONS


class ClaimsTable(MadeTable):
    """How many claims of replies are right."""

    beside: ClassVar[dict[str, str]] = {}

    form: Literal["claims"] = Field(description="Form: how many claims of replies are right.")
    experiments: SomeExperiments
    evaluations: Several = Field(description="Evaluations that the table shows, whose replies `reasoning` examines.")

    def inputs(self, label: str, sources: Sources, params: "Params") -> list[str]:
        """Return the files that the table is made from."""
        return [reasoning_of(*source)[-1] for source in sources]

    def check_experiments(self, key: str, params: "Params") -> None:
        """Raise ValueError where replies of an experiment are not examined."""
        params.reasoning.check_examined(key, self.experiments, self.evaluations)


class MethodsTable(MadeTable):
    """Regret of the first experiment beside others that teach the same model in another way."""

    compares_methods: ClassVar = True

    form: Literal["methods"]
    experiments: Experiments = Field(description="Experiments of the table; all but the first vary the first.")
    evaluations: Several = Field(description="Evaluations that the table shows.")
    beside: dict[Name, Name] = BESIDE

    @property
    def has_values_of_paper(self) -> bool:
        """Return whether the table stands beside values of the paper."""
        return bool(self.beside)

    def players(self, experiment: str, params: "Params") -> set[str]:
        """Return the players that may stand beside another one of the paper: the experiments."""
        return {"base", *self.experiments}

    def check_experiments(self, key: str, params: "Params") -> None:
        """Raise ValueError where an experiment is no variant of the first, or has other instances."""
        first, *others = self.experiments
        if not params.experiments[first].in_words:
            raise ValueError(f"{key}.experiments: form methods is of games in words, not {first}")
        check_variants(key, self.experiments, params)
        for name in others:
            of = params.experiments[name]
            for evaluation in self.evaluations:
                known(f"{key}.evaluations", evaluation, of.evaluations)
                known(f"{key}.evaluations", evaluation, params.experiments[first].evaluations)
                if of.evaluations[evaluation].instances != params.experiments[first].evaluations[evaluation].instances:
                    raise ValueError(f"{key}.experiments: {name} has other instances of {evaluation} than {first}")


class DiversityTable(MadeTable):
    """How diverse sets of scenarios are."""

    form: Literal["diversity"]
    scenarios: Several = Field(description="Sets of `scenarios`.")

    experiments: ClassVar[list[str]] = []
    evaluations: ClassVar[list[str]] = []
    beside: ClassVar[dict[str, str]] = {}

    def inputs(self, label: str, sources: Sources, params: "Params") -> list[str]:
        """Return the sets of scenarios, the words of jargon, and the paper's values."""
        sets = [params.scenarios[name].path(name) for name in self.scenarios]
        return [*sets, JARGON, *self.values_of_paper(label)]

    def generated(self, params: "Params") -> bool:
        """Return whether a model wrote all sets of scenarios that stand beside the paper's."""
        return all(params.scenarios[name].source == "generated" for name in self.scenarios[:2])

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where a set of scenarios is not there."""
        for name in self.scenarios:
            known(f"{key}.scenarios", name, params.scenarios)


class TheoremTable(MadeTable):
    """The minimiser of Theorem 1."""

    form: Literal["theorem"]
    experiments: ClassVar[list[str]] = []
    evaluations: ClassVar[list[str]] = []
    beside: ClassVar[dict[str, str]] = {}

    def inputs(self, label: str, sources: Sources, params: "Params") -> list[str]:
        """Return the file of minimisers."""
        return [THEORY]

    def theory_rows(self, params: "Params") -> int:
        """Return how many rows the file of minimisers has."""
        grid = params.theory
        return len(grid.d) * len(grid.T) * len(grid.radius)


Table = Annotated[
    GrowthTable
    | RegretTable
    | SensitivityTable
    | ReplicatesTable
    | EntropyTable
    | ClaimsTable
    | MethodsTable
    | DiversityTable
    | TheoremTable,
    Field(discriminator="form"),
]
