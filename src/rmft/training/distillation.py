"""Algorithm distillation: a reference algorithm plays for training, and its actions are told as a model would reply.

`Teacher` is a speaker like any other, so that prompts, feedback and tokens come about as those of rollouts do: only who
decides is another. Each game has rewards of its own, since of the same rewards most teachers play the same game again.

Symbols: N games, n of them at a time, T rounds, d actions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Template

from rmft.agents.chat_template import ChatTemplate
from rmft.algorithms import start_on
from rmft.endpoint_server.spelling import Spelling
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.language.prompts import Prompts, read_template, rendered
from rmft.language.protocol import Scenario
from rmft.play import action_uniforms, play
from rmft.rollouts import games_of, roll_out
from rmft.workflow.records import DistillationJob

MISREAD = "distillation: a reply is not read as what the teacher plays; look at the rationale and at actions' names"


@dataclass(frozen=True)
class TeacherCompletion:
    """A reply of a teacher, as `Completion` has it: all of it is to be learnt."""

    text: str
    ids: list[int]
    prompt_ids: list[int]

    @property
    def replied(self) -> list[bool]:
        """Return which of prompt_ids + ids the teacher chose."""
        return [False] * len(self.prompt_ids) + [True] * len(self.ids)


class Teacher:
    """A reference algorithm that has played n games in numbers, and tells of them: a `ChatModel`.

    actions: (n, T). policies: (n, T, d). texts: n lists of T replies.
    """

    def __init__(
        self, turns: ChatTemplate, actions: np.ndarray, policies: np.ndarray, texts: list[list[str]], max_tokens: int
    ) -> None:
        self.turns, self.spelling, self.max_tokens = turns, Spelling(turns), max_tokens
        self.actions, self.policies, self.texts = actions, policies, texts
        self.t = 0
        self.anew = True

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.anew = True

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int] | None
    ) -> list[TeacherCompletion]:
        """Return the replies of the next round. What is random of a teacher comes from streams of its own."""
        if messages is None:
            raise InputError(f"{MISREAD}: {self.texts[rows[0]][self.t - 1]!r}")
        opened = self.turns.first if self.anew else self.turns.next
        found = []
        for row, message in enumerate(messages):
            text = self.texts[row][self.t]
            ids = self.spelling.reply(text)
            if len(ids) > self.max_tokens:
                allowed = f"protocol.max_tokens allows {self.max_tokens}"
                raise InputError(f"rationale: the reply {text!r} has {len(ids)} tokens, and {allowed}")
            found.append(TeacherCompletion(text, ids, opened(message)))
        self.t += 1
        self.anew = False
        return found

    def retract(self, rows: Sequence[int]) -> None:
        """Do nothing: `reply` refuses to reply again."""

    def action_policies(
        self,
        turns: Sequence[TeacherCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None,
    ) -> np.ndarray:
        """Return the policies (n, d) that the actions of the round were drawn from."""
        return self.policies[rows, self.t - 1]


def distil(
    job: DistillationJob,
    turns: ChatTemplate,
    prompts: Prompts,
    scenarios: Sequence[Scenario] | None,
    on_round: Callable[[int, int, float], object],
) -> dict[str, list[Any]]:
    """Return the columns of a teacher's games, as `roll_out` does. Raise InputError where replies say something else.

    turns: those of the model that is to learn. scenarios, on_round: see `roll_out`.
    """
    asked = job.games
    table, _ = games_of(asked)
    telling, full = asked.problem.protocol, asked.problem.feedback == "full"
    player = start_on(asked.seed, asked.stream, job.teacher, table, None)
    uniforms = action_uniforms(asked.seed, len(table.rewards), asked.stream)
    played = play(player, table, full_feedback=full, uniforms=uniforms)
    rationale = read_template(Path(job.rationale)) if job.rationale else None
    seen = one_hot(played.actions, asked.problem.d) | full

    def opened(part: np.ndarray) -> Teacher:
        games = part[:, 0]
        about = [scenarios[game] for game in games] if scenarios else [None] * len(games)
        texts = [
            _replies(job, rationale, played.actions[game], table.rewards[game], seen[game], scenario)
            for game, scenario in zip(games, about, strict=True)
        ]
        return Teacher(turns, played.actions[games], played.policies[games], texts, telling.max_tokens)

    columns = roll_out(asked, opened, prompts, scenarios, None, asked.model.batch, on_round)
    if not np.array_equal(np.array(columns["action"]), played.actions[columns["scenario"]]):
        raise InputError(MISREAD)
    return columns


def _replies(
    job: DistillationJob,
    rationale: Template | None,
    actions: np.ndarray,
    rewards: np.ndarray,
    seen: np.ndarray,
    scenario: Scenario | None,
) -> list[str]:
    """Return what the teacher says in each round of a game; actions (T,), rewards and whether they were seen (T, d)."""
    if rationale is None:
        return [f"Action: {action + 1}" for action in actions]
    tries = seen.cumsum(axis=0) - seen
    totals = (seen * rewards).cumsum(axis=0) - seen * rewards
    texts = []
    for t, action in enumerate(actions):
        known = [
            {
                "number": a + 1,
                "name": scenario.names[a] if scenario else "",
                "tries": int(tries[t, a]),
                "average": float(totals[t, a] / tries[t, a]) if tries[t, a] else None,
            }
            for a in range(rewards.shape[1])
        ]
        highest = max((of["average"] for of in known if of["tries"]), default=None)
        values = {
            "t": t + 1,
            "d": len(known),
            "feedback": job.games.problem.feedback,
            "algorithm": job.teacher_name,
            "actions": known,
            "chosen": known[action],
            "best": [of for of in known if of["tries"] and of["average"] == highest],
        }
        texts.append(f"{rendered(rationale, values)}\nAction: {action + 1}")
    return texts
