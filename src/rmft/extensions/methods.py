"""Training methods of extensions: how a language model learns from the rollouts of an iteration."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from rmft.errors import UNKNOWN_KEY, InputError, first_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True)
class TrainingMethod:
    """A registered method.

    title: in tables. settings: the dataclass or pydantic model of its settings. train: see `stages.method`.
    """

    title: str
    settings: type
    train: Callable[..., Any]

    def complete(self, values: object) -> dict[str, Any]:
        """Return settings with all defaults, as JSON has them. Raise InputError, which begins with the key."""
        from pydantic import ValidationError
        from pydantic_core import to_json

        from rmft.params.section import plain

        adapter = _adapter(self.settings)
        try:
            # JSON, since a strict dataclass takes no map of Python's
            return adapter.dump_python(adapter.validate_json(to_json(values)), mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, ("settings", *first["loc"])))
            unknown = f"unknown key; {_keys_of(self.settings)}" if first["type"] in UNKNOWN_KEY else None
            raise InputError(f"{key}: {unknown or plain(first['msg'])}") from None
        except Exception as error:  # of the user's own code in it
            raise InputError(f"settings: {type(error).__name__}: {first_line(error)}") from None


def require_model_of_settings(label: str, settings: object) -> None:
    """Raise InputError where what a method registers for its settings cannot check any."""
    from pydantic import BaseModel, PydanticUserError

    if not isinstance(settings, type) or not (is_dataclass(settings) or issubclass(settings, BaseModel)):
        raise InputError(f"{label}: settings must be a class that is a dataclass or a pydantic model")
    try:
        _adapter(settings).rebuild(raise_errors=True)  # else it would wait for names that are never defined
    except (PydanticUserError, NameError, TypeError) as error:
        raise InputError(f"{label}: settings: {first_line(error)}") from None


def _adapter(settings: type) -> "TypeAdapter[Any]":
    from pydantic import ConfigDict, TypeAdapter, with_config

    strict = with_config(ConfigDict(extra="forbid", strict=True))
    return TypeAdapter(strict(settings) if is_dataclass(settings) else settings)


def _keys_of(settings: type) -> str:
    """Say which keys settings have."""
    names = [field.name for field in fields(settings)] if is_dataclass(settings) else [*settings.model_fields]
    return f"there are {', '.join(names)}" if names else "the method has no settings"


METHODS: dict[str, TrainingMethod] = {}  # registered methods by name
