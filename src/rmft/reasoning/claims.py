"""The claims of a reply, each checked against the history by code: this measures semantic-numerical alignment.

Claims are found in two kinds of text: the embedded model's tally, whose rule is known (`embedded_model.tally`), and
free prose (`prose`). The line with the decision is no claim.

| kind    | example                                                          | is true if                              |
|---------|------------------------------------------------------------------|-----------------------------------------|
| reward  | "2 paid 6.13", "action 2 gave 6", "the last reward was 6.1"      | that was shown, rounded as quoted       |
| grade   | "good", "poor" in a tally                                        | the reward is 5 or more, or is not      |
| score   | "from 5 to 2=6", "Scores: 1=5 2=6" in a tally                    | all of the history gives it             |
| times   | "action 2 was tried twice", "action 3 is untried"                | it was played so often                  |
| average | "action 2 averages 5.6"                                          | it does, rounded as quoted              |
| highest | "action 2 has the highest average so far", "Highest score: 2."   | no other one has more (lowest: less)    |
| reason  | "In turn: 3.", "Unstable by the last reward: 3." in a tally      | the last round was like that            |
| choice  | "so I choose action 2", or the last word of a tally              | the decision is that                    |
"""

import re
from collections.abc import Iterator

import numpy as np

from rmft.embedded_model.tally import CHOICE, NOTE, SCORE, SCORES, agrees, best_of, grade, is_good, moved
from rmft.language.parsing import LABELS, PLAIN, Decision
from rmft.language.protocol import Protocol
from rmft.reasoning.history import History
from rmft.reasoning.prose import Claim, in_prose

REASON = re.compile(
    r"(?P<why>highest score|in turn|at random|(?:stable |unstable )?by the last reward): (?P<action>\d{1,9})\.$"
    r"|(?:all )?alike\.$",
    re.IGNORECASE,
)


def claims_of(
    text: str, protocol: Protocol, history: History, decision: Decision | None, tolerance: float
) -> list[Claim]:
    """Return the claims of a reply, in the order of the text.

    history: before the reply. decision: of the reply, None if it is invalid. tolerance: as in `parsing.parse`.
    """
    words = _before_decision(text, protocol)
    claims = list(_in_tally(words, text, protocol, history, decision, tolerance))
    for claim in claims:  # blank out the tally's claims, so that none is found again as prose
        begin, end = claim.span
        words = words[:begin] + "\n" * (end - begin) + words[end:]
    claims += in_prose(words, protocol, history, _preferred(decision))
    return sorted(claims, key=lambda claim: claim.span)


def _before_decision(text: str, protocol: Protocol) -> str:
    """Return a reply up to the label of its decision; a reply without a label is all decision."""
    labels = [label.start() for label in LABELS[protocol.output].finditer(text.translate(PLAIN))]
    end = labels[-1] if labels else 0
    return text[: end + (text[end : end + 1] in tuple(".!?;"))].rstrip()


def _preferred(decision: Decision | None) -> frozenset[int]:
    """Return the actions that a decision prefers: its action, or those of highest probability."""
    if decision is None:
        return frozenset()
    if decision.action is not None:
        return frozenset({decision.action})
    return frozenset(np.flatnonzero(decision.policy >= decision.policy.max()).tolist())


def _in_tally(
    words: str, text: str, protocol: Protocol, history: History, decision: Decision | None, tolerance: float
) -> Iterator[Claim]:
    """Yield the claims of a reply that are in the form of the embedded model's tally."""
    for note in NOTE.finditer(words):
        yield from _of_note(note, protocol, history)
    for listed in SCORES.finditer(words):
        for item in SCORE.finditer(words, *listed.span()):
            action = int(item[1]) - 1
            right = action in range(protocol.d) and history.scores[action] == int(item[2])
            yield Claim("score", (item.start(1), item.end(2)), right)
    if reason := REASON.search(words):
        yield from _of_reason(reason, history)
        if decision is not None:
            place = reason.span("action") if CHOICE.search(words) else reason.span()
            yield Claim("choice", place, agrees(text, decision, tolerance))


def _of_note(note: re.Match[str], protocol: Protocol, history: History) -> Iterator[Claim]:
    """Yield the claims of a note on the last round: an action's reward, its grade, and the old and new score."""
    action = int(note[1]) - 1
    reward = history.shown_last.get(action)
    yield Claim("reward", (note.start(1), note.end(2)), reward is not None and f"{reward:.2f}" == note[2])
    yield Claim("grade", note.span(3), reward is not None and grade(reward) == note[3])
    if note[4]:
        named = {int(note[i]) - 1 for i in (4, 6)} == {action} and action in range(protocol.d)
        yield Claim("score", (note.start(4), note.end(5)), named and history.before[action] == int(note[5]))
        new = moved(history.before[action], reward) if named and reward is not None else None
        yield Claim("score", (note.start(6), note.end(7)), new == int(note[7]))


def _of_reason(reason: re.Match[str], history: History) -> Iterator[Claim]:
    """Yield the claim that the stated reason for an action is true."""
    why, last = (reason["why"] or "").casefold(), history.last
    if why in ("", "at random"):
        return
    action, place = int(reason["action"]) - 1, (reason.start("why"), reason.end("action"))
    if why == "highest score":
        highest = action in range(history.d) and history.scores[action] == max(history.scores)
        yield Claim("highest", place, highest)
    elif last is None:
        return  # there is no last round
    elif why == "in turn":
        yield Claim("reason", place, action == (last.action + 1) % history.d)
    elif why == "by the last reward":
        full = len(history.shown_last) == history.d
        yield Claim("reason", place, full and action == best_of(last.rewards))
    else:
        good = is_good(history.shown_last[last.action])
        stays = action == last.action
        yield Claim("reason", place, (stays and good) if why.startswith("stable") else not (stays or good))
