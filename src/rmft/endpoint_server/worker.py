"""The process that fine-tunes: it reads a task, reports its progress, and ends with the server that started it.

    python -m rmft.endpoint_server.worker

The task is the first line of standard input, as JSON. Standard input ends when the server ends, and so does the worker.
The worker reports its progress in lines of JSON on standard output: {"validated": …}, {"step": …}, {"failed": …,
"of_file": whether the training file is to blame}. It writes a folder with weights and, last, model.json. A folder has
one worker at a time.
"""

import fcntl
import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rmft.artifacts.files import atomic, sha256
from rmft.artifacts.json_files import write_json
from rmft.endpoint_server.models import WEIGHTS, digest_of_base
from rmft.endpoint_server.settings import MODEL
from rmft.endpoint_server.training_file import TrainingFileError, read_training_file
from rmft.errors import InputError
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings

LOCK = "lock"  # in a model's folder
LONGEST_REASON = 1000  # characters of why a job failed, which may quote the training file
ORPHANED = 3  # the exit code of a worker whose server is gone


@dataclass(frozen=True)
class WorkerTask:
    """A model to train.

    file: the training file. base, sft: settings as JSON. start: weights to start from, None for the base model's.
    folder: of the result. id, name: of the new model, and of the base model. seed: of the training.
    """

    file: str
    base: str
    sft: str
    start: str | None
    folder: str
    id: str
    name: str
    seed: int


def main() -> None:
    """Do the task, unless its model is complete."""
    task = WorkerTask(**json.loads(sys.stdin.readline()))
    reports, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not reach the server
    threading.Thread(target=_end_with_server, daemon=True).start()
    folder = Path(task.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the worker of an earlier server has ended
        if not (folder / MODEL).exists():
            try:
                fine_tune(task, folder, reports)
            except InputError as error:
                _report(
                    reports, {"failed": str(error)[:LONGEST_REASON], "of_file": isinstance(error, TrainingFileError)}
                )


def _end_with_server() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(ORPHANED)


def _report(reports: TextIO, report: dict[str, Any]) -> None:
    reports.write(json.dumps(report) + "\n")
    reports.flush()


def fine_tune(task: WorkerTask, folder: Path, reports: TextIO) -> None:
    """Write the fine-tuned model to a folder."""
    from rmft.endpoint_server.training_file import tokenise

    numbered = read_training_file(Path(task.file))  # before the large libraries are imported

    from safetensors.torch import save

    from rmft.agents.chat_template import ChatTemplate
    from rmft.agents.checkpoint import load_tokenizer
    from rmft.endpoint_server.tokenisation import ConversationTokenizer
    from rmft.training import sft

    base = LanguageModelSettings.parse(task.base)
    tokenizer = ConversationTokenizer(ChatTemplate.probe(load_tokenizer(base)))
    examples = [tokenise(line, tokenizer) for _, line in numbered]
    counts = {"examples": len(examples), "tokens": sum(len(example["ids"]) for example in examples)}
    _report(reports, {"validated": counts})

    def on_step(step: int, steps: int, loss: float) -> None:
        _report(reports, {"step": {"step": step, "total_steps": steps, "train_loss": loss}})

    start = Path(task.start) if task.start else None
    try:
        tuned = sft.fine_tune(examples, base, start, LanguageSFT.parse(task.sft), task.seed, ("endpoint",), on_step)
    except sft.TooLongError as error:
        raise TrainingFileError(f"line {numbered[error.line - 1][0]} has {error.sizes}") from None
    with atomic(folder / WEIGHTS) as temporary:
        temporary.write_bytes(save(tuned.tensors, metadata=tuned.metadata))
    model = {"id": task.id, "base": task.name, "base_sha256": digest_of_base(base), "created": int(time.time())}
    model |= {"sha256": sha256(folder / WEIGHTS), "trained_tokens": sum(row["tokens"] for row in tuned.log)}
    write_json(folder / MODEL, {**model, "log": tuned.log})


if __name__ == "__main__":
    main()
