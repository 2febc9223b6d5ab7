"""Rollouts: a language model plays games that it is told of in words, Algorithm `ssft-language-model`, "sample L".

`play_in_words` is the game; `roll_out` is a job, which plays a shard of all games.

Symbols: n games at a time, M scenarios, L trajectories each, T rounds, d actions, p features of a context.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from typing import Protocol as TypingProtocol

import numpy as np

from rmft.agents.context import context_needed
from rmft.environments import ENVIRONMENTS, ContextualTable, RewardTable, draw_rewards
from rmft.environments.regret import regret
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.language.parsing import Decision, parse
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.language.scenarios import for_actions
from rmft.play import sample_actions
from rmft.streams import Purpose, stream
from rmft.workflow.records import RolloutsJob

if TYPE_CHECKING:
    from rmft.agents.chat_tokenizer import ChatTokenizer


class Completion(TypingProtocol):
    """A reply of a language model. prompt_ids: tokens that were fed before it. replied: which of all it chose."""

    text: str
    ids: list[int]
    prompt_ids: list[int]

    @property
    def replied(self) -> list[bool]:
        """Return which of prompt_ids + ids the model chose."""


class ChatModel(TypingProtocol):
    """A language model in n conversations: `agents` has one for each way to run a model."""

    max_tokens: int

    def restart(self) -> None:
        """Begin every conversation anew."""

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int] | None
    ) -> Sequence[Completion]:
        """Send messages and return the replies; with messages None, have retracted replies given anew."""

    def retract(self, rows: Sequence[int]) -> None:
        """Forget the last reply of some conversations."""

    def action_policies(
        self,
        turns: Sequence[Completion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None,
    ) -> np.ndarray:
        """Return the policies (n, d) that the model had in mind where it wrote its actions."""


@dataclass(frozen=True)
class GameSettings:
    """How a game is told and replies are taken. prompts, protocol: see `language`. The rest as in params.yaml."""

    prompts: Prompts
    protocol: Protocol
    temperature: float
    retries: int
    tolerance: float

    def about(self, scenario: Scenario | None) -> Protocol:
        """Return the protocol of a game that is about something, or about nothing."""
        return replace(self.protocol, scenario=scenario)


@dataclass(frozen=True)
class RandomNumbers:
    """The random numbers of n games, by round t = 0..T-1: each game has its own, whoever plays beside it.

    words: the name of these games' streams. games: (n, 2), scenario and trajectory of each.
    """

    seed: int
    words: str
    games: np.ndarray

    def sampling(self, t: int, attempt: int, tokens: int) -> np.ndarray:
        """Return numbers (n, tokens) in [0, 1), by which replies are sampled."""
        return self._numbers("sampling", t, attempt, size=(tokens,))

    def actions(self, t: int) -> np.ndarray:
        """Return numbers (n,) in [0, 1), by which policies become actions."""
        return self._numbers("action", t)

    def fallback(self, t: int) -> np.ndarray:
        """Return numbers (n,) in [0, 1), by which those who say nothing valid play."""
        return self._numbers("fallback", t)

    def _numbers(self, purpose: Purpose, *keys: int, size: tuple[int, ...] = ()) -> np.ndarray:
        """Return numbers (n, *size): a stream a scenario, read trajectory by trajectory."""
        most = self.games[:, 1].max() + 1
        drawn = {
            scenario: stream(self.seed, purpose, self.words, *keys, scenario).random((most, *size))
            for scenario in np.unique(self.games[:, 0])
        }
        return np.array([drawn[scenario][trajectory] for scenario, trajectory in self.games])


@dataclass
class Transcript:
    """What was said and done in n games so far.

    prompts, replies: (T,) lists of n texts. policies: (T, n, d). actions: (T, n). attempts: (T, n), replies asked for.
    fallback: (T, n), whether none of them was valid. ids, replied: n lists of conversations, each a list of tokens, and
    whether the model chose it.
    """

    prompts: list[list[str]]
    replies: list[list[str]]
    policies: np.ndarray
    actions: np.ndarray
    attempts: np.ndarray
    fallback: np.ndarray
    ids: list[list[list[int]]]
    replied: list[list[list[bool]]]

    @property
    def tokens(self) -> int:
        """Return how many tokens were said and told."""
        return sum(len(conversation) for game in self.ids for conversation in game)


def play_in_words(
    speaker: ChatModel,
    rewards: np.ndarray,
    rules: GameSettings,
    chance: RandomNumbers,
    on_round: Callable[[int, Transcript], object] = lambda *_: None,
    scenarios: Sequence[Scenario] | None = None,
    contexts: np.ndarray | None = None,
) -> Transcript:
    """Play n games with rewards (n, T, d): tell, let reply, read the decision, pay, tell, ...

    on_round: called after every round with the number of rounds that are over. scenarios: (n,) what the games are
    about, where they are about something. contexts: (n, T, p), what is shown before each round, where anything is.
    """
    n, horizon, d = rewards.shape
    protocols = [rules.about(scenario) for scenario in scenarios or [rules.protocol.scenario] * n]
    told = Transcript(
        prompts=[],
        replies=[],
        policies=np.zeros((horizon, n, d)),
        actions=np.zeros((horizon, n), dtype=np.int64),
        attempts=np.zeros((horizon, n), dtype=np.int64),
        fallback=np.zeros((horizon, n), dtype=bool),
        ids=[[] for _ in range(n)],
        replied=[[] for _ in range(n)],
    )
    past: list[list[Round]] = [[] for _ in range(n)]
    full = rules.protocol.feedback == "full"
    speaker.restart()
    for t in range(horizon):
        anew = t == 0 or rules.protocol.interaction == "summary"
        if anew and t:
            speaker.restart()
        shown = [()] * n if contexts is None else [tuple(context) for context in contexts[:, t].tolist()]
        told.prompts.append([rules.prompts.message(*game) for game in zip(protocols, past, shown, strict=True)])
        turns, read = _ask(speaker, told.prompts[t], rules, protocols, chance, t, told.attempts[t])
        told.replies.append([turn.text for turn in turns])
        told.policies[t], told.actions[t] = _decisions(speaker, turns, read, protocols, chance, t)
        told.fallback[t] = [reply is None for reply in read]
        revealed = full | one_hot(told.actions[t], d)
        seen = np.where(revealed, rewards[:, t], np.nan)  # so that no template can tell what is hidden
        for game, turn in enumerate(turns):
            if anew:
                told.ids[game].append([])
                told.replied[game].append([])
            told.ids[game][-1] += [*turn.prompt_ids, *turn.ids]
            # What says nothing valid is kept, but is not to be learnt from.
            told.replied[game][-1] += turn.replied if read[game] else [False] * len(turn.replied)
            policy = tuple(told.policies[t, game]) if rules.protocol.output == "distribution" else None
            past[game].append(Round(t + 1, int(told.actions[t, game]), policy, tuple(seen[game]), shown[game]))
        on_round(t + 1, told)
    return told


def _ask(
    speaker: ChatModel,
    messages: list[str],
    rules: GameSettings,
    protocols: list[Protocol],
    chance: RandomNumbers,
    t: int,
    attempts: np.ndarray,
) -> tuple[list[Completion], list[Decision | None]]:
    """Return the replies (n,) and what they mean, after answering again those who said nothing valid; count attempts."""
    n = len(messages)
    turns: list[Completion | None] = [None] * n
    read: list[Decision | None] = [None] * n
    rows = np.arange(n)
    for attempt in range(1 + rules.retries):
        if attempt:
            speaker.retract(rows)
        uniforms = chance.sampling(t, attempt, speaker.max_tokens)[rows]
        asked = None if attempt else messages
        replies = speaker.reply(asked, temperature=rules.temperature, uniforms=uniforms, rows=rows)
        attempts[rows] += 1
        for row, turn in zip(rows, replies, strict=True):
            turns[row], read[row] = turn, parse(turn.text, protocols[row], rules.tolerance)
        rows = np.flatnonzero([reply is None for reply in read])
        if not len(rows):
            break
    return turns, read


def _decisions(
    speaker: ChatModel,
    turns: list[Completion],
    read: list[Decision | None],
    protocols: list[Protocol],
    chance: RandomNumbers,
    t: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return policies (n, d) and actions (n,) of replies.

    Stated policies are drawn from. A stated action is taken; under full feedback the policy behind it is what the
    model held likely in its place (Sec. `ssec:setting-sec5`), under bandit feedback it is the action alone. Where
    nothing valid was said the policy is uniform.
    """
    d, output, feedback = protocols[0].d, protocols[0].output, protocols[0].feedback
    valid = np.array([reply is not None for reply in read])
    policies = np.full((len(read), d), 1 / d)
    actions = sample_actions(policies, chance.fallback(t))
    rows = np.flatnonzero(valid)
    if not len(rows):
        return policies, actions
    said = [read[row] for row in rows]
    if output == "distribution":
        policies[rows] = [reply.policy for reply in said]
        actions[rows] = sample_actions(policies[rows], chance.actions(t)[rows])
    else:
        actions[rows] = chosen = np.array([reply.action for reply in said])
        if feedback == "bandit":
            policies[rows] = one_hot(chosen, d)
        else:
            spans = [reply.span for reply in said]
            names = [
                _written(protocols[row], turns[row].text[slice(*reply.span)])
                for row, reply in zip(rows, said, strict=True)
            ]
            policies[rows] = speaker.action_policies([turns[row] for row in rows], spans, chosen, names, rows=rows)
    return policies, actions


