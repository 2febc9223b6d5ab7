"""The glossary in docs/glossary.md, as the report shows it: a term is a heading, its definition the text below it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from rmft.artifacts.text import read_text

SECTION = re.compile(r"^## (.+)\n+((?:.+\n?)+)", re.MULTILINE)
EVERYWHERE = ("Regret", "Training", "Instance", "Held out")  # words of most sentences, which are not linked


@dataclass(frozen=True)
class Term:
    """A term and its definition."""

    name: str
    definition: str

    @property
    def id(self) -> str:
        """Return the anchor in the report, which ends as that of the heading on GitHub does."""
        return "term-" + re.sub(r"[^\w -]", "", self.name.lower()).replace(" ", "-")


def read_glossary(path: Path) -> list[Term]:
    """Return the terms in their order."""
    return [Term(name, " ".join(text.split())) for name, text in SECTION.findall(read_text(path))]


def linker(terms: Sequence[Term]) -> Callable[[str], Markup]:
    """Return a function that makes HTML of a text: the first mention of each term links to its definition."""
    anchors = {term.name.lower(): term.id for term in terms if term.name not in EVERYWHERE}
    names = "|".join(re.escape(name) for name in sorted(anchors, key=len, reverse=True))
    pattern = re.compile(rf"\b({names})(?=s?\b)", re.IGNORECASE)

    def linked(text: str) -> Markup:
        named = set()

        def link(match: re.Match[str]) -> str:
            anchor = anchors[match[1].lower()]
            if anchor in named:
                return match[0]
            named.add(anchor)
            return f'<a class="term" href="#{anchor}">{match[0]}</a>'

        return Markup(pattern.sub(link, str(escape(text))))

    return linked
