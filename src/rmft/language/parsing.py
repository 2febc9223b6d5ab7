"""The decision in a reply: strict about its meaning, lenient about its form.

The decision follows the last label: `Action:` or `Policy:` at the start of a line or sentence. `Next action:` after
another label may be the decision or a plan for later; where the two differ, the reply is ambiguous. Without a label,
the whole reply must be the decision. Numbers elsewhere never count. Words may follow on the decision's line, but no
other action, no other list, and no list of all actions in another order than a policy's, because such a line is
ambiguous.

Repetitions in the patterns are possessive (`*+`), so that time is linear in the length of a reply. Repeated groups are
written as atomic groups (`(?>(...)*)`), which mean the same, because Python before 3.11.5 (Debian 12 has one) matches
possessive groups wrongly (gh-106052).
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from rmft.language.protocol import Protocol

# Letters that no reply contains replace the names of actions, so that one grammar serves all scenarios: one of SIGNS
# replaces a name's first character, and REST each of the others.
REST, *SIGNS = (chr(code) for code in range(0x10080, 0x100FB))  # Linear B ideograms
# Spaces, line ends, fullwidth forms, the minus sign, apostrophes and hyphens become ASCII, one character for one, so
# that positions in the text stay. Digits of other scripts are no numbers here.
PLAIN = {
    **{code: " " for code in range(0x3001) if chr(code).isspace()},
    **dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n"),
    **{code + 0xFEE0: code for code in range(ord("!"), ord("~") + 1)},
    ord("\N{MINUS SIGN}"): "-",
    **dict.fromkeys(map(ord, "‘’"), "'"),
    **dict.fromkeys(map(ord, "\N{HYPHEN}\N{NON-BREAKING HYPHEN}"), "-"),
    **dict.fromkeys(map(ord, [REST, *SIGNS]), "\N{LINEAR B SYLLABLE B008 A}"),
}

LETTER = r"[^\W_]"  # or digit
DRESS = r"[ #*_`\"'“”‘’$()\[\]{}]|\\[a-z]*+"  # markdown, quotes, brackets, LaTeX
WHOLE = rf"(?<!{LETTER})(?<!\.)[0-9]++(?!{LETTER}|%| *+[-+*/^.,] *+\.?[0-9])"
DECIMAL = r"[-+]?+(?:[0-9]++(?>(?:\.[0-9]*+)?)|\.[0-9]++)(?>(?:e[-+]?+[0-9]++)?)"
PROBABILITY = (  # numerator, denominator, percent sign
    rf"(?<!{LETTER})(?<!\.)({DECIMAL})(?>(?: *+/ *+({DECIMAL}))?)(?>( *+%)?)(?!{LETTER}|\.[0-9]| *+[-+/^] *+\.?[0-9])"
)
# The second item of a list over two lines, whose first begins with 1: these are numbers of actions, no probabilities.
SECOND_ITEM = re.compile(
    rf"\s*+(?>(?:{DRESS}|[-•]|(?:action|option|number)\b)*)2(?>(?:{DRESS}|[.,:;=|-])+){PROBABILITY}(?>(?:{DRESS})*)$",
    re.IGNORECASE | re.MULTILINE,
)
FIRST_ITEM = re.compile(r"1(?![0-9%/]|\.[0-9])")
# The continuation of a list of which only the beginning matched.
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

    def decides_as(self, other: "Decision") -> bool:
        """Return whether another decision is the same, wherever it stands."""
        return self.action == other.action and np.array_equal(self.policy, other.policy)


def parse(text: str, protocol: Protocol, tolerance: float, *, cut: bool = False) -> Decision | None:
    """Return the decision in a reply, or None where it is unclear.

    tolerance: how far from 1, at most, the sum of a policy may be; below 1. The policy is then normalised.
    cut: whether the reply was ended by its limit of tokens. An action at its very end is then unclear if another action
    begins with the same characters: `1` may be what there is of `10`.
    """
    text = text.translate(PLAIN)
    labels = list(LABELS[protocol.output].finditer(text))
    plain = [label for label in labels if "next" not in label[0].casefold()]
    decision = _decision(text, labels[-1].end() if labels else None, protocol, tolerance, cut=cut)
    if decision and plain and plain[-1] is not labels[-1]:
        before = _decision(text, plain[-1].end(), protocol, tolerance, cut=False)
        return decision if before and before.decides_as(decision) else None
    return decision


def _decision(text: str, label: int | None, protocol: Protocol, tolerance: float, *, cut: bool) -> Decision | None:
    """Return the decision after the label that ends at a place, or in a text without a label."""
    whole, labelled, label = text, label is not None, label or 0
    grammar, names = _grammar(protocol.d), _names(protocol)
    text = text[:label] + names.signed(text[label:])
    start = grammar.dress.match(text, label).end()
    below = ""
    if labelled:
        end = start + len(text[start:].partition("\n")[0])
        text, below = text[:end], text[end:]
    # Without a label, or after a label on a line of its own, following words make the decision doubtful.
    alone = not labelled or "\n" in text[label:start]
    if protocol.output == "action":
        decision = _read_action(text, start, grammar, names, alone=alone)
        unclear = cut and decision and decision.span[1] == len(whole) and names.may_go_on(whole[decision.span[0] :])
        return None if unclear else decision
    if protocol.d == 2 and FIRST_ITEM.match(text, start) and SECOND_ITEM.match(below):
        return None
    return _read_policy(text, start, grammar, names, alone=alone, tolerance=tolerance)


@dataclass(frozen=True)
class _Grammar:
    """The patterns for d actions, with names replaced as by `_Names`.

    dress: characters and words around a value. mention: an action's number or name. share: a probability, optionally
    after its action. shares: two to d + 1 of them. listed: d mentions with nothing between them but what separates.
    """

    dress: re.Pattern[str]
    mention: re.Pattern[str]
    share: re.Pattern[str]
    shares: re.Pattern[str]
    listed: re.Pattern[str]
    d: int


@cache
def _grammar(d: int) -> _Grammar:
    """Return the grammar of d actions; compiling it takes longer than playing a round."""
    name = rf"(?<!{LETTER})[{SIGNS[0]}-{SIGNS[-1]}]{REST}*+"
    mention = rf"(?:{name}|{WHOLE})"
    dress = rf"(?:(?!{name})(?:{DRESS}|(?:action|option|number)\b))"  # a name may begin with it: "$2 off"
    some = rf"(?>{dress}*)"
    share = rf"(?>(?:({mention}(?>(?:{some}{mention})?)){some}[:=]{some})?){PROBABILITY}"
    shares = rf"{share}(?>(?:(?>(?:{dress}|[,;|])+){share}){{1,{d}}})"  # d + 1 of them are enough to be invalid
    listed = rf"{mention}(?:(?>(?:{dress}|[,;|/&]|(?:and|actions|options)\b)+){mention}){{{d - 1}}}"
    patterns = (rf"(?>(?:{dress}|\n)*)", mention, share, shares, listed)
    return _Grammar(*(re.compile(pattern, re.IGNORECASE) for pattern in patterns), d)


@dataclass(frozen=True)
class _Names:
    """The names of actions. actions: by number, casefolded name and sign; None for a word that fits two actions."""

    pattern: re.Pattern[str]
    actions: dict[str, int | None]
    signs: dict[str, str]

    def signed(self, text: str) -> str:
        """Return a text of the same length in which a sign, and then REST, replaces each name."""
        return self.pattern.sub(self._sign, text)

    def _sign(self, name: re.Match[str]) -> str:
        sign = self.signs.get(name[0].casefold())  # None: regular expressions ignore case where casefold differs
        return sign + REST * (len(name[0]) - 1) if sign else name[0]

    def action(self, mentions: list[str]) -> int | None:
        """Return the action mentioned, or None where no action, an unknown one or several are mentioned."""
        actions = {self.actions.get(word.rstrip(REST)) for word in mentions}
        return actions.pop() if len(actions) == 1 else None

    def out_of_order(self, grammar: _Grammar, listed: str) -> bool:
        """Return whether a list of mentions has all actions, in another order than their own."""
        actions = [self.action([mention]) for mention in grammar.mention.findall(listed)]
        return set(actions) == set(range(grammar.d)) and actions != sorted(actions)

    def may_go_on(self, mention: str) -> bool:
        """Return whether the mention of an action is also the beginning of another action's."""
        begun = mention.casefold()
        return any(word.startswith(begun) and of != self.actions[begun] for word, of in self.actions.items())


