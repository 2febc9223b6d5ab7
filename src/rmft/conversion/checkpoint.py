"""Read a GGUF file, which holds quantised weights for llama.cpp, and write it as transformers loads a model.

transformers multiplies the quantised weights out (`dequantize`) and rebuilds the tokenizer. It does not read scaled
rotary positions from such files, so those are refused here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.agents.chat_tokenizer import single_tokens
from rmft.agents.gguf_header import GgufHeader, read_gguf, shared_with_transformers
from rmft.artifacts.files import noted
from rmft.errors import InputError, first_line
from rmft.params.files import CHECKPOINT
from rmft.params.language_model import Checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# By name, since a file names one of them at most: tokens that llama.cpp takes for the end of a completion.
ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
)
PLAIN_CHAT = "data/prompts/templates/plain-chat.jinja"


def convert(settings: Checkpoint, gguf: Path, folder: Path) -> None:
    """Write a GGUF file as model, tokenizer and chat template. Raise InputError where the file has no such thing."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    header = read_gguf(gguf)
    refuse_scaled_positions(header)
    source, name = gguf.parent.as_posix(), gguf.name
    with _read_by_transformers(header):
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    if settings.chat_template:
        tokenizer.chat_template = noted(Path(settings.chat_template)).read_text(encoding="utf-8")
    if tokenizer.chat_template is None:
        raise InputError(f"{gguf}: has no chat template, as base models have none; chat_template: {PLAIN_CHAT} is one")
    ends = stop_ids(tokenizer, settings.stop_tokens or [])
    with _read_by_transformers(header):
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=settings.dtype, quantization_config=GgufConfig(dequantize=True)
        )
    model.generation_config.eos_token_id = ends
    try:
        model.save_pretrained(folder, max_shard_size="100TB")  # CHECKPOINT has one file of weights
        tokenizer.save_pretrained(folder)
        for file in folder.iterdir():
            if file.name not in CHECKPOINT:  # some tokenizers have files for older versions of transformers as well
                file.unlink()
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder.parent}: cannot be written: {error}") from None


@contextmanager
def _read_by_transformers(header: GgufHeader) -> Iterator[None]:
    """Raise InputError where transformers cannot read a part of the file with this header."""
    try:
        with shared_with_transformers(header):
            yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{header.path}: transformers cannot read it: {first_line(error)}") from None


def refuse_scaled_positions(header: GgufHeader) -> None:
    """Raise InputError where a file scales its rotary positions."""
    key = f"{header.architecture}.rope.scaling.type"
    kind = header.value(key)
    factors = [name for name in header.shapes if name.startswith(("rope_freqs", "rope_factors"))]
    if factors or kind not in (None, "none"):
        scaled = factors[0] if factors else f"{key} = {kind}"
        cure = "take the model's safetensors from the hub"
        raise InputError(
            f"{header.path}: scales its rotary positions ({scaled}), which transformers does not read; {cure}"
        )


def stop_ids(tokenizer: "PreTrainedTokenizerBase", more: list[str]) -> list[int]:
    """Return the ids that end a completion: the file's own, llama.cpp's, and those of `more` texts.

    Raise InputError where one of the texts is not a single token.
    """
    special = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = {special[name] for name in ENDS if name in special}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return sorted({*ids, *single_tokens(tokenizer, more)})
