"""The least time that runs of open-weight models take on a GPU, and the size of the files that they write.

    python benchmarks/prediction.py

The runs are the paper's three, and runs with a hundred times as many trajectories.
"""

import tempfile
from pathlib import Path

from scaling import run

from rmft.agents.model_shapes import PUBLISHED
from rmft.tools.local_estimate import GPUS, GameLoad, games_at_once, learn_seconds, play_seconds

PROMPTED, REPLIED, ROUNDS, TRAJECTORIES, ITERATIONS, EPOCHS = (
    40,
    60,
    25,
    10,
    3,
    3,
)  # tokens a round; the paper's T, L, …


def main() -> None:
    """Print the least times."""
    with tempfile.TemporaryDirectory() as folder:
        run("write_shards", folder, {"count": 1000})
        size = sum(file.stat().st_size for file in Path(folder, "shards").iterdir()) / 1000
    print(
        f"{'model':32}{'GPU':9}{'M':>7}{'in flight':>11}{'decode':>10}{'prefill':>9}{'learn':>9}{'all, h':>9}{'GB':>8}"
    )
    for name, shape in PUBLISHED.items():
        for gpu in GPUS:
            for scenarios in (100, 10_000):
                games, context = scenarios * TRAJECTORIES, ROUNDS * (PROMPTED + REPLIED)
                weights, played = 2 * shape.parameters, GameLoad(games, ROUNDS * PROMPTED, ROUNDS * REPLIED, context)
                flying = games_at_once(shape, gpu, weights, played, games)
                decode, prefill = play_seconds(shape, gpu, weights, played, games)
                learn = learn_seconds(shape, gpu, EPOCHS * scenarios * context)
                hours = ITERATIONS * (decode + prefill + learn) / 3600
                columns = (
                    f"{decode:>9.0f}s{prefill:>8.0f}s{learn:>8.0f}s{hours:>9.2f}{ITERATIONS * games * size / 1e9:>8.2f}"
                )
                print(f"{name:32}{gpu.name:9}{scenarios:>7}{flying:>11}{columns}")
    print(f"seconds an iteration; a game is {size / 1e3:.1f} kB on disk; {ITERATIONS} iterations")


if __name__ == "__main__":
    main()
