"""Language models, which run in our own process or in servers of a job's own; how the embedded one is made."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from rmft.environments import check_mixture
from rmft.errors import InputError
from rmft.package_data import find_file
from rmft.params.section import DEVICE, Commit, Count, Name, Positive, ReplyLimit, Section, Several, prefixed

MODEL_FILES = (".json", ".jinja", ".model", ".txt", ".safetensors")  # that a language model is read from, weights last


def _of_gguf(description: str) -> Any:  # noqa: ANN401 (as pydantic's Field)
    """Return a field that only GGUF files have, and that the records of other models leave out."""
    return Field(default=None, exclude_if=lambda value: value is None, description=description)


class VLLM(Section):
    """vLLM, which plays in place of our own process."""

    command: Annotated[list[str], Field(min_length=1)] = Field(
        description="The command that starts a server, for example `vllm serve` of another environment."
    )
    servers: Count = Field(description="Number of servers, which share the GPUs equally.")
    gpus: Annotated[int, Field(ge=0)] = Field(description="Number of GPUs of all servers together.")
    arguments: list[str] = Field(default=[], description="Further arguments of each server.")
    concurrency: Count = Field(description="Number of simultaneous requests to each server.")

    @model_validator(mode="after")
    def _shared_out(self) -> Self:
        if self.gpus % self.servers:
            raise ValueError(f"gpus: {self.gpus} cannot be shared out evenly to servers: {self.servers}")
        return self


class LlamaCpp(Section):
    """llama.cpp's server, which plays in place of our own process: quantised weights, on a CPU or a GPU."""

    command: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None,
        description="The command that starts a server, for example llama-server of another build; null: the one of the "
        "package xllamacpp.",
    )
    threads: Count | None = Field(default=None, description="Threads; null: as many as the machine has cores.")
    arguments: list[str] = Field(default=[], description="Further arguments of the server.")

    @property
    def threads_to_play(self) -> int:
        """Return how many threads the server has."""
        return self.threads or os.cpu_count() or 1


