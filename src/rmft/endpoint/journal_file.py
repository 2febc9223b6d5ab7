"""The file of a journal: zstd frames, each with complete lines, to which frames are only ever appended.

A killed process leaves at most one incomplete frame, at the end of the file.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmft.errors import InputError

MAGIC = b"\x28\xb5\x2f\xfd"  # the first bytes of a frame
CHUNK_BYTES = 1 << 12  # which may hold 128 MB, where somebody means harm
MOST_BYTES = 1 << 30  # in a frame: more than all responses that can arrive while a frame is written
SHORTEST_LINE = 64  # characters: each begins with a hash
LEVEL = 6


def frames(path: Path, data: bytes) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yield begin, end and lines of each frame, up to an incomplete one.

    Raise InputError if a complete frame follows something else: that is damage, which no killed process leaves. So is a
    frame that is larger than any that we write.
    """
    begin = 0
    while begin < len(data):
        try:
            frame = frame_at(data, begin)
            is_damaged = frame is None and (not _is_torn(data[begin:]) or _has_frame_after(data, begin))
        except OverflowError:
            is_damaged = True
        if is_damaged:
            raise damaged(path, begin)
        if frame is None:
            return
        yield begin, *frame
        begin = frame[0]


def frame_at(data: bytes, begin: int) -> tuple[int, list[bytes]] | None:
    """Return the end and the lines of the frame at a position; None if there is no complete frame as it was written.

    Raise OverflowError where it inflates to more than MOST_BYTES, or to more lines than so many bytes can be.
    """
    import zstandard

    decompressor, parts, end, size = zstandard.ZstdDecompressor().decompressobj(), [], begin, 0
    try:
        while not decompressor.eof and end < len(data) and size <= MOST_BYTES:
            chunk = data[end : end + CHUNK_BYTES]
            parts.append(decompressor.decompress(chunk))
            end, size = end + len(chunk), size + len(parts[-1])
    except zstandard.ZstdError:
        return None
    whole = b"".join(parts)
    if size > MOST_BYTES or whole.count(b"\n") * SHORTEST_LINE > size:
        raise OverflowError
    lines = whole.split(b"\n")[:-1]
    return (end - len(decompressor.unused_data), lines) if decompressor.eof else None


def _is_torn(end: bytes) -> bool:
    """Return whether a file ends as the beginning of a frame, or in zeros, which a power cut leaves of what was cut."""
    begin = end[: len(MAGIC)].rstrip(b"\0")
    return MAGIC.startswith(begin) if begin else not end.strip(b"\0")


def _has_frame_after(data: bytes, begin: int) -> bool:
    """Return whether there is a complete frame anywhere after a position."""
    while (begin := data.find(MAGIC, begin + 1)) >= 0:
        if frame_at(data, begin):
            return True
    return False


def compress(lines: Sequence[bytes]) -> bytes:
    """Return lines as a frame."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(b"\n".join([*lines, b""]))


def open_file(path: Path) -> tuple[int, bool]:
    """Return a file descriptor, and whether the file is writable; if so, it is locked against other writers."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        if not new and not path.stat().st_mode & 0o222:
            return os.open(path, os.O_RDONLY), False
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if new:  # write its name to the disk
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        reason = "another process is writing to this file; wait until it ends, or stop it"
        raise InputError(f"{path}: {reason}") from None
    except OSError as error:
        os.close(file)
        raise InputError(f"{path}: cannot be locked: {error.strerror or error}") from None
    return file, True


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
