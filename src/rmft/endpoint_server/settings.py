"""The settings of a server."""

from dataclasses import dataclass, field
from pathlib import Path

from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings

API_KEY = "RMFT_API_KEY"  # the environment variable with the key that clients show
MODELS, MODEL = "models", "model.json"  # the folder of fine-tuned models in the state, and of each the last file
MANY_SLOTS, MANY_MODELS, FEW_MODELS = 1024, 16, 3


@dataclass(frozen=True)
class ServerSettings:
    """An endpoint around a local language model.

    model: the base model. name: its id at the endpoint. token: what clients must send as their API key. state: the
    folder of files, jobs and models. announce: a file that the server writes when it is ready, with its process id and
    port. sft: the defaults of a fine-tuning job, which may change epochs, batch size, and the learning rate by a
    factor. seed: root of the random streams of sampling. port: 0 for any free port.

    slots: conversations in each model's cache; None for model.batch, or MANY_SLOTS if that is more and the model has a
    sliding window, so that each slot is small. max_tokens: of a response. queue: responses that may be pending; later
    requests get status 429. body_bytes, upload_bytes: limits of a request and of an upload.
    """

    model: LanguageModelSettings
    name: str
    token: str = field(repr=False)
    state: Path
    sft: LanguageSFT
    seed: int
    host: str = "127.0.0.1"
    port: int = 0
    announce: Path | None = None
    slots: int | None = None
    max_tokens: int = 1024
    queue: int = 2048
    body_bytes: int = 2 << 20
    upload_bytes: int = 512 << 20
