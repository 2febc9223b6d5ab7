"""The file of a journal: zstd frames, each with complete lines, to which frames are only ever appended.

A killed process leaves at most one incomplete frame, at the end of the file.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmft.errors import InputError

MAGIC = b"\x28\xb5\x2f\xfd"  # the first bytes of a frame
MOST_HEADER_BYTES, CHECKSUM_BYTES = 18, 4
REPEATED = 1  # the kind of a block that is stored as one byte
LEVEL = 6


def frames(path: Path, data: bytes) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield begin, end and lines of each frame, up to an incomplete one.

    Raise InputError if a complete frame follows something else: that is damage, which no killed process leaves.
    """
    begin = 0
    while begin < len(data):
        end, lines = _frame(data, begin)
        if lines is None:
            incomplete = MAGIC.startswith(data[begin : begin + len(MAGIC)]) or not data[begin:].strip(b"\0")
            if not incomplete or _has_frame_after(data, begin):
                raise damaged(path, begin)
            return
        yield begin, end, lines
        begin = end


def _frame(data: bytes, begin: int) -> tuple[int, list[bytes] | None]:
    """Return the end and the lines of the frame at a position; None if there is no complete frame."""
    import zstandard

    try:
        end = begin + zstandard.frame_header_size(data[begin : begin + MOST_HEADER_BYTES])
    except zstandard.ZstdError:
        return begin, None
    last = 0
    while not last and end + 3 <= len(data):
        header = int.from_bytes(data[end : end + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        end += 3 + (1 if kind == REPEATED else size)
    end += CHECKSUM_BYTES
    return (end, decompress(data[begin:end])) if last and end <= len(data) else (end, None)


def _has_frame_after(data: bytes, begin: int) -> bool:
    """Return whether there is a complete frame anywhere after a position."""
    while (begin := data.find(MAGIC, begin + 1)) >= 0:
        if _frame(data, begin)[1] is not None:
            return True
    return False


def compress(lines: Sequence[bytes]) -> bytes:
    """Return lines as a frame."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(b"\n".join([*lines, b""]))


def decompress(frame: bytes) -> list[bytes] | None:
    """Return the lines of a frame, or None if they are not what was written."""
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(frame).split(b"\n")[:-1]
    except zstandard.ZstdError:
        return None


def open_file(path: Path) -> tuple[int, bool]:
    """Return a file descriptor, and whether the file is writable; if so, it is locked against other writers."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        if not new and not path.stat().st_mode & 0o222:
            return os.open(path, os.O_RDONLY), False
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if new:
            _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise InputError(
            f"{path}: another process is writing to this journal; wait until it ends, or stop it"
        ) from None
    return file, True


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def append(file: int, end: int, frame: bytes) -> int:
    """Append a frame at the end of a file, sync it to the disk, and return the new end. On failure nothing changes."""
    written = 0
    try:
        while written < len(frame):
            written += os.pwrite(file, frame[written:], end + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
    return end + len(frame)


def read_from(path: Path, begin: int = 0) -> bytes:
    """Return the content of a file from a position on. Raise InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def damaged(path: Path, begin: int) -> InputError:
    """Return the error for a file that is damaged, or no journal."""
    return InputError(f"{path}: damaged at byte {begin}, or no journal; put it back as it was")


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error for a file that cannot be written."""
    return InputError(f"{path}: cannot be written: {error.strerror or error}")
