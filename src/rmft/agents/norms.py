"""Root-mean-square norms in one kernel each, for play on a GPU.

Transformers computes a norm in seven kernels. With one new token a conversation, a GPU takes longer to start a kernel
than to run it, and half of the kernels of a layer are those of its norms.
"""

import inspect
from functools import partial

import torch
from torch.nn.functional import rms_norm
from transformers import PreTrainedModel

CLOSE = 2**-6  # of the largest value: two roundings of bfloat16


def fuse_norms(model: PreTrainedModel) -> None:
    """Compute norms by torch's `rms_norm` where that is the same, but for a rounding that transformers makes twice."""
    # A norm in another type than the model's would return another type, too.
    norms = [one for one in model.modules() if hasattr(one, "variance_epsilon") and one.weight.dtype == model.dtype]
    plain = {kind: _is_plain(norm) for kind, norm in {type(norm): norm for norm in norms}.items()}
    for norm in norms:
        if plain[type(norm)]:
            norm.forward = partial(_fused, norm)


@torch.inference_mode()
def _is_plain(norm: torch.nn.Module) -> bool:
    """Return whether a norm divides by the root mean square and multiplies by its weight, and does no more."""
    if [*inspect.signature(norm.forward).parameters] != ["hidden_states"]:  # some take a gate, too
        return False
    width = norm.weight.shape[-1]
    values = torch.linspace(-1, 2, 3 * width, dtype=norm.weight.dtype, device=norm.weight.device).view(3, width)
    expected = norm(values)
    return bool((_fused(norm, values) - expected).abs().max() <= CLOSE * expected.abs().max())


def _fused(norm: torch.nn.Module, values: torch.Tensor) -> torch.Tensor:
    return rms_norm(values, norm.weight.shape, norm.weight, norm.variance_epsilon)
