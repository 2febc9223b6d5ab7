"""Start vLLM's servers for a job.

vLLM pins versions of many libraries, so it runs as a program from an environment of its own.
"""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rmft.agents.served import ServerConnections
from rmft.agents.server_processes import ServerCommand, note_version, running_servers
from rmft.agents.vllm import VLLMClient
from rmft.errors import InputError
from rmft.params.language_model import VLLM, LanguageModelSettings

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
BASE, TUNED = "base", "tuned"  # names of the model at the servers


@contextmanager
def start_vllm(settings: LanguageModelSettings, weights: Path | None, tokens: int, log: Path) -> Iterator[VLLMClient]:
    """Start the servers of a model, yield their client when all are ready, and end them afterwards.

    weights: of a fine-tuned model; None for the base model. tokens: of the longest conversation. log: file of the
    servers' output. Raise InputError if a server does not start.
    """
    vllm, key = settings.vllm, secrets.token_urlsafe(24)
    with TemporaryDirectory(prefix="rmft-vllm-") as folder:
        arguments, name = _model_arguments(settings, weights, Path(folder))
        command = [*vllm.command, *arguments, "--max-model-len", str(tokens), *vllm.arguments]
        commands = [ServerCommand(command, {**share, "VLLM_API_KEY": key}) for share in _gpu_shares(vllm)]
        with (
            running_servers("vllm", commands, log) as urls,
            ServerConnections([f"{url}/v1" for url in urls], key, vllm.concurrency, log) as connections,
        ):
            note_version("vllm", f"{urls[0]}/version", "version", key)
            yield VLLMClient(connections, name)


def _model_arguments(settings: LanguageModelSettings, weights: Path | None, folder: Path) -> tuple[list[str], str]:
    """Return the command-line arguments for a model, and the model's name at the server.

    An adapter is served beside its base model; other weights are written as a checkpoint to the folder.
    """
    pinned = settings.revision is not None and not settings.is_gguf
    model, revision = settings.folder, ["--revision", settings.revision] if pinned else []
    tuned: list[str] = []
    if weights is not None:
        from safetensors.torch import save_file

        from rmft.agents.weights import ADAPTER_CONFIG, load_pretrained, with_weights
        from rmft.artifacts.tensors import read_tensors

        tensors, metadata = read_tensors(weights)
        if ADAPTER_CONFIG in metadata:
            save_file(tensors, folder / "adapter_model.safetensors")
            (folder / "adapter_config.json").write_text(metadata[ADAPTER_CONFIG], encoding="utf-8")
            rank = json.loads(metadata[ADAPTER_CONFIG])["r"]
            room = next((most for most in RANKS if most >= rank), rank)
            tuned = ["--enable-lora", "--max-lora-rank", str(room), "--lora-modules", f"{TUNED}={folder}"]
        else:
            whole, tokenizer = load_pretrained(settings)
            with_weights(whole, weights).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            model, revision = str(folder), []
    # Not the top_p and the like of the hub's generation_config.json: the paper samples from the whole distribution.
    common = ["--served-model-name", BASE, "--dtype", settings.dtype, "--generation-config", "vllm"]
    common += ["--quantization", "bitsandbytes"] if settings.quantised else []  # to NF4, while loading
    return [model, *revision, *common, *tuned], TUNED if tuned else BASE


def _gpu_shares(vllm: VLLM) -> list[dict[str, str]]:
    """Return for each server the environment variable with its share of the job's GPUs; nothing if there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # an empty list hides all GPUs
    here = [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    gpus = here if visible is None else [gpu for gpu in visible.split(",") if gpu]
    if not gpus:
        return [{}] * vllm.servers
    if len(gpus) < vllm.gpus:
        raise InputError(f"vllm.gpus: {vllm.gpus} are wanted; {len(gpus)} are visible here")
    each = vllm.gpus // vllm.servers
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[i * each : (i + 1) * each])} for i in range(vllm.servers)]
