"""What all parts of params.yaml share: the base of their records, types of fields, the wording of refusals."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rmft.errors import UNKNOWN_KEY, InputError, did_you_mean, unknown

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ReplyLimit = Annotated[
    Count | None,
    Field(
        exclude_if=lambda limit: limit is None,
        description="Largest number of tokens of a completion, where `protocol` allows more; null: as `protocol` says.",
    ),
]
AtLeastTwo = Annotated[int, Field(ge=2)]
Actions = Annotated[int, Field(ge=2, le=127)]  # in files an action has a byte
Several = Annotated[list[str], Field(min_length=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[list[Beta], Field(min_length=2, max_length=2)]
EXTENSION = re.compile(r"extensions(/[\w-][\w.-]*)+\.py")  # a user's own file, in a folder that DVC compares
VARIABLE = r"^[A-Z][A-Z0-9_]*$"
LABEL, NAME, COMMIT = r"^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$", r"^[a-z0-9]+([_-][a-z0-9]+)*$", r"^[0-9a-f]{40}$"
DEVICE = r"^(cpu|cuda|mps)(:\d+)?$"
Label = Annotated[str, Field(pattern=LABEL)]  # the paper's, or one of your own
Name = Annotated[str, Field(pattern=NAME)]
Commit = Annotated[str, Field(pattern=COMMIT)]
MEANT = {  # by patterns
    LABEL: "must be letters and digits, joined by -",
    NAME: "must be small letters and digits, joined by - or _",
    COMMIT: "must be the 40 digits of a commit",
    DEVICE: "must be cpu, cuda or mps, or one of several, such as cuda:1",
    VARIABLE: "must name an environment variable: capital letters, digits and _",
    f"^{EXTENSION.pattern}$": "must be a Python file below extensions/, such as extensions/mine.py",
}
PLAIN = {  # pydantic's words, and those of a message about a file
    "Value error, ": "",
    "Input should be": "must be",
    "Input should": "must",
    "String should": "must",
    "List should": "must",
    "a valid string": "a text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid list": "a list",
    "a valid dictionary": "a map",
    "an object": "a map",
    "Field required": "is missing",
    " after validation": "",
}
SURE = 0.8  # how similar a key must be that may belong elsewhere
LONGEST = 80  # characters of a wrong value that a message repeats


class Section(BaseModel):
    """A part of params.yaml: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def canonical(self) -> str:
        """Return the one JSON text of these values; Snakemake compares it to see whether a job must rerun."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def changed(self, key: str, changes: Mapping[str, Any]) -> Self:
        """Return these values with others in place of some. Raise InputError with the dotted key, below `key`."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise InputError(f"{key}.{first_error(error, changes)}") from None

    @classmethod
    def checked(cls, values: object, where: object) -> Self:
        """Return the section that these values are. Raise InputError that begins with `where`, and names the key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(f"{where}: {first_error(error, values)}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `canonical` back. Raise InputError with the dotted key."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            found = error.errors()[0]
            key = ".".join(map(str, ("settings", *found["loc"])))
            raise InputError(f"{key}: {found['msg']}") from None


def known(key: str, name: str, among: dict[str, Any]) -> None:
    """Raise ValueError where a name is none of those there are."""
    if name not in among:
        raise ValueError(f"{key}: {unknown(name, among)}")


def prefixed(key: str, check: Callable[..., None], *arguments: object, **options: object) -> None:
    """Run a check of another module, and raise its InputError as a ValueError that begins with the key."""
    try:
        check(*arguments, **options)
    except InputError as error:
        raise ValueError(f"{key}: {error}") from None


def first_error(error: ValidationError, values: object) -> str:
    """Say the first thing wrong in one line: dotted key, what is wrong, and how many more there are.

    An unknown key comes first, since a misspelt one is missing under its right name as well; of several the outermost,
    since all that is below a misspelt section is inherited by none.
    """
    first, *others = sorted(_distinct(error), key=_urgency)
    keys, beside = _keys(first["loc"], values)
    if first["type"] == "missing" and keys[-1:] != [str(first["loc"][-1])]:
        keys.append(str(first["loc"][-1]))
    key = ".".join(keys)
    message = plain(first["msg"])
    if first["type"] in UNKNOWN_KEY:
        *parents, last = first["loc"]
        missing = [
            found["loc"][-1] for found in others if found["type"] == "missing" and [*found["loc"][:-1]] == parents
        ]
        meant = did_you_mean(str(last), missing) or did_you_mean(str(last), beside - {last})
        meant = meant or did_you_mean(str(last), _all_keys(Section) - {last}, cutoff=SURE)
        message = f"unknown key; {meant}" if meant else "unknown key"
    elif first["type"].startswith("union_tag"):
        key += f".{first['ctx']['discriminator'].strip(chr(39))}"
        message = _of_tag(first["ctx"])
    elif "input" in first and first["type"] not in ("value_error", "missing"):
        pattern = first.get("ctx", {}).get("pattern")
        message = MEANT.get(pattern, message)
        message += "" if pattern == VARIABLE else f", not {_cut(repr(first['input']))}"  # it may be the key itself
    line = f"{key}: {message}" if key else message
    return line + (f" (and {len(others)} more)" if others else "")


def _urgency(found: ErrorDetails) -> int:
    return len(found["loc"]) if found["type"] in UNKNOWN_KEY else sys.maxsize


def _all_keys(section: type[Section]) -> set[str]:
    """Return the keys of a kind of sections, and of all kinds that build on it."""
    return set(section.model_fields).union(*map(_all_keys, section.__subclasses__()))


def _distinct(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors, each once: an experiment on request is checked under `experiments` as well."""
    distinct: dict[object, ErrorDetails] = {}
    for found in error.errors():
        distinct.setdefault((found["type"], _among_experiments(found["loc"])), found)
    return list(distinct.values())


def _among_experiments(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return ("experiments", *location[1:]) if location[:1] == ("on_request",) else location


def _of_tag(context: Mapping[str, Any]) -> str:
    """Say which forms or kinds there are, or that none is given."""
    if "tag" not in context:
        return "is missing"
    return unknown(context["tag"], re.findall(r"'([^']+)'", context["expected_tags"]))


def _keys(location: tuple[str | int, ...], values: object) -> tuple[list[str], set[str]]:
    """Return pydantic's location as keys of the file, and the keys beside the last of them.

    The location also names the member of a union that was tried.
    """
    keys, tagged, beside = [], False, set()
    for number, part in enumerate(location):
        if not tagged and isinstance(values, dict) and part in (values.get("kind"), values.get("form")):
            tagged = True  # the member of a union, not a key
            continue
        tagged = False
        there = (isinstance(values, dict) and part in values) or (isinstance(values, list) and isinstance(part, int))
        if there:
            beside = {*map(str, values)} if isinstance(values, dict) else set()
            values = values[part]
        last = number == len(location) - 1 != 0 and part != "[key]"
        if there or last or not isinstance(values, dict | list):
            keys.append(str(part) if str(part).isprintable() else repr(part))
    return keys, beside


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def plain(message: str) -> str:
    """Return pydantic's message as one about a value in a file."""
    for theirs, ours in PLAIN.items():
        message = message.replace(theirs, ours)
    return re.sub(r" or instance of \w+", "", message)
