"""Weights of models, as safetensors: arrays of numpy, tensors of torch, and folders that transformers reads."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.artifacts.files import artifact, reading
from rmft.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def write_arrays(path: Path, arrays: "Mapping[str, np.ndarray]") -> None:
    """Write arrays by name, such as the weights of a numeric model."""
    from safetensors.numpy import save

    with artifact(path) as temporary:
        temporary.write_bytes(save(dict(arrays)))


def read_arrays(path: Path, names: Iterable[str]) -> "dict[str, np.ndarray]":
    """Return the arrays of these names. Raise InputError where one is missing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    with reading(path, SafetensorError):
        arrays = load_file(path)
        return {name: arrays[name] for name in names}


def write_tensors(path: Path, tensors: "Mapping[str, torch.Tensor]", metadata: dict[str, str]) -> None:
    """Write a language model's weights, or an adapter with its configuration in the metadata, as one file."""
    from safetensors.torch import save

    with artifact(path) as temporary:
        temporary.write_bytes(save(dict(tensors), metadata=metadata))


def read_tensors(path: Path) -> "tuple[dict[str, torch.Tensor], dict[str, str]]":
    """Return a language model's weights, or an adapter, and the metadata, which hold an adapter's configuration."""
    from safetensors import SafetensorError, safe_open

    with reading(path, SafetensorError), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def write_pretrained(folder: Path, *parts: "PreTrainedModel | PreTrainedTokenizerBase") -> None:
    """Write a model and its tokenizer as transformers reads them, file by file."""
    with unpublished(folder) as made:
        for part in parts:
            part.save_pretrained(made)
        publish(made, folder)


@contextmanager
def unpublished(folder: Path) -> Iterator[Path]:
    """Yield a folder inside of `folder`, for files that `publish` moves there; what is left in it is deleted."""
    made = folder / ".unpublished"
    shutil.rmtree(made, ignore_errors=True)  # of a job that was killed
    try:
        made.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def publish(made: Path, folder: Path) -> None:
    """Move all files of one folder into another one, as artifacts."""
    for file in sorted(made.iterdir()):
        with artifact(folder / file.name) as temporary:
            temporary.touch()
            file.chmod(temporary.stat().st_mode)  # safetensors lets nobody else read a file
            file.replace(temporary)
