"""Stage `selection`: Algorithm `ssft-language-model`, "select k": the trajectories of lowest regret in each scenario.

Reads the rollouts of an iteration (parquet). Writes the regret and rank of every trajectory (parquet), and the selected
ones as demonstrations (jsonl).
"""

from pathlib import Path

from rmft.artifacts.json_files import write_jsonl
from rmft.artifacts.trajectories import trajectory_batches, write_selection
from rmft.metrics.luck import lead_of_selected
from rmft.selection import Scoring, demonstrations_in, select
from rmft.workflow.records import SelectionJob


def run(job: SelectionJob, rollouts: Path, output: Path, demonstrations: Path) -> None:
    """Rank the trajectories and keep the best of each scenario."""
    problem = job.problem
    ranked = select(
        trajectory_batches(rollouts, tokens=False),
        Scoring(problem.environment, problem.training_regret, job.mean),
        job.selected,
        job.score,
        job.pool,
        seed=job.seed,
        words=job.stream,
    )
    write_jsonl(demonstrations, demonstrations_in(trajectory_batches(rollouts), ranked["selected"]))
    write_selection(output, ranked)
    in_hindsight, redrawn = lead_of_selected(ranked)
    print(
        f"selection {output.parent}: {ranked['selected'].sum()} of {len(ranked['regret'])} trajectories; better than"
        f" their scenario's average by {in_hindsight:.2f}, on rewards drawn again by {redrawn:.2f}"
    )
