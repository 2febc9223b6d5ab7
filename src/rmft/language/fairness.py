"""Whether a scenario gives its answer away: one action praised, faulted or dwelt upon as the others are not.

A text is read in pieces, between marks and conjunctions. A piece that names one action is about it, and so are the
pieces after it until another action is named or the sentence ends. Words count, not their meaning: this finds the
careless scenario, and a reader is still needed for the artful one.
"""

import re

from rmft.language.protocol import Scenario


def _words(patterns: str) -> re.Pattern[str]:
    """Return a pattern that finds any of these, parted by blanks, as whole words; `_` is a blank within one."""
    return re.compile(rf"\b(?:{'|'.join(patterns.split())})\b".replace("_", " "), re.IGNORECASE)


# A verdict leaves nothing to find out, whatever else is said.
VERDICT = _words(
    "(?:clear|clearly|obvious|obviously|undoubtedly|by_far|hands_down|definitely|always|usually|of_course)_(?:the_)?"
    "(?:best|better|superior|right|winner|winning|favou?rite|choice|answer|worst|worse|inferior|wrong) "
    "(?:best|optimal|superior|ideal|smartest|wisest|recommended|perfect|right|worst)_"
    "(?:option|choice|answer|strategy|pick|bet) "
    "superior_to inferior_to (?:better|worse)_than_(?:the_|all_|any_|both_)?(?:others?|rest|alternatives) "
    "outperforms? beats_(?:the_others|the_rest|everything) (?:experts?|everyone|everybody)_(?:recommends?|prefers?) "
    "no_(?:drawbacks?|downsides?|disadvantages?|benefits?|advantages?|chance)"
)
PRAISE = _words(
    "best superior optimal ideal perfect perfectly excellent outstanding unbeatable flawless foolproof guaranteed "
    "wonderful amazing brilliant fantastic incredible exceptional unmatched unrivalled unrivaled impressive "
    "world-class award-winning state-of-the-art highly_effective very_effective extremely_effective most_effective "
    "most_reliable most_popular most_profitable most_accurate most_successful most_efficient most_promising"
)
BLAME = _words(
    "worst inferior useless hopeless terrible awful horrible dreadful pointless worthless disastrous doomed pathetic "
    "lousy dismal atrocious ineffective obsolete outdated rarely_works never_works always_fails keeps_failing "
    "waste_of_time waste_of_money least_effective least_reliable least_popular least_profitable least_accurate "
    "least_successful least_efficient least_promising"
)
GOOD = _words(
    "cheap cheaper fast faster quick quickly quicker reliable reliably safe safer accurate popular effective efficient "
    "easy easier easily profitable trusted proven robust precise comfortable delicious enjoyable beloved successful "
    "successfully productive rewarding saves thrives flourishes excels delights boosts "
    "cheapest fastest quickest safest easiest finest strongest smartest richest wisest"
)
BAD = _words(
    "slow slower slowly expensive costly unreliable risky dangerous inaccurate unpopular inefficient difficult clumsy "
    "error-prone unsafe unprofitable boring tedious harmful fails fail failed broken breaks poor poorly bad badly weak "
    "fragile confusing wasteful annoys loses slowest weakest poorest riskiest costliest dearest clumsiest"
)
# What takes back what was said before it.
CONTRAST = _words(
    "but yet though although while whereas however despite unless until still only sometimes too except without nobody "
    "nothing if at_the_price at_the_cost at_the_expense on_the_other_hand in_exchange"
)
# A piece with these says of no action what it is, unless it is a relative clause.
ASKS = re.compile(r"(?<!^ )\b(?:which|who)\b|\b(?:whichever|what|whatever|whether|how|why)\b", re.IGNORECASE)
# Marks that end a sentence or a thought; names are out of the text by then, so that one may have an "and" in it.
STOP = r"(?<=[.!?;:])\s+|(?<=[.!?][\"'”’)])\s+|\s+-+\s+|\s*[—–]\s*"
PASSAGES = re.compile(STOP)
PIECES = re.compile(rf"{STOP}|,|\b(?:and|or|nor|while|whereas)\b")
SENTENCE_END = re.compile(r"[.!?][\"'”’)]?$")
GOES_ON = re.compile(r"(?:it|they|this|these)\b", re.IGNORECASE)  # of the action that was named last
MARK = 0xE000  # the first code point for private use: it stands for the first action's name
FAR_BEFORE = re.compile(r"^.*?(?=(?:\S+\s+){5}[\ue000-\uf8ff])")  # what is more than five words before a name

