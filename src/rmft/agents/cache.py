"""A preallocated key-value cache with a slot for each token, and attention that reads the cache in place.

Symbols: B conversations, n of them in a forward pass, q new tokens each, C slots, m ≤ C of them in use, H heads, K
heads of keys and values, D their size.

The token at position p of a conversation is in slot p % C. A layer with a sliding window of w tokens has w + slack
slots, and new tokens overwrite those that have left the window; a layer with full attention has a slot for each token.
The length of a conversation determines which position each slot holds, so nothing is erased when a conversation shrinks
or restarts: up to `slack` tokens can be taken back, or written in one pass, before a slot inside the window is
overwritten. Attention reads every slot, so slack costs time. To take back more than `slack` tokens, call `remember`
before they are fed: the cache then keeps what they overwrite, and `rewind` puts it back.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PretrainedConfig
from transformers.masking_utils import eager_mask

from rmft.agents.context import FULL, NOT_IN_PROCESS, WINDOWED, heads_of, layer_windows
from rmft.errors import InputError

ATTENTION, BATCH_INVARIANT = "rmft-slots", "rmft-slots-batch-invariant"
LEAST_QUERIES, LEAST_KEYS = 2, 16  # below these, products and sums take other kernels, which round differently
# PyTorch's fused attention fails in this type on a CPU with AMX, once torch keeps to AVX2 (`rmft.instructions`).
NOT_FUSED_ON_CPU = torch.bfloat16
LEAST_CHUNK = 16  # tokens fed in one pass, at least
PART_OF_WINDOW = 6  # slack is at most a sixth of the smallest window, or LEAST_CHUNK if that is more
ALIGNED = 64  # a GPU's kernels copy, in every layer, masks whose width is not a multiple of this


@dataclass
class LayerKind:
    """The state that all layers with the same window share.

    slots: C. index: (n·K·q,), the cache rows to write. mask: (n, 1, H/K·q, m), added to the scores of heads that share
    keys. overwritten: what this pass overwrites; None where the cache does not remember it.
    """

    window: int | None
    slots: int
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    overwritten: "Overwritten | None" = None


@dataclass(frozen=True)
class Overwritten:
    """What a pass overwrote in the layers of one kind.

    index: (m,), the cache rows that it wrote. owners, positions: (m,), the conversation and the position that each of
    them is for. layers: keys or values of a layer, as rows (B·K·(C + 1), D), and what the rows at `index` held before,
    (m, D).
    """

    index: torch.Tensor
    owners: torch.Tensor
    positions: torch.Tensor
    layers: list[tuple[torch.Tensor, torch.Tensor]]


def slots_of(window: int | None, capacity: int, slack: int) -> int:
    """Return C: how many slots a layer has for each conversation."""
    return -(-capacity // 8) * 8 if window is None else min(capacity, window + slack)


def conversation_bytes(config: PretrainedConfig, capacity: int, slack: int, remembered: int, size: int) -> int:
    """Return the bytes that a conversation takes at most: its cache, and the temporary tensors of a forward pass.

    capacity, slack: as in `SlotCache`; a pass feeds at most `slack` tokens. remembered: the most tokens of a
    completion; if more than the slack, what they overwrite is kept, too. size: bytes of a number.
    """
    config = config.get_text_config(decoder=True)
    query_heads, key_heads = heads_of(config)
    sharing, head = query_heads // key_heads, getattr(config, "head_dim", None) or config.hidden_size // query_heads
    windows = layer_windows(config)
    windows = windows[: len(windows) - (getattr(config, "num_kv_shared_layers", 0) or 0)]
    slots = [slots_of(window, capacity, slack) + 1 for window in windows]
    overwritten = sum(some <= capacity for some in slots) * (remembered if remembered > slack else 0)
    gathered = sum(dict(zip(windows, slots, strict=True)).values())  # a copy of one layer of each kind
    memory = 2 * key_heads * head * size * (sum(slots) + gathered + overwritten)
    experts = getattr(config, "num_experts_per_tok", 0) * getattr(config, "moe_intermediate_size", 0)
    inner = max(np.max(config.intermediate_size), experts)  # Gemma 3n has a width for each layer
    widest = max(3 * int(inner), (3 * query_heads + 4 * key_heads) * head)
    widest += 2 * config.hidden_size
    masked = max(slots) * ((1 + sharing) * size + 3)  # the mask, and a copy for each query that shares keys
    # `attend` computes the scores itself here. It does so for single tokens on a GPU, too, where they are small.
    if getattr(config, "attn_logit_softcapping", None):
        masked += max(slots) * query_heads * (2 * size + 4)
    sampling = config.vocab_size * (size + 28)  # logits, two softmaxes in float32, cumulative sums in float64
    return memory + max(slack * (widest * size + masked), sampling)


def chunk_of(config: PretrainedConfig, max_tokens: int) -> int:
    """Return how many tokens are fed in one pass, at most; it is the cache's slack, too.

    As many as a completion has, or fewer if a window is small.
    """
    parts = [window // PART_OF_WINDOW for window in layer_windows(config) if window]
    return max(LEAST_CHUNK, min([max_tokens, *parts]))


def size_of(config: PretrainedConfig, capacity: int, max_tokens: int, size: int) -> int:
    """Return the bytes that a conversation of `local.LocalChatModel` takes at most. size: bytes of a number."""
    chunk = chunk_of(config, max_tokens)
    return conversation_bytes(config, capacity + max(chunk, max_tokens), chunk, max_tokens, size)


class SlotCache(Cache):
    """Keys and values (B, K, C + 1, D) of each layer; padding is written to the last slot.

    capacity: tokens of the longest conversation. limit: the capacity, where a layer cannot hold more; None where every
    layer has a window. slack: how many tokens can be taken back; None for any number.
    Call `prepare` before each forward pass.
    """

    def __init__(self, config: PretrainedConfig, count: int, capacity: int, slack: int) -> None:
        super().__init__(layers=[])
        windows = layer_windows(config)
        kinds = {window: LayerKind(window, slots_of(window, capacity, slack)) for window in windows}
        self.limit = capacity if any(w is None or capacity < w + slack for w in windows) else None
        self.slack = slack if any(kind.slots < capacity for kind in kinds.values()) else None
        self.kinds = list(kinds.values())
        self.kind_of_layer = [kinds[window] for window in windows]
        query_heads, self.key_heads = heads_of(config)
        self.sharing = query_heads // self.key_heads
        self.count, self.capacity = count, capacity
        self.keys_and_values: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.rows: torch.Tensor | slice = slice(count)
        self.overwritten: list[Overwritten] | None = None  # since `remember`
        self.scratch: dict[tuple[int, int | None], torch.Tensor] = {}

    def prepare(
        self, rows: torch.Tensor | slice, positions: torch.Tensor, kept: torch.Tensor, used: int, dtype: torch.dtype
    ) -> None:
        """Compute where the next tokens are written and what they attend to.

        rows: (n,), the conversations of the pass, or a slice of all B. positions: (n, q). kept: (n, q), false for
        padding. used: one more than the last position, given so that a GPU need not be waited for.
        """
        self.rows = rows
        numbers = torch.arange(self.count, device=positions.device)[rows]
        last = positions[:, -1:]
        used = used if last.device.type == "cpu" else -(-used // ALIGNED) * ALIGNED
        for kind in self.kinds:
            slot = torch.where(kept, positions % kind.slots, kind.slots)
            kind.index = self._index(kind, numbers, slot).flatten()
            kind.overwritten = None
            if self.overwritten is not None and kind.slots < self.capacity:
                shape = (len(numbers), self.key_heads, positions.shape[1])
                owners, places = numbers[:, None, None].expand(shape), positions[:, None].expand(shape)
                kind.overwritten = Overwritten(kind.index, owners.flatten(), places.flatten(), [])
                self.overwritten.append(kind.overwritten)
            held = (
                last - (last - torch.arange(min(used, kind.slots), device=last.device)) % kind.slots
            )  # (n, m), the position in each slot
            key, query = held[:, None], positions[..., None]
            visible = key > (query - (kind.window or self.capacity)).clamp(min=-1)
            if positions.shape[1] > 1:  # a single token is the last one, and no slot holds a later position
                visible &= key <= query
            mask = torch.full(visible.shape, torch.finfo(dtype).min, dtype=dtype, device=last.device)
            mask = mask.masked_fill_(visible, 0)[:, None]
            kind.mask = mask if self.sharing == 1 else mask.repeat(1, 1, self.sharing, 1)

    def _index(self, kind: LayerKind, rows: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        """Return the rows (n, K, q) of slots (n, q) in a layer's cache, viewed as (B·K·(C + 1), D)."""
        heads = torch.arange(self.key_heads, device=slot.device)
        return (rows[:, None, None] * self.key_heads + heads[:, None]) * (kind.slots + 1) + slot[:, None]

    def masks(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return the argument `attention_mask` of the model."""
        if len(self.kinds) == 1:
            return self.kinds[0].mask
        return {FULL if kind.window is None else WINDOWED: kind.mask for kind in self.kinds}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values (n, K, q, D) of new tokens and return those of all slots in use, (n, K, m, D)."""
        kind = self.kind_of_layer[layer]
        if layer == len(self.keys_and_values):
            shape = (self.count, self.key_heads, kind.slots + 1)
            self.keys_and_values.append(tuple(_zeros((*shape, new.shape[-1]), new) for new in (keys, values)))
        held = []
        for part, (memory, new) in enumerate(zip(self.keys_and_values[layer], (keys, values), strict=True)):
            places = memory.view(-1, memory.shape[-1])
            if kind.overwritten is not None:
                kind.overwritten.layers.append((places, places.index_select(0, kind.index)))
            places.index_copy_(0, kind.index, new.reshape(-1, new.shape[-1]))
            used = memory[:, :, : kind.mask.shape[-1]]
            held.append(used[self.rows] if isinstance(self.rows, slice) else self._gathered((part, kind.window), used))
        return held[0], held[1]

    def _gathered(self, part: tuple[int, int | None], used: torch.Tensor) -> torch.Tensor:
        """Return the pass's rows of keys (part 0) or values (1), in a buffer that the kind's next layer overwrites.

        The last layers of some models (Gemma 3n) have none of their own, and read those of the kind's last that has.
        """
        shape = (len(self.rows), *used.shape[1:])
        size = math.prod(shape)
        if part not in self.scratch or self.scratch[part].numel() < size:  # a new buffer each time costs page faults
            self.scratch[part] = used.new_empty(size)
        return torch.index_select(used, 0, self.rows, out=self.scratch[part][:size].view(shape))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: each conversation has its own length, and positions are always passed."""
        return 0

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy one conversation's cache, into which `length` tokens were written, over another's."""
        for kind, memory in self._memories():
            memory[target, :, : min(length, kind.slots)] = memory[source, :, : min(length, kind.slots)]

    def move(self, sources: np.ndarray, targets: np.ndarray, length: int) -> None:
        """Have the conversations of rows `sources` (n,) in rows `targets` (n,), which are the same in another order.

        length: the most tokens that were written into one of them.
        """
        device = self.keys_and_values[0][0].device
        sources, targets = (torch.as_tensor(rows, device=device) for rows in (sources, targets))
        for kind, memory in self._memories():
            held = memory[:, :, : min(length, kind.slots)]
            held.index_copy_(0, targets, held.index_select(0, sources))

    def windows(self, row: int) -> list[torch.Tensor]:
        """Return a copy of what the layers in which tokens are overwritten hold of a conversation."""
        return [memory[row].clone() for memory in self._overwritten_layers()]

    def put_back(self, row: int, windows: Sequence[torch.Tensor]) -> None:
        """Have these layers hold of a conversation what they held when `windows` was called."""
        for memory, held in zip(self._overwritten_layers(), windows, strict=True):
            memory[row] = held

    def _overwritten_layers(self) -> list[torch.Tensor]:
        return [memory for kind, memory in self._memories() if kind.slots < self.capacity]

    def _memories(self) -> Iterator[tuple[LayerKind, torch.Tensor]]:
        """Yield the keys and the values of each layer that has its own (see `_gathered`), with the layer's kind."""
        for kind, both in zip(self.kind_of_layer, self.keys_and_values, strict=False):
            for memory in both:
                yield kind, memory

    def remember(self) -> None:
        """Keep what passes overwrite from now on, for `rewind`."""
        self.overwritten = []

    def forget(self) -> None:
        """Drop what was kept since `remember`, and keep no more."""
        self.overwritten = None

    def rewind(self, rows: np.ndarray, lengths: np.ndarray, *, for_good: bool) -> None:
        """Undo what tokens from position `lengths` (n,) on, in conversations `rows` (n,), overwrote since `remember`.

        for_good: whether these tokens will not be written again, so that what they overwrote need not be kept.
        """
        if not self.overwritten:
            return
        device = self.overwritten[0].index.device
        kept = torch.full((self.count,), torch.iinfo(torch.int64).max, device=device)
        kept[torch.as_tensor(rows, device=device)] = torch.as_tensor(lengths, device=device)
        remaining = []
        for one in reversed(self.overwritten):
            is_undone = one.positions >= kept[one.owners]
            undone, left = is_undone.nonzero()[:, 0], (~is_undone).nonzero()[:, 0]
            index = one.index[undone]
            for memory, old in one.layers:
                memory[index] = old[undone]
            if for_good and len(left):
                layers = [(memory, old[left]) for memory, old in one.layers]
                remaining.append(Overwritten(one.index[left], one.owners[left], one.positions[left], layers))
        if for_good:
            self.overwritten = remaining[::-1]

    def save(self, rows: torch.Tensor, positions: torch.Tensor) -> list[torch.Tensor]:
        """Return a copy of keys and values at positions (n, q) of conversations (n,), for `restore`."""
        return [memory[index].clone() for memory, index in self._places(rows, positions)]

    def restore(self, rows: torch.Tensor, positions: torch.Tensor, saved: Sequence[torch.Tensor]) -> None:
        """Write back the result of `save`."""
        for (memory, index), old in zip(self._places(rows, positions), saved, strict=True):
            memory[index] = old

    def _places(self, rows: torch.Tensor, positions: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return every layer's keys and values as rows of D numbers, with the rows of the given positions."""
        return [
            (memory.view(-1, memory.shape[-1]), self._index(kind, rows, positions % kind.slots).flatten())
            for kind, memory in self._memories()
        ]


def _zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return zeros of a tensor's type; on a CPU they take no memory until overwritten."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    blank = np.zeros(math.prod(shape) * like.element_size(), dtype=np.uint8)  # torch.zeros writes every zero
    return torch.from_numpy(blank).view(like.dtype).view(shape)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    softcap: float | None = None,
    batch_invariant: bool = False,
    s_aux: torch.Tensor | None = None,
    **_others: object,
) -> tuple[torch.Tensor, None]:
    """Return softmax(q Kᵀ) V, (n, q, H, D), for queries (n, H, q, D) on keys and values (n, K, m, D).

    Heads that share keys are computed in one matrix product, so that keys need not be copied. Torch's fused attention
    has no soft-capping; for single tokens it takes longer than plain products, on a CPU twice as long and on a GPU by
    two fifths; and see NOT_FUSED_ON_CPU.

    batch_invariant: have the result of a query depend neither on n, nor on q, nor on m, where matrix products allow it
    (see `products_depend_on_batch`). Raise InputError for attention with sinks, `s_aux`, as gpt-oss has.
    """
    if s_aux is not None:
        raise InputError(f"{module.config.model_type}: {NOT_IN_PROCESS}")
    n, heads, q, _ = query.shape
    K = keys.shape[1]
    query, mask = query.reshape(n, K, heads // K * q, -1), attention_mask
    if mask.shape[2] != query.shape[2]:  # a mask that `prepare` did not make
        mask = mask.repeat(1, 1, heads // K, 1)
    fused = q > 1 and (query.is_cuda or query.dtype != NOT_FUSED_ON_CPU)
    if softcap is None and not batch_invariant and fused:
        mixed = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling)
    else:
        if batch_invariant:
            query, keys, values, mask = _large_enough(query, keys, values, mask)
        scores = torch.matmul(query * scaling, keys.transpose(2, 3))
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores += mask
        mixed = torch.matmul(scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype), values)
    mixed = mixed[:, :, : heads // K * q].unflatten(2, (heads // K, q))  # works for any layout that a kernel returns
    return mixed.permute(0, 3, 1, 2, 4).flatten(2, 3), None


def _large_enough(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the arguments of attention, padded to LEAST_QUERIES queries and LEAST_KEYS keys, which are masked."""
    queries, slots = max(0, LEAST_QUERIES - query.shape[2]), max(0, LEAST_KEYS - keys.shape[2])
    if queries:
        query, mask = pad(query, (0, 0, 0, queries)), pad(mask, (0, 0, 0, queries))
    if slots:
        keys, values = pad(keys, (0, 0, 0, slots)), pad(values, (0, 0, 0, slots))
        mask = pad(mask, (0, slots), value=torch.finfo(mask.dtype).min)
    return query, keys, values, mask


for name, attention in ((ATTENTION, attend), (BATCH_INVARIANT, partial(attend, batch_invariant=True))):
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)  # for calls of the model without our masks