def _written(protocol: Protocol, as_here: str) -> list[str]:
    """Return how every action would be written where one is written `as_here`: by number or by name."""
    if protocol.scenario is None or as_here.strip().isdecimal():
        return [str(action + 1) for action in range(protocol.d)]
    return list(protocol.scenario.names)


def roll_out(
    job: RolloutsJob,
    open_chat_model: Callable[[np.ndarray], ChatModel],
    prompts: Prompts,
    scenarios: Sequence[Scenario] | None,
    held_out: RewardTable | None,
    batch: int,
    on_round: Callable[[int, int, float], object],
) -> dict[str, list[Any]]:
    """Play a job's shard, `batch` games at a time; return the columns of its trajectories.

    open_chat_model: gives a speaker for games, scenario and trajectory of each (n, 2). scenarios: as `scenarios_for` gives them,
    None for none. held_out: the reward set that is played, where the job draws none. on_round: called with the number
    of games in a round that is over, the tokens since the last one, and the mean regret so far of the games that are
    played.
    """
    table, games = games_of(job, held_out)
    rules = game_settings_of(job, prompts)
    columns: dict[str, list[Any]] = defaultdict(list)
    for start in range(0, len(games), batch):
        part = games[start : start + batch]
        met = table.rows(part[:, 0])
        speaker, seen = open_chat_model(part), 0
        about = None if scenarios is None else [scenarios[scenario] for scenario in part[:, 0]]

        def report(t: int, told: Transcript, met: RewardTable = met) -> None:
            nonlocal seen
            so_far = regret_so_far(job, met, told, t)
            on_round(len(met.rewards), told.tokens - seen, so_far)
            seen = told.tokens

        chance, contexts = RandomNumbers(job.seed, job.stream, part), _contexts(met)
        told = play_in_words(speaker, met.rewards, rules, chance, report, about, contexts)
        for name, values in _columns(part, met, told).items():
            columns[name] += values
    return columns


