"""A small tree of artifacts with records and receipts, as Snakemake and real jobs would leave them: no job runs."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmft.artifacts.files import sha256
from rmft.artifacts.job import JOB_OF, JobContext, this_run
from rmft.artifacts.text import write_text
from rmft.lineage.records import METADATA, file_of

CODE = {"digest": "0123456789abcdef", "extensions": [], "libraries": {"numpy": "2.4.6"}}
REWARDS = "data/rewards/gaussian.npz"
MODEL = "results/experiments/numeric/iteration-20/model.safetensors"
EVALUATION = "results/experiments/numeric/evaluation/gaussian.parquet"
OTHER = "results/experiments/numeric/evaluation/gamma.parquet"
FIGURE = "results/figures/regret.png"
SOURCE = "data/paper/regret.csv"
HUB = {"org/model@0123/model.safetensors": "89abcdef" * 8}


def write_artifact(
    patch: pytest.MonkeyPatch,
    path: str,
    rule: str,
    inputs: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    hub: Mapping[str, str] | None = None,
) -> None:
    """Write an artifact of the current folder in a process that takes itself for a job, and Snakemake's record."""
    text = json.dumps({**(settings or {}), "code": CODE}, separators=(",", ":"))
    read = {name: sha256(Path(name)) for name in inputs}
    context = JobContext(text, {Path(name).as_posix(): digest for name, digest in read.items()}, dict(hub or {}))
    with patch.context() as job:
        job.setenv(JOB_OF, this_run())
        job.setattr("rmft.artifacts.receipts.JOB_CONTEXT", context)
        write_text(Path(path), f"content of {path}\n")
    now = time.time()
    record = {
        "rule": rule,
        "input": list(inputs),
        "input_checksums": {name: f"sha256:{digest}" for name, digest in read.items()},
        "params": [repr(text)],
        "starttime": now - 1.5,
        "endtime": now,
    }
    file = file_of(METADATA, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record), encoding="utf-8")


def write_tree(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Write a figure and everything that it was made from into a folder, and make it the current one."""
    patch.chdir(folder)
    Path(SOURCE).parent.mkdir(parents=True)
    Path(SOURCE).write_text("regret\n27.99\n", encoding="utf-8")
    write_artifact(patch, REWARDS, "reward_set", settings={"seed": 7, "rewards": {"T": 25}})
    training = {"rmft": {"selected": 1}, "radius": None}
    write_artifact(patch, MODEL, "training", settings={"seed": 7, "training": training}, hub=HUB)
    for path in (EVALUATION, OTHER):
        write_artifact(patch, path, "evaluation", [REWARDS, MODEL], {"seed": 7, "rewards": Path(path).stem})
    style = {"label": "regret", "style": {"colours": {"ucb": "#0072B2"}}}
    write_artifact(patch, FIGURE, "figure", [EVALUATION, OTHER, SOURCE], style)
