"""The models of a server: the base model, and the models fine-tuned from it."""

from dataclasses import dataclass
from pathlib import Path

from rmft.artifacts.json_files import read_json
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.store import Json

MODEL, WEIGHTS = "model.json", "model.safetensors"


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
    """The models by their ids. A fine-tuned model has a folder with its weights and, written last, model.json."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base
        folder.mkdir(parents=True, exist_ok=True)
        tuned = sorted(map(read_model, folder.glob(f"*/{MODEL}")), key=lambda one: one.created)
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


def read_model(file: Path) -> ServedModel:
    """Return the model that a model.json describes."""
    value = read_json(file)
    return ServedModel(value["id"], value["created"], file.parent / WEIGHTS, f"{value['base']} {value['sha256']}")
