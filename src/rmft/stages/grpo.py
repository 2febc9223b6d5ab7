"""Stage `grpo`: a rival of RMFT: model(i) learns from all trajectories of iteration i, which gives model(i + 1).

Reads the model, the weights or the adapter of an earlier iteration if there are any, and the rollouts (parquet). Writes
weights or adapter (safetensors) and the log of all steps (csv).
"""

from pathlib import Path

from rmft.agents.checkpoint import note_model
from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.tensors import write_tensors
from rmft.artifacts.trajectories import read_trajectories
from rmft.progress import now_and_then, training_steps
from rmft.selection import Scoring
from rmft.training.grpo import reinforce
from rmft.workflow.records import GRPOJob


def run(job: GRPOJob, rollouts: Path, output: Path, log: Path, weights: Path | None = None) -> None:
    """Reinforce the decisions that earned more than those of the other trajectories of their scenario."""
    note_model(job.model)
    report, say = training_steps(f"grpo {output}"), now_and_then()
    scoring = Scoring(job.problem.environment, job.problem.credited_regret, job.mean)
    played, words = read_trajectories(rollouts), (job.stream,)
    tuned = reinforce(
        played, job.model, weights, job.grpo, scoring, job.temperature, job.seed, words, report,
        lambda scored: say(f"grpo {output}: {scored} conversations scored before the first step"),
    )  # fmt: skip
    write_rows(log, tuned.log)
    write_tensors(output, tuned.tensors, tuned.metadata)
