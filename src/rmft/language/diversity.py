"""How varied a set of texts is: App. `prompt-diversity-ablation`.

Symbols: N words, of which V(i) different ones occur i times each.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rmft.errors import InputError
from rmft.language.scenarios import read_user_text

# ASSUME: a word is a run of letters, with apostrophes within, in lower case; hyphens part words, and numbers are none.
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MARK = re.compile(r"[^\w\s'’-]")  # hyphens and apostrophes are parts of terms
SEGMENT = 100  # ASSUME: words of a segment, which the paper does not give: what the common libraries take


def words(text: str) -> list[str]:
    """Return a text's words.

    >>> words("Dr. O'Neil's 8-hour shifts")
    ['dr', "o'neil's", 'hour', 'shifts']
    """
    return WORD.findall(text.lower().replace("’", "'"))


def diversity(texts: Sequence[str], jargon: Collection[str], segment: int = SEGMENT) -> dict[str, float]:
    """Return the four measures of a set of texts, which is read as one long text.

    vocabulary: different words. yule_k: 10⁴ (Σ i² V(i) - N) / N², how much words repeat, whatever N. msttr: different
    words in a segment over its length, mean over whole segments; what is left at the end is no segment. jargon: how
    many of the given terms occur. Raises InputError where there are not two segments.
    """
    from lexicalrichness import LexicalRichness  # slow: it loads matplotlib

    said = [word for text in texts for word in words(text)]
    whole = len(said) // segment * segment
    if whole < 2 * segment:
        raise InputError(f"diversity of {len(said)} words: at least two segments of {segment} words are needed")
    # The library's own discarding of what is left at the end also discards a last segment that is whole.
    segments = LexicalRichness(said[:whole], preprocessor=None, tokenizer=None)
    everything = LexicalRichness(said, preprocessor=None, tokenizer=None)
    return {
        "vocabulary": everything.terms,
        "yule_k": float(everything.yulek),
        "msttr": segments.msttr(segment, discard=False),
        "jargon": len(jargon_terms(texts, jargon)),
    }


def jargon_terms(texts: Sequence[str], jargon: Collection[str]) -> set[str]:
    """Return the terms that occur in the texts, also in the plural; never across a mark or from one text to the next.

    ASSUME: jargon is what a list of terms says it is; the paper counts such terms and does not define them.
    """
    passages = [" ".join(words(passage)) for text in texts for passage in MARK.split(text)]
    said = f" {' | '.join(passages)} "
    forms = {term: " ".join(words(term)) for term in jargon}
    return {term for term, form in forms.items() if any(f" {form}{plural} " in said for plural in ("", "s", "es"))}


def read_jargon(path: Path) -> dict[str, str]:
    """Read a list of terms, a line a domain (`domain: term, term`; `#` begins a comment): terms with their domain."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_user_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        domain, colon, terms = line.partition(":")
        if not colon:
            raise InputError(f"{path}:{number}: is not of the form `domain: term, term`")
        for term in map(str.strip, terms.split(",")):
            if not words(term) or term in found:
                raise InputError(f"{path}:{number}: {term!r} is no term, or is there twice")
            found[term] = domain.strip()
    return found
