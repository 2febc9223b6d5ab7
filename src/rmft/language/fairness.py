"""Whether a scenario favours an action: by praise, by blame, or by a much longer description.

A text is split into pieces at punctuation marks and conjunctions. A piece that names one action describes that action,
and so do the pieces after it, until another action is named or the sentence ends. The test is on words, not on their
meaning: it finds careless scenarios, and a reader is still needed to find subtle ones.
"""

import re

from rmft.language.protocol import Scenario


def _words(patterns: str) -> re.Pattern[str]:
    """Return a pattern that finds any of the given patterns as whole words; `_` stands for a blank within a pattern."""
    return re.compile(rf"\b(?:{'|'.join(patterns.split())})\b".replace("_", " "), re.IGNORECASE)


# A verdict names the best or worst action outright, whatever the rest of the text says.
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
# Words that take praise or blame back.
CONTRAST = _words(
    "but yet though although while whereas however despite unless until still only sometimes too except without nobody "
    "nothing if at_the_price at_the_cost at_the_expense on_the_other_hand in_exchange"
)
# A piece with one of these is a question about actions, unless it is a relative clause, and describes none.
ASKS = re.compile(r"(?<!^ )\b(?:which|who)\b|\b(?:whichever|what|whatever|whether|how|why)\b", re.IGNORECASE)
# Marks that end a passage. Names are replaced before the text is split, so that a name may contain "and".
STOP = r"(?<=[.!?;:])\s+|(?<=[.!?][\"'”’)])\s+|\s+-+\s+|\s*[—–]\s*"
PASSAGES = re.compile(STOP)
PIECES = re.compile(rf"{STOP}|,|\b(?:and|or|nor|while|whereas)\b")
SENTENCE_END = re.compile(r"[.!?][\"'”’)]?$")
GOES_ON = re.compile(r"(?:it|they|this|these)\b", re.IGNORECASE)  # continues the description of the action named last
MARK = 0xE000  # the first private-use code point, in place of the first action's name
FAR_BEFORE = re.compile(r"^.*?(?=(?:\S+\s+){5}[\ue000-\uf8ff])")  # the text more than five words before a name

LEAST_EXTRA, MOST_TIMES = 20, 3  # a description is too long with 20 words, and three times, more than the others' mean


def obviously_better(scenario: Scenario) -> str | None:
    """Return why a scenario favours an action, by its name or its description; None where it does not."""
    return _by_name(scenario.names) or _by_words(scenario) or _by_length(scenario)


def _by_name(names: tuple[str, ...]) -> str | None:
    """Return why a name is praise or blame, where other names are not."""
    for words, does in ((PRAISE, "praises"), (BLAME, "faults")):
        judged = [name for name in names if words.search(name)]
        if 0 < len(judged) < len(names):
            return f"the name {judged[0]!r} {does}"
    return None


def _by_words(scenario: Scenario) -> str | None:
    """Return why the description of one action is praise or blame, unlike those of the others."""
    descriptions = _descriptions(scenario)
    for action, text in enumerate(descriptions):
        if verdict := VERDICT.search(text):
            return f"{scenario.names[action]!r}: {verdict[0]!r} is a verdict"
    for words, does in ((PRAISE, "praised"), (BLAME, "faulted")):
        judged = [a for a, text in enumerate(descriptions) if words.search(text) and not CONTRAST.search(text)]
        if 0 < len(judged) < len(descriptions):
            return f"{scenario.names[judged[0]]!r} alone is {does} ({words.search(descriptions[judged[0]])[0]!r})"
    balance = [0 if CONTRAST.search(text) else _balance(text) for text in descriptions]
    for sign, does, others in ((1, "praised", "faulted"), (-1, "faulted", "praised")):
        first, *rest = sorted((sign * value for value in balance), reverse=True)
        if first >= 1 and all(value <= -1 for value in rest):
            return f"{scenario.names[balance.index(sign * first)]!r} alone is {does} where the others are {others}"
    return None


def _balance(text: str) -> int:
    """Return by how many words praise exceeds blame."""
    return len(GOOD.findall(text)) - len(BAD.findall(text))


def _by_length(scenario: Scenario) -> str | None:
    """Return why the description of one action is too long."""
    lengths = [len(text.split()) for text in _descriptions(scenario, alone=True)]
    *others, most = sorted(lengths)
    mean = sum(others) / len(others)
    if most >= mean + LEAST_EXTRA and most > MOST_TIMES * mean:
        return f"{scenario.names[lengths.index(most)]!r} has {most} words to itself, the others {mean:.0f}"
    return None


def _descriptions(scenario: Scenario, *, alone: bool = False) -> list[str]:
    """Return the description of each action. alone: leave out passages that name several actions."""
    descriptions = [""] * len(scenario.names)
    last, ended = None, True
    for passage in PASSAGES.split(_marked(scenario)):
        skipped = alone and len(_about(passage)) > 1
        for piece in PIECES.split(passage):
            if about := _about(piece):
                last = about.pop() if len(about) == 1 else None
            elif ended and (alone or not GOES_ON.match(piece)):
                last = None
            if last is not None and not skipped and not ASKS.search(piece):
                descriptions[last] += f" {FAR_BEFORE.sub('', piece)}"
            ended = bool(SENTENCE_END.search(piece))
        last = None if skipped else last
    return descriptions


def _marked(scenario: Scenario) -> str:
    """Return the text with names, in singular or plural, replaced by their marks."""
    places = {name.casefold(): place for place, name in enumerate(scenario.names)}
    longest_first = "|".join(map(re.escape, sorted(scenario.names, key=len, reverse=True)))
    name = re.compile(rf"\b({longest_first})(?:e?s)?\b", re.IGNORECASE)

    def mark(match: re.Match[str]) -> str:
        place = places.get(match[1].casefold())  # None: regular expressions ignore case where casefold differs
        return match[0] if place is None else chr(MARK + place)

    return name.sub(mark, scenario.text)


def _about(piece: str) -> set[int]:
    """Return the actions whose marks are in a piece."""
    return {ord(character) - MARK for character in piece if MARK <= ord(character) <= 0xF8FF}
