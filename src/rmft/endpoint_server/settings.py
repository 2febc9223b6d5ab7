"""What a server is told when it is started."""

from dataclasses import dataclass, field
from pathlib import Path

from rmft.params.language import LanguageModelSettings, LanguageSFT

MANY_LANES = 1024


@dataclass(frozen=True)
class ServerSettings:
    """An endpoint around a local language model.

    model: the base model, and `name`, its id at the endpoint. token: what clients must show. state: the folder of all
    that is kept. announce: a file that is written when the server is ready, with its process id and port. sft: what a
    fine-tuning job starts from; it asks for other epochs and batch sizes, and for multiples of the learning rate.
    seed: the root of all that is sampled. port: 0 for any that is free.

    lanes: conversations of a model that are kept in memory; None for model.batch, and for MANY_LANES where the model
    forgets, so that each takes little. models: that are loaded at a time.
    max_tokens: of one reply. queue: replies that may be waited for; who comes after is told to come again.
    body_bytes, upload_bytes: of a request, and of one that brings a file.
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
    lanes: int | None = None
    models: int = 3
    max_tokens: int = 1024
    queue: int = 2048
    body_bytes: int = 2 << 20
    upload_bytes: int = 512 << 20
