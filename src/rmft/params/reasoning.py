"""What replies say, compared with what happened: Fig. `reasoning-comparison` and `reasoning-variance`."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rmft.params.section import Count, Name, Section, known

if TYPE_CHECKING:
    from rmft.params.whole import Params

LEXICAL = "lexical"


class Reasoning(Section):
    """Whose replies are examined, and by which judge."""

    of: dict[Name, Annotated[list[Name], Field(min_length=1)]] = Field(
        description="Evaluations whose completions are examined, by experiment."
    )
    judge: Name = Field(
        description="Who judges whether a completion passes over the best action because rewards are unstable: "
        "`lexical`, or a model of kind endpoint, which judges in addition to the lexical judge."
    )
    words: str = Field(description="File of the words that the lexical judge looks for.")
    prompt: str = Field(description="File of the question to a model that judges.")
    max_tokens: Count = Field(description="Largest number of tokens of the judging model's completion.")

    def check(self, params: "Params") -> None:
        """Raise ValueError where a name is none of those there are."""
        in_words = {name: of for name, of in params.experiments.items() if of.in_words}
        for name, evaluations in self.of.items():
            known("reasoning.of", name, in_words)
            for evaluation in evaluations:
                known(f"reasoning.of.{name}", evaluation, in_words[name].evaluations)
        judges = [name for name, of in params.models.items() if of.kind == "endpoint"]
        known("reasoning.judge", self.judge, dict.fromkeys([LEXICAL, *judges]))

    def check_examined(self, key: str, experiments: list[str], evaluations: list[str]) -> None:
        """Raise ValueError where replies of any of these evaluations are not examined."""
        for name in experiments:
            known(f"{key}.experiments", name, self.of)
            for evaluation in evaluations:
                known(f"{key}.evaluations", evaluation, dict.fromkeys(self.of[name]))
