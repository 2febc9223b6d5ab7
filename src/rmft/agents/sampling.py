"""Sampling tokens with given random numbers. Symbols: n conversations, V vocabulary."""

import torch

from rmft.errors import InputError

LARGE_VOCABULARY, BLOCK = 1 << 16, 1 << 10  # tokens
COLDEST = 1e-30  # a lower temperature is 0: logits divided by it could be infinite


def sample(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return tokens (n,) from logits (n, V), by inverting the distribution functions at uniforms (n,) in [0, 1).

    Raise InputError where probabilities are not finite.
    """
    if temperature < COLDEST:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    if probabilities.shape[-1] > LARGE_VOCABULARY:
        return _inverted_in_blocks(probabilities, uniforms)
    return _inverted(probabilities, uniforms)


def _inverted(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return where distribution functions reach given shares (n,) of their ends. probabilities: (n, V)."""
    below = probabilities.double().cumsum(dim=-1)
    # Rounding may leave the last sum short of 1. Tokens of probability zero are never sampled.
    return torch.searchsorted(below, (uniforms * _ends(below))[:, None], right=True)[:, 0]


def _ends(below: torch.Tensor) -> torch.Tensor:
    """Return the ends (n,) of distribution functions. Raise InputError where one is not finite."""
    ends = below[:, -1]
    if not ends.isfinite().all():
        raise InputError(
            "the model's probabilities are not finite: its weights are not, or its dtype is too small for them; "
            "restore the weights, train with a lower learning rate, or play in float32"
        )
    return ends


def _inverted_in_blocks(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return what `_inverted` returns, up to rounding, without a copy of all probabilities in double precision.

    The sum of a block comes first, then the sums within the block that the share falls into.
    """
    blocks = torch.nn.functional.pad(probabilities, (0, -probabilities.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    below = blocks.sum(dim=-1).double().cumsum(dim=-1)
    shares = uniforms * _ends(below)
    chosen = torch.searchsorted(below, shares[:, None], right=True)
    before = torch.where(chosen > 0, below.gather(1, (chosen - 1).clamp(min=0)), 0.0)
    within = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK))[:, 0].double().cumsum(dim=-1)
    place = torch.searchsorted(within, shares[:, None] - before, right=True)
    # Rounding may leave the sum within the block short of the block's: the block's last token of positive probability.
    last = BLOCK - 1 - (within.diff(dim=-1, prepend=torch.zeros_like(within[:, :1])).flip(-1) > 0).int().argmax(dim=-1)
    return (chosen * BLOCK + torch.minimum(place, last[:, None]))[:, 0]
