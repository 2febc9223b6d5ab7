"""The header of a GGUF file: its values by name, and its tensors. The file may be anybody's, and hold anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmft.errors import InputError

if TYPE_CHECKING:
    from gguf import GGUFReader

# What the library `gguf` raises for files that are truncated, or that nobody meant as such.
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class GgufHeader:
    """The header of a file. architecture: for example qwen2. shapes: of the tensors, by name."""

    path: Path
    reader: "GGUFReader"
    architecture: str
    shapes: dict[str, tuple[int, ...]]

    def value(self, name: str) -> Any:  # noqa: ANN401 (a number, a text or a list of them)
        """Return a value of the file, None where it has none. name: that of the architecture is put before `.name`."""
        with _whole(self.path):
            field = self.reader.get_field(f"{self.architecture}{name}" if name.startswith(".") else name)
            return field.contents() if field else None

    def count(self, name: str) -> int:
        """Return a whole number above 0; of several, one for each layer, the largest. Raise InputError without one."""
        value = self.value(name)
        with _whole(self.path):
            count = int(max(value) if isinstance(value, list) else value)
            if count < 1:
                raise ValueError(f"{name} is {count}")
            return count


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a file. Raise InputError where it is no GGUF file, or a damaged one."""
    with _whole(path):
        reader = _reader(path)
        architecture = reader.get_field("general.architecture").contents()
        if not isinstance(architecture, str):
            raise ValueError("general.architecture is no text")
        shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
        return GgufHeader(path, reader, architecture, shapes)


def _reader(path: Path) -> "GGUFReader":
    class Reader(import_module("gguf").GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
            # A part of a memory map is a memory map, which takes three times as long to make as a plain array.
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    return Reader(path)


@contextmanager
def shared_with_transformers(header: GgufHeader) -> Iterator[None]:
    """Have transformers take this header: it would read the file anew for each part of a model, which takes seconds."""
    gguf = import_module("gguf")
    own, gguf.GGUFReader = gguf.GGUFReader, lambda _: header.reader
    try:
        yield
    finally:
        gguf.GGUFReader = own


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raise InputError where a part of a file cannot be read."""
    try:
        yield
    except BROKEN as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path}: is no GGUF file, or a truncated one ({reason})") from None
