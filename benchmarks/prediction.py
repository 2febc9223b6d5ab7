"""The least time that runs of open-weight models take on a GPU, and the size of the files that they write.

    python benchmarks/prediction.py

The runs are the paper's three, and runs with a hundred times as many trajectories.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from scaling import run


@dataclass(frozen=True)
class GPU:
    """bandwidth: bytes/s. flops: of bfloat16, dense. memory: bytes."""

    name: str
    bandwidth: float
    flops: float
    memory: float


@dataclass(frozen=True)
class Shape:
    """A model in bfloat16. heads: of keys and values. head: its size."""

    name: str
    parameters: float
    layers: int
    heads: int
    head: int

    @property
    def state(self) -> int:
        """Return the bytes of a token's keys and values."""
        return 2 * 2 * self.layers * self.heads * self.head


GPUS = GPU("A100-80", 2.04e12, 312e12, 80e9), GPU("H200", 4.8e12, 989e12, 141e9)
SHAPES = (
    Shape("Phi-3.5-mini", 3.82e9, 32, 32, 96), Shape("Gemma-2-9B", 9.24e9, 42, 8, 256),
    Shape("Qwen3-8B", 8.19e9, 36, 8, 128),
)  # fmt: skip
PROMPTED, REPLIED, ROUNDS, TRAJECTORIES, ITERATIONS, EPOCHS = (
    40,
    60,
    25,
    10,
    3,
    3,
)  # tokens a round; the paper's T, L, …
FREE = 0.9  # of the memory, for weights, keys and values


def main() -> None:
    """Print the least times."""
    with tempfile.TemporaryDirectory() as folder:
        run("write_shards", folder, {"count": 1000})
        size = sum(file.stat().st_size for file in Path(folder, "shards").iterdir()) / 1000
    print(
        f"{'model':14}{'GPU':9}{'M':>7}{'in flight':>11}{'decode':>10}{'prefill':>9}{'learn':>9}{'all, h':>9}{'GB':>8}"
    )
    for shape in SHAPES:
        for gpu in GPUS:
            for scenarios in (100, 10_000):
                games, context = scenarios * TRAJECTORIES, ROUNDS * (PROMPTED + REPLIED)
                room = FREE * gpu.memory - 2 * shape.parameters
                flying = min(games, int(room / (context * shape.state)))
                read = (2 * shape.parameters / flying + shape.state * context / 2) / gpu.bandwidth
                computed = 2 * shape.parameters / gpu.flops
                decode = games * ROUNDS * REPLIED * max(read, computed)
                prefill = games * ROUNDS * PROMPTED * computed
                learn = EPOCHS * scenarios * context * 3 * computed
                hours = ITERATIONS * (decode + prefill + learn) / 3600
                columns = (
                    f"{decode:>9.0f}s{prefill:>8.0f}s{learn:>8.0f}s{hours:>9.2f}{ITERATIONS * games * size / 1e9:>8.2f}"
                )
                print(f"{shape.name:14}{gpu.name:9}{scenarios:>7}{flying:>11}{columns}")
    print(f"seconds an iteration; a game is {size / 1e3:.1f} kB on disk; {ITERATIONS} iterations")


if __name__ == "__main__":
    main()
