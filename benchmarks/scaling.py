"""How cost grows: time and memory of playing, selecting and fine-tuning against the size of the problem.

The embedded model plays. Each measurement runs in a process of its own, which gives its peak memory. A power law is
fitted to the times, and its exponent is compared with that of the floor, the work that must be done in any case.
Both are drawn in growth.png, or in --figure FILE. `--dag 10000` measures instead how long Snakemake plans ten thousand
jobs. For runs on a GPU see prediction.py.
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
    from rmft.params.language import LanguageProblem
    from rmft.params.language_model import LanguageModelSettings

ROOT = Path(__file__).parents[1]
EMBEDDED = ROOT / "data/models/embedded"
BOUNDS = {"selected from": 1500, "learnt from": 1500}  # MiB that each may take, for any size
DAG_BOUND_SECONDS = 30.0  # for ten thousand jobs
CONVERSATION = 870  # tokens of a game of 25 rounds
TEXT = {"prompt": "In round 7 your action 2 paid **4.31**.\n\nRound 8. …", "reply": "Scores: 1=4 2=5 3=1\nAction: 2"}


@dataclass(frozen=True)
class Cost:
    """CPU seconds, without imports, and the peak memory of the process in MiB."""

    seconds: float
    memory: float


@dataclass(frozen=True)
class SizeSweep:
    """A measurement at several sizes. floor: the exponent of the work that must be done in any case."""

    name: str
    sizes: Sequence[int]
    measure: Callable[[int], Cost]
    floor: float


# --- Measured functions; each runs in a process of its own ---


def problem(d: int, prompts: Path) -> "LanguageProblem":
    """Return a bandit with the protocol of the paper's Section 5."""
    from rmft.params.language import LanguageProblem, ProtocolSettings

    protocol = ProtocolSettings(
        interaction="dialogue", output="action", format="with-reasoning", prompts=str(prompts), max_tokens=128,
        retries=2, tolerance=0.02,
    )  # fmt: skip
    return LanguageProblem(kind="language", environment="mab", d=d, protocol=protocol)


def embedded(batch: int) -> "LanguageModelSettings":
    """Return the embedded model."""
    from rmft.params.language_model import LanguageModelSettings

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
    """Join shards and select from `count` trajectories of 25 rounds, ten of each scenario."""
    from rmft.artifacts.json_files import write_jsonl
    from rmft.artifacts.trajectories import join_trajectories, trajectory_batches, write_selection
    from rmft.selection import Scoring, demonstrations_in
    from rmft.selection import select as selected

    scoring = Scoring("mab", "realized")
    join_trajectories(Path("rollouts.parquet"), sorted(Path("shards").iterdir()), count)
    batches = trajectory_batches(Path("rollouts.parquet"), tokens=False)
    found = selected(batches, scoring, selected=1, seed=0, words="scaling")
    lines = demonstrations_in(trajectory_batches(Path("rollouts.parquet")), found["selected"])
    write_jsonl(Path("demonstrations.jsonl"), lines)
    write_selection(Path("selection.parquet"), found)


def write_shards(count: int, rounds: int = 25, d: int = 3, tokens: int = CONVERSATION) -> None:
    """Write games as rollouts do, in shards of a thousand, with random rewards, actions and tokens."""
    from rmft.artifacts.trajectories import write_trajectories

    draw = np.random.default_rng(0)
    Path("shards").mkdir()
    for shard, start in enumerate(range(0, count, 1000)):
        rows = range(start, min(start + 1000, count))
        rewards = draw.normal(5, 1, (len(rows), rounds * d)).tolist()
        sampled = [[of] for of in (draw.random((len(rows), tokens)) < 0.6).tolist()]
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
            "sampled": sampled,
            "replied": sampled,
            **{name: [[f"{text} {row}"] * rounds for row in rows] for name, text in TEXT.items()},
        }
        write_trajectories(Path(f"shards/{shard:06}.parquet"), columns)


def read_demonstrations(lines: int) -> None:
    """Read conversations as fine-tuning does before its first step."""
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
    """Take four steps on conversations of `tokens` tokens."""
    from rmft.params import load
    from rmft.training.sft import fine_tune as tune

    settings = load(ROOT / "params.yaml").at_scale().experiments["open_mab_qwen"].sft
    settings = settings.model_copy(update={"epochs": 1})
    draw = np.random.default_rng(0)
    lines = [{"ids": ids, "labels": ids} for ids in draw.integers(800, size=(16, tokens)).tolist()]
    tune(lines, embedded(1), None, settings, 0)


# --- Measuring ---

NEEDED = {  # modules to import before measuring
    "play": ("rmft.agents.local", "rmft.rollouts"),
    "select": ("rmft.selection", "pyarrow.parquet"),
    "read_demonstrations": ("rmft.training.sft",),
    "fine_tune": ("rmft.training.sft", "torch.optim"),
}
FIRST = {
    "select": "write_shards",
    "read_demonstrations": "write_demonstrations",
}  # functions that another process runs before


