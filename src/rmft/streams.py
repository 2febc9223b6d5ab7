"""Named random streams: every random number is drawn from `stream(root, purpose, *keys)`.

A stream is a counter-based generator (Philox) whose key is a hash of its words, so two streams with
different words are independent, and nothing depends on the order in which streams are opened.

Prefix stability follows from one habit. Instances are handled in blocks of BLOCK; a stream belongs to one
(purpose, round, block) and is read row by row, a row an instance. Instance i is then the same whatever the
number of instances, and round t is the same whatever the horizon.
"""

import hashlib
from collections.abc import Iterator
from typing import Literal

import numpy as np

Purpose = Literal[
    "environment", "action", "fallback", "sampling", "perturbation", "initialisation", "shuffle", "bootstrap"
]
Word = str | int

BLOCK = 2520  # instances a block: (BLOCK, d) stays in a core's L2 cache, and 1..10 processes divide it


def stream(root: int, purpose: Purpose, *keys: Word) -> np.random.Generator:
    """Return the generator named by a root seed, what it is for, and any further words.

    >>> stream(0, "action", "ucb", 3).random() == stream(0, "action", "ucb", 3).random()
    True
    """
    # repr keeps 1 and "1" apart, and the separator keeps ("a", "bc") and ("ab", "c") apart; int() makes a number that
    # was read from an array name the same stream.
    words = "\x1f".join(repr(word if isinstance(word, str) else int(word)) for word in (root, purpose, *keys))
    digest = hashlib.blake2b(words.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype="<u8")))


def blocks(instances: int) -> Iterator[tuple[int, int]]:
    """Yield (block index, instances in it) for a set of `instances`, all but the last of size BLOCK."""
    for block, start in enumerate(range(0, instances, BLOCK)):
        yield block, min(BLOCK, instances - start)
