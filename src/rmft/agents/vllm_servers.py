"""vLLM's servers for a job: started with what is to be played, waited for, and ended with the job.

vLLM pins libraries of its own, so it is a program here, of whatever environment it is installed in.
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

from rmft.agents.vllm import Servers
from rmft.errors import InputError
from rmft.params.language import VLLM, LanguageModelSettings

LOOK_SECONDS = 0.5
END_SECONDS = 30.0
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, for which it makes room
BASE, TUNED = "base", "tuned"  # what the servers call the model
# A server is to end when the job does, however that ends.
TIED = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); os.execvp(sys.argv[1], sys.argv[1:])"
)


@contextmanager
def servers(settings: LanguageModelSettings, weights: Path | None, tokens: int, log: Path) -> Iterator[Servers]:
    """Start the servers of a model, wait until all are well, and end them at last.

    weights: what fine-tuning has written; None for the base model. tokens: of the longest conversation. log: the file
    that they write to. Raise InputError where one does not start.
    """
    engine, key = settings.vllm, secrets.token_urlsafe(24)
    with TemporaryDirectory(prefix="rmft-vllm-") as folder, ExitStack() as stack:
        model, played = _served(settings, weights, Path(folder))
        log.parent.mkdir(parents=True, exist_ok=True)
        said = stack.enter_context(log.open("w", encoding="utf-8"))
        started = []
        for share in _shares(engine):
            port = _free_port()
            where = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(tokens)]
            process = subprocess.Popen(
                [sys.executable, "-c", TIED, *engine.command, *model, *where, *engine.arguments],
                env={**os.environ, **share, "VLLM_API_KEY": key},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)
            started.append((process, f"http://127.0.0.1:{port}"))
        for process, url in started:
            _wait(process, url, engine.start_seconds, log)
        yield Servers([f"{url}/v1" for _, url in started], played, key, engine.concurrency)


def _served(settings: LanguageModelSettings, weights: Path | None, folder: Path) -> tuple[list[str], str]:
    """Return the arguments that say what is served, and what to call what is to play.

    An adapter is served beside its base model; other weights become a checkpoint in the folder.
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
    # What a hub's generation_config.json says of top_p and the like is not what the paper samples by.
    common = ["--served-model-name", BASE, "--dtype", settings.dtype, "--generation-config", "vllm"]
    common += ["--quantization", "bitsandbytes"] if settings.quantised else []  # NF4, as it loads
    return [model, *revision, *common, *tuned], TUNED if tuned else BASE


def _shares(engine: VLLM) -> list[dict[str, str]]:
    """Return for each server what tells it its share of the GPUs that the job may use; nothing where there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus = visible.split(",") if visible else [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    if not gpus:
        return [{}] * engine.servers
    if len(gpus) < engine.gpus:
        raise InputError(f"vllm.gpus: {engine.gpus} are asked for; {len(gpus)} can be seen here")
    each = engine.gpus // engine.servers
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[i * each : (i + 1) * each])} for i in range(engine.servers)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _wait(process: subprocess.Popen, url: str, seconds: float, log: Path) -> None:
    """Wait until a server is well. Raise InputError where it ends, or takes too long."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if process.poll() is not None:
            raise InputError(f"vllm: a server ended with exit code {process.returncode}; {log} says why")
        with suppress(HTTPError):
            if get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(LOOK_SECONDS)
    raise InputError(f"vllm.start_seconds: a server was not ready after {seconds:g} s; {log} says how far it came")


def _end(process: subprocess.Popen) -> None:
    """End a server and the processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
