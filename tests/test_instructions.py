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
    u = np.random.default_rng(2).random((300, 300)) @ np.random.default_rng(3).random((300, 300))
    print(hashlib.sha256(y.tobytes() + z.tobytes() + u.tobytes()).hexdigest())

program.run = products
program.main()
"""
BFLOAT16 = """
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from rmft.agents.cache import attend
from rmft.training.attention import within_window

sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
model = Qwen3ForCausalLM(Qwen3Config(vocab_size=50, num_hidden_layers=1, head_dim=32, **sizes)).bfloat16()
ids = torch.arange(128)[None] % 50
within_window(model, "cpu")(input_ids=ids, labels=ids).loss.backward()
query, keys = torch.randn(2, 4, 64, 32).bfloat16(), torch.randn(2, 2, 128, 32).bfloat16()
mask = torch.zeros(2, 1, 64, 128).bfloat16()
played, _ = attend(None, query, keys, keys, mask, 32**-0.5)
exact, _ = attend(None, query.float(), keys.float(), keys.float(), mask.float(), 32**-0.5)
print((played - exact).abs().max().item())
"""
# As on a processor without AVX-512
OLDER = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Zen"}


def computed(more: dict[str, str]) -> str:
    without = {name: value for name, value in os.environ.items() if name not in AVX2_ONLY}
    return subprocess.check_output([sys.executable, "-c", COMPUTE], env=without | more, text=True)


def test_the_program_computes_the_same_bits_as_on_an_older_processor():
    assert computed({}) == computed(OLDER)


def test_models_in_bfloat16_learn_and_play_while_torch_keeps_to_avx2():
    """On processors with AMX torch's fused attention in bfloat16 would fail then."""
    error = subprocess.check_output([sys.executable, "-c", BFLOAT16], env=os.environ | AVX2_ONLY, text=True)
    assert 0 < float(error) < 0.05


def test_a_variable_that_is_set_already_stays():
    assert computed({"ATEN_CPU_CAPABILITY": "default"}) != computed({})
