"""Claims in free prose, found sentence by sentence with regular expressions over numbers and names of actions.

A claim is a plain statement about one action: a quoted reward, an average, how often it was tried, that it has the
highest or lowest reward so far, that it is chosen. A supposition ("if", "might", "expect", a question) is no claim. A
denial ("not the highest") is none either, except "never tried". Precision comes before recall: unrecognised claims are
not counted.

Runs of spaces count as one space. Repetitions in the patterns are bounded or possessive, so that time is linear in the
length of a sentence.
"""

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rmft.language.parsing import LETTER, PLAIN
from rmft.language.protocol import Protocol
from rmft.reasoning.history import ROUNDING, History

# Each character becomes one character, so that places in the text stay: marks of emphasis become spaces.
UNDRESSED = {**PLAIN, **dict.fromkeys(map(ord, '*_`"“”'), " "), ord("’"): "'", ord("‘"): "'"}
SENTENCE = re.compile(r"(?:(?!;|\n|(?<!\bavg)(?<!\bno)(?<!\bapprox)(?<!\bvs)[.!?](?= |\n|\Z)).)+.?", re.IGNORECASE)
SPACES = re.compile(r" {2,}")
SUPPOSES = re.compile(
    r"\b(?:if|would|could|might|may|should|perhaps|maybe|expect\w*|hop(?:e|es|ing)|assum\w*|suppos\w*|whether|unless"
    r"|probably|likely|potential\w*|possibl\w*|seems?|aim|goal|ideally)\b",
    re.IGNORECASE,
)
CONDITION = re.compile(r"\b(?:if|unless|whether)\b", re.IGNORECASE)
DENIES = re.compile(r"(?:\bnot|n't|\bnever|\bneither|\bnor|\bno longer|\bwithout) (?:\w+ ){0,2}\Z", re.IGNORECASE)
ONE_OF = re.compile(r"\b(?:second|third|2nd|3rd|next|among|one of)[ -](?:the )?\Z", re.IGNORECASE)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {word: value for value, word in enumerate(DIGITS)}
BOUNDS = {
    "at least": operator.ge,
    "at most": operator.le,
    "more than": operator.gt,
    "over": operator.gt,
    "fewer than": operator.lt,
    "less than": operator.lt,
}
COUNTS = {**NUMBERS, "once": 1, "twice": 2, "thrice": 3}
NEAR = 60  # characters before a claim in which it may be denied
NEARLY = 0.5  # how far a number may be off that is given as "about"

ABOUT = r"(?P<about>about |around |roughly |approximately |approx\.? |nearly |almost |close to |near |some |~ ?|≈ ?)?"
# A number, unless it is part of a share, range or fraction, counts something else, or begins the next statement.
QUANTITY = (
    r"[0-9]++(?>(?:\.[0-9]++)?)(?!\w|%| ?[-–/] ?[0-9]| (?:to|or|of|out of|times?|rounds?|pulls?|tries|plays?|more|less"
    r"|higher|lower|actions?|options?|arms?|paid|gave|percent)\b)"
)
NUMBER = rf"{ABOUT}(?P<number>{QUANTITY})"
# Words around a number that make it a total or a difference, and no reward of one round.
NOT_OF_A_ROUND = re.compile(
    r" ?(?:points? |units? )?\(?(?:more|less|higher|lower|better|worse|in total|in all|altogether|together|combined"
    r"|overall|total|over|across)\b",
    re.IGNORECASE,
)
IN_TOTAL = re.compile(r"\b(?:in total|in all|altogether|overall|combined),? (?:\w+ ){0,2}\Z", re.IGNORECASE)
TRIED = r"(?:tried|chosen|played|selected|picked|used|sampled|tested|explored|pulled)"
CHOSE = rf"(?:{TRIED}|chose)"
ONCE = rf"(?:once|twice|thrice|(?:[0-9]{{1,9}}+|{'|'.join(NUMBERS)}) times?)\b(?! (?:as|more|higher|better))"
BOUND = r"(?:only |just |exactly |already |at least |at most |more than |over |fewer than |less than )?"
HOW_OFTEN = rf"(?P<bound>{BOUND})(?P<count>{ONCE})"
ENOUGH = r"(?:enough|much|many|as|so|very|often|more|again|recently|since|in|for|that|too|only|just|at|over|[0-9])"
PAYS = (
    r"(?:paid|pays|gave|gives|returned|returns|yielded|yields|earned|earns|brought|scored|produced|received|got"
    r"|provided|offered|delivered|resulted in|led to)(?: me| us)?"
)
PAY = r"(?:reward|payoff|payout|return|result|outcome)s?"
LAST = r"(?:last|latest|previous|most recent)"
WHEN = (
    r"(?: (?:(?:in|on|at|during) (?:the )?)?"
    rf"(?:round (?P<round>[0-9]{{1,9}}+)|(?P<ago>{LAST} (?:round|time))))?"
)
BEFORE = re.compile(  # the round that a sentence begins with
    rf"(?:(?:in|on|at|during) (?:the )?)?(?:round (?P<round>[0-9]{{1,9}}+)|(?P<ago>{LAST} (?:round|time)))[,:]?"
    rf" (?:(?:I|we) )?(?:{CHOSE} )?\Z",
    re.IGNORECASE,
)
MEAN = r"(?:average|mean|avg\.?)"
EXTREME = (
    r"(?P<extreme>highest|best|largest|greatest|top|lowest|worst|smallest|poorest)(?P<measured>(?>(?:[- ](?:average"
    rf"|mean|avg\.?|total|cumulative|single|individual|observed|overall|performing|paying|{PAY}|action|option|arm|choice)"
    r"\b){0,3}))(?>(?P<far> (?:so far|to date|until now|up to now))?)"
)
LINK = (
    r"(?>(?:[ ,:–-]|'s\b|\b(?:and|with|but|has|have|had|it|which|that|is|was|been|so far|to date|an?|the|also|then"
    r"|still|currently|now|I|we|(?:each|every) time|both times)\b)*)\(? ?"
)
BECOMES = r"(?:(?:is|was|came|comes|has come|has been|belongs)(?: (?:from|for|to|by|with))?|from|for|by)"
DECIDES = (
    r"(?:\bI|\bwe|\blet me|\blet's|\blet us|\bso|\btherefore,?)(?>(?:'ll| will| shall|'m going to| am going to| have"
    r" decided to| decide to| choose to| plan to| want to| now| then| again| therefore| thus){0,3}) "
)
LEANS = (
    r"(?:choose|pick|select|play|go with|stick with|stick to|stay with|stay on|continue with|continue to choose"
    r"|continue to play|keep choosing|keep playing|return to|switch to|switch back to|opt for|exploit|favou?r|prefer"
    r"|prioriti[sz]e|put (?:most|more)(?: of)?(?: the| my)? (?:weight|probability|mass) on)"
)
TRIES = r"(?:try|explore|test|sample)"
LOWEST = {"lowest", "worst", "smallest", "poorest"}


