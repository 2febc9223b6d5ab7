"""What all parts of params.yaml share: the base of their records, types of fields, the wording of refusals."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rmft.errors import InputError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]
Actions = Annotated[int, Field(ge=2, le=127)]  # in files an action has a byte
Several = Annotated[list[str], Field(min_length=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Beta], Field(min_length=2, max_length=2)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$")]


class Section(BaseModel):
    """A part of params.yaml: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def canonical(self) -> str:
        """Return the one JSON text of these values; Snakemake compares it to see whether a job must rerun."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def changed(self, key: str, changes: Mapping[str, Any]) -> Self:
        """Return these values with others in place of some. Raise InputError with the key, which begins with `key`."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise InputError(_first(key, error)) from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `canonical` back. Raise InputError with the dotted key."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(f"settings: {_first('', error)}") from None


def _first(key: str, error: ValidationError) -> str:
    found = error.errors()[0]
    return f"{'.'.join(filter(None, [key, *map(str, found['loc'])]))}: {found['msg']}"


def known(key: str, name: str, among: dict[str, Any]) -> None:
    """Raise ValueError where a name is none of those there are."""
    if name not in among:
        raise ValueError(f"{key}: unknown {name!r}; one of {', '.join(among)}")


def prefixed(key: str, check: Callable[..., None], *arguments: object, **options: object) -> None:
    """Run a check of another module, and raise its InputError as a ValueError that begins with the key."""
    try:
        check(*arguments, **options)
    except InputError as error:
        raise ValueError(f"{key}: {error}") from None
