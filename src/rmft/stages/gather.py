"""Stage `gather`: join the shards of an iteration's rollouts.

Reads the shards (parquet), in order. Writes their trajectories (parquet).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.artifacts.trajectories import join_trajectories
from rmft.workflow.records import GatherJob


def run(job: GatherJob, inputs: Sequence[Path], output: Path) -> None:
    """Join the shards, which together have all games of the iteration."""
    join_trajectories(output, inputs, job.games)