LEAST_EXTRA, MOST_TIMES = 20, 3  # words that one action may be dwelt upon more, and how many times the others' mean


def obviously_better(scenario: Scenario) -> str | None:
    """Return why one action stands out from the others in a text or by its name; None where no reason is found."""
    return _by_name(scenario.names) or _by_words(scenario) or _by_length(scenario)


def _by_name(names: tuple[str, ...]) -> str | None:
    """Return why a name is a judgement, where not all names are."""
    for words, does in ((PRAISE, "praises"), (BLAME, "faults")):
        judged = [name for name in names if words.search(name)]
        if 0 < len(judged) < len(names):
            return f"the name {judged[0]!r} {does}"
    return None


def _by_words(scenario: Scenario) -> str | None:
    """Return why what is said of one action is praise or blame, as it is not of the others."""
    said = _said(scenario)
    for action, text in enumerate(said):
        if verdict := VERDICT.search(text):
            return f"{scenario.names[action]!r}: {verdict[0]!r} is a verdict"
    for words, does in ((PRAISE, "praised"), (BLAME, "faulted")):
        judged = [action for action, text in enumerate(said) if words.search(text) and not CONTRAST.search(text)]
        if 0 < len(judged) < len(said):
            return f"{scenario.names[judged[0]]!r} alone is {does} ({words.search(said[judged[0]])[0]!r})"
    balance = [0 if CONTRAST.search(text) else len(GOOD.findall(text)) - len(BAD.findall(text)) for text in said]
    for sign, does, others in ((1, "praised", "faulted"), (-1, "faulted", "praised")):
        first, *rest = sorted((sign * value for value in balance), reverse=True)
        if first >= 1 and all(value <= -1 for value in rest):
            return f"{scenario.names[balance.index(sign * first)]!r} alone is {does} where the others are {others}"
    return None


def _by_length(scenario: Scenario) -> str | None:
    """Return why one action is dwelt upon."""
    lengths = [len(text.split()) for text in _said(scenario, alone=True)]
    *others, most = sorted(lengths)
    mean = sum(others) / len(others)
    if most >= mean + LEAST_EXTRA and most > MOST_TIMES * mean:
        return f"{scenario.names[lengths.index(most)]!r} has {most} words to itself, the others {mean:.0f}"
    return None


def _said(scenario: Scenario, *, alone: bool = False) -> list[str]:
    """Return what is said of each action; alone: in passages that name no other."""
    said = [""] * len(scenario.names)
    last, ended = None, True
    for passage in PASSAGES.split(_marked(scenario)):
        skipped = alone and len(_about(passage)) > 1
        for piece in PIECES.split(passage):
            if about := _about(piece):
                last = about.pop() if len(about) == 1 else None
            elif ended and (alone or not GOES_ON.match(piece)):
                last = None
            if last is not None and not skipped and not ASKS.search(piece):
                said[last] += f" {FAR_BEFORE.sub('', piece)}"
            ended = bool(SENTENCE_END.search(piece))
        last = None if skipped else last
    return said


def _marked(scenario: Scenario) -> str:
    """Return the text with a mark for each name, in singular or plural."""
    places = {name.casefold(): place for place, name in enumerate(scenario.names)}
    longest_first = "|".join(map(re.escape, sorted(scenario.names, key=len, reverse=True)))
    name = re.compile(rf"\b({longest_first})(?:e?s)?\b", re.IGNORECASE)
    return name.sub(lambda found: chr(MARK + places[found[1].casefold()]), scenario.text)


def _about(piece: str) -> set[int]:
    """Return the actions whose marks are in a piece."""
    return {ord(character) - MARK for character in piece if MARK <= ord(character) <= 0xF8FF}
