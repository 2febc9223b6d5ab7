"""Files of zstd frames, each with whole lines, that are only appended to: how they are opened, read and written.

A process that is killed leaves at most one torn frame, at the end. What is whole comes before it.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmft.errors import InputError

MAGIC = b"\x28\xb5\x2f\xfd"  # that a frame begins with
MOST_HEADER_BYTES, CHECKSUM_BYTES = 18, 4
REPEATED = 1  # kind of a block that is stored as one byte
LEVEL = 6


def frames(path: Path, data: bytes) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield where each frame begins and ends, and its lines, up to one that is torn.

    Raise InputError where there is a whole frame behind one that is none: that is damage, and no killed process's.
    """
    begin = 0
    while begin < len(data):
        end, lines = _frame(data, begin)
        if lines is None:
            torn = MAGIC.startswith(data[begin : begin + len(MAGIC)]) or not data[begin:].strip(b"\0")
            if not torn or _goes_on(data, begin):
                raise damaged(path, begin)
            return
        yield begin, end, lines
        begin = end


def _frame(data: bytes, begin: int) -> tuple[int, list[bytes] | None]:
    """Return where the frame that begins at a place ends, and its lines, or None if it is no whole frame."""
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
    return (end, unpacked(data[begin:end])) if last and end <= len(data) else (end, None)


def _goes_on(data: bytes, begin: int) -> bool:
    """Return whether there is a whole frame anywhere behind a place."""
    while (begin := data.find(MAGIC, begin + 1)) >= 0:
        if _frame(data, begin)[1] is not None:
            return True
    return False


def unpacked(frame: bytes) -> list[bytes] | None:
    """Return the lines of a frame, or None if they are not what was written."""
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(frame).split(b"\n")[:-1]
    except zstandard.ZstdError:
        return None


def opened(path: Path) -> tuple[int, bool]:
    """Return a file that is ours alone to write to, or one that can only be read, and whether it is the former."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        if not new and not path.stat().st_mode & 0o222:
            return os.open(path, os.O_RDONLY), False
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if new:
            _sync_folder(path.parent)
    except OSError as error:
        raise failed(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise InputError(
            f"{path}: another process is writing to this journal; wait until it ends, or stop it"
        ) from None
    return file, True


def _sync_folder(folder: Path) -> None:
    """Have a new file's name on the disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def packed(lines: Sequence[bytes]) -> bytes:
    """Return lines as a frame."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(b"\n".join([*lines, b""]))


def append(file: int, end: int, frame: bytes) -> int:
    """Put a frame where a file ends, and on the disk; return where it ends now. Where that fails it stays as it was."""
    written = 0
    try:
        while written < len(frame):
            written += os.pwrite(file, frame[written:], end + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
    return end + len(frame)


def read(path: Path, begin: int = 0) -> bytes:
    """Return what a file holds from a place on. Raise InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def damaged(path: Path, begin: int) -> InputError:
    """Return the error for a file with a place in it that no process that was killed has left so."""
    return InputError(f"{path}: damaged at byte {begin}, or no journal; put it back as it was")


def failed(path: Path, error: OSError) -> InputError:
    """Return the error for a file that cannot be written."""
    return InputError(f"{path}: cannot be written: {error.strerror or error}")
