"""The models of a server: the base model, and the models fine-tuned from it."""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from rmft.artifacts.files import sha256
from rmft.artifacts.json_files import read_json
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.settings import MODEL
from rmft.endpoint_server.store import Json
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings, model_files

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ServedModel:
    """A model. weights: None for the base model. identity: its name in the random streams that it is sampled with."""

    id: str
    created: int
    weights: Path | None
    identity: str

    @property
    def description(self) -> Json:
        """Return the model as the protocol describes it."""
        return {"id": self.id, "object": "model", "created": self.created, "owned_by": "rmft"}


class ServedModels:
    """The models by their ids. A fine-tuned model has a folder with its weights and, written last, model.json.

    base: the id of the base model. plays: the base model. Models that were tuned from another one are left out.
    """

    def __init__(self, folder: Path, base: str, plays: LanguageModelSettings) -> None:
        self.folder, self.base = folder, base
        folder.mkdir(parents=True, exist_ok=True)
        files = _of_base(list(folder.glob(f"*/{MODEL}")), plays)
        tuned = sorted(map(read_model, files), key=lambda one: one.created)
        first = ServedModel(base, 0, None, base)  # created: 0, so that the answer is the same after each start
        self.by_id = {model.id: model for model in (first, *tuned)}

    def get(self, name: str) -> ServedModel:
        """Return a model. Raise ApiError if there is none of this name."""
        if name not in self.by_id:
            raise ApiError(404, f"The model `{name}` does not exist or was deleted.", "model", "model_not_found")
        return self.by_id[name]

    def add(self, file: Path) -> ServedModel:
        """Serve the model that a model.json describes from now on."""
        model = read_model(file)
        self.by_id[model.id] = model
        return model

    def delete(self, name: str) -> None:
        """Delete a fine-tuned model."""
        model = self.get(name)
        if model.weights is None:
            raise ApiError(403, "The base model cannot be deleted.", "model", "permission_denied")
        (model.weights.parent / MODEL).unlink()  # a folder without this file is no model
        model.weights.unlink(missing_ok=True)
        del self.by_id[name]


def digest_of_base(plays: LanguageModelSettings) -> str:
    """Return a hash of a base model: of its files, or of its name and commit on the hub. Raise InputError as `sha256`.

    Weights that were tuned beside another base model load without an error, and are wrong.
    """
    of_files = " ".join(sha256(Path(file)) for file in model_files(plays.folder))
    return hashlib.sha256((of_files or f"{plays.weights}@{plays.revision}").encode()).hexdigest()


def _of_base(files: list[Path], plays: LanguageModelSettings) -> list[Path]:
    """Return those model.json whose models were tuned from a base model, or do not say from which; name the others."""
    ours = digest_of_base(plays) if files else ""
    others = [file for file in files if read_json(file).get("base_sha256", ours) != ours]
    if others:
        names = ", ".join(sorted(read_model(file).id for file in others))
        print(f"rmft serve: left out, since the base model was another one: {names}", file=sys.stderr, flush=True)
    return [file for file in files if file not in others]


def require_tuned_weights(weights: Path) -> None:
    """Raise InputError for weights that are not those that fine-tuning wrote, by whose hash the model is sampled."""
    if sha256(weights) != read_json(weights.with_name(MODEL))["sha256"]:
        raise InputError(f"{weights}: not what fine-tuning wrote; delete the model, and fine-tune it again")


def read_model(file: Path) -> ServedModel:
    """Return the model that a model.json describes."""
    value = read_json(file)
    return ServedModel(value["id"], value["created"], file.parent / WEIGHTS, f"{value['base']} {value['sha256']}")
