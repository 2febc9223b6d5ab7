"""The fidelity gate of the embedded model: replies sampled at temperature 1 must be true and consistent.

Each reply is checked against the message before it and against the model's previous reply. The tally of all past
rounds is compared too (`accumulates`), which shows how errors add up, but does not decide.

Symbols: T rounds, d actions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from rmft.algorithms import AlgorithmSettings, start_on
from rmft.embedded_model.tally import NOTE, SCORE, START, agrees, grade, updated
from rmft.environments import ENVIRONMENTS, RewardTable, draw_rewards
from rmft.environments.regret import regret
from rmft.game import play
from rmft.language.game import ChatModel, GameSettings, RandomNumbers, Transcript, play_in_words
from rmft.language.parsing import parse
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Scenario, all_protocols
from rmft.params.language_model import Coverage

TOLERANCE = 0.02
CONTEXT, MAX_TOKENS = 16384, 128  # tokens of a conversation, more than any needs; of a reply
SPANS = {"1-25": (1, 25), "26-50": (26, 50), "51-100": (51, 100)}
LEAST = {"valid": 0.99, "agrees": 0.99, "quotes": 0.98, "carries": 0.98}  # shares that the gate asks for
# Greedy (or FTL) must have at most this share of the base model's regret, so that RMFT has room to lower it: half, and
# an allowance for the noise of few games.
ROOM = 0.6
ROOM_IN = ("regret of base", "dialogue", "with-reasoning", "1-25")
SCENARIO = Scenario(
    "You run a small bakery for a quiet town.", ("bake early", "Call Old Coach", "plant", "sell online", "rest")
)
PROTOCOL = ("interaction", "output", "feedback", "format", "d")  # columns of fidelity.csv
EXAMINED = ((3, False, 100), (2, False, 15), (4, True, 15), (5, False, 15), (3, True, 15))  # d, named actions, rounds
REFERENCES = {"full": "ftl", "bandit": "greedy"}


def checks(
    protocol: Protocol, replies: list[str], valid: list[bool], rewards: np.ndarray, actions: np.ndarray
) -> Iterator[dict[str, list[bool]]]:
    """Yield for each reply of one game what is right in it, by name of the check.

    replies, valid: (T,). rewards: (T, d). actions: (T,), 0-based. `quotes` has an entry for each reward that was
    revealed, `carries` one for each score.
    """
    scores, truth = [START] * protocol.d, [START] * protocol.d
    for t, text in enumerate(replies):
        right = {"valid": [valid[t]]}
        if protocol.format == "with-reasoning" and valid[t]:
            shown = _shown(protocol, rewards, actions, t)
            right["agrees"] = [agrees(text, parse(text, protocol, TOLERANCE), TOLERANCE)]
            right["quotes"] = _quotes(text, shown)
            if protocol.interaction == "dialogue":
                stated, expected, truth = _scores(text, scores), updated(scores, shown), updated(truth, shown)
                old = {int(note[1]) - 1: int(note[5]) for note in NOTE.finditer(text) if note[5]}
                right["carries"] = [
                    stated[a] == expected[a] and old.get(a, scores[a]) == scores[a] for a in range(protocol.d)
                ]
                right["accumulates"] = [stated == truth]
                scores = stated
        yield right


def _shown(protocol: Protocol, rewards: np.ndarray, actions: np.ndarray, t: int) -> dict[int, float]:
    """Return the rewards, by action, in the message before reply t = 0..T-1."""
    if t == 0:
        return {}
    return {a: rewards[t - 1, a] for a in (range(protocol.d) if protocol.feedback == "full" else [actions[t - 1]])}


def _quotes(text: str, shown: dict[int, float]) -> list[bool]:
    """Return for each revealed reward whether the reply quotes and grades it correctly."""
    quoted = {int(note[1]) - 1: (note[2], note[3]) for note in NOTE.finditer(text)}
    return [quoted.get(a) == (f"{reward:.2f}", grade(reward)) for a, reward in shown.items()]


def _scores(text: str, before: list[int]) -> list[int]:
    """Return the tally (d,) that a reply states; scores that it does not state are as before."""
    scores = list(before)
    for action, score in SCORE.findall(text):
        if 0 < int(action) <= len(scores):
            scores[int(action) - 1] = int(score)
    return scores


def examine(
    open_chat_model: Callable[[int], ChatModel],
    prompts: Prompts,
    seed: int,
    games: int,
    horizon: int,
    d: int,
    *,
    named: bool,
) -> Iterator[dict[str, object]]:
    """Yield rows of fidelity.csv for every protocol: the share that is right, by check and span of rounds.

    Then the final regret at T ≤ 25 of the model, of greedy (FTL under full feedback) and of uniform play.
    """
    scenario = Scenario(SCENARIO.text, SCENARIO.names[:d]) if named else None
    for protocol in all_protocols(d, scenario):
        carries = protocol.interaction == "dialogue" and protocol.format == "with-reasoning"
        rounds = horizon if carries else min(horizon, 8)  # without a tally all rounds are alike
        table = draw_rewards(seed, "fidelity", ["gaussian"], (games, rounds, d))
        rules = GameSettings(prompts, protocol, temperature=1.0, retries=0, tolerance=TOLERANCE)
        ids = np.stack([np.arange(games), np.zeros(games, dtype=int)], axis=1)
        transcript = play_in_words(open_chat_model(games), table.rewards, rules, RandomNumbers(seed, "fidelity", ids))
        about = {name: getattr(protocol, name) for name in PROTOCOL} | {"named": named}
        for (span, check), share in _shares(protocol, transcript, table).items():
            yield {**about, "rounds": span, "statistic": check, "value": share}
        for player, value in _regrets(protocol, transcript, table, min(rounds, 25), seed).items():
            yield {**about, "rounds": f"1-{min(rounds, 25)}", "statistic": f"regret of {player}", "value": value}


def examine_all(
    open_chat_model: Callable[[int], ChatModel], coverage: Coverage, prompts: Prompts, seed: int, games: int
) -> Iterator[dict[str, object]]:
    """Yield the rows of `examine` for every number of actions that the corpus covers, named where it names actions."""
    examined: dict[tuple[int, bool], int] = {}
    for d, named, horizon in EXAMINED:
        if d in coverage.d:
            examined.setdefault((d, named and coverage.named), min(horizon, coverage.T))
    for (d, named), horizon in examined.items():
        yield from examine(open_chat_model, prompts, seed, games, horizon, d, named=named)


def _shares(protocol: Protocol, transcript: Transcript, table: RewardTable) -> dict[tuple[str, str], float]:
    """Return the share that is right, by span of rounds and check, over all games."""
    results: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for game, rewards in enumerate(table.rewards):
        replies = [replies[game] for replies in transcript.replies]
        valid, actions = list(~transcript.fallback[:, game]), transcript.actions[:, game]
        for t, right in enumerate(checks(protocol, replies, valid, rewards, actions), start=1):
            span = next(name for name, (first, last) in SPANS.items() if first <= t <= last)
            for name, values in right.items():
                results[span, name] += values
    return {key: float(np.mean(values)) for key, values in results.items() if values}


def _regrets(
    protocol: Protocol, transcript: Transcript, table: RewardTable, horizon: int, seed: int
) -> dict[str, float]:
    """Return the mean final regret of the model and of its references."""
    environment = "fol" if protocol.feedback == "full" else "mab"
    played = table.head(len(table.rewards), horizon)
    comparator = ENVIRONMENTS[environment].comparator

    def final(policies: np.ndarray, actions: np.ndarray) -> float:
        return float(regret("expected", comparator, played, policies, actions)[:, -1].mean())

    regrets = {"base": final(transcript.policies[:horizon].transpose(1, 0, 2), transcript.actions[:horizon].T)}
    for name in (REFERENCES[protocol.feedback], "uniform"):
        player = start_on(seed, "fidelity", AlgorithmSettings(name), played, None)
        games = play(
            player,
            played,
            full_feedback=protocol.feedback == "full",
            uniforms=lambda _: np.full(len(played.rewards), 0.5),
        )
        regrets[name] = final(games.policies, games.actions)
    return regrets


def failures(rows: list[dict[str, object]]) -> list[str]:
    """Return the reasons for which a model does not pass the gate; none if it passes."""
    wrong = [
        f"{row['statistic']} {row['value']:.4f} < {LEAST[row['statistic']]} in {_about(row)}"
        for row in rows
        if row["statistic"] in LEAST and row["value"] < LEAST[row["statistic"]]
    ]
    regrets = {(_about(row), row["statistic"]): row["value"] for row in rows}
    compared = [row for row in rows if (row["statistic"], row["interaction"], row["format"], row["rounds"]) == ROOM_IN]
    if not compared:
        wrong.append("regret is compared nowhere: the corpus needs games of 3 actions and of 25 rounds")
    for row in compared:
        about, base = _about(row), row["value"]
        good, uniform = (regrets[about, f"regret of {name}"] for name in (REFERENCES[row["feedback"]], "uniform"))
        if good > ROOM * base or base >= uniform:
            wrong.append(f"regret {base:.2f}, where {good:.2f} is good, leaves no room to fall in {about}")
    return wrong


def _about(row: dict[str, object]) -> str:
    return " ".join(str(row[key]) for key in (*PROTOCOL, "named", "rounds"))