@dataclass(frozen=True)
class Claim:
    """A statement of a reply that can be checked: its kind, its place in the text, and whether it is true."""

    kind: str
    span: tuple[int, int]
    true: bool


@dataclass(frozen=True)
class _Patterns:
    """The patterns of claims in one protocol.

    mention: of an action. follows: claims that may come after a mention. within: claims with the mention in the middle
    or at the end. latest: a claim without a mention, about the action played last. actions: by number and casefolded
    name.
    """

    mention: re.Pattern[str]
    follows: dict[str, re.Pattern[str]]
    within: dict[str, re.Pattern[str]]
    latest: re.Pattern[str]
    choice: re.Pattern[str]
    actions: dict[str, int]

    def action(self, match: re.Match[str]) -> int | None:
        """Return the action that a match names, None if there is no action of that number."""
        return self.actions.get((match["action"] or match["name"]).casefold())


@lru_cache(maxsize=1000)
def _patterns(protocol: Protocol) -> _Patterns:
    names = (
        [SPACES.sub(" ", name.translate(UNDRESSED)) for name in protocol.scenario.names] if protocol.scenario else []
    )
    actions = {str(a + 1): a for a in range(protocol.d)} | {name.casefold(): a for a, name in enumerate(names)}
    named = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)"
    numbered = r"(?:actions?|options?|arms?|choices?) ?(?:number |no\. ?)?#?(?P<action>[0-9]++)(?!\w|\.[0-9]|%)"
    mention = rf"(?<!{LETTER})(?:{numbered}|(?P<name>{named}))(?!{LETTER})(?>(?: ?\((?:{named})\))?)"
    superlative = rf"(?:{PAYS} )?(?:performed )?(?:the )?{EXTREME}"
    follows = {
        "average": rf"(?:{PAYS} (?:an? )?)?(?:averag(?:es|ed|ing)|{MEAN}(?: {PAY})?(?: so far| to date)?)"
        rf"(?: (?:is|was|of|at|stands at|being|has been))? ?[:=(]? ?{NUMBER}(?: points?)?",
        "times": rf"(?:{TRIED}(?: so far)? |(?<=\()){HOW_OFTEN}",
        "never": rf"(?:(?:not|never|(?:has|was|have)n't)(?: yet)?(?: been)?(?: yet)? {TRIED}|(?:remains )?(?:untried"
        rf"|unexplored|untested|unplayed))\b(?! {ENOUGH}| {BOUND}{ONCE})",
        "extreme": rf"{superlative}(?>(?: ?(?:of|at|,|:)? ?\(? ?{NUMBER})?)(?! (?:after|except|besides|behind|but"
        r"|variance|in round|in the|possible|from|is|was|came|for)\b)",
        "reward": rf"(?:(?P<lately>last |most recently |just )?{PAYS}(?>(?: an?| the| only| just){{0,2}})(?: {PAY})?"
        rf"(?: of)? |(?P<latest>{LAST} )?{PAY}(?: (?:of|was|is|were|are) | ?[:=] ?)){NUMBER}(?: points?)?"
        rf"(?P<more>(?:(?:,| and|, and) {QUANTITY}(?! (?:for|from|by|with|on|in)\b)){{0,9}})(?: points?)?{WHEN}",
    }
    within = {
        "average": rf"{MEAN}(?: {PAY})?(?: so far)? (?:of|for|from) {mention}(?: so far)?(?: (?:is|was|of|at|stands at"
        rf"|has been) | ?[=:] ?){NUMBER}",
        "times": rf"\b{CHOSE} {mention} {HOW_OFTEN}",
        "never": rf"(?:\bnot|\bnever|(?:have|has|did)n't)(?: yet)? (?:{CHOSE}|try) {mention}(?! {ENOUGH}"
        rf"| {BOUND}{ONCE})",
        "extreme": rf"{superlative}(?: {BECOMES}| ?:) {mention}",
        "reward": rf"(?:{PAY} of|\b(?:received|got|earned|obtained|gained|saw|observed)(?: an?)?(?: {PAY} of)?)"
        rf" {NUMBER}(?: points?)? (?:from|for|with|on|using|by choosing|by playing|by selecting|after choosing)"
        rf" {mention}{WHEN}",
    }
    leans = LEANS if protocol.output == "distribution" else rf"(?:{LEANS}|{TRIES})"
    latest = rf"\b{LAST} {PAY}(?: (?:was|is|of) | ?[:=] ?){NUMBER}"
    return _Patterns(
        _compiled(mention),
        {kind: _compiled(LINK + rf"(?P<claim>{pattern})") for kind, pattern in follows.items()},
        {kind: _compiled(pattern) for kind, pattern in within.items()},
        _compiled(latest),
        _compiled(rf"{DECIDES}{leans} {mention}"),
        actions,
    )


