"""What the program computes has the same bits with and without AVX-512."""

import os
import subprocess
import sys

from rmft.instructions import AVX2_ONLY

COMPUTE = """
import hashlib
import rmft.__main__ as program

def products():
    import numpy as np
    import torch
    torch.manual_seed(0)
    x = torch.randn(64, 512)
    y = torch.log_softmax(torch.nn.functional.silu(x @ torch.randn(512, 512)), 1).exp().numpy()
    z = np.log(np.random.default_rng(0).random(10_000)) + np.exp(np.random.default_rng(1).random(10_000))
    print(hashlib.sha256(y.tobytes() + z.tobytes()).hexdigest())

program.run = products
program.main()
"""
OLDER = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # as on a processor without AVX-512


def computed(more: dict[str, str]) -> str:
    without = {name: value for name, value in os.environ.items() if name not in AVX2_ONLY}
    return subprocess.check_output([sys.executable, "-c", COMPUTE], env=without | more, text=True)


def test_the_program_computes_the_same_bits_as_on_an_older_processor():
    assert computed({}) == computed(OLDER)


def test_a_variable_that_is_set_already_stays():
    assert computed({"ATEN_CPU_CAPABILITY": "default"}) != computed({})
