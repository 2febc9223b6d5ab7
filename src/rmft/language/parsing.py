"""What a reply means: strict about the meaning, lenient about the form.

The decision follows the last label: `Action:` or `Policy:` at the start of a line or sentence. Where there is no label,
the whole reply must be the decision. Numbers elsewhere never count. Words may follow on the decision's line, but no
other action and no other list: a line that says two things says nothing.

Repetitions in the patterns are possessive (`*+`), so that time is linear in the length of a reply. Those of groups are
written as atomic groups (`(?>(...)*)`), which mean the same, since Python up to 3.11.4, Debian 12's among them, takes
their possessive form wrongly (gh-106052).
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from rmft.language.protocol import Protocol

# Letters that nobody replies with stand for names of actions, so that one grammar does for all scenarios: one of SIGNS
# for the name's first character, and REST for each of the others.
REST, *SIGNS = (chr(code) for code in range(0x10080, 0x100FB))  # Linear B ideograms
# One character for one, so that places in the text stay: spaces, line ends, fullwidth forms and the minus sign become
# ASCII. Digits of other scripts are no numbers here.
PLAIN = {
    **{code: " " for code in range(0x3001) if chr(code).isspace()},
    **dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n"),
    **{code + 0xFEE0: code for code in range(ord("!"), ord("~") + 1)},
    ord("\N{MINUS SIGN}"): "-",
    **dict.fromkeys(map(ord, [REST, *SIGNS]), "\N{LINEAR B SYLLABLE B008 A}"),
}

LETTER = r"[^\W_]"  # or digit
DRESS = r"[ #*_`\"'“”‘’$()\[\]{}]|\\[a-z]*+"  # markdown, quotes, brackets, LaTeX
WHOLE = rf"(?<!{LETTER})(?<!\.)[0-9]++(?!{LETTER}|%| *+[-+*/^.,] *+\.?[0-9])"
DECIMAL = r"[-+]?+(?:[0-9]++(?>(?:\.[0-9]*+)?)|\.[0-9]++)(?>(?:e[-+]?+[0-9]++)?)"
PROBABILITY = (  # numerator, denominator, percent sign
    rf"(?<!{LETTER})(?<!\.)({DECIMAL})(?>(?: *+/ *+({DECIMAL}))?)(?>( *+%)?)(?!{LETTER}|\.[0-9]| *+[-+/^] *+\.?[0-9])"
)
# What comes after a list of which only the beginning was understood.
GOES_ON = re.compile(r" *+(?:[,;|]|[-+]?\.?[0-9]|nan|inf)", re.IGNORECASE)
LABELS = {
    output: re.compile(
        rf"(?:^|[.!?;])(?>(?:\\[a-z]*+|[^\w\n.!?;]|_)*)"
        rf"(?>(?:(?:my|final|new|next|chosen|answer:)(?>(?:{DRESS})+))*){word}"
        rf"(?:(?>(?:{DRESS})*)[:=]|(?= ++#?[0-9]++[\W_]*+\Z))",  # no colon where a number ends the reply
        re.IGNORECASE | re.MULTILINE,
    )
    for output, word in {"action": "action", "distribution": "policy"}.items()
}


@dataclass(frozen=True)
class Decision:
    """A valid decision: an action (0-based) or a policy (d,) that sums to 1; the other is None.

    span: the characters of the reply where the action's number or name stands, or the policy's list.
    """

    action: int | None
    policy: np.ndarray | None
    span: tuple[int, int]


def parse(text: str, protocol: Protocol, tolerance: float) -> Decision | None:
    """Return what a reply decides, or None where that is not clear.

    tolerance: how far from 1 the sum of a policy may be, which is then divided by it; below 1.
    """
    text = text.translate(PLAIN)
    grammar, names = _grammar(protocol.d), _names(protocol)
    labels = list(LABELS[protocol.output].finditer(text))
    label = labels[-1].end() if labels else 0
    text = text[:label] + names.signed(text[label:])
    start = grammar.dress.match(text, label).end()
    if labels:
        text = text[: start + len(text[start:].partition("\n")[0])]
    # Without a label, or after one on a line of its own, words that follow make it doubtful what was read.
    alone = not labels or "\n" in text[label:start]
    if protocol.output == "action":
        return _read_action(text, start, grammar, names, alone=alone)
    return _read_policy(text, start, grammar, names, alone=alone, tolerance=tolerance)


@dataclass(frozen=True)
class _Grammar:
    """How d actions are written, names as `_Names` has them.

    dress: what may stand around a value. mention: an action's number or name. share: a probability, perhaps after its
    action. shares: two to d + 1 of them.
    """

    dress: re.Pattern[str]
    mention: re.Pattern[str]
    share: re.Pattern[str]
    shares: re.Pattern[str]
    d: int


@cache
def _grammar(d: int) -> _Grammar:
    """Return the grammar of d actions, whatever they are called: to compile it takes longer than to play a round."""
    name = rf"(?<!{LETTER})[{SIGNS[0]}-{SIGNS[-1]}]{REST}*+"
    mention = rf"(?:{name}|{WHOLE})"
    dress = rf"(?:(?!{name})(?:{DRESS}|(?:action|option|number)\b))"  # a name may begin with it: "$2 off"
    some = rf"(?>{dress}*)"
    share = rf"(?>(?:({mention}(?>(?:{some}{mention})?)){some}[:=]{some})?){PROBABILITY}"
    shares = rf"{share}(?>(?:(?>(?:{dress}|[,;|])+){share}){{1,{d}}})"  # one more than d is enough to be wrong
    patterns = (rf"(?>(?:{dress}|\n)*)", mention, share, shares)
    return _Grammar(*(re.compile(pattern, re.IGNORECASE) for pattern in patterns), d)


@dataclass(frozen=True)
class _Names:
    """What actions are called. actions: by number, casefolded name and sign, None for a word that could be two."""

    pattern: re.Pattern[str]
    actions: dict[str, int | None]
    signs: dict[str, str]

    def signed(self, text: str) -> str:
        """Return a text of the same length in which one sign, and then REST, stands for each name."""
        return self.pattern.sub(self._sign, text)

    def _sign(self, name: re.Match[str]) -> str:
        sign = self.signs.get(name[0].casefold())  # None: written with letters that only regular expressions hold equal
        return sign + REST * (len(name[0]) - 1) if sign else name[0]

    def action(self, mentions: list[str]) -> int | None:
        """Return the one action that mentions speak of, or None where that is none, unknown or more than one."""
        said = {self.actions.get(word.rstrip(REST)) for word in mentions}
        return said.pop() if len(said) == 1 else None


@lru_cache(maxsize=1000)
def _names(protocol: Protocol) -> _Names:
    """Return the numbers 1..d and the scenario's names, where it has them."""
    names = [name.translate(PLAIN) for name in protocol.scenario.names] if protocol.scenario else []
    actions: dict[str, int | None] = {}
    for action, word in [*enumerate(map(str, range(1, protocol.d + 1))), *enumerate(map(str.casefold, names))]:
        actions[word] = action if actions.get(word, action) == action else None
    signs = dict(zip(map(str.casefold, names), SIGNS, strict=False))
    spelled = sorted(
        (name for name in names if not name.isdecimal()), key=len, reverse=True
    )  # numbers are read as such
    longest_first = "|".join(map(re.escape, spelled))
    name = rf"(?<!{LETTER})(?:{longest_first})(?!{LETTER})" if spelled else "(?!)"
    return _Names(re.compile(name, re.IGNORECASE), actions | {signs[word]: actions[word] for word in signs}, signs)


