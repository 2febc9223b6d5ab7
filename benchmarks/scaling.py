"""How cost grows: time and memory of playing, selecting and fine-tuning against what makes them larger.

The embedded model plays; each measurement is a process of its own, so that its peak memory is its own. Times are fitted
by a power law, whose exponent is held against the one of the floor: what has to be computed, or read, in any case. Then
the growth is drawn beside the floor (growth.png). `--dag 10000` tells what Snakemake takes to plan ten thousand jobs,
`--predict` what the paper's open-weight runs, and runs of a hundred times as many trajectories, take at least on a GPU,
and what they write.
"""

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

if TYPE_CHECKING:
    from rmft.params.language import LanguageModelSettings, LanguageProblem

ROOT = Path(__file__).parents[1]
EMBEDDED = ROOT / "data/models/embedded"
BOUNDS = {"selected from": 1500, "learnt from": 1500}  # MiB that each may take, however many there are
DAG_BOUND_SECONDS = 30.0  # for ten thousand jobs
CONVERSATION = 870  # tokens of a game of 25 rounds
TEXT = {"prompt": "In round 7 your action 2 paid **4.31**.\n\nRound 8. …", "reply": "Scores: 1=4 2=5 3=1\nAction: 2"}


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU, but for imports, and peak memory of the process, in MiB."""

    seconds: float
    memory: float


@dataclass(frozen=True)
class Growth:
    """One thing that grows. floor: the exponent that the work itself has, over these sizes."""

    name: str
    sizes: Sequence[int]
    measure: Callable[[int], Cost]
    floor: float


# --- What is measured; each runs in a process of its own ---


def problem(d: int, prompts: Path) -> "LanguageProblem":
    """Return a bandit, told as in the paper's Section 5."""
    from rmft.params.language import LanguageProblem, ProtocolSettings

    telling = ProtocolSettings(
        interaction="dialogue", output="action", format="with-reasoning", prompts=str(prompts), max_tokens=128,
        retries=2, tolerance=0.02,
    )  # fmt: skip
    return LanguageProblem(kind="language", environment="mab", d=d, protocol=telling)


def embedded(batch: int) -> "LanguageModelSettings":
    """Return the embedded model."""
    from rmft.params.language import LanguageModelSettings

    return LanguageModelSettings(kind="language", weights=str(EMBEDDED), dtype="float32", device="cpu", batch=batch)


def play(scenarios: int = 8, trajectories: int = 4, rounds: int = 10, d: int = 3) -> None:
    """Play M · L games of T rounds with d actions."""
    from rmft.artifacts.trajectories import write_trajectories
    from rmft.language.prompts import Prompts
    from rmft.rollouts import roll_out
    from rmft.stages.rollouts import open_chat_models
    from rmft.workflow.games import games_of
    from rmft.workflow.records import RolloutsJob

    prompts = ROOT / "data/prompts/plain"
    job = RolloutsJob(
        seed=0, stream="scaling", model=embedded(256), model_name="embedded", process=["gaussian"], T=rounds,
        scenarios=scenarios, trajectories=trajectories, temperature=1.0, shard=(1, 1),
        problem=problem(d, prompts),
    )  # fmt: skip
    games = games_of(job, Prompts.load(prompts))
    with open_chat_models(job, games, None, Path("games.parquet")) as chat_models:
        trajectories = roll_out(games, chat_models.open, chat_models.batch)
    write_trajectories(Path("games.parquet"), trajectories)


def select(count: int) -> None:
    """Join shards and select from so many trajectories of 25 rounds, ten of each scenario."""
    from rmft.artifacts.json_files import write_jsonl
    from rmft.artifacts.trajectories import join_trajectories, trajectory_batches, write_selection
    from rmft.selection import RewardSource, Scoring, demonstrations_in
    from rmft.selection import select as selected

    scoring, source = Scoring("mab", "realized"), RewardSource(0, "scaling", ["gaussian"])
    join_trajectories(Path("rollouts.parquet"), sorted(Path("shards").iterdir()), count)
    batches = trajectory_batches(Path("rollouts.parquet"), tokens=False)
    found = selected(batches, scoring, source, selected=1, rerolls=5)
    lines = demonstrations_in(trajectory_batches(Path("rollouts.parquet")), found["selected"])
    write_jsonl(Path("demonstrations.jsonl"), lines)
    write_selection(Path("selection.parquet"), found)


