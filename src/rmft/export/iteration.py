"""What is exported: one iteration of an experiment in which a language model plays."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rmft.artifacts.here import from_here, without_folder
from rmft.errors import InputError, unknown
from rmft.lineage.records import read_record
from rmft.params import Params, load
from rmft.params.endpoint import EndpointSettings
from rmft.params.files import evaluation_of, iteration_of
from rmft.params.language import GameExperiment
from rmft.params.language_model import LanguageModelSettings
from rmft.workflow.paths import weights_of

ITERATION = re.compile(r"results/experiments/([^/]+)/seed-([0-9]+)/iteration-([0-9]+)")


@dataclass(frozen=True)
class BuiltIteration:
    """An iteration of one training seed of an experiment of params.yaml."""

    params: Params
    experiment: str
    training_seed: int
    iteration: int

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Return the iteration in a folder. Raise InputError where the folder is none of a language model."""
        match = ITERATION.fullmatch(from_here(folder).as_posix())
        if not match:
            raise InputError(
                f"{folder}: must be the folder of an iteration of a language model, "
                "results/experiments/NAME/seed-0/iteration-1, named from the folder of params.yaml"
            )
        params = load().at_scale()
        if match[1] not in params.experiments:
            raise InputError(f"{folder}: {unknown(match[1], params.experiments)}")
        if not folder.is_dir():
            raise InputError(
                f"{folder}: no such folder; `snakemake exp_{match[1]}` makes it, if params.yaml asks for it"
            )
        return cls(params, match[1], int(match[2]), int(match[3]))

    @property
    def settings(self) -> GameExperiment:
        """Return the experiment's settings."""
        return self.params.experiments[self.experiment]

    @property
    def folder(self) -> Path:
        """Return the folder of the iteration."""
        return Path(iteration_of(self.experiment, self.training_seed, self.iteration))

    @property
    def weights(self) -> Path:
        """Return the file that fine-tuning wrote. Raise InputError where there is none, or none with weights."""
        found = weights_of(self.params, self.experiment, self.training_seed, self.iteration)
        if not found:
            raise InputError(f"{self.folder}: is the base model, not a trained one; of it only --format dataset exists")
        path = Path(found[0])
        if path.suffix == ".json":
            raise InputError(f"{path}: names a model behind an endpoint, which keeps its weights; try --format dataset")
        if not path.exists():
            raise InputError(f"{path}: no such file; `snakemake {path}` makes it")
        return path

    @property
    def trajectories(self) -> list[Path]:
        """Return the files with the trajectories of the iteration, and which of them were selected."""
        chosen = ["selection.parquet"] if self.settings.selects else []
        return [self.folder / name for name in ("rollouts.parquet", *chosen)]

    @property
    def evaluations(self) -> list[Path]:
        """Return the evaluations of the experiment that are built."""
        paths = (Path(evaluation_of(self.experiment, name)) for name in self.settings.evaluations)
        return [path for path in paths if path.exists()]

    @property
    def base(self) -> LanguageModelSettings | EndpointSettings:
        """Return the settings of the model that is trained, as the record of the training has them, on the CPU."""
        settings = self.params.models[self.settings.model]
        if settings.kind == "endpoint":
            return settings
        written = weights_of(self.params, self.experiment, self.training_seed, self.iteration)
        if record := read_record(written[0]) if written else None:
            settings = LanguageModelSettings.parse(json.dumps(record.settings["model"]))
        return settings.model_copy(update={"device": "cpu"})

    @property
    def base_model(self) -> str:
        """Return the base model's name at an endpoint, its id on the hub, or its path."""
        return without_folder(self.base.model if self.base.kind == "endpoint" else self.base.weights)

    @property
    def revision(self) -> str | None:
        """Return the base model's commit on the hub; None for a model that is not there."""
        return None if self.base.kind == "endpoint" else self.base.revision
