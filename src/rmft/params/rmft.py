"""The loop of Algorithm `ssft-meta-algorithm`, whatever the model."""

from typing import Self

from pydantic import Field, model_validator

from rmft.params.section import Count, Section


class RMFT(Section):
    """The sizes of the loop."""

    iterations: Count = Field(description="How often the model plays, and learns from the games that are selected.")
    scenarios: Count = Field(description="M: scenarios of an iteration.")
    trajectories: Count = Field(description="L: trajectories of each scenario.")
    selected: Count = Field(description="k: trajectories of lowest regret that are kept of each scenario.")
    training_seeds: Count = Field(description="How often the whole loop runs, each time with other random numbers.")

    @model_validator(mode="after")
    def _selection_possible(self) -> Self:
        if self.selected > self.trajectories:
            raise ValueError(f"selected: {self.selected} is more than trajectories: {self.trajectories}")
        return self
