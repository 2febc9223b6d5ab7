"""Experiments in which a language model is fine-tuned on the games of a reference algorithm: algorithm distillation."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rmft.algorithms import check_algorithm
from rmft.params.language import LanguageRMFT, LanguageSFT, WordsExperiment
from rmft.params.section import Count, Name, Section, known, prefixed

if TYPE_CHECKING:
    from rmft.params.whole import Params

DistillationBudget = Literal["IMk", "IML", "2IML"]  # how many games of a teacher, in I, M, L and k of RMFT


class Distillation(Section):
    """Whose games the model learns, how many, and what they say."""

    teacher: Name = Field(description="The algorithm of `evaluation.algorithms` that plays.")
    budget: DistillationBudget = Field(
        description="Number of games, in the I, M, L and k of `rmft`: as many as RMFT learns from (IMk), as many as "
        "RMFT plays (IML), or twice as many as RMFT plays (2IML)."
    )
    most: Count | None = Field(default=None, description="Largest number of games, whatever the budget is.")
    rationale: str | None = Field(
        description="Template of the text before the action in a completion; null: the action alone."
    )


class DistillationExperiment(WordsExperiment):
    """Algorithm distillation: games of a teacher in the experiment's protocol, and one fine-tuning on them.

    `rmft` is the loop that it is compared with: its budget is counted there, and its temperature is used in evaluation.
    """

    model_kind: ClassVar = "language"
    defaults_of: ClassVar = ("language", "distillation")
    scale_of: ClassVar = "language"
    iteration_files: ClassVar = ("rollouts.parquet", "demonstrations.jsonl")
    selects: ClassVar = False
    sharded: ClassVar = False

    kind: Literal["distillation"] = Field(
        description="Kind of the experiment: a language model learns the games of a reference algorithm."
    )
    sft: LanguageSFT = Field(description="How the model is fine-tuned on the teacher's games.")
    distillation: Distillation = Field(description="The teacher, and how many of its games.")

    @model_validator(mode="after")
    def _has_actions(self) -> Self:
        if self.protocol.output != "action":
            raise ValueError("protocol.output: a teacher's actions are told, so it must be action")
        if self.distillation.rationale and self.protocol.format == "policy-only":
            raise ValueError("distillation.rationale: format policy-only has none")
        return self

    def check(self, name: str, params: "Params") -> None:
        """Raise ValueError where what the experiment names is not there, or does not fit it. name: its own."""
        super().check(name, params)
        key, teacher = f"experiments.{name}.distillation.teacher", self.distillation.teacher
        known(key, teacher, params.evaluation.algorithms)
        prefixed(key, check_algorithm, params.evaluation.algorithms[teacher], self.environment, self.space)

    @property
    def loop(self) -> LanguageRMFT:
        """Return the one iteration in which the teacher plays and the model learns: each game has its own rewards."""
        return self.rmft.model_copy(
            update={"iterations": 1, "scenarios": self.learnt, "trajectories": 1, "selected": 1}
        )

    @property
    def budget(self) -> int:
        """Return how many games the teacher may play by its budget, whatever `most` leaves of it."""
        of = self.rmft
        size = {"IMk": of.selected, "IML": of.trajectories, "2IML": 2 * of.trajectories}[self.distillation.budget]
        return of.iterations * of.scenarios * size

    @property
    def learnt(self) -> int:
        """Return how many games the teacher plays; the model learns from all of them."""
        return min(self.budget, self.distillation.most or self.budget)

    @property
    def cut(self) -> bool:
        """Return whether the games are fewer than the budget."""
        return self.learnt < self.budget

    @property
    def method_name(self) -> str:
        """Return what tables call the way in which the model learns."""
        words = ", with a rationale" if self.distillation.rationale else ""
        cut = f" cut to {self.learnt:,} of {self.budget:,}" if self.cut else ""
        return f"AD of {self.distillation.teacher}, {self.distillation.budget}{cut}{words}"
