"""Prompts from template files, which a user may replace: the four steps of App. `prompt-open-weight`.

A folder of templates (Jinja) holds

    opening.j2   the actions, the reply, the rewards and the goal: once, at the beginning
    feedback.j2  the rewards of the last round
    summary.j2   the rewards of all past rounds, for summary interaction
    request.j2   the round's number and the form of the reply
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jinja2 import FileSystemLoader, StrictUndefined, Template, UndefinedError, meta
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rmft.errors import InputError
from rmft.language.protocol import Protocol, Round

TEMPLATES = ("opening", "feedback", "summary", "request")
MOST_REPEATED, MOST_POWER = 1000, 64  # how often a template may repeat a text, and the largest exponent in it


class _Sandbox(ImmutableSandboxedEnvironment):
    """An environment in which no product is huge: a folder of prompts may be somebody else's."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Return a product or a power. Raise SecurityError where it would be huge."""
        values = (left, right)
        is_of_texts = any(isinstance(value, str | list | tuple) for value in values)
        if is_of_texts and any(isinstance(value, int) and value > MOST_REPEATED for value in values):
            raise SecurityError(f"repeats a text more than {MOST_REPEATED} times")
        if operator == "**" and not (abs(right) <= MOST_POWER and abs(left) <= MOST_REPEATED):
            raise SecurityError(f"a power above {MOST_REPEATED} to the {MOST_POWER}")
        return super().call_binop(context, operator, left, right)


@dataclass(frozen=True)
class Prompts:
    """The templates of the messages to a model."""

    opening: Template
    feedback: Template
    summary: Template
    request: Template

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder of templates. Raise InputError where one is missing or malformed."""
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; it must hold {', '.join(f'{name}.j2' for name in TEMPLATES)}")
        return cls(**{name: read_template(folder / f"{name}.j2") for name in TEMPLATES})

    def message(self, protocol: Protocol, past: Sequence[Round], context: tuple[float, ...] = ()) -> str:
        """Return the message before round len(past) + 1. context: (p,), empty without contexts.

        In a dialogue the first message is the opening, and each later one holds the last round's feedback; in summary
        interaction each message holds the opening and all past rounds. Raise InputError where a template uses an
        undefined variable.
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
    """Return a number as prompts show it: two decimals, in bold (the paper highlights numeric tokens)."""
    return f"**{value:.2f}**"


def read_template(path: Path) -> Template:
    """Read a template. Raise InputError where the file is missing or malformed, or includes another file."""
    # Prompts are plain text for a model, not HTML. A folder of prompts may be somebody else's: no code of it runs.
    environment = _Sandbox(
        loader=FileSystemLoader(path.parent, encoding="utf-8-sig"),  # editors of Windows begin files with a mark
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = highlighted
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        source, _, _ = environment.loader.get_source(environment, path.name)
        included = [
            repr(name) if name else "files" for name in meta.find_referenced_templates(environment.parse(source))
        ]
        template = environment.get_template(path.name)
    except Exception as error:  # a template is a program, of the user's
        raise InputError(f"{path}: {type(error).__name__}: {error}") from None
    if included:  # no input of a job: nothing would be made again after an edit of it
        raise InputError(f"{path}: takes text from {', '.join(included)}; write that text into the template itself")
    return template


def rendered(template: Template, values: dict[str, Any]) -> str:
    """Return the text of a template. Raise InputError where it uses an undefined variable or fails."""
    try:
        text = template.render(values).strip()
        text.encode()  # not every text that a template can write can be sent
        return text
    except UndefinedError as error:
        raise InputError(f"{template.filename}: {error.message}; a template can use {', '.join(values)}") from None
    except Exception as error:  # as above
        raise InputError(f"{template.filename}: {type(error).__name__}: {error}") from None


def _example(d: int) -> dict[str, list[float] | float]:
    """Return a policy (d,), rewards (d,) and their inner product, as an example in prompts."""
    each = min(round(0.5 / (d - 1), 2), 50 // max(d - 2, 1) / 100)  # so small that none is below 0
    policy = [0.5, *([each] * (d - 1))]
    policy[-1] = round(1 - sum(policy[:-1]), 2) + 0.0  # no negative zero
    rewards = [round(8.0 - 6.0 * a / (d - 1), 1) for a in range(d)]
    return {"policy": policy, "rewards": rewards, "earned": sum(p * r for p, r in zip(policy, rewards, strict=True))}
