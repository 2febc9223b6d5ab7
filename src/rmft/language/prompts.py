"""Prompts from template files, which a user may replace: the four steps of App. `prompt-open-weight`.

A folder of templates (Jinja) holds

    opening.j2   actions, what to reply, how it pays, what the goal is: once, at the beginning
    feedback.j2  what the last round brought
    summary.j2   what all past rounds brought, for summary-type interaction
    request.j2   the round's number and the form of the reply
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateError

from rmft.errors import InputError
from rmft.language.protocol import Protocol, Round

TEMPLATES = ("opening", "feedback", "summary", "request")
# What a template can raise: it is a small program of the user's, and may be no text at all.
BROKEN = (TemplateError, ArithmeticError, TypeError, ValueError)


@dataclass(frozen=True)
class Prompts:
    """The messages that a model is sent."""

    opening: Template
    feedback: Template
    summary: Template
    request: Template

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder of templates. Raise InputError where one is missing or is no template."""
        return cls(**{name: read_template(folder / f"{name}.j2") for name in TEMPLATES})

    def message(self, protocol: Protocol, past: Sequence[Round], context: tuple[float, ...] = ()) -> str:
        """Return what the model is told before round len(past) + 1, context (p,) included where there is one.

        In a dialogue that is the opening and then, turn by turn, what is new; in a summary it is everything.
        Raises InputError where a template uses what there is not.
        """
        parts = []
        if not past or protocol.interaction == "summary":
            parts.append(self.opening)
        if past:
            parts.append(self.summary if protocol.interaction == "summary" else self.feedback)
        values = {
            **vars(protocol),
            "names": protocol.scenario.names if protocol.scenario else (),
            "example": _example(protocol.d),
            "past": past,
            "last": past[-1] if past else None,
            "t": len(past) + 1,
            "context": context,
        }
        return "\n".join(rendered(part, values) for part in (*parts, self.request))


def highlighted(value: float) -> str:
    """Return a number as prompts show it: two decimals, made to stand out (the paper highlights numeric tokens)."""
    return f"**{value:.2f}**"


def read_template(path: Path) -> Template:
    """Read a template. Raise InputError where there is none."""
    # Prompts are plain text for a model, not HTML.
    environment = Environment(
        loader=FileSystemLoader(path.parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = highlighted
    try:
        return environment.get_template(path.name)
    except BROKEN as error:
        raise InputError(f"{path}: {type(error).__name__}: {error}") from None


def rendered(template: Template, values: dict[str, Any]) -> str:
    """Return one template's text. Raise InputError where it uses what there is not."""
    try:
        return template.render(values).strip()
    except BROKEN as error:
        raise InputError(f"{template.filename}: {type(error).__name__}: {error}") from None


def _example(d: int) -> dict[str, list[float] | float]:
    """Return a policy, rewards and their inner product, to show how a policy pays."""
    policy = [0.5, *([round(0.5 / (d - 1), 2)] * (d - 1))]
    policy[-1] = round(1 - sum(policy[:-1]), 2)
    rewards = [round(8.0 - 6.0 * a / (d - 1), 1) for a in range(d)]
    return {"policy": policy, "rewards": rewards, "earned": sum(p * r for p, r in zip(policy, rewards, strict=True))}