def game_settings_of(job: RolloutsJob, prompts: Prompts) -> GameSettings:
    """Return how a job's games are told."""
    telling, problem = job.problem.protocol, job.problem
    told = (telling.interaction, telling.output, problem.feedback, telling.format)
    protocol = Protocol(*told, problem.d, features=problem.features or 0)
    return GameSettings(prompts, protocol, job.temperature, telling.retries, telling.tolerance)


def scenarios_for(job: RolloutsJob, bundled: Sequence[Scenario]) -> list[Scenario]:
    """Return what each of a job's M scenarios is about; raise InputError where the set has nothing of d actions.

    Training reads a set from the front and evaluation from the back, so that they share texts only where M and the
    instances together are more than there are.
    """
    fitting = for_actions(bundled, job.problem.d)
    if not fitting:
        raise InputError(f"{job.scenario_set}: has no scenario of {job.problem.d} actions")
    ordered = fitting if job.process is not None else fitting[::-1]
    return [ordered[i % len(ordered)] for i in range(job.scenarios)]


def tokens_needed(
    job: RolloutsJob, prompts: Prompts, chat_tokenizer: "ChatTokenizer", scenarios: Sequence[Scenario] | None = None
) -> int:
    """Return how many tokens a conversation can come to. Raise InputError if the model cannot read so many."""
    rules, d = game_settings_of(job, prompts), job.problem.d
    if scenarios:
        longest = max(scenarios, key=lambda about: len(about.text) + sum(map(len, about.names)))
        rules = replace(rules, protocol=rules.about(longest))
    policy = (1 / d,) * d if rules.protocol.output == "distribution" else None
    context = typical_context(rules.protocol)
    past = [Round(t, d - 1, policy, (10.0,) * d, context) for t in range(1, job.T)]
    opening = len(chat_tokenizer.template.first(rules.prompts.message(rules.protocol, [], context)))
    if rules.protocol.interaction == "summary":
        opening, rounds, feedback = (
            len(chat_tokenizer.template.first(rules.prompts.message(rules.protocol, past, context))),
            1,
            0,
        )
    else:
        told = rules.prompts.message(rules.protocol, past, context)
        rounds, feedback = job.T, len(chat_tokenizer.template.next(told)) if past else 0
    return context_needed(chat_tokenizer.limit, opening, rounds, feedback, job.problem.protocol.max_tokens)


