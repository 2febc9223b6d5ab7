"""Experiments in which a language model is fine-tuned on the games of a reference algorithm: algorithm distillation."""

from typing import Literal, Self

from pydantic import model_validator

from rmft.params.language import DistillationBudget, LanguageRMFT, LanguageSFT, WordsExperiment
from rmft.params.section import Count, Name, Section


class Distillation(Section):
    """What is taught.

    teacher: an algorithm of evaluation.algorithms. budget: how many of its games, counted in the I, M, L and k of the
    experiment's `rmft`: as many as RMFT learns from, as it plays, or twice those. most: never more games than these.
    rationale: the template of what is said before each action; none: the action alone.
    """

    teacher: Name
    budget: DistillationBudget
    most: Count | None = None
    rationale: str | None


class DistillationExperiment(WordsExperiment):
    """Algorithm distillation: the games of a teacher, told in the experiment's protocol, and one fine-tuning on them.

    `rmft` is the loop that it is compared with: its budget is counted there, and its temperature is played at.
    varies: as of a LanguageExperiment.
    """

    kind: Literal["distillation"]
    sft: LanguageSFT
    distillation: Distillation
    varies: Name | None = None

    @model_validator(mode="after")
    def _tellable(self) -> Self:
        if self.protocol.output != "action":
            raise ValueError("protocol.output: a teacher's actions are told, so it must be action")
        if self.distillation.rationale and self.protocol.format == "policy-only":
            raise ValueError("distillation.rationale: format policy-only has none")
        return self

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
        """Return how many games the teacher plays, all of which are learnt from."""
        return min(self.budget, self.distillation.most or self.budget)

    @property
    def method(self) -> str:
        """Return what tables call the way in which the model learns."""
        words = ", with a rationale" if self.distillation.rationale else ""
        cut = f" cut to {self.learnt:,} of {self.budget:,}" if self.learnt < self.budget else ""
        return f"AD of {self.distillation.teacher}, {self.distillation.budget}{cut}{words}"
