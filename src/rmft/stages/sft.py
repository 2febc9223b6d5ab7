"""Stage `sft`: Algorithm `ssft-language-model`, "fine-tune": model(i) on its demonstrations gives model(i + 1).

Reads the model, the weights or the adapter of an earlier iteration if there are any, and the demonstrations (jsonl).
Writes weights or adapter (safetensors), or the model's name at its endpoint (json); and the log of all steps (csv).
"""

import sys
from dataclasses import asdict
from pathlib import Path

from rmft.artifacts.csv_files import write_csv, write_rows
from rmft.artifacts.json_files import read_json, read_jsonl, write_json
from rmft.artifacts.tensors import write_tensors
from rmft.progress import training_steps
from rmft.workflow.records import SFTJob


def run(job: SFTJob, demonstrations: Path, output: Path, log: Path, weights: Path | None = None) -> None:
    """Fine-tune the model in this process, in several, or at its endpoint."""
    if job.sft.method == "api":
        _at_endpoint(job, demonstrations, weights, output, log)
    else:
        _here(job, demonstrations, weights, output, log)


def _here(job: SFTJob, demonstrations: Path, weights: Path | None, output: Path, log: Path) -> None:
    from rmft.training.processes import is_first, launch, must_launch

    if must_launch(job.sft.processes):
        sys.exit(launch(job.sft.processes))
    from rmft.agents.checkpoint import note_model
    from rmft.training.sft import fine_tune

    note_model(job.model)
    report = training_steps(f"sft {output}") if is_first() else lambda *_: None
    tuned = fine_tune(read_jsonl(demonstrations), job.model, weights, job.sft, job.seed, (job.stream,), report)
    if is_first():
        write_rows(log, tuned.log)
        write_tensors(output, tuned.tensors, tuned.metadata)


def _at_endpoint(job: SFTJob, demonstrations: Path, weights: Path | None, output: Path, log: Path) -> None:
    from rmft.endpoint.fine_tuning_responses import LOG_COLUMNS
    from rmft.endpoint.session import fine_tune_at_endpoint, journal_of, open_endpoint

    def report(line: str) -> None:
        print(f"sft {output}: {line}", file=sys.stderr, flush=True)

    with open_endpoint(job.model_name, job.model, job.served, journal_of(output)) as endpoint:
        base = endpoint.settings.model if weights is None else read_json(weights)["id"]
        lines = list(read_jsonl(demonstrations))
        tuned = fine_tune_at_endpoint(endpoint, lines, base, job.sft, job.seed, job.stream, report)
    write_csv(log, {column: [row[column] for row in tuned.log] for column in LOG_COLUMNS})
    write_json(output, {name: value for name, value in asdict(tuned).items() if name != "log"})
