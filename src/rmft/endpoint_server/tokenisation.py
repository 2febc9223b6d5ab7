"""Tokenise conversations from their texts, and find the text of every token.

A response that a client sends back is tokenised from its text. Its ids may differ from the sampled ones, but whatever
follows then depends on the request alone, and not on what the server still has in its cache.
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

Ids = array  # of type "i": a conversation may have many thousand tokens, and the server keeps many conversations
CACHED_TOKENS = 1_000_000  # of recently tokenised texts: a client sends the whole conversation each time
REPLACEMENT = "\ufffd"  # what a tokenizer writes for bytes that are no character


class ConversationTokenizer:
    """Tokenise conversations with a chat template. Tokenizers are not thread-safe: use one for each thread."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.cache: OrderedDict[tuple[int, str], Ids] = OrderedDict()  # the least recently used text first
        self.size = 0  # tokens in the cache

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each message: of a user's up to where the response starts, of a response with its end."""
        kinds = (min(place, 1 + (place + 1) % 2) for place in range(len(texts)))  # 0 first, 1 response, 2 later message
        return [self._cached(kind, text) for kind, text in zip(kinds, texts, strict=True)]

    def _cached(self, kind: int, text: str) -> Ids:
        key = (kind, text)
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        ids = array("i", (self.template.first, self.template.completion, self.template.next)[kind](text))
        self.cache[key] = ids
        self.size += len(ids) + 1
        while self.size > CACHED_TOKENS and len(self.cache) > 1:
            self.size -= len(self.cache.popitem(last=False)[1]) + 1
        return ids


class TokenDecoder:
    """Find the text and the bytes of single tokens as they stand within a text."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        # Each token is decoded after another one: some tokenizers drop the space at the beginning of a text.
        self.before = tokenizer("a", add_special_tokens=False).input_ids[-1:]
        self.text_before = text_of(tokenizer, self.before)
        self.cache: dict[int, tuple[str, bytes]] = {}

    def token(self, token: int) -> tuple[str, bytes]:
        """Return the text of a token and its bytes, which may be a part of a character."""
        if token not in self.cache:
            text = text_of(self.tokenizer, [*self.before, token]).removeprefix(self.text_before)
            self.cache[token] = text, self._bytes(token) if REPLACEMENT in text else text.encode()
        return self.cache[token]

    def _bytes(self, token: int) -> bytes:
        """Return the bytes of a token that is no text, from the names that byte-level tokenizers give to bytes."""
        name = self.tokenizer.convert_ids_to_tokens(token)
        if name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:-1], 16)])
        letters = byte_letters()
        return bytes(letters[letter] for letter in name) if set(name) <= letters.keys() else name.encode()

    def split(self, ids: Sequence[int], text: str) -> list[tuple[str, bytes]]:
        """Return text and bytes of each token of a text; the bytes joined begin with those of the text."""
        pieces = [self.token(token) for token in ids]
        if b"".join(raw for _, raw in pieces).startswith(text.encode()):
            return pieces
        # Bytes that are no characters, or a dropped space at the beginning: each token gets the text that it adds.
        ends = [len(text_of(self.tokenizer, list(ids[: i + 1])).rstrip(REPLACEMENT)) for i in range(len(ids))]
        ends = [min(end, len(text)) for end in ends[:-1]] + [len(text)] * bool(ids)
        texts = [text[begin : max(begin, end)] for begin, end in zip([0, *ends], ends, strict=False)]
        return [(piece, piece.encode()) for piece in texts]


@cache
def byte_letters() -> dict[str, int]:
    """Return the letters of byte-level vocabularies with their bytes; invisible bytes have letters from 256 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    invisible = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(invisible)}
