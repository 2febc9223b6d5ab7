"""How texts are spelled in tokens: one way for a conversation, whoever said it, and the text of every token.

A reply that comes back in a request is tokenised anew, from its text. It may come to other ids than were sampled, but
what follows is then a function of the request alone, whatever the server remembers of the reply.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import text_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = array  # of type "i": a conversation may have many thousand tokens, and many are remembered
KEPT_TOKENS = 1_000_000  # of texts that were spelled lately: a client sends all of a conversation each time
BROKEN = "\ufffd"  # stands for bytes that are no character, or not yet


class Spelling:
    """The ids of conversations. first, head, …: see `ChatTemplate`. For one thread at a time, as tokenizers are."""

    def __init__(self, turns: ChatTemplate) -> None:
        self.turns = turns
        self.head = self._encode(turns.head)
        self.kept: OrderedDict[tuple[int, str], Ids] = OrderedDict()
        self.size = 0

    def spell(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of a conversation, turn by turn: up to where a reply starts, or to where it has ended."""
        kinds = (min(place, 1 + (place + 1) % 2) for place in range(len(texts)))  # 0 first, 1 a reply, 2 next
        return [self._turn(kind, text) for kind, text in zip(kinds, texts, strict=True)]

    def _turn(self, kind: int, text: str) -> Ids:
        key = (kind, text)
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        ids = array("i", (self.turns.first, self.reply, self.turns.next)[kind](text))
        self.kept[key] = ids
        self.size += len(ids) + 1
        while self.size > KEPT_TOKENS and len(self.kept) > 1:
            self.size -= len(self.kept.popitem(last=False)[1]) + 1
        return ids

    def reply(self, text: str) -> list[int]:
        """Return the ids of a reply as they stand behind the head, with the end token."""
        whole = self._encode(self.turns.head + text)
        behind = whole[len(self.head) :] if whole[: len(self.head)] == self.head else self._encode(text)
        return [*behind, self.turns.end]

    def _encode(self, text: str) -> list[int]:
        return self.turns.tokenizer(text, add_special_tokens=False).input_ids


class Vocabulary:
    """The text of single tokens as they stand within a text."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        # Behind another token, since some tokenizers leave out the space that a text would begin with.
        self.before = tokenizer("a", add_special_tokens=False).input_ids[-1:]
        self.ahead = text_of(tokenizer, self.before)
        self.known: dict[int, tuple[str, bytes]] = {}

    def token(self, token: int) -> tuple[str, bytes]:
        """Return the text of a token, and its bytes, which may be a part of a character."""
        if token not in self.known:
            text = text_of(self.tokenizer, [*self.before, token]).removeprefix(self.ahead)
            self.known[token] = text, self._bytes(token) if BROKEN in text else text.encode()
        return self.known[token]

    def _bytes(self, token: int) -> bytes:
        """Return the bytes of a token that is no text, by the names that byte-level tokenizers give to bytes."""
        name = self.tokenizer.convert_ids_to_tokens(token)
        if name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:-1], 16)])
        letters = byte_letters()
        return bytes(letters[letter] for letter in name) if set(name) <= letters.keys() else name.encode()

    def told(self, ids: Sequence[int], text: str) -> list[tuple[str, bytes]]:
        """Return text and bytes of tokens that begin with a text: their bytes in a row begin with those of the text."""
        told = [self.token(token) for token in ids]
        if b"".join(written for _, written in told).startswith(text.encode()):
            return told
        # Bytes that are no characters, or a space that is left out at the beginning: tokens get what they add.
        ends = [len(text_of(self.tokenizer, list(ids[: i + 1])).rstrip(BROKEN)) for i in range(len(ids))]
        ends = [min(end, len(text)) for end in ends[:-1]] + [len(text)] * bool(ids)
        pieces = [text[begin : max(begin, end)] for begin, end in zip([0, *ends], ends, strict=False)]
        return [(piece, piece.encode()) for piece in pieces]


@cache
def byte_letters() -> dict[str, int]:
    """Return the letters of byte-level vocabularies with their bytes: a byte that cannot be seen is one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(hidden)}
