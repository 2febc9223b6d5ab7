"""Sliding-window attention for training on a CPU, which computes only the scores inside the window.

PyTorch's CPU kernel computes the scores of all pairs of tokens and masks most of
them, which takes half of a training step in a dialogue of 1,516 tokens with a window of 192.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rmft.agents.cache import NOT_FUSED_ON_CPU

IN_BLOCKS = "sdpa-in-blocks"
BLOCK = 128  # queries at a time: a smaller number costs more calls, a larger one more masked scores


def within_window(model: PreTrainedModel, device: str) -> PreTrainedModel:
    """Set how attention is computed in training on a CPU: in blocks, but plainly in bfloat16; equal up to rounding.

    device: where the model will be trained. A trainer moves the model there later.
    """
    if device == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation("eager" if model.dtype == NOT_FUSED_ON_CPU else IN_BLOCKS)
    return model


def _in_blocks(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    sliding_window: int | None = None,
    **rest: object,
) -> tuple[torch.Tensor, None]:
    """Return attention (N, T, heads, size) of query, key and value (N, heads, T, size): as transformers asks for."""
    cached = query.shape[2] != key.shape[2]  # a cache holds earlier keys, so query i does not meet key i in its middle
    if sliding_window is None or attention_mask is None or cached:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
    parts = []
    for start in range(0, query.shape[2], BLOCK):
        queries = slice(start, start + BLOCK)
        keys = slice(max(0, start + 1 - sliding_window), start + BLOCK)
        block = (query[:, :, queries], key[:, :, keys], value[:, :, keys], attention_mask[:, :, queries, keys])
        parts.append(sdpa_attention_forward(module, *block, **rest)[0])
    return torch.cat(parts, dim=1), None


AttentionInterface.register(IN_BLOCKS, _in_blocks)
AttentionMaskInterface.register(IN_BLOCKS, sdpa_mask)
