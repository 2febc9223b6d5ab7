"""Stage `metrics`: collect final regrets, growth and tests of every evaluation.

Reads all evaluations (parquet). Writes all metrics, and the few numbers of each evaluation that DVC lists (json).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.artifacts.json_files import write_json
from rmft.metrics.summary import all_metrics, summarised
from rmft.results import read_players
from rmft.workflow.records_outputs import MetricsJob


def run(job: MetricsJob, inputs: Sequence[Path], output: Path, summary: Path) -> None:
    """Collect the metrics and summarise them."""
    evaluations = ((*source, read_players(path)) for source, path in zip(job.sources, inputs, strict=True))
    metrics = all_metrics(evaluations, job.seed, job.floor)
    write_json(output, metrics)
    write_json(summary, summarised(metrics))
