"""llama.cpp's server as the reference that a converted model is compared with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rmft.agents.llama_cpp_servers import connected
from rmft.agents.served import Json, ServerConnections
from rmft.params.language_model import LlamaCpp

EXACT = ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"]  # keys and values are not rounded


class Reference:
    """A GGUF file in llama.cpp's server."""

    def __init__(self, connections: ServerConnections) -> None:
        self.connections = connections
        self.letter = self.tokens("a")[-1]

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are written as they are called; no BOS is added."""
        return self._post("/tokenize", content=text, add_special=False, parse_special=True)["tokens"]

    def likeliest(self, ids: Sequence[int], count: int) -> dict[int, float]:
        """Return the log-probabilities, at temperature 1, of the likeliest tokens after some tokens."""
        # Probabilities are those before the bias, which has a letter sampled: llama.cpp returns no probabilities with a
        # token that ends a completion or is a part of a character.
        options = {"n_predict": 1, "n_probs": count, "samplers": [], "logit_bias": [[self.letter, 1e4]]}
        answer = self._post("/completion", prompt=list(ids), **options)
        (first,) = answer["completion_probabilities"]
        return {one["id"]: one["logprob"] for one in first["top_logprobs"]}

    def _post(self, path: str, **values: object) -> Json:
        (answer,) = self.connections.post(path, [values], [0])
        return answer


@contextmanager
def llama_cpp(gguf: Path, tokens: int, threads: int, log: Path) -> Iterator[Reference]:
    """Yield a GGUF file in llama.cpp, which ends with this context. Raise InputError if llama.cpp cannot load it.

    tokens: of the longest text. log: file of the server's output.
    """
    settings = LlamaCpp(threads=threads, arguments=EXACT)
    with connected(gguf, settings, 1, tokens, log) as connections:
        yield Reference(connections)
