"""A GGUF file of a model made for tests: two layers of the Qwen2 family with random weights, and a ChatML template."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from rmft.streams import stream

LAYERS, HEADS, KV_HEADS, HEAD_SIZE, FEED_FORWARD, CONTEXT = 2, 4, 2, 16, 128, 16384
WIDTH = HEADS * HEAD_SIZE
WORDS = ("Ġthe", "Ġaction", "Ġreward", "Ġround", "Action", "Policy", "user", "assistant")
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    rope_scaling: gguf.RopeScalingType | None = None,
    chat_template: str | None = CHATML,
    pre: str = "qwen2",
) -> Path:
    """Write the file and return its path. kind: of matrices, for example F32 or Q8_0. pre: how llama.cpp cuts words."""
    tokens, merges = vocabulary()
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if rope_scaling:
        writer.add_rope_scaling_type(rope_scaling)
        writer.add_rope_scaling_factor(4.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(tokens) - 3) + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index(END))
    writer.add_pad_token_id(tokens.index(END_OF_TEXT))
    writer.add_add_bos_token(False)
    if chat_template:
        writer.add_chat_template(chat_template)
    for name, weights in weights_of(seed, len(tokens)).items():
        stored = kind if weights.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(weights, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> tuple[list[str], list[str]]:
    """Return the tokens and the merges of a byte-level BPE that knows a few words."""
    tokens, merges = sorted(ByteLevel.alphabet()), []
    for word in WORDS:
        for end in range(1, len(word)):
            if word[: end + 1] not in tokens:
                merges.append(f"{word[:end]} {word[end]}")
                tokens.append(word[: end + 1])
    return [*tokens, END_OF_TEXT, START, END], merges


def weights_of(seed: int, tokens: int) -> dict[str, np.ndarray]:
    """Return random weights by llama.cpp's names, float32, large enough for distributions that are far from uniform."""
    rng = stream(seed, "initialisation", "tiny-gguf")
    kv_width = KV_HEADS * HEAD_SIZE

    def matrix(*shape: int) -> np.ndarray:
        return rng.normal(0.0, shape[-1] ** -0.5, shape).astype(np.float32)

    weights = {"token_embd.weight": matrix(tokens, WIDTH), "output.weight": 3 * matrix(tokens, WIDTH)}
    for i in range(LAYERS):
        block = {
            "attn_norm.weight": np.ones(WIDTH, np.float32),
            "attn_q.weight": 2 * matrix(WIDTH, WIDTH),
            "attn_k.weight": 2 * matrix(kv_width, WIDTH),
            "attn_v.weight": matrix(kv_width, WIDTH),
            "attn_q.bias": matrix(WIDTH),
            "attn_k.bias": matrix(kv_width),
            "attn_v.bias": matrix(kv_width),
            "attn_output.weight": matrix(WIDTH, WIDTH),
            "ffn_norm.weight": np.ones(WIDTH, np.float32),
            "ffn_gate.weight": matrix(FEED_FORWARD, WIDTH),
            "ffn_up.weight": matrix(FEED_FORWARD, WIDTH),
            "ffn_down.weight": matrix(WIDTH, FEED_FORWARD),
        }
        weights |= {f"blk.{i}.{name}": values for name, values in block.items()}
    return weights | {"output_norm.weight": np.ones(WIDTH, np.float32)}