def mentions(text: str, protocol: Protocol) -> list[tuple[int, int, int]]:
    """Return (action, begin, end) of each mention in a text that was translated by UNDRESSED."""
    patterns = _patterns(protocol)
    all_mentions = ((patterns.action(match), *match.span()) for match in patterns.mention.finditer(text))
    return [mention for mention in all_mentions if mention[0] is not None]


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def in_prose(text: str, protocol: Protocol, history: History, chosen: frozenset[int]) -> Iterator[Claim]:
    """Yield the claims of a text. chosen: the actions for which "I choose" is true; empty if unknown."""
    patterns, choice = _patterns(protocol), None
    for sentence in SENTENCE.finditer(text.translate(UNDRESSED)):
        plain, places = _squeezed(sentence[0], sentence.start())
        supposing = SUPPOSES.search(plain)
        asserted = "" if plain.rstrip().endswith("?") else plain[: supposing.start() if supposing else None]
        for claim in _of_sentence(asserted, patterns, history):
            yield Claim(claim.kind, (places[claim.span[0]], places[claim.span[1] - 1] + 1), claim.true)
        condition = CONDITION.search(plain)
        for match in patterns.choice.finditer("" if plain.rstrip().endswith("?") else plain):
            if (condition and condition.start() < match.start()) or not _outright(plain, match.start()):
                continue
            choice = patterns.action(match), (places[match.start()], places[match.end() - 1] + 1)
    if choice and chosen:  # the last one: earlier ones may be weighed and then dropped
        yield Claim("choice", choice[1], choice[0] in chosen)


def _squeezed(text: str, start: int) -> tuple[str, list[int]]:
    """Return a text with single spaces, and the place of each of its characters."""
    kept = [i for i, character in enumerate(text) if character != " " or (i and text[i - 1] != " ")]
    return "".join(text[i] for i in kept), [start + i for i in kept]


def _of_sentence(text: str, patterns: _Patterns, history: History) -> Iterator[Claim]:
    """Yield the claims of a sentence: first those that name their action late, then those in the rest of the text."""
    for kind, pattern in patterns.within.items():
        for match in pattern.finditer(text):
            action = patterns.action(match)
            if (kind == "never" or _outright(text, match.start())) and action is not None:
                yield from _judged(kind, match, match.span(), action, history, text[: match.start()])
            text = _without(text, match.span())
    for mention in patterns.mention.finditer(text):
        action, begin, end = patterns.action(mention), *mention.span()
        while action is not None and _outright(text, begin) and (found := _next(patterns, text, end)):
            kind, match = found
            begin = match.start("claim") if begin == end else begin  # the sentence goes on after the last claim
            yield from _judged(kind, match, (begin, match.end()), action, history, text[:begin])
            text = _without(text, (begin, match.end()))
            begin = end = match.end()
    for match in patterns.latest.finditer(text):
        if history.last and _outright(text, match.start()):
            yield Claim("reward", match.span(), _quotes(match, history.shown_last[history.last.action]))


