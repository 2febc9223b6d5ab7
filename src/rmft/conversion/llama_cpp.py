"""llama.cpp in this process, as the reference that a converted model is compared with."""

import json
import signal
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rmft.errors import InputError


class Reference:
    """A GGUF file in llama.cpp's server; url: of the server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.letter = self.tokens("a")[-1]

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are written as they are called; no BOS is added."""
        return self._post("tokenize", content=text, add_special=False, parse_special=True)["tokens"]

    def likeliest(self, ids: Sequence[int], count: int) -> dict[int, float]:
        """Return the log-probabilities, at temperature 1, of the likeliest tokens after some tokens."""
        # Probabilities are those before the bias, which has a letter sampled: llama.cpp returns no probabilities with a
        # token that ends a completion or is a part of a character.
        options = {"n_predict": 1, "n_probs": count, "samplers": [], "logit_bias": [[self.letter, 1e4]]}
        answer = self._post("completion", prompt=list(ids), **options)
        (first,) = answer["completion_probabilities"]
        return {one["id"]: one["logprob"] for one in first["top_logprobs"]}

    def _post(self, path: str, **values: object) -> dict[str, Any]:
        body, headers = json.dumps(values).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", body, headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)


@contextmanager
def llama_cpp(gguf: Path, context: int, threads: int) -> Iterator[Reference]:
    """Yield a GGUF file in llama.cpp, with exact keys and values in its cache. Raise InputError if it cannot load it.

    context: tokens of the longest text.
    """
    module = import_module("xllamacpp")
    params = module.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = gguf.as_posix(), context, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers, params.warmup, params.verbosity, params.ui = 0, False, 0, False
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.flash_attn_type = module.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = module.ggml_type.GGML_TYPE_F32
    try:
        server = module.Server(params)
    except RuntimeError as error:
        raise InputError(f"{gguf}: llama.cpp cannot load it ({error})") from None
    for number, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)  # the server sets its own, which would leave this process waiting
    yield Reference(server.listening_address)
