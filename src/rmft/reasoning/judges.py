"""Does a reply pass over the best action because rewards are unstable? Two judges of it: App. `reasoning`.

A judge takes cases and says yes, no, or None where it gave no answer that can be understood. The lexical one reads for
words of a list; a zero-shot one is a model behind any endpoint, as in the paper, and every answer of it is journaled.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Template

from rmft.errors import InputError
from rmft.language.prompts import rendered
from rmft.language.protocol import Protocol
from rmft.language.scenarios import read_user_text
from rmft.reasoning.prose import NEAR, SENTENCE, UNDRESSED, mentions

if TYPE_CHECKING:
    from rmft.endpoint.connection import Connection

DENIED = re.compile(r"(?:\b(?:not|no|low|lower|lowest|less|least|little|without|reduced?|minimal)|n't) +(?:\w+ +)?\Z")
OF_THE_LAST = re.compile(r"\b(?:last|latest|previous|most recent|recent)\b", re.IGNORECASE)
ANSWER = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
AT_ONCE = 1024  # questions, so that a long list of them shows how far it is


@dataclass(frozen=True)
class Case:
    """A valid reply that does not take the best action. Actions are 0-based.

    best: the action of highest mean. preferred: what is chosen instead. last: what was played in the last round.
    """

    reply: str
    protocol: Protocol
    best: int
    preferred: frozenset[int]
    last: int | None


Judge = Callable[[Sequence[Case]], list[bool | None]]


def read_words(path: Path) -> re.Pattern[str]:
    """Read a list of words, one a line (`*`: any ending; `#` begins a comment), as a pattern that finds them."""
    lines = (line.partition("#")[0].strip() for line in read_user_text(path).splitlines())
    words = [re.escape(line).replace(r"\*", r"\w*").replace(r"\ ", " +") for line in lines if line]
    if not words:
        raise InputError(f"{path}: names no word")
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


def lexical(words: re.Pattern[str]) -> Judge:
    """Return a judge that says yes where a word of the list is said of the best action.

    A word is said of the action, other than the chosen one, that is named nearest to it in its sentence; if there is
    none, of the one that was named last in the sentence before; if there is none either, and the sentence speaks of the
    last reward, of the action that was played last. "Not", "low" or "less" before a word undo it.
    """
    return lambda cases: [_says(words, case) for case in cases]


def _says(words: re.Pattern[str], case: Case) -> bool:
    before: list[tuple[int, int, int]] = []
    for sentence in SENTENCE.finditer(case.reply.translate(UNDRESSED)):
        text = sentence[0]
        named = [found for found in mentions(text, case.protocol) if found[0] not in case.preferred]
        for word in words.finditer(text):
            if (
                not DENIED.search(text, max(word.start() - NEAR, 0), word.start())
                and _subject(word, text, named, before, case.last) == case.best
            ):
                return True
        before = named or before if text.strip() else before
    return False


def _subject(
    word: re.Match[str],
    text: str,
    named: Sequence[tuple[int, int, int]],
    before: Sequence[tuple[int, int, int]],
    last: int | None,
) -> int | None:
    """Return the action that a word is said of. named, before: actions, with their places, here and before."""
    if named:
        return min(named, key=lambda found: max(found[1] - word.end(), word.start() - found[2]))[0]
    if OF_THE_LAST.search(text):
        return last
    return before[-1][0] if before else None


def zero_shot(connection: "Connection", template: Template, max_tokens: int, seed: int) -> Judge:
    """Return a judge that asks a model behind an endpoint, each question once.

    template: may use `reply`, `d`, `names`, `best` and `last` (from 1; last: 0 for none).
    """
    from rmft.endpoint.connection import Request

    always = {"temperature": 0.0, "max_completion_tokens": max_tokens}
    always |= {"seed": seed} if connection.endpoint.settings.seeded else {}

    def judge(cases: Sequence[Case]) -> list[bool | None]:
        questions = [question(template, case) for case in cases]
        asked, answers = list(dict.fromkeys(questions)), {}
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            bodies = [{"messages": [{"role": "user", "content": question}], **always} for question in part]
            replies = connection.send([Request(body, ("judge",)) for body in bodies])
            answers |= {question: understood(reply) for question, reply in zip(part, map(_text, replies), strict=True)}
        return [answers[question] for question in questions]

    return judge


def question(template: Template, case: Case) -> str:
    """Return what a model is asked about a case."""
    scenario = case.protocol.scenario
    about = {"d": case.protocol.d, "names": scenario.names if scenario else ()}
    last = 0 if case.last is None else case.last + 1
    return rendered(template, {**about, "reply": case.reply, "best": case.best + 1, "last": last})


def _text(answer: dict) -> str:
    return answer["choices"][0]["message"].get("content") or ""


def understood(text: str) -> bool | None:
    """Return what an answer says: its first word is yes or no; None for any other.

    >>> understood("**Yes**, it does."), understood("No."), understood("Nobody knows")
    (True, False, None)
    """
    said = ANSWER.match(text)
    return None if said is None else said[1].casefold() == "yes"
