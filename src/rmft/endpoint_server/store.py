"""The server's state on disk: one SQLite database with files, jobs and their events, and the responses that were sent.

A change survives a kill of the process; a power cut may lose the last changes, since each is not synced on its own.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

from rmft.errors import InputError

Json = dict[str, Any]
KEPT_RESPONSES = 100_000  # older ones are deleted
COUNTED = ("requests", "answers", "prompt_tokens", "completion_tokens")
OPTIONS = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
TABLES = """
CREATE TABLE IF NOT EXISTS documents (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS responses (
    number INTEGER PRIMARY KEY, key BLOB UNIQUE NOT NULL, request BLOB NOT NULL, response BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS cost (name TEXT PRIMARY KEY, total INTEGER NOT NULL);
"""


class Store:
    """JSON documents by their ids, the responses by their idempotency keys, and what all responses have cost."""

    def __init__(self, folder: Path) -> None:
        """Open the database in a folder. Raise InputError if that is impossible, or another server has opened it."""
        self.path = folder / "state.sqlite"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=0)
            self._database.executescript(OPTIONS + TABLES)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                reason = "another server keeps its state there; stop it, or take another folder"
                raise InputError(f"{folder}: {reason}") from None
            reason = f"damaged or not usable ({error}); without this file, the server forgets its state"
            raise InputError(f"{self.path}: {reason}") from None
        except OSError as error:
            raise InputError(f"{folder}: cannot be used: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # --- Documents ---

    def get(self, name: str) -> Json | None:
        """Return a document, or None."""
        row = self._database.execute("SELECT document FROM documents WHERE id = ?", [name]).fetchone()
        return row and json.loads(row[0])

    def all(self, prefix: str) -> list[Json]:
        """Return the documents whose ids begin with a prefix, in the order of their creation."""
        query = "SELECT document FROM documents WHERE id GLOB ? ORDER BY number"
        return [json.loads(document) for (document,) in self._database.execute(query, [f"{prefix}*"])]

    def put(self, name: str, document: Json) -> None:
        """Write a document, or replace it."""
        query = (
            "INSERT INTO documents (id, document) VALUES (?, ?) ON CONFLICT DO UPDATE SET document = excluded.document"
        )
        with self._database:
            self._database.execute(query, [name, json.dumps(document)])

    def delete(self, name: str) -> None:
        """Delete a document."""
        with self._database:
            self._database.execute("DELETE FROM documents WHERE id = ?", [name])

    # --- Responses ---

    @property
    def cost(self) -> dict[str, int]:
        """Return the cost of all responses so far, by the names in COUNTED."""
        return dict.fromkeys(COUNTED, 0) | dict(self._database.execute("SELECT name, total FROM cost"))

    def response(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the request with an idempotency key and its response, as recorded, or None."""
        return self._database.execute("SELECT request, response FROM responses WHERE key = ?", [key]).fetchone()

    def forget(self, digits: str) -> None:
        """Forget the responses to requests whose idempotency key begins with these hexadecimal digits."""
        with self._database:
            self._database.execute("DELETE FROM responses WHERE lower(hex(key)) LIKE ? || '%'", [digits])

    def record(self, key: bytes | None, request: bytes, response: bytes, cost: dict[str, int]) -> None:
        """Record a response before it is sent; of a response without a key only the cost.

        request: its hash. cost: numbers by the names in COUNTED.
        """
        add = "INSERT INTO cost VALUES (?, ?) ON CONFLICT DO UPDATE SET total = total + excluded.total"
        insert = "INSERT INTO responses (key, request, response) VALUES (?, ?, ?)"
        with self._database:
            self._database.executemany(add, cost.items())
            if key is not None:
                last = self._database.execute(insert, [key, request, response]).lastrowid
                self._database.execute("DELETE FROM responses WHERE number <= ?", [last - KEPT_RESPONSES])
