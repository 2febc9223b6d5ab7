"""The game in words: a chat model plays n games at a time, and everything is written into a transcript.

Symbols: n games, T rounds, d actions, p features of a context.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol as TypingProtocol

import numpy as np

from rmft.environments.sampling import sample_actions
from rmft.environments.tables import one_hot
from rmft.language.parsing import Decision, parse
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.streams import Purpose, stream


class Completion(TypingProtocol):
    """What a chat model writes in a round.

    prompt_ids: tokens that were fed since its last completion. cut: whether the limit of tokens ended it.
    """

    text: str
    ids: list[int]
    prompt_ids: list[int]
    cut: bool

    @property
    def replied(self) -> list[bool]:
        """Return for each token of prompt_ids + ids whether the model sampled it."""


class ChatModel(TypingProtocol):
    """A language model in n conversations; `agents` has one class for each way to run a model."""

    max_tokens: int

    def restart(self) -> None:
        """Begin all conversations anew."""

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int] | None
    ) -> Sequence[Completion]:
        """Send messages and return the completions; with messages None, write retracted completions anew."""

    def retract(self, rows: Sequence[int]) -> None:
        """Remove the last completion of some conversations."""

    def action_policies(
        self,
        completions: Sequence[Completion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None,
    ) -> np.ndarray:
        """Return policies (n, d): the probabilities of all actions in the places where the completions name one."""


@dataclass(frozen=True)
class GameSettings:
    """How games are played in words.

    prompts, protocol: see `language`. temperature: of sampling. retries: how often a completion without a valid
    decision is sampled again. tolerance: how far the sum of a stated policy may be from 1.
    """

    prompts: Prompts
    protocol: Protocol
    temperature: float
    retries: int
    tolerance: float

    def about(self, scenario: Scenario | None) -> Protocol:
        """Return the protocol of a game about a scenario; None: actions are mere numbers."""
        return replace(self.protocol, scenario=scenario)


@dataclass(frozen=True)
class RandomNumbers:
    """The random numbers of n games by round t = 0..T-1. Each game has its own, whichever games are played beside it.

    words: the name of these games' streams. games: (n, 2), scenario and trajectory of each.
    """

    seed: int
    words: str
    games: np.ndarray

    def sampling(self, t: int, attempt: int, tokens: int) -> np.ndarray:
        """Return numbers (n, tokens) in [0, 1), by which completions are sampled."""
        return self._numbers("sampling", t, attempt, size=(tokens,))

    def actions(self, t: int) -> np.ndarray:
        """Return numbers (n,) in [0, 1), by which stated policies become actions."""
        return self._numbers("action", t)

    def fallback(self, t: int) -> np.ndarray:
        """Return numbers (n,) in [0, 1), by which games without a valid decision are played."""
        return self._numbers("fallback", t)

    def _numbers(self, purpose: Purpose, *keys: int, size: tuple[int, ...] = ()) -> np.ndarray:
        """Return numbers (n, *size): each scenario has a stream, which is read trajectory by trajectory."""
        most = self.games[:, 1].max() + 1
        drawn = {
            scenario: stream(self.seed, purpose, self.words, *keys, scenario).random((most, *size))
            for scenario in np.unique(self.games[:, 0])
        }
        return np.array([drawn[scenario][trajectory] for scenario, trajectory in self.games])


@dataclass
class Transcript:
    """Everything that was written and played in n games so far.

    prompts, replies: (T,) lists of n texts. policies: (T, n, d). actions: (T, n). attempts: (T, n), completions that
    were sampled. fallback: (T, n), whether none of them was valid. ids, sampled, replied: n lists of conversations; a
    conversation is a list of tokens, and for each token whether the model sampled it, and did so in a valid reply.
    """

    prompts: list[list[str]]
    replies: list[list[str]]
    policies: np.ndarray
    actions: np.ndarray
    attempts: np.ndarray
    fallback: np.ndarray
    ids: list[list[list[int]]]
    sampled: list[list[list[bool]]]
    replied: list[list[list[bool]]]

    @classmethod
    def empty(cls, n: int, horizon: int, d: int) -> "Transcript":
        """Return the transcript of n games before their first round."""
        return cls(
            prompts=[],
            replies=[],
            policies=np.zeros((horizon, n, d)),
            actions=np.zeros((horizon, n), dtype=np.int64),
            attempts=np.zeros((horizon, n), dtype=np.int64),
            fallback=np.zeros((horizon, n), dtype=bool),
            ids=[[] for _ in range(n)],
            sampled=[[] for _ in range(n)],
            replied=[[] for _ in range(n)],
        )

    @property
    def tokens(self) -> int:
        """Return how many tokens all conversations have."""
        return sum(len(conversation) for game in self.ids for conversation in game)


def play_in_words(
    chat_model: ChatModel,
    rewards: np.ndarray,
    settings: GameSettings,
    random_numbers: RandomNumbers,
    on_round: Callable[[int, Transcript], object] = lambda *_: None,
    scenarios: Sequence[Scenario] | None = None,
    contexts: np.ndarray | None = None,
) -> Transcript:
    """Play n games with rewards (n, T, d).

    A round: send a message, sample a completion, parse its decision, show rewards.

    on_round: called after every round with the number of rounds played. scenarios: (n,), what the games are about,
    if about anything. contexts: (n, T, p), shown before each round of a contextual bandit.
    """
    n, horizon, d = rewards.shape
    protocols = [settings.about(scenario) for scenario in scenarios or [settings.protocol.scenario] * n]
    full = settings.protocol.feedback == "full"
    transcript = Transcript.empty(n, horizon, d)
    history: list[list[Round]] = [[] for _ in range(n)]
    for t in range(horizon):
        starts = t == 0 or settings.protocol.interaction == "summary"
        if starts:
            chat_model.restart()
        shown = [()] * n if contexts is None else [tuple(context) for context in contexts[:, t].tolist()]
        messages = [settings.prompts.message(*game) for game in zip(protocols, history, shown, strict=True)]
        completions, decisions = _complete(
            chat_model, messages, settings, protocols, random_numbers, t, transcript.attempts[t]
        )
        policies, actions = _play(chat_model, completions, decisions, protocols, random_numbers, t)
        transcript.prompts.append(messages)
        transcript.replies.append([completion.text for completion in completions])
        transcript.policies[t], transcript.actions[t] = policies, actions
        transcript.fallback[t] = [decision is None for decision in decisions]
        observed = np.where(full | one_hot(actions, d), rewards[:, t], np.nan)  # no template can show a hidden reward
        for game, (completion, decision) in enumerate(zip(completions, decisions, strict=True)):
            if starts:
                for tokens in (transcript.ids, transcript.sampled, transcript.replied):
                    tokens[game].append([])
            transcript.ids[game][-1] += [*completion.prompt_ids, *completion.ids]
            transcript.sampled[game][-1] += completion.replied
            # ASSUME: an invalid completion stays in the conversation, but fine-tuning does not imitate it. The paper's
            # sum is over the replies of all rounds, and its games may have no invalid ones.
            transcript.replied[game][-1] += completion.replied if decision else [False] * len(completion.replied)
            policy = tuple(policies[game]) if settings.protocol.output == "distribution" else None
            history[game].append(Round(t + 1, int(actions[game]), policy, tuple(observed[game]), shown[game]))
        on_round(t + 1, transcript)
    return transcript


def _complete(
    chat_model: ChatModel,
    messages: list[str],
    settings: GameSettings,
    protocols: list[Protocol],
    random_numbers: RandomNumbers,
    t: int,
    attempts: np.ndarray,
) -> tuple[list[Completion], list[Decision | None]]:
    """Return completions (n,) and their decisions, after retries where there is no valid one; count the attempts."""
    n = len(messages)
    completions: list[Completion | None] = [None] * n
    decisions: list[Decision | None] = [None] * n
    rows = np.arange(n)
    for attempt in range(1 + settings.retries):
        if attempt:
            chat_model.retract(rows)
        uniforms = random_numbers.sampling(t, attempt, chat_model.max_tokens)[rows]
        sampled = chat_model.reply(
            None if attempt else messages, temperature=settings.temperature, uniforms=uniforms, rows=rows
        )
        attempts[rows] += 1
        for row, completion in zip(rows, sampled, strict=True):
            completions[row] = completion
            decisions[row] = parse(completion.text, protocols[row], settings.tolerance, cut=completion.cut)
        rows = np.flatnonzero([decision is None for decision in decisions])
        if not len(rows):
            break
    return completions, decisions


def _play(
    chat_model: ChatModel,
    completions: list[Completion],
    decisions: list[Decision | None],
    protocols: list[Protocol],
    random_numbers: RandomNumbers,
    t: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return policies (n, d) and actions (n,) of decisions.

    From a stated policy an action is sampled. A stated action is played; under full feedback its policy is the
    probabilities of all actions in its place (Sec. `ssec:setting-sec5`), under bandit feedback the action alone.
    Without a valid decision the policy is uniform.
    """
    d, output, feedback = protocols[0].d, protocols[0].output, protocols[0].feedback
    policies = np.full((len(decisions), d), 1 / d)
    actions = sample_actions(policies, random_numbers.fallback(t))
    rows = np.flatnonzero([decision is not None for decision in decisions])
    if not len(rows):
        return policies, actions
    valid = [decisions[row] for row in rows]
    if output == "distribution":
        policies[rows] = [decision.policy for decision in valid]
        actions[rows] = sample_actions(policies[rows], random_numbers.actions(t)[rows])
        return policies, actions
    actions[rows] = chosen = np.array([decision.action for decision in valid])
    if feedback == "bandit":
        policies[rows] = one_hot(chosen, d)
    else:
        spans = [decision.span for decision in valid]
        names = [
            _spellings(protocols[row], completions[row].text[slice(*span)])
            for row, span in zip(rows, spans, strict=True)
        ]
        policies[rows] = chat_model.action_policies([completions[row] for row in rows], spans, chosen, names, rows=rows)
    return policies, actions


def _spellings(protocol: Protocol, example: str) -> list[str]:
    """Return all actions written as the example is: by number or by name, in its case."""
    if protocol.scenario is None or example.strip().isdecimal():
        return [str(action + 1) for action in range(protocol.d)]
    names = list(protocol.scenario.names)
    if example.strip() in names or not (example.islower() or example.isupper()):
        return names
    return [name.lower() if example.islower() else name.upper() for name in names]
