"""What replies say, held against what happened: Fig. `reasoning-comparison` and `reasoning-variance`."""

from typing import Annotated

from pydantic import Field

from rmft.params.section import Count, Name, Section

LEXICAL = "lexical"


class Reasoning(Section):
    """Whose replies are examined, and by which judge.

    of: evaluations of experiments told in words. judge: of whether rewards are called unstable, `lexical` or a model of
    kind endpoint, which then judges beside the lexical one. words: what that one looks for. prompt: the question to a
    model, which answers with max_tokens at most.
    """

    of: dict[Name, Annotated[list[Name], Field(min_length=1)]]
    judge: Name
    words: str
    prompt: str
    max_tokens: Count
