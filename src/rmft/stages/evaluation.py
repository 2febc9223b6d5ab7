"""Stage `evaluation`: base model, trained model and reference algorithms on common instances.

Reads the reward set (npz), and the numeric models (safetensors, base then trained) or the games that language models
have played in words (parquet, one file a player). Writes the regret of every player (parquet).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.agents.numeric import read_model
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.rewards import read_rewards
from rmft.artifacts.trajectories import read_trajectories
from rmft.evaluation import evaluate, evaluate_in_words
from rmft.workflow.records import EvaluationJob


def run(job: EvaluationJob, inputs: Sequence[Path], rewards: Path, output: Path) -> None:
    """Evaluate the players, and the reference algorithms beside them."""
    if job.problem.kind == "numeric":
        models = dict(zip(("base", "trained"), map(read_model, inputs), strict=True))
        columns = evaluate(job, models, read_rewards(rewards))
    else:
        games = [(*player, read_trajectories(path)) for player, path in zip(job.players, inputs, strict=True)]
        columns = evaluate_in_words(job, games, read_rewards(rewards))
    write_evaluation(output, columns)
