"""Training methods of extensions: how a language model learns from the rollouts of an iteration."""

import json
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from rmft.errors import InputError


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
        from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

        kind = self.settings
        if is_dataclass(kind):
            kind = with_config(ConfigDict(extra="forbid", strict=True))(kind)
        adapter = TypeAdapter(kind)
        try:
            # JSON, since a strict dataclass takes no map of Python's
            return adapter.dump_python(adapter.validate_json(json.dumps(values)), mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "settings"
            raise InputError(f"{key}: {first['msg'].removeprefix('Value error, ')}") from None


METHODS: dict[str, TrainingMethod] = {}  # registered methods by name
