"""Tokenise conversations from their texts, and find the text of every token.

A response that a client sends back is tokenised from its text. Its ids may differ from the sampled ones, but whatever
follows then depends on the request alone, and not on what the server still has in its cache.
"""

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import text_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = array  # of type "i": a conversation may have many thousand tokens, and the server keeps many conversations
CACHED_TEXTS = 1 << 15  # tokenised recently: a client sends the whole conversation each time
REPLACEMENT = "\ufffd"  # what a tokenizer writes for bytes that are no character


class ConversationTokenizer:
    """Tokenise conversations with a chat template. Tokenizers are not thread-safe: use one for each thread."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.ids_of = lru_cache(CACHED_TEXTS)(self._ids_of)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each message: of a user's up to where the response starts, of a response with its end."""
        kinds = (min(place, 1 + (place + 1) % 2) for place in range(len(texts)))  # 0 first, 1 response, 2 later message
        return [self.ids_of(kind, text) for kind, text in zip(kinds, texts, strict=True)]

    def _ids_of(self, kind: int, text: str) -> Ids:
        return array("i", (self.template.first, self.template.completion, self.template.next)[kind](text))


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
        name, letters = self.tokenizer.convert_ids_to_tokens(token), byte_letters()
        if name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:-1], 16)])
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
    """Return the letters of byte-level vocabularies with their bytes."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}
