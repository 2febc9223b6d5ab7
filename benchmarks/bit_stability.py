"""Which numbers keep their last bits on another kind of processor, and with another number of threads.

    python benchmarks/bit_stability.py --games 16 --rounds 10 --steps 4 --iterations 50

Environment variables have the libraries compute as on an older processor. For each setting a process of its own
computes the embedded model's logits for given tokens, its games of a bandit in words, a few steps of fine-tuning it,
numeric RMFT, what the trained numeric agent makes of rewards, and reference algorithms. A cell says `same`, or the
largest difference to the default; rows that begin with `pinned,` are compared with the row `pinned: …`. Takes some
minutes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rmft.instructions import AVX2_ONLY

ROOT = Path(__file__).parents[1]
PARTS = ("logits", "completions", "fine-tuning", "numeric RMFT", "numeric agent", "algorithms")
WITHOUT_AVX512 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": AVX2_ONLY["NPY_DISABLE_CPU_FEATURES"],
    "OPENBLAS_CORETYPE": "Haswell",
}
DEFAULT, PINNED = "default", "pinned: AVX2 only"
SETTINGS = {  # by name: the setting that it is compared with, the environment, and threads
    DEFAULT: (DEFAULT, {}, 1),
    "default, once more": (DEFAULT, {}, 1),
    "ATEN_CPU_CAPABILITY=avx2": (DEFAULT, {"ATEN_CPU_CAPABILITY": "avx2"}, 1),
    "ATEN_CPU_CAPABILITY=default": (DEFAULT, {"ATEN_CPU_CAPABILITY": "default"}, 1),
    "ONEDNN_MAX_CPU_ISA=AVX2": (DEFAULT, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, 1),
    "MKL_ENABLE_INSTRUCTIONS=AVX2": (DEFAULT, {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, 1),
    "NPY_DISABLE_CPU_FEATURES=X86_V4 …": (
        DEFAULT,
        {"NPY_DISABLE_CPU_FEATURES": AVX2_ONLY["NPY_DISABLE_CPU_FEATURES"]},
        1,
    ),
    "OPENBLAS_CORETYPE=Haswell": (DEFAULT, {"OPENBLAS_CORETYPE": "Haswell"}, 1),
    "all five: no AVX-512 anywhere": (DEFAULT, WITHOUT_AVX512, 1),
    PINNED: (DEFAULT, AVX2_ONLY, 1),
    "pinned, no AVX-512 anywhere": (PINNED, WITHOUT_AVX512 | AVX2_ONLY, 1),
    "2 threads": (DEFAULT, {"OMP_NUM_THREADS": "2"}, 2),
    "pinned, 2 threads": (PINNED, {"OMP_NUM_THREADS": "2"} | AVX2_ONLY, 2),
}


# --- What a process computes ---


def logits_and_completions(games: int, rounds: int, threads: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return logits (16, 21, V) after given tokens, and the token ids of every game."""
    from scaling import embedded, problem

    from rmft.agents.local import LocalChatModel, load
    from rmft.language.prompts import Prompts
    from rmft.rollouts import roll_out
    from rmft.stages.rollouts import open_chat_models
    from rmft.workflow.games import games_of
    from rmft.workflow.records import RolloutsJob

    model = embedded(256).model_copy(update={"threads": threads})
    tokens = np.random.default_rng(0).integers(800, size=(16, 180))
    chat_model, rows = LocalChatModel(load(model), 16, 300, 64), np.arange(16)
    fed = [tokens[:, :160], *np.split(tokens[:, 160:], 20, axis=1)]
    logits = np.stack([chat_model.feed(rows, part.tolist()).numpy() for part in fed], axis=1)
    job = RolloutsJob(
        seed=0, stream="bits", model=model, model_name="embedded", process=["gaussian"], T=rounds,
        scenarios=games // 4, trajectories=4, temperature=1.0, shard=(1, 1),
        problem=problem(3, ROOT / "data/prompts/plain"),
    )  # fmt: skip
    played = games_of(job, Prompts.load(ROOT / "data/prompts/plain"))
    with open_chat_models(job, played, None, Path("games.parquet")) as chat_models:
        columns = roll_out(played, chat_models.open, chat_models.batch)
    return logits, columns["reply"]


