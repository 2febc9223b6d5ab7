"""The corpus of the embedded model: games of scripted players that reply to the prompts of `language`.

A reply with reasoning carries a tally: see `tally`. A player's style decides how it uses the tally. One style plays the
action of highest score and is about as good as the greedy algorithm. The other styles play worse, and their regret
varies little, so that they rarely win the best of L games by luck. The base model is a mixture of styles, so that
iterative RMFT has a better style to select. This mixture is our design, not a property of language models.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmft.embedded_model.tally import HIGHEST, LOWEST, START, best_of, grade, is_good, moved
from rmft.environments import draw_rewards
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.params.language_model import Coverage

# The probability of the preferred action, by d; the other actions share the rest evenly.
STRONG = {2: 0.90, 3: 0.90, 4: 0.91, 5: 0.92}
MILD = {2: 0.70, 3: 0.60, 4: 0.55, 5: 0.52}
Shares = dict[tuple[str, str], dict[str, float]]
STYLES: Shares = {  # by interaction and output: the share of each style in the games of the corpus
    ("dialogue", "action"): {"random": 0.47, "turn": 0.28, "recent": 0.12, "tally": 0.13},
    ("dialogue", "distribution"): {"even": 0.50, "mild": 0.25, "recent": 0.12, "tally": 0.13},
    ("summary", "action"): {"random": 0.50, "turn": 0.30, "recent": 0.20},
    ("summary", "distribution"): {"even": 0.80, "recent": 0.20},
}
ADAPTS = 0.2  # share of rounds in which a player without reasoning plays by the last reward
SHARES_OF_D = {2: 0.2, 3: 0.5, 4: 0.15, 5: 0.15}  # of games, by number of actions
NAMED = 0.3  # share of games in which actions have names


@dataclass(frozen=True)
class CorpusTurn:
    """A message and the reply to it. learnt: whether the reply follows from messages and replies in the context."""

    message: str
    reply: str
    learnt: bool


class ScriptedPlayer:
    """A player of one style in the middle of one game. scores: (d,), its tally."""

    def __init__(self, protocol: Protocol, style: str, scores: np.ndarray, rng: np.random.Generator) -> None:
        self.protocol = protocol
        self.style = style
        self.scores = scores
        self.rng = rng

    def reply(self, last: Round | None) -> tuple[str, int, tuple[float, ...] | None]:
        """Return the reply after the last round, the action played and the policy stated."""
        d, reasons = self.protocol.d, self.protocol.format == "with-reasoning"
        notes, style = self._notes(last) if reasons else "", self.style
        if not reasons and self.rng.random() < ADAPTS:
            style = "recent"
        elif not reasons:
            style = "random" if self.protocol.output == "action" else "even"
        if self.protocol.output == "action":
            words, action = self._choice(style, last)
            decision, policy = f"Action: {action + 1}", None
        else:
            words, policy = self._leaning(style, last)
            decision = f"Policy: [{', '.join(f'{p:.2f}' for p in policy)}]"
            action = int(self.rng.choice(d, p=np.asarray(policy) / sum(policy)))
        return (f"{notes}{words}\n{decision}" if reasons else decision), action, policy

    def _notes(self, last: Round | None) -> str:
        """Return the notes on the last round, and update the tally; in summary interaction there is no tally."""
        tallies = self.protocol.interaction == "dialogue"
        if last is None:
            return f"Scores:{self._scores()}. " if tallies else ""
        full = self.protocol.feedback == "full"
        notes = []
        for action in range(self.protocol.d) if full else [last.action]:
            reward, old = last.rewards[action], self.scores[action]
            note = f"{action + 1} paid {reward:.2f}, {grade(reward)}"
            if tallies:
                self.scores[action] = new = moved(old, reward)
                note += f": {action + 1} goes from {old} to {action + 1}={new}"
            notes.append(f"{note}. ")
        return "".join(notes) + (f"Scores:{self._scores()}. " if tallies and not full else "")

    def _scores(self) -> str:
        return "".join(f" {action + 1}={score}" for action, score in enumerate(self.scores))

    def _highest(self) -> int:
        return self._among(np.flatnonzero(self.scores == self.scores.max()))

    def _among(self, actions: Sequence[int]) -> int:
        return int(actions[int(self.rng.random() * len(actions))])

    def _other_than(self, action: int) -> int:
        return self._among([other for other in range(self.protocol.d) if other != action])

    def _choice(self, style: str, last: Round | None) -> tuple[str, int]:
        """Return a style's last words before the decision, and its action."""
        d = self.protocol.d
        anything = self._among(range(d))
        if style == "tally":
            why, action = "Highest score", self._highest()
        elif style == "turn":
            why, action = "In turn", (last.action + 1) % d if last else anything
        elif style == "random":
            why, action = "At random", anything
        elif last is None:
            why, action = "By the last reward", anything
        else:
            why, action, _ = self._by_last_reward(last)
        return f"{why}: {action + 1}.", action

    def _leaning(self, style: str, last: Round | None) -> tuple[str, tuple[float, ...]]:
        """Return a style's last words before the decision, and its policy (d,)."""
        d = self.protocol.d
        if style == "even":
            return "All alike.", even(d)
        if style == "tally":
            why, action, weights = "Mostly the highest score", self._highest(), STRONG
        elif style == "mild":
            why, action, weights = "A little more of the highest score", self._highest(), MILD
        elif last is None:
            return "By the last reward: all alike.", even(d)
        else:
            why, action, weights = self._by_last_reward(last)
        return f"{why}: {action + 1}.", leaning(d, action, weights[d])

    def _by_last_reward(self, last: Round) -> tuple[str, int, dict[int, float]]:
        """Return why the last round speaks for an action, the action, and its probability by d."""
        if self.protocol.feedback == "full":
            return "By the last reward", best_of(last.rewards), STRONG
        if is_good(last.rewards[last.action]):
            return "Stable by the last reward", last.action, STRONG
        return "Unstable by the last reward", self._other_than(last.action), MILD


