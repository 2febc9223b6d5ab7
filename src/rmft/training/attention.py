"""Attention within a window, for training on a CPU: only what the window lets a token see is computed.

On a GPU, flash attention does that. PyTorch's kernel for CPUs compares all pairs of tokens and then hides most of them:
half of a training step, in a dialogue of 1,516 tokens with a window of 192.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

IN_BLOCKS = "sdpa-in-blocks"
BLOCK = 128  # queries at a time: fewer cost calls, more cost keys that most of them cannot see


def within_window(model: PreTrainedModel) -> PreTrainedModel:
    """Have a model that is on a CPU compute no more than its window shows, to the same result up to rounding."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(IN_BLOCKS)
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
    """Return attention (N, T, heads, size) of query, key and value (N, heads, T, size): Transformers' interface."""
    if sliding_window is None or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
    parts = []
    for start in range(0, query.shape[2], BLOCK):
        answering = slice(start, start + BLOCK)
        seen = slice(max(0, start + 1 - sliding_window), start + BLOCK)
        shown = (query[:, :, answering], key[:, :, seen], value[:, :, seen], attention_mask[:, :, answering, seen])
        parts.append(sdpa_attention_forward(module, *shown, **rest)[0])
    return torch.cat(parts, dim=1), None


AttentionInterface.register(IN_BLOCKS, _in_blocks)
AttentionMaskInterface.register(IN_BLOCKS, sdpa_mask)
