"""The models that there are: the base model, and what it was fine-tuned to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.endpoint_server.errors import ApiError, no_model
from rmft.endpoint_server.store import read_json

MODEL, WEIGHTS = "model.json", "model.safetensors"
OWNER = "rmft"


@dataclass(frozen=True)
class Model:
    """A model. weights: None for the base model. identity: what it is called in the streams that it is sampled by."""

    id: str
    created: int
    weights: Path | None
    identity: str

    @property
    def told(self) -> dict[str, Any]:
        """Return what the protocol says of it."""
        return {"id": self.id, "object": "model", "created": self.created, "owned_by": OWNER}


class Models:
    """The models by their ids. A fine-tuned one has a folder, with its weights and, written last, what it is."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted((read(path.parent) for path in folder.glob(f"*/{MODEL}")), key=lambda model: model.created)
        first = Model(base, 0, None, base)  # older than all others, and the same whenever the server was started
        self.known = {model.id: model for model in (first, *found)}

    def get(self, name: str) -> Model:
        """Return a model. Raise ApiError where there is none of this name."""
        if name not in self.known:
            raise no_model(name)
        return self.known[name]

    def add(self, folder: Path) -> Model:
        """Serve what is in a folder from now on."""
        model = read(folder)
        self.known[model.id] = model
        return model

    def delete(self, name: str) -> None:
        """Forget a fine-tuned model and delete its weights."""
        model = self.get(name)
        if model.weights is None:
            raise ApiError(403, "The base model cannot be deleted.", "model", "permission_denied")
        (model.weights.parent / MODEL).unlink()  # without it the folder is none of a model
        model.weights.unlink(missing_ok=True)
        del self.known[name]


def read(folder: Path) -> Model:
    """Return the model in a folder. Raise InputError where what is said of it is damaged."""
    said = read_json(folder / MODEL)
    return Model(said["id"], said["created"], folder / WEIGHTS, f"{said['base']} {said['sha256']}")
