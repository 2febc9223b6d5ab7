"""Algorithm `ssft-language-model`, last line: fine-tune θ_i on the selected dialogues, which gives θ_{i+1}.

TRL's SFTTrainer minimises the cross-entropy of the model's replies, all rounds of a dialogue in one pass. A
demonstration has `ids`, the tokens of a conversation as they were sampled, and `labels`, equal to the id where the
model sampled the token and NOT_LEARNT elsewhere. Nothing here renders, tokenises, truncates or packs: the input
is the tokens of the rollouts.

# ASSUME: a step's loss is the mean over the sampled tokens of its batch (the paper's sum, scaled), as in TRL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import transformers
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from rmft.artifacts.parquet import GROUP
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings
from rmft.streams import Word
from rmft.training.learner import FineTuned, Learner, LogCallback


def fine_tune(
    demonstrations: Iterable[Mapping[str, Any]],
    base: LanguageModelSettings,
    start: Path | None,
    settings: LanguageSFT,
    seed: int,
    words: tuple[Word, ...] = (),
    on_step: Callable[[int, int, float], object] = lambda *_: None,
) -> FineTuned:
    """Fine-tune θ_i: `base` with the weights or the adapter in `start`; `base` itself where `start` is None.

    seed, words: the root seed and the words that name this training's random streams (experiment, iteration). The same
    arguments give the same bytes on the same machine. on_step: called with the step, the number of steps and the loss.

    A row of the log: step, epoch, loss (before the step), learning_rate, tokens (in this step, without padding),
    grad_norm (before clipping).
    """
    log = _Log("sft.learning_rate", on_step)
    with Learner.of(base, start, settings, "sft", seed, words) as learner:
        data = conversations(demonstrations, learner.context, learner.folder)
        config = SFTConfig(
            **learner.arguments,
            max_length=None,  # the default truncates conversations to 1,024 tokens
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        return learner.train(SFTTrainer, config, log, train_dataset=data)


def conversations(demonstrations: Iterable[Mapping[str, Any]], context: int | None, folder: Path) -> Dataset:
    """Return the conversations as a data set in a file of `folder`, so that memory does not grow with M.

    Raise InputError for a conversation that cannot be trained on; none is truncated.
    """
    file, lines = folder / "conversations.arrow", enumerate(demonstrations, start=1)
    tokens = pa.list_(pa.int32())
    schema = pa.schema([("input_ids", tokens), ("labels", tokens)])
    with pa.ipc.new_stream(file, schema) as writer:
        while group := list(islice(lines, GROUP)):
            for line, one in group:
                check_conversation(line, one["ids"], one["labels"], context)
            columns = [one["ids"] for _, one in group], [one["labels"] for _, one in group]
            writer.write_table(pa.table(dict(zip(schema.names, columns, strict=True)), schema))
    data = Dataset.from_file(str(file))
    if not len(data):
        raise InputError("demonstrations: there are none; selection must keep at least one trajectory")
    return data


class TooLongError(InputError):
    """A demonstration is longer than the context. line: its number. sizes: its tokens beside those of the context."""

    def __init__(self, line: int, tokens: int, context: int) -> None:
        self.line, self.sizes = line, f"{tokens} tokens, the context {context}"
        advice = "take a shorter horizon T, summary interaction, or a model with a longer context"
        super().__init__(f"demonstrations: line {line} has {self.sizes}; {advice}")


def check_conversation(line: int, ids: Sequence[int], labels: Sequence[int], context: int | None) -> None:
    """Raise InputError for a conversation that exceeds the context, or whose labels are not sampled ids."""
    if context is not None and len(ids) > context:
        raise TooLongError(line, len(ids), context)
    learnt = [(token, label) for token, label in zip(ids, labels, strict=False) if label != NOT_LEARNT]
    if len(ids) != len(labels) or not learnt or any(token != label for token, label in learnt):
        raise InputError(f"demonstrations: line {line}: labels must be replied ids, else {NOT_LEARNT}")


class _Log(LogCallback):
    def row(self, args: SFTConfig, state: transformers.TrainerState, logs: dict[str, float]) -> dict[str, float]:
        """Return the columns that `fine_tune` names."""
        tokens = int(logs["num_tokens"]) - sum(row["tokens"] for row in self.rows)
        row = {name: logs[name] for name in ("epoch", "loss", "learning_rate")}
        return row | {"tokens": tokens, "grad_norm": logs["grad_norm"]}
