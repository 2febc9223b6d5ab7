"""A person's game: the game in words that models play, with a person's replies in place of a model's completions.

A game is played anew from all replies so far whenever one is added, so that there are no other rules than those of
`language.game`. Symbols: T rounds, d actions, t rounds played so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rmft.agents.endpoint import EndpointCompletion
from rmft.environments.regret import Mean
from rmft.environments.tables import ContextualTable, RewardTable, one_hot
from rmft.evaluation import Instances, evaluate_in_words
from rmft.language.game import RandomNumbers, Transcript, play_in_words
from rmft.language.parsing import parse
from rmft.language.protocol import Protocol
from rmft.rollouts import Games, roll_out

PERSON = "you"


class AwaitsReply(Exception):  # noqa: N818 (no error: it stops the game between two rounds)
    """The game waits for the person's next reply to a message."""


class Person:
    """A chat model that gives a person's replies in one game, in their order. Raise AwaitsReply after the last one."""

    max_tokens = 0

    def __init__(self, replies: Sequence[str]) -> None:
        self.left = list(replies)

    def restart(self) -> None:
        """Do nothing: a person remembers earlier conversations."""

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int] | None
    ) -> list[EndpointCompletion]:
        """Return the next reply."""
        if not self.left:
            raise AwaitsReply(messages[0])
        return [EndpointCompletion(self.left.pop(0))]

    def retract(self, rows: Sequence[int]) -> None:
        """Do nothing: replies without a valid decision are refused before they come here."""

    def action_policies(
        self,
        completions: Sequence[EndpointCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None,
    ) -> np.ndarray:
        """Return policies (1, d) that give all probability to the action chosen."""
        return one_hot(np.array(actions), len(names[0])).astype(float)


@dataclass(frozen=True)
class Position:
    """Where a game stands. message: what a model would be told next, None after the last round. actions: (t,)."""

    message: str | None
    actions: np.ndarray


@dataclass(frozen=True)
class PersonGame:
    """One game: one instance, with all that decides how it is told and scored. games: of this instance alone."""

    games: Games
    mean: Mean

    @property
    def table(self) -> RewardTable:
        """Return the rewards (1, T, d) with their means."""
        return self.games.rewards.rows(self.games.ids[:, 0])

    @property
    def protocol(self) -> Protocol:
        """Return how the game is told."""
        scenarios = self.games.scenarios
        return self.games.settings.about(scenarios[self.games.ids[0, 0]] if scenarios else None)

    @property
    def names(self) -> list[str]:
        """Return what the actions are called."""
        of = self.protocol
        return list(of.scenario.names) if of.scenario else [f"Action {action + 1}" for action in range(of.d)]

    def first(self, rounds: int) -> "PersonGame":
        """Return the first rounds of this game; it begins like the whole one."""
        rewards = self.games.rewards
        return replace(self, games=replace(self.games, rewards=rewards.head(len(rewards.rewards), rounds)))

    def understood(self, text: str) -> str | None:
        """Return the reply that a text stands for, or None where it decides nothing.

        Where a policy is asked for, an action's number stands for the policy that always plays it.
        """
        of, reply = self.protocol, text.strip()
        if of.output == "distribution" and reply.isdecimal() and 1 <= int(reply) <= of.d:
            reply = f"Policy: {[int(action == int(reply)) for action in range(1, of.d + 1)]}"
        return reply if parse(reply, of, self.games.settings.tolerance) else None

    def after(self, replies: Sequence[str]) -> Position:
        """Return where the game stands after some replies."""
        played: list[Transcript] = []
        games, table = self.games, self.table
        contexts = table.contexts if isinstance(table, ContextualTable) else None
        random_numbers = RandomNumbers(games.seed, games.words, games.ids)
        about = [self.protocol.scenario] if self.protocol.scenario else None
        message = None
        try:
            play_in_words(
                Person(replies),
                table.rewards,
                games.settings,
                random_numbers,
                lambda _, transcript: played.append(transcript),
                about,
                contexts,
            )
        except AwaitsReply as waiting:
            message = str(waiting)
        return Position(message, played[-1].actions[: len(played), 0] if played else np.zeros(0, dtype=np.int64))

    def regret(self, replies: Sequence[str]) -> float:
        """Return the regret of the rounds that were played, one at least."""
        cut = self.first(len(replies))
        columns = roll_out(cut.games, lambda _: Person(replies), 1)
        columns["scenario"] = [0]
        instances = Instances(cut.table, cut.games.words, self.games.seed, self.games.environment, self.mean)
        return float(evaluate_in_words(instances, [(PERSON, 0, columns)], {})["regret"][0][-1])

    def paid(self, t: int, action: int) -> str:
        """Return what a person sees after round t = 0..T-1, in words."""
        rewards = self.table.rewards[0, t]
        if self.protocol.feedback == "full":
            return "paid " + ", ".join(f"{a + 1}: {reward:.2f}" for a, reward in enumerate(rewards))
        return f"action {action + 1} paid {rewards[action]:.2f}"
