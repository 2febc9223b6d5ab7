"""Files that clients uploaded, and the results of fine-tuning jobs."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rmft.artifacts.files import atomic
from rmft.endpoint_server.errors import invalid, missing
from rmft.endpoint_server.store import DocumentStore, Json

FINE_TUNE = "fine-tune"  # the one purpose for which this server takes files
CHUNK_BYTES = 1 << 20


class Files:
    """The files by their ids: the protocol's description of a file is in <id>.json, its content in <id>.data."""

    def __init__(self, folder: Path) -> None:
        self.store = DocumentStore(folder)

    def path(self, name: str) -> Path:
        """Return the path of a file's content."""
        return self.store.folder / f"{name}.data"

    def get(self, name: str) -> Json:
        """Return the description of a file. Raise ApiError if there is none of this name."""
        if name not in self.store.documents:
            raise missing("File object", name)
        return self.store.documents[name]["file"]

    def training_file(self, name: str) -> Path:
        """Return the path of a file to fine-tune on. Raise ApiError if there is no such file."""
        param = "training_file"
        if name not in self.store.documents:
            raise invalid(f"{param}: there is no file {name}", param, "invalid_file")
        if (purpose := self.get(name)["purpose"]) != FINE_TUNE:
            raise invalid(f"{param}: the purpose of {name} is {purpose!r}, not {FINE_TUNE!r}", param, "invalid_file")
        return self.path(name)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Write a file's content: `write` is called with an open file. `register` then makes it visible."""
        with atomic(self.path(name)) as temporary, temporary.open("wb") as file:
            write(file)

    def register(self, name: str, filename: str, purpose: str) -> Json:
        """Return the description of a file whose content was written, and keep it."""
        description = {
            "id": name,
            "object": "file",
            "bytes": self.path(name).stat().st_size,
            "created_at": int(time.time()),
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
            "expires_at": None,
        }
        self.store.put(name, {"file": description})
        return description

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.get(name)
        self.store.delete(name)
        self.path(name).unlink(missing_ok=True)

    def all(self, purpose: str | None) -> list[Json]:
        """Return the descriptions of all files, or of those for a purpose, the oldest first."""
        files = [document["file"] for document in self.store.documents.values()]
        return [file for file in files if purpose in (None, file["purpose"])]


def check_purpose(purpose: object) -> str:
    """Return the purpose of an upload. Raise ApiError for one that this server has no use for."""
    if purpose != FINE_TUNE:
        raise invalid(f"purpose: {purpose!r} is not supported here, only {FINE_TUNE!r}", "purpose", "invalid_value")
    return FINE_TUNE


def copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy the content of a file."""
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)


def digest_of_file(source: BinaryIO) -> bytes:
    """Return a hash of the content of a file."""
    source.seek(0)
    return hashlib.file_digest(source, "sha256").digest()
