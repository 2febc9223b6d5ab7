"""Files that were uploaded, and those that jobs and batches have made."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from rmft.artifacts.files import atomic
from rmft.endpoint_server.errors import ApiError, invalid, missing
from rmft.endpoint_server.store import Shelf

Json = dict[str, Any]
PURPOSES = ("fine-tune", "batch", "assistants", "vision", "user_data")
CHUNK_BYTES = 1 << 20


class Files:
    """The files by their ids: what the protocol says of one in <id>.json, its content in <id>.data."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder)

    def data(self, name: str) -> Path:
        """Return where a file's content is."""
        return self.shelf.folder / f"{name}.data"

    def get(self, name: str, param: str = "id") -> Json:
        """Return what the protocol says of a file. Raise ApiError where there is none of this name."""
        if name not in self.shelf.documents:
            raise missing("File object", name, param)
        return self.shelf.documents[name]["file"]

    def for_purpose(self, name: str, purpose: str, param: str) -> Path:
        """Return the content of a file that is meant for something. Raise ApiError where it is not, or not there."""
        if name not in self.shelf.documents:
            raise invalid(f"{param}: there is no file {name}", param, "invalid_file")
        if (found := self.get(name)["purpose"]) != purpose:
            raise invalid(f"{param}: {name} was uploaded for {found!r}, not for {purpose!r}", param, "invalid_file")
        return self.data(name)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Write a file's content, by what writes it into a file that is open; `register` makes it a file."""
        with atomic(self.data(name)) as temporary, temporary.open("wb") as file:
            write(file)

    def register(self, name: str, filename: str, purpose: str) -> Json:
        """Keep a file whose content was written, and return what the protocol says of it."""
        told = {
            "id": name,
            "object": "file",
            "bytes": self.data(name).stat().st_size,
            "created_at": int(time.time()),
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
            "expires_at": None,
        }
        self.shelf.put(name, {"file": told})
        return told

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.get(name)
        self.shelf.delete(name)
        self.data(name).unlink(missing_ok=True)

    def told(self, purpose: str | None) -> list[Json]:
        """Return what the protocol says of all files, or of those for a purpose, the oldest first."""
        files = [document["file"] for document in self.shelf.documents.values()]
        return [file for file in files if purpose in (None, file["purpose"])]


def check_purpose(purpose: object) -> str:
    """Return a purpose that a file may be uploaded for. Raise ApiError for another one."""
    if purpose not in PURPOSES:
        raise invalid(f"purpose: {purpose!r} is none of {', '.join(PURPOSES)}", "purpose", "invalid_value")
    return purpose


def copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy what is in a file."""
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)


def digest(source: BinaryIO) -> bytes:
    """Return a hash of what is in a file."""
    source.seek(0)
    return hashlib.file_digest(source, "sha256").digest()


def in_use(name: str, by: str) -> ApiError:
    """Return the error for what cannot be deleted now."""
    return ApiError(409, f"{name} is in use by {by}, which is not over.", "id", "in_use")
