"""What compiling would gain: a decoding step of the engine as it is, compiled by torch, and its attention in C++.

    python benchmarks/compiled.py --conversations 32 128 256

One thread, float32, random weights of the embedded model's shape (`rollouts.py`); every window is full. A step feeds
one token to each conversation and returns the logits of the next. torch.compile turns the model's forward pass into
C++ for this number of conversations; AOTInductor makes the same code ahead of time. In C++, attention reads of the
cache the keys and values in the window alone, where torch's products read every slot. Both need a C++ compiler.

floor: as in `rollouts.py`, of decoding alone; of attention, the time to read the visible keys and values. A time is the
median of several steps, in microseconds a conversation.
"""

import argparse
import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from machine import usual
from rollouts import HEADS, LAYERS, SIZE, WINDOW, byte_tokenizer, measure_core, random_model

from rmft.agents.cache import attend, chunk_of
from rmft.agents.local import LanguageModel, LocalChatModel

MAX_TOKENS = 128  # of a completion, as the experiments have it
REPEATS = 9
SOURCE = Path(__file__).with_name("attention.cpp")


def step_of(language_model: LanguageModel, count: int) -> Callable[[], object]:
    """Return a decoding step of so many conversations."""
    chat_model = LocalChatModel(language_model, count, 4 * WINDOW + 200, MAX_TOKENS)
    rows = np.arange(count)
    chat_model.feed(rows, [[1] * 3 * WINDOW] * count)
    return lambda: chat_model.feed(rows, [[1]] * count)


def compiled_step_of(count: int) -> Callable[[], object]:
    """Return a decoding step of so many conversations through the model's own layers, compiled."""
    language_model = replace(LanguageModel.of(random_model(), byte_tokenizer()), passes=None)
    step = step_of(language_model, count)
    layers = language_model.model.model  # without the output layer, whose hook chooses rows
    layers.forward = torch.compile(layers.forward, dynamic=False)
    for _ in range(3):
        step()
    return step


def attentions_of(count: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the attention of all layers for a token of each conversation, by torch and in C++."""
    slots, scaling = WINDOW + chunk_of(random_model().config, MAX_TOKENS), SIZE**-0.5
    layers = [torch.randn(2, count, HEADS, slots, SIZE) for _ in range(LAYERS)]
    query, mixed = torch.randn(count, HEADS, 1, SIZE), torch.empty(count, HEADS, SIZE)
    first = torch.randint(slots, (count,))
    hidden = (torch.arange(slots) - first[:, None]) % slots >= WINDOW
    mask = torch.zeros(count, 1, 1, slots).masked_fill_(hidden[:, None, None], torch.finfo(torch.float32).min)

    def by_torch() -> torch.Tensor:
        return [attend(None, query, keys, values, mask, scaling)[0] for keys, values in layers][-1]

    function = kernel()

    def in_cpp() -> torch.Tensor:
        for keys, values in layers:
            arrays = (query, keys, values, first, mixed)
            function(*(array.data_ptr() for array in arrays), count, HEADS, slots, WINDOW, ctypes.c_float(scaling))
        return mixed[:, None]

    torch.testing.assert_close(by_torch(), in_cpp())
    return by_torch, in_cpp


def kernel() -> Callable[..., None]:
    """Return the attention that is compiled from SOURCE."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "attention.so")
        flags = ["-O3", "-march=x86-64-v3", "-ffast-math", "-shared", "-fPIC", f"-DSIZE={SIZE}"]
        subprocess.run(["c++", *flags, str(SOURCE), "-o", str(library)], check=True)
        function = ctypes.CDLL(str(library)).attend
    function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 4 + [ctypes.c_float]
    function.restype = None
    return function


@torch.inference_mode()
def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, nargs="+", default=[32, 128, 256])
    options = parser.parse_args()
    torch.set_num_threads(1)
    parameters = sum(weight.numel() for weight in random_model().parameters())
    print("microseconds   step:                         attention alone:")
    print("conversations  as it is  torch.compile  floor  torch  in C++  floor  GFLOP/s  GB/s")
    for count in options.conversations:
        flops, bandwidth = measure_core()
        cache = 4 * LAYERS * 2 * HEADS * SIZE * WINDOW / bandwidth
        floor = max(2 * parameters / flops, 4 * parameters / count / bandwidth + cache)
        language_model = LanguageModel.of(random_model(), byte_tokenizer())
        actions = [step_of(language_model, count), compiled_step_of(count), *attentions_of(count)]
        plain, compiled, by_torch, in_cpp = (1e6 * usual(action, REPEATS) / count for action in actions)
        step = f"{count:>13}{plain:>10.0f}{compiled:>15.0f}{1e6 * floor:>7.0f}"
        print(f"{step}{by_torch:>7.0f}{in_cpp:>8.0f}{1e6 * cache:>7.0f}{flops / 1e9:>9.0f}{bandwidth / 1e9:>6.0f}")


if __name__ == "__main__":
    main()
