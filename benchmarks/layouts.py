"""How the matrices of the embedded model lie in memory, with AVX2, as jobs compute, and with the processor's AVX-512.

    python benchmarks/layouts.py --conversations 16 32 128

One thread, float32, random weights of the embedded model's shape (`rollouts.py`). A step feeds one token to each
conversation and returns the logits of the next. Its matrices are laid out as in torch's linear layers, a row for each
output, or transposed, as rollouts have them. Products are those of a step alone; before each of them as much memory is
read as the conversations' keys and values take, as in a step. MKL can also pack a matrix in advance, for one number of
conversations.

Layouts take turns, and a time is the median of many, in microseconds a conversation. Processors without AVX-512 have
the first lines only.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from compiled import step_of
from rollouts import byte_tokenizer, random_model
from torch.nn.functional import linear

from rmft.agents.local import LanguageModel
from rmft.agents.qwen3 import Layer
from rmft.instructions import processor, use_avx2_only

OF = "RMFT_LAYOUTS"  # environment variable of the processes that measure: the instructions that they compute with
ROUNDS, REPEATS = 12, 10  # layouts take turns so often, each with so many repetitions
READ_FLOATS = 5_000_000
Action = Callable[[], object]


def model_of(*, as_stored: bool) -> LanguageModel:
    """Return a model. as_stored: with matrices as linear layers store them."""
    language_model = LanguageModel.of(random_model(), byte_tokenizer())
    passes = language_model.passes
    if as_stored:
        heads = passes.query_heads, passes.key_heads
        passes.layers = [Layer.of(layer, *heads, as_stored=True) for layer in language_model.model.model.layers]
    return language_model


def products_of(count: int) -> list[Action]:
    """Return the products of all matrices: as stored, transposed, and packed by MKL where torch has it."""
    matrices = [weight.detach() for weight in random_model().parameters() if weight.dim() == 2]
    transposed = [matrix.T.contiguous() for matrix in matrices]
    inputs = [torch.randn(count, matrix.shape[1]) for matrix in matrices]
    products = [
        lambda: [linear(rows, matrix) for rows, matrix in zip(inputs, matrices, strict=True)],
        lambda: [rows @ matrix for rows, matrix in zip(inputs, transposed, strict=True)],
    ]
    if torch.backends.mkl.is_available():
        packed = [torch.ops.mkl._mkl_reorder_linear_weight(matrix, count) for matrix in matrices]
        product = torch.ops.mkl._mkl_linear
        every = list(zip(inputs, packed, matrices, strict=True))
        products.append(lambda: [product(rows, of_mkl, matrix, None, count) for rows, of_mkl, matrix in every])
    return products


def in_turn(actions: list[Action], before: Action = lambda: None) -> list[float]:
    """Return the median CPU seconds of actions that take turns. before: called before each of them, untimed."""
    seconds = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, taken in zip(actions, seconds, strict=True):
            action()
            for _ in range(REPEATS):
                before()
                start = time.thread_time()
                action()
                taken.append(time.thread_time() - start)
    return [float(np.median(taken)) for taken in seconds]


@torch.inference_mode()
def measure(counts: list[int]) -> None:
    """Print a line for each number of conversations."""
    torch.set_num_threads(1)
    others = torch.randn(READ_FLOATS)
    for count in counts:
        steps = in_turn([step_of(model_of(as_stored=as_stored), count) for as_stored in (True, False)])
        products = in_turn(products_of(count), before=others.sum)
        times = [f"{1e6 * seconds / count:12.0f}" for seconds in (*steps, *products)]
        print(f"{os.environ[OF]:12} {count:13}", *times, flush=True)


def main() -> None:
    """Print the times with each kind of instructions, which a process of its own measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, nargs="+", default=[16, 32, 128])
    options = parser.parse_args()
    if OF in os.environ:
        measure(options.conversations)
        return
    print(f"{'microseconds':26}  {'step:':25} {'products alone:':25}")
    print("instructions conversations    as stored   transposed    as stored   transposed       packed", flush=True)
    every = os.environ.copy()
    use_avx2_only()  # of libraries that are not loaded yet: those of a process that is started here
    of_process = {"AVX2": os.environ.copy()} | ({"AVX-512": every} if processor()[1] == "avx512f" else {})
    for name, variables in of_process.items():
        subprocess.run([sys.executable, *sys.argv], env={**variables, OF: name}, check=True)


if __name__ == "__main__":
    main()