def apart(name: str, **sizes: int) -> Cost:
    """Return the cost of a function of this file in a process of its own, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        if name in FIRST:
            run(FIRST[name], folder, sizes)
        seconds, memory = run(name, folder, sizes)
    return Cost(seconds, memory)


def run(name: str, folder: str, sizes: dict[str, int]) -> tuple[float, float]:
    """Run a function of this file in a process; return its CPU seconds and its peak memory in MiB."""
    command = [sys.executable, __file__, "--one", name, json.dumps(sizes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(finished.stderr)
    return tuple(json.loads(finished.stdout.splitlines()[-1]))


def one(name: str, sizes: dict[str, int]) -> None:
    """Run a function and print its cost, without imports."""
    for module in NEEDED.get(name, ()):
        importlib.import_module(module)
    begun = time.process_time()
    globals()[name](**sizes)
    print(json.dumps([time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of a line through the larger half of the points, on logarithmic axes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def sweeps(quick: bool) -> list[SizeSweep]:
    """Return all measurements. The sliding window makes play and fine-tuning linear in tokens."""
    most = 20_000 if quick else 100_000
    many = [most // 20, most // 10, most // 5, most]
    return [
        SizeSweep("scenarios M", [16, 32, 64, 128], lambda n: apart("play", scenarios=n), 1.0),
        SizeSweep("trajectories L", [8, 16, 32, 64], lambda n: apart("play", trajectories=n), 1.0),
        SizeSweep("rounds T", [25, 50, 100, 200], lambda n: apart("play", rounds=n), 1.0),
        SizeSweep("actions d", [2, 3, 4, 5], lambda n: apart("play", d=n), 0.0),
        SizeSweep("selected from", many, lambda n: apart("select", count=n), 1.0),
        SizeSweep("learnt from", many, lambda n: apart("read_demonstrations", lines=n), 1.0),
        SizeSweep("tokens learnt", [500, 1000, 2000, 4000], lambda n: apart("fine_tune", tokens=n), 1.0),
    ]


def measure(path: Path, quick: bool) -> None:
    """Measure, fit, print and draw."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    measured = sweeps(quick)
    figure, axes = plt.subplots(2, len(measured), figsize=(3 * len(measured), 5), squeeze=False)
    print(f"{'':16}{'sizes':>24}{'seconds':>30}{'exponent':>10}{'floor':>7}   MiB")
    for column, sweep in enumerate(measured):
        costs = [sweep.measure(size) for size in sweep.sizes]
        seconds, memory = [cost.seconds for cost in costs], [cost.memory for cost in costs]
        fitted = exponent(sweep.sizes, seconds)
        listed = " ".join(f"{value:.1f}" for value in seconds)
        sizes, peaks = " ".join(map(str, sweep.sizes)), " ".join(f"{value:.0f}" for value in memory)
        print(f"{sweep.name:16}{sizes:>24}{listed:>30}{fitted:>10.2f}{sweep.floor:>7.1f}   {peaks}")
        floor = [seconds[-1] * (size / sweep.sizes[-1]) ** sweep.floor for size in sweep.sizes]
        axes[0, column].loglog(sweep.sizes, seconds, "o-", sweep.sizes, floor, ":")
        axes[0, column].set(title=sweep.name, ylabel="s of one core" if not column else "")
        axes[0, column].set_ylim(min(seconds) / 2, max(seconds) * 2)
        axes[0, column].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[0, column].yaxis.set_major_formatter("{x:g}")
        axes[1, column].semilogx(sweep.sizes, memory, "o-")
        axes[1, column].set(ylabel="peak MiB" if not column else "", ylim=(0, 1.1 * max(memory)))
        for axis in axes[:, column]:
            axis.set_xticks(sweep.sizes, [f"{size / 1000:g}k" if size >= 1000 else f"{size}" for size in sweep.sizes])
            axis.minorticks_off()
        if sweep.name in BOUNDS:
            verdict = "holds" if memory[-1] <= BOUNDS[sweep.name] else "DOES NOT HOLD"
            minutes = seconds[-1] * 1e6 / sweep.sizes[-1] / 60
            print(f"{'':16}bound of {BOUNDS[sweep.name]} MiB {verdict}; a million would take {minutes:.0f} minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    print(f"drawn: {path}")


def dag(jobs: int) -> None:
    """Print how long `snakemake -n` takes for about `jobs` jobs: the paper's size, in as many shards as needed."""
    from rmft.params import load

    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "rmft")
        subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
        values = yaml.safe_load((checkout / "params.yaml").read_text(encoding="utf-8"))
        loops = [of.rmft for of in load(ROOT / "params.yaml").by_default.selecting.values()]
        iterations = sum(of.iterations * of.training_seeds for of in loops)
        values["scale"], values["rollouts"]["shards"] = "paper", max(1, jobs // iterations)
        for kind in ("language", "endpoint"):
            of = values["defaults"][kind]["rmft"]
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--one", nargs=2, metavar=("NAME", "SIZES"), help="run one measurement; for this program itself"
    )
    parser.add_argument("--quick", action="store_true", help="select and learn from fewer trajectories")
    parser.add_argument("--dag", type=int, metavar="JOBS", help="measure Snakemake alone")
    parser.add_argument("--figure", type=Path, default=Path("growth.png"))
    options = parser.parse_args()
    if options.one:
        one(options.one[0], json.loads(options.one[1]))
    elif options.dag:
        dag(options.dag)
    else:
        measure(options.figure.resolve(), options.quick)
