"""TRL's output layer in SFT, DPO and GRPO, computed where a token is learnt and nowhere else, on a CPU as on a GPU.

Only the tokens that the model sampled are learnt; the loss masks all other positions of a conversation. Where Triton is
missing, TRL computes the output layer at masked positions as well, for the sake of devices that compile anew for each
number of positions. A CPU compiles nothing, and for a large vocabulary the output layer is most of a training step.
"""

import torch
from trl.trainer import utils

_has_triton = utils._use_triton


def _learnt_positions_suffice(device: torch.device) -> bool:
    """Return whether TRL's fused output layer is to leave out positions whose label is -100."""
    return device.type == "cpu" or _has_triton(device)


def learnt_positions_only() -> None:
    """Have TRL's trainers in this process compute the output layer at learnt positions; see the module.

    `utils` asks this function about nothing else: which kernels are used is asked in `trl.kernels`.
    """
    utils._use_triton = _learnt_positions_suffice
