"""Start vLLM's servers for a job, wait until they are ready, and end them with the job.

vLLM pins versions of many libraries, so it runs as a program from an environment of its own.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from httpx2 import HTTPError, get

from rmft.agents.vllm import VLLMServers
from rmft.errors import InputError
from rmft.params.language_model import VLLM, LanguageModelSettings

POLL_SECONDS = 0.5
END_SECONDS = 30.0
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
BASE, TUNED = "base", "tuned"  # names of the model at the servers
# Run a command that the kernel ends with its parent, however the job ends.
END_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); os.execvp(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def start_servers(
    settings: LanguageModelSettings, weights: Path | None, tokens: int, log: Path
) -> Iterator[VLLMServers]:
    """Start the servers of a model, yield them when all are ready, and end them afterwards.

    weights: of a fine-tuned model; None for the base model. tokens: of the longest conversation. log: file of the
    servers' output. Raise InputError if a server does not start.
    """
    vllm, key = settings.vllm, secrets.token_urlsafe(24)
    with TemporaryDirectory(prefix="rmft-vllm-") as folder, ExitStack() as stack:
        arguments, name = _model_arguments(settings, weights, Path(folder))
        log.parent.mkdir(parents=True, exist_ok=True)
        output = stack.enter_context(log.open("w", encoding="utf-8"))
        started = []
        for share in _gpu_shares(vllm):
            port = _free_port()
            where = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(tokens)]
            process = subprocess.Popen(
                [sys.executable, "-c", END_WITH_PARENT, *vllm.command, *arguments, *where, *vllm.arguments],
                env={**os.environ, **share, "VLLM_API_KEY": key},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)
            started.append((process, f"http://127.0.0.1:{port}"))
        for process, url in started:
            _wait(process, url, vllm.start_seconds, log)
        yield VLLMServers([f"{url}/v1" for _, url in started], name, key, vllm.concurrency)


def _model_arguments(settings: LanguageModelSettings, weights: Path | None, folder: Path) -> tuple[list[str], str]:
    """Return the command-line arguments for a model, and the model's name at the server.

    An adapter is served beside its base model; other weights are written as a checkpoint to the folder.
    """
    model, revision = settings.weights, ["--revision", settings.revision] if settings.revision else []
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
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus = visible.split(",") if visible else [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    if not gpus:
        return [{}] * vllm.servers
    if len(gpus) < vllm.gpus:
        raise InputError(f"vllm.gpus: {vllm.gpus} are wanted; {len(gpus)} are visible here")
    each = vllm.gpus // vllm.servers
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[i * each : (i + 1) * each])} for i in range(vllm.servers)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _wait(process: subprocess.Popen, url: str, seconds: float, log: Path) -> None:
    """Wait until a server is ready. Raise InputError if it ends, or takes too long."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if process.poll() is not None:
            raise InputError(f"vllm: a server ended with exit code {process.returncode}; {log} says why")
        with suppress(HTTPError):
            if get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(POLL_SECONDS)
    raise InputError(f"vllm.start_seconds: a server was not ready after {seconds:g} s; see {log}")


def _end(process: subprocess.Popen) -> None:
    """End a server and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
