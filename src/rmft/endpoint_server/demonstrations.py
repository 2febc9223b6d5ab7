"""A training file, as the protocol has it, made into demonstrations as `training.sft` reads them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.messages import TrainingLine, refusal, turns_of
from rmft.endpoint_server.spelling import Spelling
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT

LEAST = 10  # conversations, as at OpenAI


def read_lines(path: Path) -> list[TrainingLine]:
    """Read a training file. Raise InputError, naming the line, where it is none."""
    lines = list(_lines(path))
    if len(lines) < LEAST:
        raise InputError(f"the training file has {len(lines)} conversations, and must have at least {LEAST}")
    return lines


def _lines(path: Path) -> Iterator[TrainingLine]:
    for number, text in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = TrainingLine.model_validate_json(text)
            turns_of(line.messages, "assistant")
        except ValidationError as error:
            raise InputError(f"line {number}: {refusal(error).message}") from None
        except ApiError as error:
            raise InputError(f"line {number}: {error.message}") from None
        if not any(_learnt(line)):
            raise InputError(f"line {number}: no message of the assistant is to be learnt; all have weight 0")
        yield line


def _learnt(line: TrainingLine) -> list[bool]:
    """Return which replies are to be learnt."""
    return [message.weight != 0 for message in line.messages if message.role == "assistant"]


def demonstration(line: TrainingLine, spelling: Spelling) -> dict[str, Any]:
    """Return a conversation's ids, and its labels: the ids of the replies that are to be learnt, with their ends."""
    learnt = iter(_learnt(line))
    ids, labels = [], []
    for place, turn in enumerate(spelling.spell(turns_of(line.messages, "assistant"))):
        said = place % 2 == 1 and next(learnt)
        ids += turn
        labels += turn if said else [NOT_LEARNT] * len(turn)
    return {"ids": ids, "labels": labels}
