"""All of outputs.yaml: what is drawn, tabulated and reported."""

from typing import TYPE_CHECKING, get_args

from pydantic import Field

from rmft.params.figures import Figure, Figures, Style, variant_name
from rmft.params.section import Count, Label, Name, Section, known
from rmft.params.tables import Table

if TYPE_CHECKING:
    from rmft.params.whole import Params

__all__ = ["FORMS", "Figure", "Label", "Outputs", "Report", "Style", "Table", "variant_name"]
FORMS: tuple[str, ...] = tuple(  # of figures
    form for of in get_args(get_args(Figure)[0]) for form in get_args(of.model_fields["form"].annotation)
)


class Report(Section):
    """What the report's pages hold: results/report.html and results/trajectories.html."""

    story: Name | None = Field(
        description="The experiment that the six pictures of the method are drawn from; null: no pictures."
    )
    trajectories: Count = Field(
        description="Games of each experiment in words in the trajectory viewer: whole scenarios, of all iterations of "
        "the first training seed."
    )

    def check(self, params: "Params") -> None:
        """Raise ValueError where the story is of no experiment that selects and evaluates games."""
        if self.story is not None:
            known("report.story", self.story, {name: of for name, of in params.selecting.items() if of.evaluations})


class Outputs(Section):
    """All of outputs.yaml."""

    figures: Figures = Field(description="The style of figures, and the figures.")
    tables: dict[Label, Table] = Field(description="Tables, under the paper's label or your own.")
    report: Report = Field(description="What the report's pages hold.")
