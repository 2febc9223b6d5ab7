"""Stage `training`: Algorithm `ssft-numerical-model`, all iterations of a numeric experiment.

Reads nothing. Writes iteration-<i>/model.safetensors of the iterations that are kept, and training-log.csv, into the
experiment's folder.
"""

from collections import defaultdict
from pathlib import Path

from rmft.agents.numeric import write_model
from rmft.artifacts.csv_files import write_csv
from rmft.progress import progress
from rmft.training.numeric import one_thread, rmft
from rmft.workflow.records import TrainingJob


def run(job: TrainingJob, folder: Path) -> None:
    """Train the numeric agent by iterative RMFT."""
    loop, log = job.training.rmft, defaultdict(list)
    seeds = range(loop.training_seeds)
    one_thread()
    with progress(f"training {folder.name}", loop.iterations, "iterations") as advance:
        for iteration, model, logged in rmft(job.seed, job.training, job.model, job.mean):
            if iteration in job.training.saved_iterations:
                write_model(folder / f"iteration-{iteration}" / "model.safetensors", model.to_numpy())
            if logged:
                rows = {"iteration": [iteration] * len(seeds), "training_seed": seeds, **vars(logged)}
                for column, values in rows.items():
                    log[column].extend(values)
                advance()
    write_csv(folder / "training-log.csv", log)
