"""Algorithm distillation: a reference algorithm plays, in words, as a model would, games that `sft` then learns.

`Teacher` is a chat model like any other, so that prompts, feedback and tokens are made as in rollouts.

# ASSUME: the paper fixes the budgets IMk, IML and 2IML, and no more. Each game has rewards of its own, since most
# teachers would play the same game again on the same rewards; and all games are learnt from in one run of fine-tuning
# with one schedule of the learning rate, where RMFT has one for each iteration, since the teacher does not change.

Symbols: N games, n of them at a time, T rounds, d actions.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jinja2 import Template

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import TokenCompletion
from rmft.agents.policy_from_model import TOP
from rmft.algorithms import AlgorithmSettings, start_on
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.game import action_uniforms, play
from rmft.language.prompts import rendered
from rmft.rollouts import Games, roll_out

NO_TOKENS = np.zeros((0, TOP))  # likeliest tokens, of a reply that no model wrote
EQUAL = 1e-9  # averages of equal rewards differ by as much, depending on how many they are of
MISREAD = "distillation: a teacher's reply is read as another action than it chose; look at its rationale and at names"


class Teacher:
    """A `ChatModel` that replays n games, which a reference algorithm has played in numbers.

    policies: (n, T, d). texts: n lists of T replies. stops: the ids of the model's `stop_tokens`; the first one ends a
    reply, as it does where the model plays.
    """

    def __init__(
        self,
        chat_template: ChatTemplate,
        policies: np.ndarray,
        texts: list[list[str]],
        max_tokens: int,
        stops: Sequence[int],
    ) -> None:
        self.chat_template, self.max_tokens, self.stops = chat_template, max_tokens, stops
        self.policies, self.texts = policies, texts
        self.t = 0
        self.starts = True

    def restart(self) -> None:
        """Begin all conversations anew."""
        self.starts = True

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int] | None
    ) -> list[TokenCompletion]:
        """Return the replies of the next round; nothing is sampled. Raise InputError where a retry is asked for."""
        if messages is None:
            raise InputError(f"{MISREAD}: {self.texts[rows[0]][self.t - 1]!r}")
        prompt_ids = self.chat_template.first if self.starts else self.chat_template.next
        completions = [
            self._completion(self.texts[row][self.t], prompt_ids(message)) for row, message in enumerate(messages)
        ]
        self.t += 1
        self.starts = False
        return completions

    def _completion(self, text: str, prompt_ids: list[int]) -> TokenCompletion:
        """Return a reply as the model would have sampled it."""
        *written, end = self.chat_template.completion(text)
        if any(token in self.stops for token in written):
            raise InputError(f"rationale: the reply {text!r} holds one of the model's stop_tokens, which end a reply")
        sampled = [*written, self.stops[0] if self.stops else end]
        if len(sampled) > self.max_tokens:
            allowed = f"protocol.max_tokens allows {self.max_tokens}"
            raise InputError(f"rationale: the reply {text!r} has {len(sampled)} tokens, and {allowed}")
        ids = sampled if sampled[-1] == end else [*sampled, end]
        return TokenCompletion(ids, len(sampled), text, False, prompt_ids, NO_TOKENS, NO_TOKENS)

    def retract(self, rows: Sequence[int]) -> None:
        """Do nothing: `reply` refuses to write anything anew."""

    def action_policies(
        self,
        completions: Sequence[TokenCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None,
    ) -> np.ndarray:
        """Return the policies (n, d) from which the actions of the round were sampled."""
        return self.policies[rows, self.t - 1]


def distil(
    games: Games,
    teacher: AlgorithmSettings,
    name: str,
    rationale: Template | None,
    chat_template: ChatTemplate,
    max_tokens: int,
    batch: int,
    on_round: Callable[[int, int, float], object] = lambda *_: None,
    stops: Sequence[int] = (),
) -> dict[str, list[Any]]:
    """Return the columns of a teacher's games, as `roll_out` does. Raise InputError where its replies are misread.

    games: one trajectory a scenario. name: of the teacher, for the rationale, the template of the text before an
    action; None: none. chat_template, stops: of the model that is to learn, see `Teacher`. batch, on_round: see
    `roll_out`.
    """
    rewards, full = games.rewards, games.settings.protocol.feedback == "full"
    player = start_on(games.seed, games.words, teacher, rewards, None)
    uniforms = action_uniforms(games.seed, len(rewards.rewards), games.words)
    played = play(player, rewards, full_feedback=full, uniforms=uniforms)
    observed = one_hot(played.actions, rewards.shape[2]) | full

    def replies(scenario: int) -> list[str]:
        if rationale is None:
            return [f"Action: {action + 1}" for action in played.actions[scenario]]
        names = games.scenarios[scenario].names if games.scenarios else [""] * rewards.shape[2]
        past = rationales(played.actions[scenario], rewards.rewards[scenario], observed[scenario], names)
        common = {"feedback": games.settings.protocol.feedback, "algorithm": name}
        return [
            f"{rendered(rationale, values | common)}\nAction: {action + 1}"
            for values, action in zip(past, played.actions[scenario], strict=True)
        ]

    def open_teacher(ids: np.ndarray) -> Teacher:
        own = ids[:, 0]
        texts = [replies(scenario) for scenario in own]
        return Teacher(chat_template, played.policies[own], texts, max_tokens, stops)

    columns = roll_out(games, open_teacher, batch, on_round)
    if not np.array_equal(np.array(columns["action"]), played.actions[columns["scenario"]]):
        raise InputError(MISREAD)
    return columns


def rationales(
    actions: np.ndarray, rewards: np.ndarray, observed: np.ndarray, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield what a rationale can say in each round of a game: tries and average of every action so far.

    actions: (T,). rewards, and whether they were observed: (T, d). names: (d,), of the actions, empty for none.
    """
    tries = observed.cumsum(axis=0) - observed
    totals = (observed * rewards).cumsum(axis=0) - observed * rewards
    for t, chosen in enumerate(actions):
        known = [
            {
                "number": a + 1,
                "name": names[a],
                "tries": int(tries[t, a]),
                "average": float(totals[t, a] / tries[t, a]) if tries[t, a] else None,
            }
            for a in range(rewards.shape[1])
        ]
        highest = max((action["average"] for action in known if action["tries"]), default=None)
        yield {
            "t": t + 1,
            "d": len(known),
            "actions": known,
            "chosen": known[chosen],
            "best": [of for of in known if of["tries"] and math.isclose(of["average"], highest, abs_tol=EQUAL)],
        }
