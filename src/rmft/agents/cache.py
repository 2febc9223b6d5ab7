"""Memory of past tokens with slots allotted beforehand, and attention that reads it in place.

Symbols: B conversations, n of them in a forward pass ("lanes"), q new tokens each, C slots, m ≤ C of them in use,
H heads, K heads of keys and values, D their size.

The token at position p of a conversation is in slot p % C. A layer with a sliding window of w tokens has w + slack
slots and forgets what nobody sees; a layer that sees everything has a slot for each token. A conversation's length
says which position each slot holds, so nothing needs to be erased when it shrinks or starts anew: up to `slack` tokens
can be taken back, or written in one pass, before a slot is overwritten that is still in sight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PretrainedConfig
from transformers.masking_utils import eager_mask

from rmft.agents.context import FULL, WINDOWED, layer_windows

ATTENTION = "rmft-slots"
ALIGNED = 64  # slots that a GPU's kernels read at a time: of masks of another width they make copies in every layer


@dataclass
class Slots:
    """What the layers of one window share.

    slots: C. index: (n·K·q,) rows to write. mask: (n, 1, H/K·q, m), added to the scores of heads that share keys.
    """

    window: int | None
    slots: int
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None


def slots_of(window: int | None, capacity: int, slack: int) -> int:
    """Return how many slots a layer has for a conversation."""
    return -(-capacity // 8) * 8 if window is None else min(capacity, window + slack)


def conversation_bytes(config: PretrainedConfig, capacity: int, slack: int, size: int) -> int:
    """Return the bytes that a conversation takes at most: its memory, and what a forward pass makes beside it.

    capacity, slack: as of `SlotCache`; no more than `slack` tokens are fed in a pass. size: bytes of a number.
    """
    config = config.get_text_config(decoder=True)
    heads, pairs = config.num_attention_heads, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    slots = [slots_of(window, capacity, slack) + 1 for window in layer_windows(config)]
    memory = 2 * pairs * head * size * (sum(slots) + max(slots))  # a layer's again where lanes are gathered
    experts = getattr(config, "num_experts_per_tok", 0) * getattr(config, "moe_intermediate_size", 0)
    widest = max(3 * max(config.intermediate_size, experts), (3 * heads + 4 * pairs) * head) + 2 * config.hidden_size
    masked = max(slots) * ((1 + heads // pairs) * size + 3)  # the mask, once more for each query of shared keys
    if getattr(config, "attn_logit_softcapping", None):  # then scores are written out, see `attend`
        masked += max(slots) * heads * (2 * size + 4)
    sampling = config.vocab_size * (size + 28)  # logits, two softmaxes in float32, and sums in float64
    return memory + max(slack * (widest * size + masked), sampling)


class SlotCache(Cache):
    """Keys and values (B, K, C + 1, D) of each layer; the last slot takes what is not to be kept.

    Call `prepare` before each forward pass.
    """

    def __init__(self, config: PretrainedConfig, count: int, capacity: int, slack: int) -> None:
        super().__init__(layers=[])
        windows = layer_windows(config)
        slots = {w: Slots(w, slots_of(w, capacity, slack)) for w in windows}
        self.limit = capacity if any(w is None or capacity < w + slack for w in windows) else None
        self.slack = slack if any(kind.slots < capacity for kind in slots.values()) else None
        self.kinds = list(slots.values())
        self.slots = [slots[w] for w in windows]
        shape = config.get_text_config(decoder=True)
        self.heads = shape.num_key_value_heads
        self.sharing = shape.num_attention_heads // self.heads
        self.count = count
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.lanes: torch.Tensor | slice = slice(count)
        self.scratch: dict[int, torch.Tensor] = {}

    def prepare(
        self, lanes: torch.Tensor | slice, positions: torch.Tensor, kept: torch.Tensor, used: int, dtype: torch.dtype
    ) -> None:
        """Say where the next tokens go and what they see.

        lanes: (n,) conversations, or a slice of all B. positions: (n, q). kept: (n, q), false where there is no token.
        used: one more than the last position; a GPU would have to be waited for to find out.
        """
        self.lanes = lanes
        rows = torch.arange(self.count, device=positions.device)[lanes]
        last = positions[:, -1:]
        used = used if last.device.type == "cpu" else -(-used // ALIGNED) * ALIGNED
        for kind in self.kinds:
            slot = torch.where(kept, positions % kind.slots, kind.slots)
            kind.index = self._index(kind, rows, slot).flatten()
            held = last - (last - torch.arange(min(used, kind.slots), device=last.device)) % kind.slots  # (n, m)
            held, seeing = held[:, None], positions[..., None]
            seen = (held >= 0) & (held <= seeing)
            if kind.window is not None:
                seen &= held > seeing - kind.window
            mask = torch.zeros(seen.shape, dtype=dtype, device=last.device)
            mask = mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
            kind.mask = mask.repeat(1, 1, self.sharing, 1)

    def _index(self, kind: Slots, rows: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        """Return the rows of a layer's memory, seen as (B·K·(C + 1), D), of slots (n, q): (n, K, q)."""
        heads = torch.arange(self.heads, device=slot.device)
        return (rows[:, None, None] * self.heads + heads[:, None]) * (kind.slots + 1) + slot[:, None]

    def masks(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return what to pass as `attention_mask`."""
        if len(self.kinds) == 1:
            return self.kinds[0].mask
        return {FULL if kind.window is None else WINDOWED: kind.mask for kind in self.kinds}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values (n, K, q, D) of new tokens and return those of all slots in use, (n, K, m, D)."""
        kind = self.slots[layer]
        if layer == len(self.pairs):
            shape = (self.count, self.heads, kind.slots + 1)
            self.pairs.append(tuple(_zeros((*shape, new.shape[-1]), new) for new in (keys, values)))
        held = []
        for part, (memory, new) in enumerate(zip(self.pairs[layer], (keys, values), strict=True)):
            memory.view(-1, memory.shape[-1]).index_copy_(0, kind.index, new.reshape(-1, new.shape[-1]))
            used = memory[:, :, : kind.mask.shape[-1]]
            held.append(used[self.lanes] if isinstance(self.lanes, slice) else self._gathered(part, used))
        return held[0], held[1]

    def _gathered(self, part: int, used: torch.Tensor) -> torch.Tensor:
        """Return the lanes of keys (part 0) or values (1), in a place that is written over by the next layer."""
        shape = (len(self.lanes), *used.shape[1:])
        room = math.prod(shape)
        if part not in self.scratch or self.scratch[part].numel() < room:  # a new place each time costs page faults
            self.scratch[part] = used.new_empty(room)
        return torch.index_select(used, 0, self.lanes, out=self.scratch[part][:room].view(shape))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: conversations have lengths of their own, and positions are always given."""
        return 0

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy one conversation's memory, in which `length` tokens have been, over another's."""
        for kind, pair in zip(self.slots, self.pairs, strict=bool(self.pairs)):
            for memory in pair:
                memory[target, :, : min(length, kind.slots)] = memory[source, :, : min(length, kind.slots)]

    def save(self, rows: torch.Tensor, positions: torch.Tensor) -> list[torch.Tensor]:
        """Return a copy of keys and values at positions (n, q) of conversations (n,), for `restore`."""
        return [memory[index].clone() for memory, index in self._places(rows, positions)]

    def restore(self, rows: torch.Tensor, positions: torch.Tensor, saved: Sequence[torch.Tensor]) -> None:
        """Put back what was saved."""
        for (memory, index), old in zip(self._places(rows, positions), saved, strict=True):
            memory[index] = old

    def _places(self, rows: torch.Tensor, positions: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return every memory as rows of D numbers, with the rows of the given positions."""
        return [
            (memory.view(-1, memory.shape[-1]), self._index(kind, rows, positions % kind.slots).flatten())
            for kind, pair in zip(self.slots, self.pairs, strict=True)
            for memory in pair
        ]


def _zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return zeros of a tensor's type; on a CPU they take no memory until they are written over."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    blank = np.zeros(math.prod(shape) * like.element_size(), dtype=np.uint8)  # torch would write every zero
    return torch.from_numpy(blank).view(like.dtype).view(shape)


def attend(
    _module: torch.nn.Module,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    softcap: float | None = None,
    **_kwargs: object,
) -> tuple[torch.Tensor, None]:
    """Return softmax(q Kᵀ) V, (n, q, H, D), for queries (n, H, q, D) on keys and values (n, K, m, D).

    Heads that share keys are one matrix product, so that keys are read where they are. Torch's fused attention has no
    soft-capping, and for single tokens on a CPU it takes twice as long as plain products.
    """
    n, heads, q, _ = query.shape
    K = keys.shape[1]
    query, mask = query.reshape(n, K, heads // K * q, -1), attention_mask
    if mask.shape[2] != query.shape[2]:  # not one of ours
        mask = mask.repeat(1, 1, heads // K, 1)
    if softcap is None and (q > 1 or query.is_cuda):
        mixed = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling)
    else:
        scores = torch.matmul(query * scaling, keys.transpose(2, 3))
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores += mask
        mixed = torch.matmul(scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype), values)
    mixed = mixed.unflatten(2, (heads // K, q))  # whichever layout a kernel has left it in
    return mixed.permute(0, 3, 1, 2, 4).flatten(2, 3), None


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, eager_mask)  # for whoever calls the model without our masks
