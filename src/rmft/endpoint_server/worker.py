"""The process that fine-tunes: it reads a task, tells how it gets on, and ends with the server that started it.

    python -m rmft.endpoint_server.worker

The task is the first line of standard input, JSON; standard input ends when the server does, and so does the worker.
What it tells are lines on standard output, JSON: {"validated": …}, {"step": …}, {"failed": …}. What it makes is a
folder with weights and, written last, what they are. A folder has one worker at a time.
"""

import fcntl
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from rmft.artifacts.files import atomic, sha256
from rmft.endpoint_server.models import MODEL, WEIGHTS
from rmft.endpoint_server.store import write_json
from rmft.errors import InputError
from rmft.params.language import LanguageModelSettings, LanguageSFT

LOCK = "lock"  # in a model's folder
ORPHANED = 3  # the exit code of a worker whose server is gone


@dataclass(frozen=True)
class Task:
    """A model to make. file: to train on. base, sft: settings in JSON. start: weights to begin with, None for base's.

    folder: where it is to be. id, name: the model's, and that of its base. seed: of the training.
    """

    file: str
    base: str
    sft: str
    start: str | None
    folder: str
    id: str
    name: str
    seed: int

    def line(self) -> bytes:
        """Return it as the worker reads it."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> None:
    """Make what the task says, unless it has been made."""
    task = Task(**json.loads(sys.stdin.readline()))
    told, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not for the server
    threading.Thread(target=_end_with_server, daemon=True).start()
    folder = Path(task.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until a worker of an earlier server has ended
        if not (folder / MODEL).exists():
            try:
                fine_tune(task, folder, told)
            except InputError as error:
                _tell(told, {"failed": str(error)})


def _end_with_server() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the interpreter ends
        pass
    os._exit(ORPHANED)


def _tell(told: TextIO, news: dict[str, Any]) -> None:
    told.write(json.dumps(news) + "\n")
    told.flush()


def fine_tune(task: Task, folder: Path, told: TextIO) -> None:
    """Make a model in a folder."""
    from rmft.endpoint_server.demonstrations import demonstration, read_lines

    lines = read_lines(Path(task.file))  # before the large libraries are imported

    from safetensors.torch import save

    from rmft.agents.chat_template import ChatTemplate
    from rmft.agents.checkpoint import load_tokenizer
    from rmft.endpoint_server.spelling import Spelling
    from rmft.training import sft

    base = LanguageModelSettings.parse(task.base)
    spelling = Spelling(ChatTemplate.probe(load_tokenizer(base)))
    examples = [demonstration(line, spelling) for line in lines]
    _tell(told, {"validated": {"examples": len(examples), "tokens": sum(len(one["ids"]) for one in examples)}})

    def on_step(step: int, steps: int, loss: float) -> None:
        _tell(told, {"step": {"step": step, "total_steps": steps, "train_loss": loss}})

    start = Path(task.start) if task.start else None
    tuned = sft.fine_tune(examples, base, start, LanguageSFT.parse(task.sft), task.seed, ("endpoint",), on_step)
    with atomic(folder / WEIGHTS) as temporary:
        temporary.write_bytes(save(tuned.tensors, metadata=tuned.metadata))
    made = {"id": task.id, "base": task.name, "created": int(time.time()), "sha256": sha256(folder / WEIGHTS)}
    write_json(folder / MODEL, {**made, "trained_tokens": sum(row["tokens"] for row in tuned.log), "log": tuned.log})


if __name__ == "__main__":
    main()
