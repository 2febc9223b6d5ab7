"""Start llama.cpp's server for a job: quantised base weights, and the adapter that fine-tuning wrote."""

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rmft.agents import bundled_llama_cpp
from rmft.agents.chat_tokenizer import ChatTokenizer, text_of
from rmft.agents.checkpoint import gguf_file
from rmft.agents.extras import check_extra
from rmft.agents.llama_cpp import LlamaCppClient
from rmft.agents.llama_cpp_adapter import write_adapter
from rmft.agents.memory import say_memory_to_play_gguf, size_of_model
from rmft.agents.served import ServerConnections
from rmft.agents.server_processes import ServerCommand, note_version, running_servers
from rmft.params.language_model import LanguageModelSettings, LlamaCpp

BLOCK = 256  # a slot's tokens are a multiple of this


@contextmanager
def start_llama_cpp(
    settings: LanguageModelSettings, weights: Path | None, chat_tokenizer: ChatTokenizer, tokens: int, log: Path
) -> Iterator[LlamaCppClient]:
    """Start the server of a model, yield its client when it is ready, and end it afterwards.

    weights: the adapter that fine-tuning wrote; None for the base model. tokens: of the longest conversation. log: file
    of the server's output. Raise InputError if the server does not start.
    """
    gguf = gguf_file(settings)
    if size_of_model(settings).is_large:
        say_memory_to_play_gguf(settings, gguf, tokens)
    with TemporaryDirectory(prefix="rmft-llama-cpp-") as folder:
        lora = []
        if weights is not None:
            converted = Path(folder, "adapter.gguf")
            write_adapter(weights, gguf, converted)
            lora = ["--lora", str(converted)]
        with connected(gguf, settings.llama_cpp, settings.batch, tokens, log, lora) as connections:
            ends = {end: text_of(chat_tokenizer.tokenizer, [end]) for end in sorted(chat_tokenizer.ends)}
            yield LlamaCppClient(connections, ends)


@contextmanager
def connected(
    gguf: Path, settings: LlamaCpp, slots: int, tokens: int, log: Path, arguments: Sequence[str] = ()
) -> Iterator[ServerConnections]:
    """Start a server of a GGUF file, yield connections to it when it is ready, and end it afterwards; see `serving`."""
    with (
        serving(gguf, settings, slots, tokens, log, arguments) as (url, key),
        ServerConnections([url], key, slots, log) as connections,
    ):
        yield connections


@contextmanager
def serving(
    gguf: Path, settings: LlamaCpp, slots: int, tokens: int, log: Path, arguments: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Start a server of a GGUF file, yield its address and API key when it is ready, and end it afterwards.

    slots: conversations that it holds. tokens: of the longest one. log: file of its output. Raise InputError if the
    server does not start.
    """
    key, threads = secrets.token_urlsafe(24), str(settings.threads_to_play)
    slot_tokens = BLOCK * -(-(tokens + 1) // BLOCK)
    command = [*(settings.command or _bundled()), "--model", str(gguf), *arguments]
    command += ["--parallel", str(slots), "--ctx-size", str(slots * slot_tokens)]
    command += ["--threads", threads, "--threads-batch", threads]
    # A cache for each slot, of all its tokens also in layers with a sliding window: nothing is ever read again.
    command += ["--no-kv-unified", "--swa-full", "--cache-ram", "0", *settings.arguments]
    server = ServerCommand(command, {"LLAMA_API_KEY": key})
    with running_servers("llama_cpp", [server], log) as (url,):
        if settings.command:  # the version of the package's server is among the job's libraries
            note_version("llama_cpp", f"{url}/props", "build_info", key)
        yield url, key


def _bundled() -> list[str]:
    """Return the command of the server in the package xllamacpp. Raise InputError where the package is missing."""
    check_extra("xllamacpp", "llama_cpp", "gguf")
    return [sys.executable, "-m", bundled_llama_cpp.__name__]
