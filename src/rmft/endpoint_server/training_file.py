"""Read a training file of the protocol, and tokenise its conversations as `training.sft` expects them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, ValidationError

from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.schema import Message, RequestModel, schema_error, texts_of
from rmft.endpoint_server.tokenisation import ConversationTokenizer
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import LEAST_LINES


class TrainingFileError(InputError):
    """A training file cannot be learnt from."""


class TrainingMessage(Message):
    """A message to train on. weight: 1 (default) or 0, whether an assistant's message is to be learnt."""

    weight: Literal[0, 1] | None = None


class TrainingLine(RequestModel):
    """A conversation to train on."""

    messages: Annotated[list[TrainingMessage], FailFast(), Field(min_length=1)]

    @property
    def weights(self) -> list[bool]:
        """Return for each message of the assistant whether it is to be learnt."""
        return [message.weight != 0 for message in self.messages if message.role == "assistant"]


def read_training_file(path: Path) -> list[tuple[int, TrainingLine]]:
    """Read a training file: its conversations, each with the number of its line.

    Raise TrainingFileError, naming the line, for one that cannot be trained on.
    """
    lines = list(_lines(path))
    if len(lines) < LEAST_LINES:
        raise TrainingFileError(f"the training file has {len(lines)} conversations; at least {LEAST_LINES} are needed")
    return lines


def _lines(path: Path) -> Iterator[tuple[int, TrainingLine]]:
    for number, text in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = TrainingLine.model_validate_json(text)
            texts_of(line.messages, "assistant")
        except ValidationError as error:
            raise TrainingFileError(f"line {number}: {schema_error(error.errors()[0]).detail}") from None
        except ApiError as error:
            raise TrainingFileError(f"line {number}: {error.detail}") from None
        if not any(line.weights):
            raise TrainingFileError(
                f"line {number}: all messages of the assistant have weight 0, so there is none to learn"
            )
        yield number, line


def tokenise(line: TrainingLine, tokenizer: ConversationTokenizer) -> dict[str, Any]:
    """Return ids and labels of a conversation. Learnt messages, with their ends, have their ids as labels."""
    weights = iter(line.weights)
    ids, labels = [], []
    for place, part in enumerate(tokenizer.encode(texts_of(line.messages, "assistant"))):
        learnt = place % 2 == 1 and next(weights)
        ids += part
        labels += part if learnt else [NOT_LEARNT] * len(part)
    return {"ids": ids, "labels": labels}