def fine_tuned(steps: int, threads: int) -> np.ndarray:
    """Return all weights after a few steps on given conversations."""
    from scaling import embedded

    from rmft.params import load
    from rmft.training.sft import fine_tune

    settings = load(ROOT / "params.yaml").at_scale().experiments["open_mab_qwen"].sft
    settings = settings.model_copy(update={"epochs": 1})
    ids = np.random.default_rng(0).integers(800, size=(steps * settings.batch_size, 300)).tolist()
    model = embedded(1).model_copy(update={"threads": threads})
    tensors = fine_tune([{"ids": one, "labels": one} for one in ids], model, None, settings, 0).tensors
    return np.concatenate([tensors[name].numpy().ravel() for name in sorted(tensors)])


def numeric(iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of linear-attention models after numeric RMFT, and what they add up in games of 100 rounds.

    Training computes with torch, and evaluations with NumPy. A product of three numbers rounds alike in most models,
    whatever computes it, so there is a model for each training seed.
    """
    from rmft.environments import draw_rewards
    from rmft.params import load
    from rmft.training.numeric import one_thread, rmft
    from rmft.workflow.plan import training_job

    one_thread()
    job = training_job(load(ROOT / "params.yaml"), "numeric_mab")
    loop = job.training.rmft.model_copy(update={"iterations": iterations})
    *_, (_, model, _) = rmft(0, job.training.model_copy(update={"rmft": loop}), job.model)
    rewards = draw_rewards(0, "bits", ["gaussian"], (200, 100, job.training.d)).rewards
    parameters = np.concatenate([value.detach().numpy().ravel() for value in vars(model).values()])
    seeds = map(model.to_numpy().of_seed, range(job.training.rmft.training_seeds))
    return parameters, np.stack([one.increments(rewards) for one in seeds])


def reference_algorithms() -> np.ndarray:
    """Return the policies of reference algorithms on one table of rewards."""
    from rmft.algorithms import AlgorithmSettings, start
    from rmft.environments import draw_rewards
    from rmft.game import action_uniforms, play

    table = draw_rewards(0, "bits", ["gaussian"], (200, 50, 3))
    games = {name: start(AlgorithmSettings(name), table.shape) for name in ("ucb", "exp3")}
    uniforms = action_uniforms(0, 200, "bits")
    policies = [play(player, table, full_feedback=False, uniforms=uniforms).policies for player in games.values()]
    full = play(start(AlgorithmSettings("hedge"), table.shape), table, full_feedback=True, uniforms=uniforms)
    return np.concatenate([table.rewards, *policies, full.policies], axis=None)


def compute(path: Path, options: argparse.Namespace, threads: int) -> None:
    """Compute everything, and write it to a file."""
    logits, completions = logits_and_completions(options.games, options.rounds, threads)
    parts = (logits, completions, fine_tuned(options.steps, threads), *numeric(options.iterations))
    np.savez(path, **dict(zip(PARTS, (*parts, reference_algorithms()), strict=True)))


# --- The table ---


def difference(part: str, ours: np.ndarray, others: np.ndarray) -> str:
    """Return `same`, or how far two results differ."""
    if ours.shape == others.shape and (ours == others).all():
        return "same"
    if part == "completions":
        return f"{(ours != others).sum()} of {ours.size}"
    return f"{np.abs(ours - others).max():.0e}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, count in (("games", 16), ("rounds", 10), ("steps", 4), ("iterations", 50)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--compute", nargs=2, metavar=("FILE", "THREADS"), help="what a process of its own does")
    options = parser.parse_args()
    if options.compute:
        compute(Path(options.compute[0]), options, int(options.compute[1]))
        return
    width = max(map(len, SETTINGS))
    print(f"{'setting':<{width}}" + "".join(f"{part:>14}" for part in PARTS))
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        for name, (compared, settings, threads) in SETTINGS.items():
            path = Path(folder) / "result.npz"
            command = [sys.executable, *sys.argv, "--compute", str(path), str(threads)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
            subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
            with np.load(path) as file:
                results[name] = dict(file)
            cells = [difference(part, results[name][part], results[compared][part]) for part in PARTS]
            print(f"{name:<{width}}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