def write_shards(count: int, rounds: int = 25, d: int = 3, tokens: int = CONVERSATION) -> None:
    """Write games as rollouts do, in shards of a thousand, with rewards and actions of chance and texts of no sense."""
    from rmft.artifacts.trajectories import write_trajectories

    draw = np.random.default_rng(0)
    Path("shards").mkdir()
    for shard, start in enumerate(range(0, count, 1000)):
        rows = range(start, min(start + 1000, count))
        rewards = draw.normal(5, 1, (len(rows), rounds * d)).tolist()
        columns = {
            "scenario": [row // 10 for row in rows],
            "trajectory": [row % 10 for row in rows],
            "d": [d] * len(rows),
            "rewards": rewards,
            "means": rewards,
            "clipped_means": rewards,
            "policy": draw.dirichlet(np.ones(d), (len(rows), rounds)).reshape(len(rows), -1).tolist(),
            "action": draw.integers(d, size=(len(rows), rounds)).tolist(),
            "attempts": [[1] * rounds] * len(rows),
            "fallback": [[False] * rounds] * len(rows),
            "ids": [[ids] for ids in draw.integers(800, size=(len(rows), tokens)).tolist()],
            "replied": [[told] for told in (draw.random((len(rows), tokens)) < 0.6).tolist()],
            **{name: [[f"{text} {row}"] * rounds for row in rows] for name, text in TEXT.items()},
        }
        write_trajectories(Path(f"shards/{shard:06}.parquet"), columns)


def read_demonstrations(lines: int) -> None:
    """Make so many conversations ready to be learnt, as fine-tuning does before its first step."""
    from rmft.artifacts.json_files import read_jsonl
    from rmft.training.sft import conversations

    data = conversations(read_jsonl(Path("demonstrations.jsonl")), None, Path())
    assert len(data[lines - 1]["labels"]) == CONVERSATION


def write_demonstrations(lines: int) -> None:
    """Write conversations as selection does."""
    from rmft.artifacts.json_files import write_jsonl

    draw = np.random.default_rng(0)
    ids = (draw.integers(800, size=CONVERSATION).tolist() for _ in range(lines))
    write_jsonl(Path("demonstrations.jsonl"), ({"ids": one, "labels": one} for one in ids))


def fine_tune(tokens: int) -> None:
    """Take four steps on conversations of so many tokens."""
    from rmft.params import load
    from rmft.training.sft import fine_tune as tune

    settings = load(ROOT / "params.yaml").at_scale().experiments["open_mab_qwen"].sft
    settings = settings.model_copy(update={"epochs": 1})
    draw = np.random.default_rng(0)
    lines = [{"ids": ids, "labels": ids} for ids in draw.integers(800, size=(16, tokens)).tolist()]
    tune(lines, embedded(1), None, settings, 0)


# --- How it is measured ---

NEEDED = {  # modules, whose import is not measured
    "play": ("rmft.agents.local", "rmft.rollouts"),
    "select": ("rmft.selection", "pyarrow.parquet"),
    "read_demonstrations": ("rmft.training.sft",),
    "fine_tune": ("rmft.training.sft", "torch.optim"),
}
FIRST = {"select": "write_shards", "read_demonstrations": "write_demonstrations"}  # what another process has written


def apart(name: str, **sizes: int) -> Cost:
    """Return what a function of this file costs in a process of its own, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        if name in FIRST:
            run(FIRST[name], folder, sizes)
        seconds, memory = run(name, folder, sizes)
    return Cost(seconds, memory)


def run(name: str, folder: str, sizes: dict[str, int]) -> tuple[float, float]:
    """Run a function of this file in a process; return its CPU seconds and its peak memory in MiB."""
    command = [sys.executable, __file__, "--one", name, json.dumps(sizes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if told.returncode:
        sys.exit(told.stderr)
    return tuple(json.loads(told.stdout.splitlines()[-1]))


def one(name: str, sizes: dict[str, int]) -> None:
    """Run a function, and tell what it cost, but for the imports."""
    for module in NEEDED.get(name, ()):
        importlib.import_module(module)
    begun = time.process_time()
    globals()[name](**sizes)
    print(json.dumps([time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of a line through the larger half of the points, on logarithmic axes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def growths(quick: bool) -> list[Growth]:
    """Return what is measured. The window makes play and fine-tuning linear in tokens."""
    most = 20_000 if quick else 100_000
    many = [most // 20, most // 10, most // 5, most]
    return [
        Growth("scenarios M", [16, 32, 64, 128], lambda n: apart("play", scenarios=n), 1.0),
        Growth("trajectories L", [8, 16, 32, 64], lambda n: apart("play", trajectories=n), 1.0),
        Growth("rounds T", [25, 50, 100, 200], lambda n: apart("play", rounds=n), 1.0),
        Growth("actions d", [2, 3, 4, 5], lambda n: apart("play", d=n), 0.0),
        Growth("selected from", many, lambda n: apart("select", count=n), 1.0),
        Growth("learnt from", many, lambda n: apart("read_demonstrations", lines=n), 1.0),
        Growth("tokens learnt", [500, 1000, 2000, 4000], lambda n: apart("fine_tune", tokens=n), 1.0),
    ]


def measure(path: Path, quick: bool) -> None:
    """Measure, fit, tell and draw."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    kinds = growths(quick)
    figure, axes = plt.subplots(2, len(kinds), figsize=(3 * len(kinds), 5), squeeze=False)
    print(f"{'':16}{'sizes':>24}{'seconds':>30}{'exponent':>10}{'floor':>7}   MiB")
    for column, kind in enumerate(kinds):
        costs = [kind.measure(size) for size in kind.sizes]
        seconds, memory = [cost.seconds for cost in costs], [cost.memory for cost in costs]
        fitted = exponent(kind.sizes, seconds)
        listed = " ".join(f"{value:.1f}" for value in seconds)
        many = " ".join(f"{value:.0f}" for value in memory)
        print(
            f"{kind.name:16}{' '.join(map(str, kind.sizes)):>24}{listed:>30}{fitted:>10.2f}{kind.floor:>7.1f}   {many}"
        )
        floor = [seconds[-1] * (size / kind.sizes[-1]) ** kind.floor for size in kind.sizes]
        axes[0, column].loglog(kind.sizes, seconds, "o-", kind.sizes, floor, ":")
        axes[0, column].set(title=kind.name, ylabel="s of one core" if not column else "")
        axes[0, column].set_ylim(min(seconds) / 2, max(seconds) * 2)
        axes[0, column].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[0, column].yaxis.set_major_formatter("{x:g}")
        axes[1, column].semilogx(kind.sizes, memory, "o-")
        axes[1, column].set(ylabel="peak MiB" if not column else "", ylim=(0, 1.1 * max(memory)))
        for axis in axes[:, column]:
            axis.set_xticks(kind.sizes, [f"{size / 1000:g}k" if size >= 1000 else f"{size}" for size in kind.sizes])
            axis.minorticks_off()
        if kind.name in BOUNDS:
            verdict = "holds" if memory[-1] <= BOUNDS[kind.name] else "DOES NOT HOLD"
            minutes = seconds[-1] * 1e6 / kind.sizes[-1] / 60
            print(f"{'':16}bound of {BOUNDS[kind.name]} MiB {verdict}; a million would take {minutes:.0f} minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    print(f"drawn: {path}")


def dag(jobs: int) -> None:
    """Tell how long `snakemake -n` takes for about so many jobs: the paper's size, in as many shards as that takes."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "rmft")
        subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
        values = yaml.safe_load((checkout / "params.yaml").read_text(encoding="utf-8"))
        of_models = [of["rmft"] for of in values["experiments"].values() if of["kind"] == "language" and "rmft" in of]
        iterations = sum(of["iterations"] * of["training_seeds"] for of in of_models)
        values["scale"], values["rollouts"]["shards"] = "paper", max(1, jobs // iterations)
        for of in of_models:
            of["scenarios"] = max(of["scenarios"], values["rollouts"]["shards"])
        (checkout / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        command = [shutil.which("snakemake"), "-n", "-q", "rules"]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        begun = time.perf_counter()
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        counted = next(line.split()[1] for line in (done.stdout + done.stderr).splitlines() if line.startswith("total"))
        each = seconds * 1e4 / int(counted)
        print(
            f"snakemake -n: {counted} jobs in {seconds:.1f} s, {each:.1f} s for 10,000; bound {DAG_BOUND_SECONDS:g} s"
        )


# --- What runs on a GPU take at least ---


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
        """Return the bytes of keys and values for a token."""
        return 2 * 2 * self.layers * self.heads * self.head


GPUS = GPU("A100-80", 2.04e12, 312e12, 80e9), GPU("H200", 4.8e12, 989e12, 141e9)
SHAPES = (
    Shape("Phi-3.5-mini", 3.82e9, 32, 32, 96), Shape("Gemma-2-9B", 9.24e9, 42, 8, 256),
    Shape("Qwen3-8B", 8.19e9, 36, 8, 128),
)  # fmt: skip
TOLD, REPLIED, ROUNDS, TRAJECTORIES, ITERATIONS, EPOCHS = 40, 60, 25, 10, 3, 3  # tokens a round; the paper's T, L, …
FREE = 0.9  # of the memory, for weights, keys and values


def predict() -> None:
    """Tell the least time that the paper's three open-weight runs can take, and a hundred times larger ones."""
    with tempfile.TemporaryDirectory() as folder:
        run("write_shards", folder, {"count": 1000})
        size = sum(file.stat().st_size for file in Path(folder, "shards").iterdir()) / 1000
    print(
        f"{'model':14}{'GPU':9}{'M':>7}{'in flight':>11}{'decode':>10}{'prefill':>9}{'learn':>9}{'all, h':>9}{'GB':>8}"
    )
    for shape in SHAPES:
        for gpu in GPUS:
            for scenarios in (100, 10_000):
                games, context = scenarios * TRAJECTORIES, ROUNDS * (TOLD + REPLIED)
                room = FREE * gpu.memory - 2 * shape.parameters
                flying = min(games, int(room / (context * shape.state)))
                read = (2 * shape.parameters / flying + shape.state * context / 2) / gpu.bandwidth
                computed = 2 * shape.parameters / gpu.flops
                decode = games * ROUNDS * REPLIED * max(read, computed)
                prefill = games * ROUNDS * TOLD * computed
                learn = EPOCHS * scenarios * context * 3 * computed
                hours = ITERATIONS * (decode + prefill + learn) / 3600
                told = (
                    f"{decode:>9.0f}s{prefill:>8.0f}s{learn:>8.0f}s{hours:>9.2f}{ITERATIONS * games * size / 1e9:>8.2f}"
                )
                print(f"{shape.name:14}{gpu.name:9}{scenarios:>7}{flying:>11}{told}")
    print(f"seconds an iteration; a game is {size / 1e3:.1f} kB on disk; {ITERATIONS} iterations")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--one", nargs=2, metavar=("NAME", "SIZES"), help="run one measurement; for this program itself"
    )
    parser.add_argument("--quick", action="store_true", help="select and learn from fewer trajectories")
    parser.add_argument("--dag", type=int, metavar="JOBS", help="measure Snakemake alone")
    parser.add_argument("--predict", action="store_true", help="tell what runs on a GPU take at least")
    parser.add_argument("--figure", type=Path, default=Path("growth.png"))
    asked = parser.parse_args()
    if asked.one:
        one(asked.one[0], json.loads(asked.one[1]))
    elif asked.dag:
        dag(asked.dag)
    elif asked.predict:
        predict()
    else:
        measure(asked.figure.resolve(), asked.quick)
