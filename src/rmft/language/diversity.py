"""How varied a set of texts is: App. `prompt-diversity-ablation`.

Symbols: N words, of which V(i) distinct ones occur i times each.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rmft.errors import InputError
from rmft.language.scenarios import read_user_text

# ASSUME: a word is a run of letters, in lower case, with inner apostrophes; hyphens separate words.
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MARK = re.compile(r"[^\w\s'’-]")  # hyphens and apostrophes are parts of terms
SEGMENT = 100  # ASSUME: words in a segment; the paper gives no number, and this is the default of common libraries


def words(text: str) -> list[str]:
    """Return a text's words.

    >>> words("Dr. O'Neil's 8-hour shifts")
    ['dr', "o'neil's", 'hour', 'shifts']
    """
    return WORD.findall(text.lower().replace("’", "'"))


def diversity(texts: Sequence[str], jargon: Collection[str], segment: int = SEGMENT) -> dict[str, float]:
    """Return four measures of a set of texts, read as one long text.

    vocabulary: the number of distinct words. yule_k: 10⁴ (Σ i² V(i) - N) / N², which measures repetition independently
    of N. msttr: the mean type-token ratio of whole segments. jargon: how many of the given terms occur.
    Raise InputError where there are fewer than two segments.
    """
    from lexicalrichness import LexicalRichness  # slow: it loads matplotlib

    tokens = [word for text in texts for word in words(text)]
    whole = len(tokens) // segment * segment
    if whole < 2 * segment:
        raise InputError(f"diversity of {len(tokens)} words: at least two segments of {segment} words are needed")
    # The library's `discard` would drop a whole last segment too.
    segments = LexicalRichness(tokens[:whole], preprocessor=None, tokenizer=None)
    everything = LexicalRichness(tokens, preprocessor=None, tokenizer=None)
    return {
        "vocabulary": everything.terms,
        "yule_k": float(everything.yulek),
        "msttr": segments.msttr(segment, discard=False),
        "jargon": len(jargon_terms(texts, jargon)),
    }


def jargon_terms(texts: Sequence[str], jargon: Collection[str]) -> set[str]:
    """Return the terms that occur in the texts, in singular or plural; never across a punctuation mark or two texts.

    ASSUME: the jargon is a list of terms; the paper counts jargon and does not define it.
    """
    passages = [" ".join(words(passage)) for text in texts for passage in MARK.split(text)]
    joined = f" {' | '.join(passages)} "
    forms = {term: " ".join(words(term)) for term in jargon}
    return {term for term, form in forms.items() if any(f" {form}{plural} " in joined for plural in ("", "s", "es"))}


def read_jargon(path: Path) -> dict[str, str]:
    """Read a list of terms with one domain a line (`domain: term, term`; `#` begins a comment), as {term: domain}."""
    domains: dict[str, str] = {}
    for number, line in enumerate(read_user_text(path).splitlines(), start=1):
        if not (line := line.partition("#")[0].strip()):
            continue
        domain, colon, terms = line.partition(":")
        if not colon:
            raise InputError(f"{path}:{number}: is not of the form `domain: term, term`")
        for term in map(str.strip, terms.split(",")):
            if not words(term) or term in domains:
                raise InputError(f"{path}:{number}: {term!r} is no term, or is there twice")
            domains[term] = domain.strip()
    return domains
