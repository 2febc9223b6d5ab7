"""The claims of a reply, each held against the history by code: semantic-numerical alignment, measured.

Two kinds of writing are read: the embedded model's tally, whose rule is known (`models.tally`), and free prose
(`prose`). The line of the decision itself is no claim.

| kind    | says                                                             | is true if                              |
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
    r"(?P<why>highest score|in turn|at random|(?:stable |unstable )?by the last reward): (?P<action>\d+)\.$"
    r"|(?:all )?alike\.$",
    re.IGNORECASE,
)


def claims_of(text: str, protocol: Protocol, history: History, read: Decision | None, tolerance: float) -> list[Claim]:
    """Return the claims of a reply, in the order of the text. history: before it. read: what it decides.

    tolerance: as in `parsing.parse`.
    """
    words = _before_decision(text, protocol)
    found = list(_in_tally(words, text, protocol, history, read, tolerance))
    for claim in found:  # what is read as a tally is not read again
        begin, end = claim.span
        words = words[:begin] + "\n" * (end - begin) + words[end:]
    found += in_prose(words, protocol, history, _chosen(read))
    return sorted(found, key=lambda claim: claim.span)


def _before_decision(text: str, protocol: Protocol) -> str:
    """Return what a reply says before its decision's label; without one all of it is the decision."""
    labels = [label.start() for label in LABELS[protocol.output].finditer(text.translate(PLAIN))]
    end = labels[-1] if labels else 0
    return text[: end + (text[end : end + 1] in tuple(".!?;"))].rstrip()


def _chosen(read: Decision | None) -> frozenset[int]:
    """Return the actions that a decision prefers: the one that is taken, or those of highest probability."""
    if read is None:
        return frozenset()
    if read.action is not None:
        return frozenset({read.action})
    return frozenset(np.flatnonzero(read.policy >= read.policy.max()).tolist())


def _in_tally(
    words: str, text: str, protocol: Protocol, history: History, read: Decision | None, tolerance: float
) -> Iterator[Claim]:
    """Yield the claims of a reply that are written as the embedded model does."""
    for note in NOTE.finditer(words):
        yield from _of_note(note, protocol, history)
    for listed in SCORES.finditer(words):
        for item in SCORE.finditer(words, *listed.span()):
            action = int(item[1]) - 1
            right = action in range(protocol.d) and history.scores[action] == int(item[2])
            yield Claim("score", (item.start(1), item.end(2)), right)
    if reason := REASON.search(words):
        yield from _of_reason(reason, history)
        if read is not None:
            place = reason.span("action") if CHOICE.search(words) else reason.span()
            yield Claim("choice", place, agrees(text, read, tolerance))


def _of_note(note: re.Match[str], protocol: Protocol, history: History) -> Iterator[Claim]:
    """Yield what a note says of the last round: an action's reward, whether that is good, and the old and new score."""
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
    """Yield whether the stated reason for an action is one."""
    why, last = (reason["why"] or "").casefold(), history.last
    if why in ("", "at random"):
        return
    action, place = int(reason["action"]) - 1, (reason.start("why"), reason.end("action"))
    if why == "highest score":
        d = len(history.scores)
        yield Claim("highest", place, action in range(d) and history.scores[action] == max(history.scores))
    elif last is None:
        return  # nothing to follow from
    elif why == "in turn":
        yield Claim("reason", place, action == (last.action + 1) % len(history.scores))
    elif why == "by the last reward":
        full = len(history.shown_last) == len(history.scores)
        yield Claim("reason", place, full and action == best_of(last.rewards))
    else:
        good = is_good(history.shown_last[last.action])
        stays = action == last.action
        yield Claim("reason", place, (stays and good) if why.startswith("stable") else not (stays or good))
