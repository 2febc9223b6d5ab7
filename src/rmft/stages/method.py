"""Stage `method`: model(i) learns from iteration i by a training method of an extension, which gives model(i + 1).

Reads the model, the weights or the adapter of an earlier iteration if there are any, the rollouts, and the selection,
which has the regret of every trajectory (parquet). Writes weights or adapter (safetensors) and the log of all steps
(csv).
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import UnionType

from rmft import extensions
from rmft.agents.checkpoint import note_model
from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.tensors import write_tensors
from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.errors import InputError
from rmft.progress import training_steps
from rmft.workflow.records import MethodJob


def run(job: MethodJob, rollouts: Path, selection: Path, output: Path, log: Path, weights: Path | None = None) -> None:
    """Train by the method: it is called with the job, trajectories, their selection, weights, and a report of steps."""
    note_model(job.model)
    report = training_steps(f"method {output}")
    train = extensions.METHODS[job.method].train
    tuned = train(job, read_trajectories(rollouts), read_selection(selection), weights, report)
    check_tuned(f"{extensions.METHOD_FILES[job.method]}: method {job.method!r}", tuned)
    write_rows(log, tuned.log)
    write_tensors(output, tuned.tensors, tuned.metadata)


def check_tuned(label: str, tuned: object) -> None:
    """Raise InputError where a method returned no model, one that cannot play, or no log of its steps."""
    import torch

    from rmft.training.learner import FineTuned

    if not isinstance(tuned, FineTuned):
        raise InputError(f"{label} must return a FineTuned of rmft.training.learner, not {type(tuned).__name__}")
    parts = {
        "log": (
            isinstance(tuned.log, Sequence) and tuned.log and all(_is_dict_of(Real | None, row) for row in tuned.log),
            "a list with a row for each step, a dict of numbers",
        ),
        "tensors": (
            _is_dict_of(torch.Tensor, tuned.tensors) and tuned.tensors,
            "a dict of torch's tensors by name, not empty",
        ),
        "metadata": (_is_dict_of(str, tuned.metadata), "a dict of texts"),
    }
    for part, (is_usable, what) in parts.items():
        if not is_usable:
            raise InputError(f"{label}: the {part} of its FineTuned must be {what}")
    for name, tensor in tuned.tensors.items():
        if not tensor.isfinite().all():
            raise InputError(f"{label}: {name} is not finite; a lower learning rate may help")


def _is_dict_of(kind: type | UnionType, values: object) -> bool:
    """Return whether something is a dict from texts to values of a kind."""
    return isinstance(values, Mapping) and all(
        isinstance(name, str) and isinstance(value, kind) for name, value in values.items()
    )
