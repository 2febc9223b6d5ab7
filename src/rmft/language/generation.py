"""Asking a model for scenarios until there are enough that are valid, new and fair. Pure: who asks keeps the answers.

Symbols: d actions; a record is a scenario as a line of a file has it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from jinja2 import Template

from rmft.errors import InputError
from rmft.language.fairness import obviously_better
from rmft.language.prompts import rendered
from rmft.language.scenarios import DOMAINS, Record, check, scenario_of
from rmft.streams import stream

GRAM = 5  # characters
ALIKE = 0.5  # where about one word in four was changed; two texts of one author on different things have 0.02 to 0.2
PATIENCE = 5  # batches in a row that bring nothing before generation gives up
TITLES = 30  # at most, that a model is told to avoid

ASIDE = {"‘": "'", "’": "'", "–": "-", "—": "-", "‑": "-"}  # how models dress what is plain in a name
NUMBERING = re.compile(r"(?:[0-9]+|[A-Za-z])[.):] +")
TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def generate(
    ask: Callable[[str, int], str],
    template: Template,
    count: int,
    d: int,
    seed: int,
    known: Sequence[Record] = (),
    batch: int = 10,
    on_progress: Callable[[list[Record]], None] = lambda _: None,
) -> list[Record]:
    """Ask a model for scenarios until there are exactly `count` new ones of d actions that are valid, new and fair.

    ask: answers a prompt, given a seed. template: of the prompt, which is told how many scenarios are wanted (`batch`),
    of how many actions (`d`), in which `domains`, the rarest so far, and what there is of them already (`avoid`).
    known: what is there already and not to be told again. on_progress: hears of all new ones after every batch.

    What is asked next depends on what there is and on nothing else, so that a run which begins with the scenarios of an
    interrupted one as `known`, and asks for the rest, goes on as that one would have.
    Raises InputError after PATIENCE batches in a row that brought nothing.
    """
    found: list[Record] = []
    refused: Counter[str] = Counter()
    fruitless = 0
    while len(found) < count:
        there = [*known, *found]
        wanted = min(batch, count - len(found))
        prompt = _prompt(template, there, wanted, d)
        answer = ask(prompt, int(stream(seed, "sampling", "scenarios", d, len(there), fruitless).integers(2**31)))
        examples = [record for record in map(_cleaned, read_answer(prompt)) if not _flaw(record, d)]
        new, reasons = _accepted(map(_cleaned, read_answer(answer)), [*there, *examples], d)
        found += new[:wanted]
        fruitless, refused = (0, Counter()) if new else (fruitless + 1, refused + reasons)
        on_progress(list(found))
        if fruitless == PATIENCE:
            why = "; ".join(f"{reason} ({times})" for reason, times in refused.most_common(3))
            raise InputError(
                f"scenarios: {PATIENCE} answers in a row brought no new scenario of {d} actions ({len(found)} of "
                f"{count} are there); refused: {why or 'nothing, for there was no JSON object with a scenario'}"
            )
    return found


def _prompt(template: Template, there: Sequence[Record], wanted: int, d: int) -> str:
    """Return what the model is told."""
    told = Counter(record["domain"] for record in there)
    domains = sorted(DOMAINS[:-1], key=lambda domain: told[domain])[:wanted]  # the sort is stable
    titles = [", ".join(record["actions"]) for record in there if record["domain"] in domains]
    return rendered(template, {"batch": wanted, "d": d, "domains": domains, "avoid": titles[-TITLES:]})


def read_answer(answer: str) -> list[Record]:
    """Return the objects of an answer that have a scenario: a line each, in an array or in another object, or fenced.

    Numbering, remarks, trailing commas and an end that was cut off do no harm.
    """
    text, decoder = TRAILING_COMMA.sub(r"\1", answer), json.JSONDecoder(strict=False)
    found = []
    start = text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, after = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and "scenario" in value:
            found.append(value)
            end = after
        start = text.find("{", end)
    return found


def _accepted(records: Iterable[Record], there: Sequence[Record], d: int) -> tuple[list[Record], Counter[str]]:
    """Return the records that can be used and are new, and why how many of the others are not."""
    refused: Counter[str] = Counter()
    valid = []
    for record in records:
        if flaw := _flaw(record, d):
            refused[flaw] += 1
        else:
            valid.append(record)
    new = list(_without_duplicates(valid, there))
    refused["is there already"] = len(valid) - len(new)
    return new, +refused


def _flaw(record: Record, d: int) -> str | None:
    """Return why a record cannot be used as a scenario of d actions, or None."""
    try:
        check(record)
    except InputError as error:
        return str(error)
    if len(record["actions"]) != d:
        return f"actions: {len(record['actions'])} names"
    return obviously_better(scenario_of(record))


def near_duplicates(texts: Sequence[str], threshold: float = ALIKE) -> list[tuple[int, int, float]]:
    """Return pairs of texts that are much the same, (earlier, later, similarity), by place.

    Similarity is the Jaccard index of their sets of 5 characters in a row, in lower case and without punctuation: 1
    for the same words, 0 where nothing is shared. A pair is one where it is at least `threshold`.
    """
    import numpy as np
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    grams = [[numbers.setdefault(gram, len(numbers)) for gram in _grams(text)] for text in texts]
    sizes = np.array([len(of_text) for of_text in grams])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    flat = np.array([number for of_text in grams for number in of_text], dtype=int)
    has = csr_array((np.ones(len(flat), dtype=np.int32), flat, starts), shape=(len(texts), max(len(numbers), 1)))
    common = (has @ has.T).toarray()
    similarity = common / np.maximum(sizes[:, None] + sizes - common, 1)
    earlier, later = np.nonzero(np.triu(similarity >= threshold, 1))
    return [(int(i), int(j), float(similarity[i, j])) for i, j in zip(earlier, later, strict=True)]


def _grams(text: str) -> list[str]:
    """Return the different runs of GRAM characters of a text, in order; a shorter text is one run."""
    plain = " ".join(re.findall(r"[^\W_]+", text.casefold()))
    return list(dict.fromkeys(plain[i : i + GRAM] for i in range(max(len(plain) - GRAM + 1, 1))))


def _without_duplicates(records: Sequence[Record], there: Sequence[Record]) -> Iterator[Record]:
    """Yield the records whose actions and texts are like none before them, nor like those that are there."""
    alike = {later for _, later, _ in near_duplicates([record["scenario"] for record in (*there, *records)])}
    actions = {_actions(record) for record in there}
    for place, record in enumerate(records, start=len(there)):
        if place not in alike and _actions(record) not in actions:
            actions.add(_actions(record))
            yield record


def _actions(record: Record) -> frozenset[str]:
    return frozenset(map(str.casefold, record["actions"]))


def _cleaned(value: Record) -> Record:
    """Return what a model wrote as a record, in plain form; a domain that is not on the list is "other"."""
    text, names = value["scenario"], value.get("actions", value.get("action"))
    domain = re.sub(r"[\W_]+", "-", str(value.get("domain", "")).casefold()).strip("-")
    return {
        "scenario": " ".join(text.split()) if isinstance(text, str) else text,
        "actions": [_plain(name) if isinstance(name, str) else name for name in names]
        if isinstance(names, list)
        else names,
        "domain": domain if domain in DOMAINS else "other",
    }


def _plain(name: str) -> str:
    """Return a name without numbering, typographic dress and a full stop.

    >>> _plain(" 2. The farmers’ market.")
    "The farmers' market"
    """
    name = " ".join(name.translate(str.maketrans(ASIDE)).split())
    return NUMBERING.sub("", name, count=1).removesuffix(".") if NUMBERING.match(name) else name.removesuffix(".")
