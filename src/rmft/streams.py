"""Named random streams: every random number is drawn from `stream(root, purpose, *keys)`.

A stream is a counter-based generator (Philox) whose key is a hash of its words, so two streams with
different words are independent, and nothing depends on the order in which streams are opened.

Prefix stability: instances are drawn in blocks of BLOCK; a stream belongs to one (purpose, round, block) and is read
row by row, a row an instance. Instance i is then the same for any number of instances, and round t for any horizon.
"""

import hashlib
from collections.abc import Iterator
from typing import Literal

import numpy as np

Purpose = Literal[
    "environment", "action", "fallback", "sampling", "perturbation", "initialisation", "shuffle", "bootstrap",
    "selection",
]  # fmt: skip
Word = str | int

BLOCK = 2520  # instances a block: (BLOCK, d) stays in a core's L2 cache, and 1..10 processes divide it


def stream(root: int, purpose: Purpose, *keys: Word) -> np.random.Generator:
    """Return the generator named by a root seed, a purpose, and any further words.

    >>> stream(0, "action", "ucb", 3).random() == stream(0, "action", "ucb", 3).random()
    True
    """
    # repr distinguishes 1 from "1", and the separator ("a", "bc") from ("ab", "c"); int() makes a numpy integer
    # name the same stream as a Python integer.
    words = "\x1f".join(repr(word if isinstance(word, str) else int(word)) for word in (root, purpose, *keys))
    digest = hashlib.blake2b(words.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype="<u8")))


def blocks(instances: int) -> Iterator[tuple[int, int]]:
    """Yield (block index, instances in it) for a set of `instances`, all but the last of size BLOCK."""
    for block, start in enumerate(range(0, instances, BLOCK)):
        yield block, min(BLOCK, instances - start)
