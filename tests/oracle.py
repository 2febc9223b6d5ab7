"""A model for `rmft eval` that always plays the best action, so that its regret in bandits is 0."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rmft.agents.chat_models import ChatModels
from rmft.agents.endpoint import EndpointCompletion
from rmft.suite.models import Measured


@dataclass
class KnowsBest:
    """A chat model that replies with the best action of its instances (n,)."""

    best: np.ndarray
    max_tokens: int = 4

    def restart(self):
        """Forget nothing."""

    def reply(self, messages, *, temperature, uniforms, rows):
        """Name the best action."""
        return [EndpointCompletion(f"Action: {self.best[row] + 1}") for row in rows]


@dataclass(frozen=True)
class Oracle(Measured):
    """A model that knows the best action."""

    @contextmanager
    def playing(self, job, games, stem):
        """Yield the chat model."""
        best = games.rewards.means[:, 0].argmax(axis=1)
        yield ChatModels(lambda ids: KnowsBest(best[ids[:, 0]]), 16)