class Checkpoint(Section):
    """The weights of a language model, with its tokenizer."""

    weights: str = Field(description="A folder, a GGUF file, or the id of a hub repository.")
    revision: Commit | None = Field(default=None, description="The commit of the hub repository.")
    file: Annotated[str, Field(pattern=r"\.gguf$")] | None = _of_gguf("The GGUF file of the hub repository.")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = _of_gguf("SHA-256 that the GGUF file must have.")
    chat_template: str | None = _of_gguf("A Jinja file that takes the place of the chat template in the GGUF file.")
    stop_tokens: Several | None = _of_gguf(
        "Tokens that end a completion besides the model's own, for a pretrained model, which does not end its turns."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(description="Type of the weights in memory.")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.file and self.weights.endswith(".gguf"):
            raise ValueError(f"file: {self.file}: weights: {self.weights} is a file already")
        if self.file and not self.revision:
            raise ValueError(f"file: {self.file}: a file of the hub needs the revision of its repository")
        for key in ("sha256", "chat_template", "stop_tokens"):
            if getattr(self, key) and not self.is_gguf:
                raise ValueError(f"{key}: is for a GGUF file, and weights: {self.weights} is none")
        return self

    @property
    def is_gguf(self) -> bool:
        """Return whether the weights are one GGUF file, which a job converts before other jobs load it."""
        return self.file is not None or self.weights.endswith(".gguf")

    @property
    def folder(self) -> str:
        """Return the folder of what jobs load, or the id of the hub repository."""
        return self.weights


def model_files(folder: str) -> list[str]:
    """Return the files of a language model that is in a folder; one of the hub is named by its revision instead."""
    return sorted(file.as_posix() for file in Path(folder).glob("*") if file.suffix in MODEL_FILES)


def check_gguf(checkpoint: Checkpoint, key: str = "weights") -> None:
    """Raise InputError where the GGUF file of a checkpoint is not there. key: of params.yaml, that names the file."""
    if not Path(checkpoint.weights).is_file():
        wanted = f" (sha256 {checkpoint.sha256})" if checkpoint.sha256 else ""
        cure = f"put the model's GGUF file there{wanted}, or name a hub repository, revision and file"
        raise InputError(f"params.yaml: {key}: {checkpoint.weights}: no such file; {cure}")


class LanguageModelSettings(Checkpoint):
    """A causal language model with its tokenizer, as transformers loads it."""

    kind: Literal["language"] = Field(description="Kind of the model.")
    device: Annotated[str, Field(pattern=DEVICE)] = Field(description="Where the model runs.")
    batch: Count = Field(description="Games played at a time; fewer, if the memory of the GPU is too small.")
    context: Count | None = Field(
        default=None, description="Largest number of tokens that the model may read; null: as its configuration says."
    )
    max_tokens: ReplyLimit = None
    quantised: Literal["nf4"] | None = Field(
        default=None,
        description="nf4: base weights take 4 bits in memory (bitsandbytes), and only adapters can be trained.",
    )
    threads: Count = Field(
        default=1,
        exclude_if=lambda threads: threads == 1,
        description="Threads of our own process on a CPU; several make models above 100 million parameters faster.",
    )
    vllm: VLLM | None = Field(default=None, description="vLLM plays; fine-tuning stays in our own process.")
    converted: SkipJsonSchema[str | None] = _of_gguf("The folder of the converted GGUF file, which rmft names.")
    llama_cpp: LlamaCpp | None = _of_gguf("llama.cpp plays the GGUF file; fine-tuning stays in our own process.")

    @model_validator(mode="after")
    def _one_engine(self) -> Self:
        if self.llama_cpp and self.vllm:
            raise ValueError("llama_cpp: vllm plays already; name one of the two")
        if self.llama_cpp and not self.is_gguf:
            raise ValueError(f"llama_cpp: plays GGUF files, and weights: {self.weights} is none")
        return self

    @property
    def folder(self) -> str:
        """Return the folder of what jobs load, or the id of the hub repository."""
        return self.converted or str(find_file(self.weights))

    @property
    def extras(self) -> tuple[str, ...]:
        """Return the libraries of this package's extras that the model plays with."""
        of_gguf = () if self.llama_cpp is None else ("gguf",) if self.llama_cpp.command else ("gguf", "xllamacpp")
        return (*of_gguf, *(("bitsandbytes",) if self.quantised else ()))

    @property
    def threads_to_play(self) -> int:
        """Return how many threads a job takes in which the model plays."""
        return self.llama_cpp.threads_to_play if self.llama_cpp else self.threads


class Conversion(Section):
    """How a model that was converted from a GGUF file is compared with llama.cpp."""

    prompts: str = Field(description="Folder of the templates of prompts.")
    scenarios: list[Name] = Field(description="Sets of `scenarios` of which some are told in prompts.")


class Coverage(Section):
    """What the games of a corpus cover. A model that is trained on it has seen nothing else."""

    process: Several = Field(description="Reward processes, of equally many games each.")
    T: Annotated[int, Field(ge=3)] = Field(description="Rounds of the longest games.")
    d: list[Annotated[int, Field(ge=2, le=5)]] = Field(min_length=1, description="Numbers of actions.")
    named: bool = Field(description="Whether actions have names in some games, besides games with numbered actions.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        prefixed("process", check_mixture, self.process)
        return self


class Pretraining(Section):
    """How the embedded models are made, and the fidelity gate that each must pass on what its corpus covers."""

    prompts: str = Field(description="Folder of the templates of prompts.")
    steps: Count = Field(description="Steps of pre-training.")
    rows: Count = Field(description="Rows of a step.")
    tokens: Annotated[int, Field(ge=256)] = Field(description="Tokens of a row.")
    learning_rate: Positive = Field(description="Step size after the warm-up.")
    warmup_steps: Count = Field(description="Steps in which the step size grows.")
    settle: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Share of steps, at the end, with the styles of the base model; before, skilled styles prevail."
    )
    sharpen: Positive = Field(description="Factor of the final logits.")
    threads: Count = Field(description="Threads; another number of them rounds differently.")
    gate_games: Count = Field(description="Games of each protocol that the fidelity gate plays.")
    corpora: dict[Name, Coverage] = Field(description="What the corpus of each model covers, by the model's name.")