@lru_cache(maxsize=1000)
def _names(protocol: Protocol) -> _Names:
    """Return the numbers 1..d and the scenario's names, where it has them."""
    names = [name.translate(PLAIN) for name in protocol.scenario.names] if protocol.scenario else []
    actions: dict[str, int | None] = {}
    for action, word in [*enumerate(map(str, range(1, protocol.d + 1))), *enumerate(map(str.casefold, names))]:
        actions[word] = action if actions.get(word, action) == action else None
    signs = dict(zip(map(str.casefold, names), SIGNS, strict=False))
    spelled = sorted((name for name in names if not name.isdecimal()), key=len, reverse=True)  # numbers stay numbers
    longest_first = "|".join(map(re.escape, spelled))
    name = rf"(?<!{LETTER})(?:{longest_first})(?!{LETTER})" if spelled else "(?!)"
    return _Names(re.compile(name, re.IGNORECASE), actions | {signs[word]: actions[word] for word in signs}, signs)


def _read_action(text: str, start: int, grammar: _Grammar, names: _Names, *, alone: bool) -> Decision | None:
    """Return the action at `start`, unless another action follows."""
    first = grammar.mention.match(text, start)
    action = names.action(grammar.mention.findall(text[start:]))
    if first is None or action is None or (alone and re.search(LETTER, grammar.mention.sub("", text[start:]))):
        return None
    return Decision(action, None, first.span())


def _read_policy(
    text: str, start: int, grammar: _Grammar, names: _Names, *, alone: bool, tolerance: float
) -> Decision | None:
    """Return the policy at `start`, unless another list follows."""
    match = grammar.shares.match(text, start)
    if match is None:
        return None
    rest = text[match.end() :]
    if GOES_ON.match(rest) or re.search(LETTER if alone else grammar.shares, rest):
        return None
    keys, numerators, denominators, percents = zip(*grammar.share.findall(match[0]), strict=True)
    if not any(keys) and any(names.out_of_order(grammar, found[0]) for found in grammar.listed.finditer(rest)):
        return None
    order = [names.action(grammar.mention.findall(key)) for key in keys] if any(keys) else list(range(len(keys)))
    if len(keys) != grammar.d or set(order) != set(range(grammar.d)):
        return None
    with np.errstate(all="ignore"):  # overflow and division by zero are refused below
        shares = np.array([float(n) for n in numerators]) / np.array([float(n or 1) for n in denominators])
        total = shares.sum()
        error = abs(total / (100 if any(percents) else 1) - 1)
    # Decimals are inexact in binary: three times 0.33 must count as 0.01 from 1.
    if not ((shares >= 0).all() and error <= tolerance + 1e-9):
        return None
    policy = np.empty(grammar.d)
    policy[order] = shares / total
    return Decision(None, policy, match.span())