def even(d: int) -> tuple[float, ...]:
    """Return the uniform policy (d,), rounded to the two decimals of a reply."""
    return (round(1 / d, 2),) * d


def leaning(d: int, preferred: int, weight: float) -> tuple[float, ...]:
    """Return the policy (d,) with `weight` on the preferred action, rounded to the two decimals of a reply."""
    rest = round((1 - weight) / (d - 1), 2)
    return tuple(weight if action == preferred else rest for action in range(d))


def draw_protocol(rng: np.random.Generator, coverage: Coverage, scenarios: "MadeUpScenarios") -> Protocol:
    """Draw a protocol. A third of games are summaries, of a single reply each: far less than a third of the tokens."""
    interaction = "summary" if rng.random() < 0.33 else "dialogue"
    written = "policy-only" if rng.random() < (0.3 if interaction == "summary" else 0.1) else "with-reasoning"
    shares = np.array([SHARES_OF_D[d] for d in coverage.d])
    d = int(rng.choice(coverage.d, p=shares / shares.sum()))
    output = "action" if rng.random() < 0.5 else "distribution"
    feedback = "bandit" if rng.random() < 0.6 else "full"
    scenario = scenarios.scenario(d) if rng.random() < NAMED and coverage.named else None
    return Protocol(interaction, output, feedback, written, d, scenario)


