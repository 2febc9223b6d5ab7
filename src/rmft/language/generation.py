"""Generating scenarios with a model until enough of them are valid, new and fair.

Symbols: d actions. A record is a scenario as in a line of a file.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from jinja2 import Template

from rmft.errors import InputError
from rmft.language.fairness import obviously_better
from rmft.language.prompts import rendered
from rmft.language.scenarios import DOMAINS, Record, check_record, scenario_of
from rmft.streams import stream

GRAM = 5  # characters
ALIKE = 0.5  # reached where about one word in four differs; texts of one author on different subjects have 0.02 to 0.2
PATIENCE = 5  # fruitless responses in a row after which generation gives up
LONGEST_RECORD = 20_000  # characters
TITLES = 30  # existing scenarios that a prompt lists at most

ASIDE = {"‘": "'", "’": "'", "–": "-", "—": "-", "‑": "-"}  # typographic characters, and their plain forms
NUMBERING = re.compile(r"(?:[0-9]+|[A-Za-z])[.):] +")
TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def generate(
    complete: Callable[[str, int], str],
    template: Template,
    count: int,
    d: int,
    seed: int,
    known: Sequence[Record] = (),
    batch: int = 10,
    on_progress: Callable[[list[Record]], None] = lambda _: None,
) -> list[Record]:
    """Return exactly `count` generated scenarios of d actions that are valid, new and fair.

    complete: returns the model's response to a prompt, given a seed. template: of the prompt, with the variables
    `batch` (how many scenarios to write), `d`, `domains` (the rarest so far) and `avoid` (existing scenarios in these
    domains). known: existing scenarios, which count as duplicates. on_progress: called with all new scenarios after
    each response.

    A prompt depends only on the scenarios that exist, so that a run that takes the scenarios of an interrupted run as
    `known` continues as that run would have. Raise InputError after PATIENCE fruitless responses in a row.
    """
    generated: list[Record] = []
    refused: Counter[str] = Counter()
    fruitless = 0
    while len(generated) < count:
        existing = [*known, *generated]
        wanted = min(batch, count - len(generated))
        prompt = _prompt(template, existing, wanted, d)
        number = stream(seed, "sampling", "scenarios", d, len(existing), fruitless).integers(2**31)
        response = complete(prompt, int(number))
        examples = [record for record in map(_cleaned, read_response(prompt)) if not _flaw(record, d)]
        new, reasons = _accepted(map(_cleaned, read_response(response)), [*existing, *examples], d)
        generated += new[:wanted]
        fruitless, refused = (0, Counter()) if new else (fruitless + 1, refused + reasons)
        on_progress(list(generated))
        if fruitless == PATIENCE:
            why = "; ".join(f"{reason} ({times})" for reason, times in refused.most_common(3))
            raise InputError(
                f"scenarios: {PATIENCE} answers in a row brought no new scenario of {d} actions ({len(generated)} of "
                f"{count} are there); refused: {why or 'nothing, for there was no JSON object with a scenario'}"
            )
    return generated


def _prompt(template: Template, existing: Sequence[Record], wanted: int, d: int) -> str:
    """Return the prompt for `wanted` scenarios in the rarest domains."""
    counts = Counter(record["domain"] for record in existing)
    domains = sorted(DOMAINS[:-1], key=lambda domain: counts[domain])[:wanted]  # the sort is stable
    titles = [", ".join(record["actions"]) for record in existing if record["domain"] in domains]
    return rendered(template, {"batch": wanted, "d": d, "domains": domains, "avoid": titles[-TITLES:]})


def read_response(response: str) -> list[Record]:
    """Return the JSON objects of a response that have a key "scenario", wherever they stand in the text.

    Numbering, remarks, code fences, trailing commas and a truncated end do no harm.
    """
    text, decoder = TRAILING_COMMA.sub(r"\1", response), json.JSONDecoder(strict=False)
    records = []
    start = text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, length = decoder.raw_decode(text[start : start + LONGEST_RECORD])
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and "scenario" in value:
            records.append(value)
            end = start + length
        start = text.find("{", end)
    return records


def _accepted(records: Iterable[Record], existing: Sequence[Record], d: int) -> tuple[list[Record], Counter[str]]:
    """Return the records that are valid and new, and how many of the others were refused for which reason."""
    refused: Counter[str] = Counter()
    valid = []
    for record in records:
        if flaw := _flaw(record, d):
            refused[flaw] += 1
        else:
            valid.append(record)
    new = list(_without_duplicates(valid, existing))
    refused["is there already"] = len(valid) - len(new)
    return new, +refused


def _flaw(record: Record, d: int) -> str | None:
    """Return why a record cannot be used as a scenario of d actions, or None."""
    try:
        check_record(record)
    except InputError as error:
        return str(error)
    if len(record["actions"]) != d:
        return f"actions: {len(record['actions'])} names"
    return obviously_better(scenario_of(record))


def near_duplicates(texts: Sequence[str], threshold: float = ALIKE) -> list[tuple[int, int, float]]:
    """Return pairs of texts of at least the threshold's similarity, as (earlier index, later index, similarity).

    Similarity is the Jaccard index of the texts' sets of 5-grams of characters, in lower case and without punctuation.
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
    """Return the distinct runs of GRAM characters of a text, in order; a shorter text is one run."""
    plain = " ".join(re.findall(r"[^\W_]+", text.casefold()))
    return list(dict.fromkeys(plain[i : i + GRAM] for i in range(max(len(plain) - GRAM + 1, 1))))


def _without_duplicates(records: Sequence[Record], existing: Sequence[Record]) -> Iterator[Record]:
    """Yield the records whose actions and texts resemble no record before them and no existing one."""
    alike = {later for _, later, _ in near_duplicates([record["scenario"] for record in (*existing, *records)])}
    actions = {_actions(record) for record in existing}
    for place, record in enumerate(records, start=len(existing)):
        if place not in alike and _actions(record) not in actions:
            actions.add(_actions(record))
            yield record


def _actions(record: Record) -> frozenset[str]:
    return frozenset(map(str.casefold, record["actions"]))


def _cleaned(value: Record) -> Record:
    """Return a model's JSON object as a record in plain form; an unknown domain becomes "other"."""
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
    """Return a name without numbering, typographic characters and a full stop.

    >>> _plain(" 2. The farmers’ market.")
    "The farmers' market"
    """
    name = " ".join(name.translate(str.maketrans(ASIDE)).split())
    return NUMBERING.sub("", name, count=1).removesuffix(".") if NUMBERING.match(name) else name.removesuffix(".")
