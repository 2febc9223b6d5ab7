"""The loop of Algorithm `ssft-meta-algorithm`, whatever the model."""

from typing import Self

from pydantic import model_validator

from rmft.params.section import Count, Section


class RMFT(Section):
    """M scenarios an iteration, L trajectories each, the k of lowest regret kept; all of it once a training seed."""

    iterations: Count
    scenarios: Count
    trajectories: Count
    selected: Count
    training_seeds: Count

    @model_validator(mode="after")
    def _selection_possible(self) -> Self:
        if self.selected > self.trajectories:
            raise ValueError(f"selected: {self.selected} is more than trajectories: {self.trajectories}")
        return self
