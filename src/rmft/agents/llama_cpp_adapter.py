"""Write a LoRA adapter as llama.cpp reads it (GGUF), as llama.cpp's convert_lora_to_gguf.py does.

Symbols: r rank, p inputs and q outputs of a linear layer.
"""

import json
from importlib import import_module
from pathlib import Path

import numpy as np

from rmft.agents.extras import check_extra
from rmft.agents.gguf_header import read_gguf
from rmft.agents.weights import ADAPTER_CONFIG
from rmft.artifacts.tensors import read_tensors
from rmft.errors import InputError

PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
PERMUTED = ("llama",)  # architectures whose query and key rows llama.cpp keeps in another order than transformers


def write_adapter(adapter: Path, base: Path, output: Path) -> None:
    """Write an adapter that fine-tuning wrote (.safetensors) as GGUF. base: the GGUF file of the base model.

    Raise InputError where llama.cpp has no such layer.
    """
    check_extra("gguf", "llama_cpp", "gguf")
    gguf = import_module("gguf")
    tensors, metadata = read_tensors(adapter)
    config = json.loads(metadata[ADAPTER_CONFIG])
    header = read_gguf(base)
    heads = header.count(".attention.head_count")
    key_heads = header.count(".attention.head_count_kv") if header.value(".attention.head_count_kv") else heads
    architecture = header.architecture
    kind = next((kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), None)
    if kind is None:
        raise InputError(f"{base}: is of an architecture that the library gguf does not know, {architecture!r}")
    names = gguf.get_tensor_name_map(kind, header.count(".block_count"))
    writer = gguf.GGUFWriter(output, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(config["lora_alpha"]))
    for key in sorted(key for key in tensors if key.endswith(A)):
        layer = key.removeprefix(PREFIX).removesuffix(A)
        down, up = (tensors[name].float().numpy() for name in (key, key.removesuffix(A) + B))  # (r, p), (q, r)
        name = f"{names.get_name(layer)}.weight"
        if header.shapes.get(name) != (down.shape[1], up.shape[0]):  # (p, q)
            raise InputError(f"{adapter}: llama.cpp has no layer {layer} of this shape in {base.name}")
        if architecture in PERMUTED and name.endswith((".attn_q.weight", ".attn_k.weight")):
            up = permuted(up, heads if name.endswith(".attn_q.weight") else key_heads)
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(down))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(up))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return query or key rows (q, r) in llama.cpp's order.

    The rotary embedding turns row i of a head together with row i + half in transformers, with row i + 1 in llama.cpp.
    """
    return rows.reshape(heads, 2, len(rows) // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)
