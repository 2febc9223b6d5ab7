"""The schema of requests for fine-tuning jobs."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rmft.endpoint_server.schema import Metadata, RequestModel
from rmft.params.language import LanguageSFT

AutoIsNone = BeforeValidator(lambda value: None if value == "auto" else value)


class Hyperparameters(RequestModel):
    """The hyperparameters of a job; those that are `auto` or missing are the server's."""

    batch_size: Annotated[Annotated[int, Field(ge=1, le=4096)] | None, AutoIsNone] = None
    learning_rate_multiplier: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, AutoIsNone] = None
    n_epochs: Annotated[Annotated[int, Field(ge=1, le=1000)] | None, AutoIsNone] = None

    def resolved(self, sft: LanguageSFT) -> "Hyperparameters":
        """Return the hyperparameters with the server's values where none are given."""
        defaults = {"batch_size": sft.batch_size, "learning_rate_multiplier": 1.0, "n_epochs": sft.epochs}
        return Hyperparameters(**(defaults | self.model_dump(exclude_none=True)))

    def applied(self, sft: LanguageSFT) -> LanguageSFT:
        """Return the server's training settings, changed by these resolved hyperparameters.

        Raise InputError where the two do not go together.
        """
        changed = {
            "epochs": self.n_epochs,
            "batch_size": self.batch_size,
            "accumulation": math.gcd(self.batch_size, sft.accumulation),
            "learning_rate": sft.learning_rate * self.learning_rate_multiplier,
        }
        return sft.changed("hyperparameters", changed)


class Supervised(RequestModel):
    """The settings of the method `supervised`."""

    hyperparameters: Hyperparameters | None = None


class FineTuningMethod(RequestModel):
    """The method of fine-tuning, of which there is one."""

    type: Literal["supervised"]
    supervised: Supervised | None = None


class FineTuningJobRequest(RequestModel):
    """A request for a job."""

    model: str
    training_file: str
    method: FineTuningMethod | None = None
    hyperparameters: Hyperparameters | None = None  # the older place, used where `method` names none
    suffix: Annotated[str, Field(max_length=64)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    metadata: Metadata | None = None
    validation_file: None = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def given(self) -> Hyperparameters:
        """Return the hyperparameters as given."""
        supervised = self.method and self.method.supervised
        return (supervised and supervised.hyperparameters) or self.hyperparameters or Hyperparameters()
