"""Write a trained model as PEFT, transformers or llama.cpp read it."""

import json
from pathlib import Path
from typing import Literal

from rmft.agents.checkpoint import gguf_file, load_tokenizer
from rmft.agents.llama_cpp_adapter import write_adapter
from rmft.agents.weights import ADAPTER_CONFIG, load_pretrained, with_weights
from rmft.artifacts.tensors import read_tensors
from rmft.errors import InputError
from rmft.export import ADAPTER_GGUF
from rmft.export.iteration import BuiltIteration

ModelFormat = Literal["peft", "merged", "gguf"]


def write_model(source: BuiltIteration, form: ModelFormat, folder: Path) -> None:
    """Write a trained model into a folder. Raise InputError where it has no such form."""
    {"peft": _write_peft, "merged": _write_merged, "gguf": _write_gguf}[form](source, folder)
    for file in folder.glob("*.safetensors"):  # safetensors lets nobody else read a file
        file.chmod(folder.stat().st_mode & 0o666)


def _write_peft(source: BuiltIteration, folder: Path) -> None:
    from peft import LoraConfig
    from safetensors.torch import save_file

    tensors, config = _adapter(source)
    named = {"base_model_name_or_path": source.base_model, "revision": source.revision, "inference_mode": True}
    LoraConfig(**config | named).save_pretrained(folder)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    load_tokenizer(source.base).save_pretrained(folder)


def _write_merged(source: BuiltIteration, folder: Path) -> None:
    if source.base.quantised:
        raise InputError(
            f"{source.weights}: was trained beside weights of 4 bits, which it cannot be added to: try peft"
        )
    model, tokenizer = load_pretrained(source.base)
    with_weights(model, source.weights).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_gguf(source: BuiltIteration, folder: Path) -> None:
    _adapter(source)
    if not source.base.is_gguf:
        raise InputError(
            f"{source.weights}: its base model is no GGUF file, beside which llama.cpp could load an adapter; "
            "export --format merged and run llama.cpp's convert_hf_to_gguf.py on the folder"
        )
    write_adapter(source.weights, gguf_file(source.base), folder / ADAPTER_GGUF)


def _adapter(source: BuiltIteration) -> tuple[dict, dict]:
    """Return the tensors and the configuration of an adapter. Raise InputError where all weights were trained."""
    tensors, metadata = read_tensors(source.weights)
    if ADAPTER_CONFIG not in metadata:
        raise InputError(f"{source.weights}: holds all weights and no adapter; try --format merged")
    return tensors, json.loads(metadata[ADAPTER_CONFIG])