def _read_action(text: str, start: int, grammar: _Grammar, names: _Names, *, alone: bool) -> Decision | None:
    """Return the action that stands at start, where no other follows."""
    first = grammar.mention.match(text, start)
    action = names.action(grammar.mention.findall(text[start:]))
    if first is None or action is None or (alone and re.search(LETTER, grammar.mention.sub("", text[start:]))):
        return None
    return Decision(action, None, first.span())


def _read_policy(
    text: str, start: int, grammar: _Grammar, names: _Names, *, alone: bool, tolerance: float
) -> Decision | None:
    """Return the policy that stands at start, where no other follows."""
    found = grammar.shares.match(text, start)
    if found is None:
        return None
    rest = text[found.end() :]
    if GOES_ON.match(rest) or re.search(LETTER if alone else grammar.shares, rest):
        return None
    keys, numerators, denominators, percents = zip(*grammar.share.findall(found[0]), strict=True)
    order = [names.action(grammar.mention.findall(key)) for key in keys] if any(keys) else list(range(len(keys)))
    if len(keys) != grammar.d or set(order) != set(range(grammar.d)):
        return None
    with np.errstate(all="ignore"):  # what overflows or divides by nought is refused below
        shares = np.array([float(n) for n in numerators]) / np.array([float(n or 1) for n in denominators])
        total = shares.sum()
        error = abs(total / (100 if any(percents) else 1) - 1)
    # Decimals are no exact binary numbers: 0.33 three times is 0.01 from 1, and not more.
    if not ((shares >= 0).all() and error <= tolerance + 1e-9):
        return None
    policy = np.empty(grammar.d)
    policy[order] = shares / total
    return Decision(None, policy, found.span())
