"""Does a reply pass over the best action because rewards are unstable? Two judges: App. `reasoning`.

A judge takes replies that pass over the best action, and returns yes, no, or None for an answer that is neither. The
lexical judge looks for words of a list. The zero-shot judge is a model behind an endpoint, as in the paper; all of its
answers are journaled.
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

DENIED = re.compile(
    r"(?:\b(?:not|no|low|lower|lowest|less|least|little|without|reduced?|minimal)|n't) +(?:\w+ +)?\Z", re.IGNORECASE
)
OF_THE_LAST = re.compile(r"\b(?:last|latest|previous|most recent|recent)\b", re.IGNORECASE)
ANSWER = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
AT_ONCE = 1024  # questions in a batch, so that a long list shows progress


@dataclass(frozen=True)
class PassingReply:
    """A valid reply that passes over the best action. Actions are 0-based.

    best: the action of highest mean. preferred: the actions chosen instead. last: the action of the last round.
    """

    reply: str
    protocol: Protocol
    best: int
    preferred: frozenset[int]
    last: int | None


Judge = Callable[[Sequence[PassingReply]], list[bool | None]]


def read_words(path: Path) -> re.Pattern[str]:
    """Return a pattern for a list of words, one a line (`*`: any ending; `#` begins a comment)."""
    lines = (line.partition("#")[0].strip() for line in read_user_text(path).splitlines())
    words = [re.escape(line).replace(r"\*", r"\w*").replace(r"\ ", " +") for line in lines if line]
    if not words:
        raise InputError(f"{path}: names no word")
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


def lexical(words: re.Pattern[str]) -> Judge:
    """Return a judge whose answer is yes if a word of the list describes the best action.

    A word describes the action, other than the chosen one, that is named nearest to the word in its sentence. If the
    sentence names none and mentions the last reward, the word describes the action played last; otherwise the action
    named last in the sentence before. A word after "not", "low" or "less" does not count.
    """
    return lambda replies: [_calls_best_unstable(words, reply) for reply in replies]


def _calls_best_unstable(words: re.Pattern[str], reply: PassingReply) -> bool:
    before: list[tuple[int, int, int]] = []
    for sentence in SENTENCE.finditer(reply.reply.translate(UNDRESSED)):
        text = sentence[0]
        named = [mention for mention in mentions(text, reply.protocol) if mention[0] not in reply.preferred]
        otherwise = reply.last if OF_THE_LAST.search(text) else before[-1][0] if before else None
        for word in words.finditer(text):
            if (
                not DENIED.search(text, max(word.start() - NEAR, 0), word.start())
                and _subject(word, named, otherwise) == reply.best
            ):
                return True
        before = named or before if text.strip() else before
    return False


def _subject(word: re.Match[str], named: Sequence[tuple[int, int, int]], otherwise: int | None) -> int | None:
    """Return the action that a word describes: of those mentioned in its sentence the nearest, `otherwise` without."""
    if not named:
        return otherwise
    return min(named, key=lambda mention: max(mention[1] - word.end(), word.start() - mention[2]))[0]


def zero_shot(connection: "Connection", template: Template, max_tokens: int, seed: int) -> Judge:
    """Return a judge that sends each question to a model behind an endpoint once.

    template: may use `reply`, `d`, `names`, `best` and `last` (actions from 1; last: 0 for none).
    """
    from rmft.endpoint.connection import Request
    from rmft.endpoint.failures import text_of

    always = {"temperature": 0.0, **connection.endpoint.settings.options(max_tokens, seed)}

    def judge(replies: Sequence[PassingReply]) -> list[bool | None]:
        questions = [question(template, reply) for reply in replies]
        distinct, answers = list(dict.fromkeys(questions)), {}
        for start in range(0, len(distinct), AT_ONCE):
            part = distinct[start : start + AT_ONCE]
            bodies = [{"messages": [{"role": "user", "content": question}], **always} for question in part]
            responses = connection.send([Request(body, ("judge",)) for body in bodies])
            answers |= {question: yes_or_no(text) for question, text in zip(part, map(text_of, responses), strict=True)}
        return [answers[question] for question in questions]

    return judge


def question(template: Template, reply: PassingReply) -> str:
    """Return the question to a model about a reply."""
    scenario = reply.protocol.scenario
    actions = {"d": reply.protocol.d, "names": scenario.names if scenario else ()}
    last = 0 if reply.last is None else reply.last + 1
    return rendered(template, {**actions, "reply": reply.reply, "best": reply.best + 1, "last": last})


def yes_or_no(text: str) -> bool | None:
    """Return whether the first word of an answer is yes; None if it is neither yes nor no.

    >>> yes_or_no("**Yes**, it does."), yes_or_no("No."), yes_or_no("Nobody knows")
    (True, False, None)
    """
    match = ANSWER.match(text)
    return None if match is None else match[1].casefold() == "yes"
