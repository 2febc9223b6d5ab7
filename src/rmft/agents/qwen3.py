"""The forward pass of Qwen3 models in few operations, for play on a CPU.

Transformers computes a layer of Qwen3 in some sixty operations and twenty calls of modules, and with few conversations
these take a small model as long as its arithmetic does. Here queries, keys and values are one matrix product, as are
the two inputs of the feed-forward layer, and each norm is one operation. The matrices are transposed once: as linear
layers store them, each product of few conversations takes a tenth longer (`benchmarks/layouts.py`). The logits are the
same.

Symbols: n conversations, q new tokens each, H heads, K heads of keys and values, D their size, V vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch.nn.functional import rms_norm, silu
from transformers import PreTrainedModel
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3ForCausalLM

from rmft.agents.cache import SlotCache, attend

MOST_PARAMETERS = 10**8  # of a model for which this is worth a copy of the weights


@dataclass(frozen=True)
class Layer:
    """The weights of a layer. Matrices have a row for each input and a column for each output.

    project: of queries, keys and values ((H + 2K)·D columns). scale: of their norms, (H + K, 1, D). widen: of the gate
    and of what it lets through.
    """

    norm: torch.Tensor
    project: torch.Tensor
    scale: torch.Tensor
    mix: torch.Tensor
    second_norm: torch.Tensor
    widen: torch.Tensor
    narrow: torch.Tensor

    @classmethod
    def of(cls, layer: Qwen3DecoderLayer, query_heads: int, key_heads: int, *, as_stored: bool) -> Self:
        """Take the weights from a layer of transformers. as_stored: see `_matrix`."""
        attention, feed_forward = layer.self_attn, layer.mlp
        matrix = partial(_matrix, as_stored=as_stored)
        scales = [attention.q_norm.weight.expand(query_heads, 1, -1), attention.k_norm.weight.expand(key_heads, 1, -1)]
        return cls(
            norm=layer.input_layernorm.weight,
            project=matrix(attention.q_proj, attention.k_proj, attention.v_proj),
            scale=torch.cat(scales),
            mix=matrix(attention.o_proj),
            second_norm=layer.post_attention_layernorm.weight,
            widen=matrix(feed_forward.gate_proj, feed_forward.up_proj),
            narrow=matrix(feed_forward.down_proj),
        )


class Qwen3Passes:
    """Forward passes of a model whose weights do not change any more.

    batch_invariant: see `cache.attend`. Matrices are then laid out as in linear layers, with which
    `products_depend_on_batch` has found that products do not depend on the batch.
    """

    @classmethod
    def of(cls, model: PreTrainedModel, *, batch_invariant: bool) -> Self | None:
        """Return the passes of a small, plain Qwen3 in float32 on a CPU, and None for every other model."""
        if not isinstance(model, Qwen3ForCausalLM) or model.device.type != "cpu" or model.dtype != torch.float32:
            return None
        plain = all(type(one) is torch.nn.Linear and one.bias is None for one in _linear_maps(model))
        usual = model.config.hidden_act == "silu" and model.model.rotary_emb.rope_type == "default"
        if not plain or not usual or model.num_parameters() > MOST_PARAMETERS:
            return None
        return cls(model, batch_invariant)

    @torch.no_grad()
    def __init__(self, model: Qwen3ForCausalLM, batch_invariant: bool) -> None:
        config, core = model.config, model.model
        self.batch_invariant = batch_invariant
        self.query_heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = config.head_dim
        self.epsilon = config.rms_norm_eps
        self.model, self.embeddings, self.norm = model, core.embed_tokens.weight, core.norm.weight
        self.frequencies = core.rotary_emb.inv_freq
        self.layers = [
            Layer.of(layer, self.query_heads, self.key_heads, as_stored=batch_invariant) for layer in core.layers
        ]

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """Return the logits (n, V) after tokens (n, q) at positions (n, q), for which the cache is prepared."""
        hidden, turn = self.embeddings[ids], self._turn(positions)
        for number, layer in enumerate(self.layers):
            hidden += self._attention(number, self._normed(hidden, layer.norm), turn, cache)
            gate, through = (self._normed(hidden, layer.second_norm) @ layer.widen).chunk(2, dim=-1)
            hidden += silu(gate).mul_(through) @ layer.narrow
        return self.model.lm_head(self._normed(hidden[:, -1], self.norm))

    def _turn(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cosines and the signed sines (n, 1, q, D) of the rotary embeddings of positions."""
        angles = positions[:, None, :, None].float() * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def _normed(self, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(values, weight.shape, weight, self.epsilon)

    def _attention(
        self, number: int, hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], cache: SlotCache
    ) -> torch.Tensor:
        """Return what a layer's attention adds to hidden states (n, q, width). turn: see `_turn`."""
        layer, both = self.layers[number], self.query_heads + self.key_heads
        heads = (hidden @ layer.project).unflatten(-1, (-1, self.size)).transpose(1, 2)
        heads, values = heads.split([both, self.key_heads], dim=1)  # (n, H + K, q, D) and (n, K, q, D)
        heads = rms_norm(heads, (self.size,), None, self.epsilon).mul_(layer.scale)
        heads = heads.roll(self.size // 2, dims=-1).mul_(turn[1]).add_(heads.mul_(turn[0]))
        queries, keys = heads.split([self.query_heads, self.key_heads], dim=1)
        keys, values = cache.update(keys, values, number)
        mask = cache.kind_of_layer[number].mask
        mixed, _ = attend(None, queries, keys, values, mask, self.size**-0.5, batch_invariant=self.batch_invariant)
        return mixed.flatten(2) @ layer.mix


def _matrix(*maps: torch.nn.Linear, as_stored: bool) -> torch.Tensor:
    """Return the matrix of linear maps of the same inputs. as_stored: lay it out in memory as linear layers do."""
    matrix = torch.cat([one.weight for one in maps]).T
    return matrix if as_stored else matrix.contiguous()


def _linear_maps(model: Qwen3ForCausalLM) -> list[torch.nn.Module]:
    """Return the linear maps of all layers, or what a library has put in their place."""
    parts = (part for layer in model.model.layers for part in (layer.self_attn, layer.mlp))
    return [module for part in parts for name, module in part.named_children() if name.endswith("_proj")]
