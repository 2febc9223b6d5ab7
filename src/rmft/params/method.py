"""Experiments in which a language model learns by a training method of an extension."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from rmft import extensions
from rmft.errors import InputError, unknown
from rmft.params.language import LanguageSFT, WordsExperiment


class MethodExperiment(WordsExperiment):
    """Iterations of rollouts, selection and a method of an extension, which gives the next model."""

    model_kind: ClassVar = "language"
    defaults_of: ClassVar = ("language", "method")
    scale_of: ClassVar = "language"
    trained_by: ClassVar = "method"

    kind: Literal["method"] = Field(
        description="Kind of the experiment: a language model learns by a method of an extension."
    )
    method: str = Field(description="The method, under the name that an extension has registered.")
    settings: dict[str, Any] = Field(
        default={}, description="Settings of the method; the extension says which there are."
    )
    sft: LanguageSFT = Field(description="The steps that the method takes, where they are as in fine-tuning.")

    @field_validator("method")
    @classmethod
    def _registered(cls, method: str) -> str:
        if method not in extensions.METHODS:
            raise ValueError(unknown(method, extensions.METHODS, extensible=True))
        return method

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: object) -> object:
        """Give settings the method's own defaults, so that jobs depend on all. Raise ValueError for wrong ones."""
        method = values.get("method") if isinstance(values, dict) else None
        if not isinstance(method, str) or method not in extensions.METHODS:
            return values
        try:
            return {**values, "settings": extensions.METHODS[method].complete(values.get("settings", {}))}
        except InputError as error:
            raise ValueError(str(error)) from None

    @property
    def learnt(self) -> int:
        """Return how many trajectories the model learns from: all that are played, from which the method chooses."""
        return self.played

    @property
    def method_name(self) -> str:
        """Return what tables call the way in which the model learns."""
        return f"{extensions.METHODS[self.method].title} (ours)"

    @model_validator(mode="after")
    def _in_own_process(self) -> Self:
        if self.sft.processes > 1:
            raise ValueError(f"sft.processes: {self.sft.processes}: a method of an extension is one process")
        return self