class Corpus:
    """An endless supply of games."""

    def __init__(
        self,
        seed: int,
        rng: np.random.Generator,
        coverage: Coverage,
        prompts: Prompts,
        scenarios: "MadeUpScenarios",
    ) -> None:
        self.rng = rng
        self.coverage = coverage
        self.prompts = prompts
        self.scenarios = scenarios
        shapes = {d: (140, coverage.T, d) for d in coverage.d}
        self.rewards = {
            d: draw_rewards(seed, f"corpus-{d}", coverage.process, shape).rewards for d, shape in shapes.items()
        }

    def game(self, rounds: int, shares: Shares) -> list[CorpusTurn]:
        """Return `rounds` turns of one game: its beginning or, half of the time, a part from the middle.

        A summary's prompt stands alone, so a game with summary interaction is one turn.
        """
        protocol = draw_protocol(self.rng, self.coverage, self.scenarios)
        styles = shares[protocol.interaction, protocol.output]
        style = str(self.rng.choice(list(styles), p=list(styles.values())))
        if protocol.interaction == "summary":
            return [self._summary(protocol, style)]
        first = 0 if self.rng.random() < 0.5 else int(self.rng.integers(1, self.coverage.T - 1))
        return list(self._dialogue(protocol, style, first, min(first + rounds, self.coverage.T)))

    def _dialogue(self, protocol: Protocol, style: str, first: int, end: int) -> Iterator[CorpusTurn]:
        """Yield turns first+1..end; the rounds up to `first` are made up."""
        d, table = protocol.d, self._table(protocol.d)
        low, high = (START, START) if first == 0 else (LOWEST, HIGHEST)
        player = ScriptedPlayer(protocol, style, self.rng.integers(low, high + 1, size=d), self.rng)
        past = [self._made_up(t + 1, table[t]) for t in range(first)][-1:] * first
        for t in range(first, end):
            message = self.prompts.message(protocol, past)
            reply, action, policy = player.reply(past[-1] if past else None)
            yield CorpusTurn(message, reply, learnt=t > first or first == 0 or protocol.format == "policy-only")
            past.append(Round(t + 1, action, policy, tuple(table[t])))

    def _summary(self, protocol: Protocol, style: str) -> CorpusTurn:
        shown = min(int(self.rng.geometric(0.15)) - 1, self.coverage.T - 1)  # mostly short ones, which cost less
        table = self._table(protocol.d)
        past = [self._made_up(t + 1, table[t]) for t in range(shown)]
        player = ScriptedPlayer(protocol, style, np.full(protocol.d, START), self.rng)
        reply, _, _ = player.reply(past[-1] if past else None)
        return CorpusTurn(self.prompts.message(protocol, past), reply, learnt=True)

    def _made_up(self, t: int, rewards: np.ndarray) -> Round:
        d = len(rewards)
        weight = self.rng.choice([STRONG[d], MILD[d]])
        policy = even(d) if self.rng.random() < 0.5 else leaning(d, int(self.rng.integers(d)), weight)
        return Round(t, int(self.rng.integers(d)), policy, tuple(rewards))

    def _table(self, d: int) -> np.ndarray:
        return self.rewards[d][self.rng.integers(len(self.rewards[d]))]


SUBJECTS = (
    "bakery bridge canal clinic coach coffee farm ferry garden harbour hotel kitchen library market museum orchard "
    "printer quarry radio school shop studio theatre train vineyard workshop"
)
KINDS = (
    "early late north south east west small large cheap costly quick slow red blue green plain spiced new old open "
    "closed weekly daily shared private local remote"
)
DEEDS = (
    "advertise buy call deliver extend fix hire invest lend move order paint plant post print rent repair sell send "
    "serve ship stock teach test train visit"
)


class MadeUpScenarios:
    """Scenarios of random words, so that the model learns to disregard the names of actions."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def scenario(self, d: int) -> Scenario:
        """Return a scenario with d differently named actions."""
        place, names = self._one(SUBJECTS), set[str]()
        while len(names) < d:
            name = f"{self._one(DEEDS)} {self._one(KINDS)} {self._one(SUBJECTS)}"
            names.add(name if self.rng.random() < 0.5 else name.title())
        text = f"You run a {self._one(KINDS)} {place} and {self._one(DEEDS)} for a {self._one(KINDS)} town."
        return Scenario(text, tuple(sorted(names)))

    def _one(self, words: str) -> str:
        among = words.split()
        return among[int(self.rng.random() * len(among))]
