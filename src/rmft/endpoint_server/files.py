"""Files that clients uploaded, and the results of fine-tuning jobs."""

import shutil
import time
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool

from rmft.artifacts.files import atomic
from rmft.endpoint_server.errors import invalid, missing
from rmft.endpoint_server.store import Json, Store

FINE_TUNE = "fine-tune"  # the one purpose for which this server takes files


class Files:
    """The files: the protocol's description of each is a document, its content a file in a folder."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder

    def path(self, name: str) -> Path:
        """Return the path of a file's content."""
        return self.folder / name

    def get(self, name: str) -> Json:
        """Return the description of a file. Raise ApiError if there is none of this name."""
        if not (file := self._find(name)):
            raise missing("File object", name)
        return file

    def training_file(self, name: str) -> Path:
        """Return the path of a file to fine-tune on. Raise ApiError if there is no such file."""
        param = "training_file"
        if not (file := self._find(name)):
            raise invalid(f"{param}: there is no file {name}", param, "invalid_file")
        if (purpose := file["purpose"]) != FINE_TUNE:
            raise invalid(f"{param}: the purpose of {name} is {purpose!r}, not {FINE_TUNE!r}", param, "invalid_file")
        return self.path(name)

    def _find(self, name: str) -> Json | None:
        return self.store.get(name) if name.startswith("file-") else None

    async def create(self, name: str, filename: str, purpose: str, content: BinaryIO) -> Json:
        """Write a file, and return its description; a file that is there already stays."""
        if file := self._find(name):
            return file
        await run_in_threadpool(self._write, name, content)
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
        self.store.put(name, description)
        return description

    def _write(self, name: str, content: BinaryIO) -> None:
        content.seek(0)
        with atomic(self.path(name)) as temporary, temporary.open("wb") as target:
            shutil.copyfileobj(content, target)

    def delete(self, name: str) -> None:
        """Delete a file, and the response to its upload, so that the same upload makes it again."""
        self.get(name)
        self.store.delete(name)
        self.store.forget(name.removeprefix("file-"))
        self.path(name).unlink(missing_ok=True)

    def all(self, purpose: str | None) -> list[Json]:
        """Return the descriptions of all files, or of those for a purpose, the oldest first."""
        return [file for file in self.store.all("file-") if purpose in (None, file["purpose"])]