def _next(patterns: _Patterns, text: str, place: int) -> tuple[str, re.Match[str]] | None:
    """Return the kind and the match of the claim that begins at a place of a text."""
    matches = ((kind, pattern.match(text, place)) for kind, pattern in patterns.follows.items())
    return next(((kind, match) for kind, match in matches if match), None)


def _outright(text: str, place: int) -> bool:
    """Return whether nothing right before a place denies the statement from there on."""
    near = max(place - NEAR, 0)
    return not DENIES.search(text, near, place) and not ONE_OF.search(text, near, place)


def _without(text: str, span: tuple[int, int]) -> str:
    return text[: span[0]] + "\0" * (span[1] - span[0]) + text[span[1] :]


def _judged(
    kind: str, match: re.Match[str], span: tuple[int, int], action: int, history: History, before: str
) -> Iterator[Claim]:
    """Yield the claims of a match about an action. before: the sentence up to the match."""
    if kind == "never":
        yield Claim("times", span, history.times(action) == 0)
    elif kind == "times":
        yield Claim("times", span, _counted(match, history.times(action)))
    elif kind == "average":
        yield Claim("average", span, any(_quotes(match, value) for value in history.averages(action)))
    elif kind == "extreme":
        yield from _extreme(match, span, action, history)
    elif not (NOT_OF_A_ROUND.match(match.string, match.end("number")) or IN_TOTAL.search(before[-NEAR:])):
        values = _meant(match, action, history, BEFORE.search(before[-NEAR:]))
        yield Claim("reward", (span[0], match.end("number")), any(_quotes(match, value) for value in values))
        for more in re.finditer(QUANTITY, match.groupdict().get("more") or ""):
            place = match.start("more")
            near = any(_near(more[0], value, about=False) for value in values)
            yield Claim("reward", (place + more.start(), place + more.end()), near)


def _extreme(match: re.Match[str], span: tuple[int, int], action: int, history: History) -> Iterator[Claim]:
    """Yield the claim that an action has the highest or lowest of a measure, and the claim of its value if given."""
    measured = match["measured"].casefold()
    average = re.search(MEAN, measured) is not None
    if not (average or match["far"] or re.search(rf"{PAY}|total", measured)):
        return  # "the best action" is a belief, and no claim about the history
    measure = "average" if average else "total" if re.search("total|cumulative", measured) else "any"
    lowest = match["extreme"].casefold() in LOWEST
    number = match.groupdict().get("number")
    end = match.end("far") if match["far"] else match.end("measured")
    yield Claim("highest", (span[0], end if number else span[1]), history.is_extreme(action, measure, lowest=lowest))
    if number and measure != "total":
        values = history.averages(action) + ([] if average else list(history.seen[action].values()))
        right = any(_quotes(match, value) for value in values)
        yield Claim("average" if average else "reward", match.span("number"), right)


def _meant(match: re.Match[str], action: int, history: History, before: re.Match[str] | None) -> list[float]:
    """Return the rewards of an action that a quote can mean: that of the round named, the last one, or any.

    before: the match of the round with which the sentence begins.
    """
    seen, about = history.seen[action], match.groupdict()
    if before and not (about.get("round") or about.get("ago")):
        about |= before.groupdict()
    if about.get("round"):
        return [seen[int(about["round"])]] if int(about["round"]) in seen else []
    if (about.get("ago") or "").casefold().endswith("round"):
        return [history.shown_last[action]] if action in history.shown_last else []
    if seen and any(about.get(name) for name in ("ago", "lately", "latest")):
        return [seen[max(seen)]]
    return list(seen.values())


def _counted(match: re.Match[str], times: int) -> bool:
    """Return whether a match states correctly how often an action was played."""
    word = match["count"].casefold().split()[0]
    count = COUNTS[word] if word in COUNTS else int(word)
    bound = match["bound"].strip().casefold()
    return BOUNDS.get(bound, operator.eq)(times, count)


def _quotes(match: re.Match[str], value: float) -> bool:
    return _near(match["number"], value, about=bool(match["about"]))


def _near(quoted: str, value: float, *, about: bool) -> bool:
    """Return whether a number is a value rounded to its decimals; after "about" it may be off by half a point."""
    rounding = 0.5 * 10.0 ** -len(quoted.partition(".")[2])
    return abs(float(quoted) - value) <= (max(rounding, NEARLY) if about else rounding) + ROUNDING