def typical_context(protocol: Protocol) -> tuple[float, ...]:
    """Return a context of which the message is as long as that of any; none where games have none."""
    return (1 / protocol.features,) * protocol.features if protocol.features else ()


def _contexts(met: RewardTable) -> np.ndarray | None:
    """Return the contexts (n, T, p) of rewards that have them."""
    return met.contexts if isinstance(met, ContextualTable) else None


def games_of(job: RolloutsJob, held_out: RewardTable | None = None) -> tuple[RewardTable, np.ndarray]:
    """Return the rewards (M, T, d) of all scenarios, and scenario and trajectory (n, 2) of the shard's games."""
    shape = (job.scenarios, job.T, job.problem.d)
    if held_out is None:
        table = draw_rewards(job.seed, job.stream, job.process, shape, features=job.problem.features)
    else:
        table = held_out.head(*shape[:2])
    if table.shape != shape:
        raise InputError(f"reward set: holds (n, T, d) = {held_out.shape}, too little for {shape}")
    shard, shards = job.shard
    if shard > job.scenarios:
        raise InputError(f"rollouts.shards: {shards} is more than there are scenarios to share out, {job.scenarios}")
    scenarios = np.array_split(np.arange(job.scenarios), shards)[shard - 1]
    games = np.stack(np.meshgrid(scenarios, np.arange(job.trajectories), indexing="ij"), axis=-1).reshape(-1, 2)
    return table, games


def regret_so_far(job: RolloutsJob, met: RewardTable, told: Transcript, t: int) -> float:
    """Return the mean regret after t rounds, as training counts it."""
    played = met.head(len(met.rewards), t)
    policies, actions = told.policies[:t].transpose(1, 0, 2), told.actions[:t].T
    comparator = ENVIRONMENTS[job.problem.environment].comparator
    return float(regret(job.problem.training_regret, comparator, played, policies, actions)[:, -1].mean())


def _columns(games: np.ndarray, met: RewardTable, told: Transcript) -> dict[str, list[Any]]:
    n, contexts = len(games), _contexts(met)
    shown = {} if contexts is None else {"contexts": list(contexts.reshape(n, -1))}
    return {
        "scenario": games[:, 0].tolist(),
        "trajectory": games[:, 1].tolist(),
        "d": [met.shape[2]] * n,
        "rewards": list(met.rewards.reshape(n, -1)),
        "means": list(met.means.reshape(n, -1)),
        "clipped_means": list(met.clipped_means.reshape(n, -1)),
        "prompt": list(map(list, zip(*told.prompts, strict=True))),
        "reply": list(map(list, zip(*told.replies, strict=True))),
        "policy": list(told.policies.transpose(1, 0, 2).reshape(n, -1)),
        "action": list(told.actions.T),
        "attempts": list(told.attempts.T),
        "fallback": list(told.fallback.T),
        "ids": told.ids,
        "replied": told.replied,
        **shown,
    }
