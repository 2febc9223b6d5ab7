"""Our own endpoint in a process of its own, for several test files."""

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil
from helpers import wait_until
from openai import OpenAI

from rmft.endpoint_server.settings import ServerSettings
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings

ROOT = Path(__file__).parents[1]
TOKEN = "sk-test-0123456789abcdef"
BODY_BYTES, UPLOAD_BYTES, QUEUE, SLOTS, MAX_TOKENS = 100_000, 200_000, 48, 40, 200
MODEL = LanguageModelSettings(
    kind="language", weights="data/models/embedded", dtype="float32", device="cpu", batch=SLOTS
)
SFT = LanguageSFT.model_validate(
    {
        "method": "full", "lora": {"rank": 4, "alpha": 8, "dropout": 0.0, "target": "all-linear"},
        "learning_rate": 5e-4, "batch_size": 4, "accumulation": 1, "epochs": 1, "schedule": "linear", "warmup_steps": 0,
        "weight_decay": 0.0, "betas": [0.9, 0.999], "epsilon": 1e-8, "max_grad_norm": 1.0,
        "gradient_checkpointing": False,
    }
)  # fmt: skip
START = """
import json, sys
from pathlib import Path
from rmft.endpoint_server.server import serve
from rmft.endpoint_server.settings import ServerSettings
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings
settings = json.loads(sys.argv[1])
settings |= {"model": LanguageModelSettings.parse(settings["model"]), "sft": LanguageSFT.parse(settings["sft"])}
serve(ServerSettings(**{**settings, "state": Path(settings["state"]), "announce": Path(settings["announce"])}))
"""


class Server:
    """A server in a process of its own, ready for requests. context: of the model; port: 0 for any."""

    def __init__(self, state: Path, context: int | None = None, port: int = 0, max_tokens: int = MAX_TOKENS) -> None:
        self.state, announced = state, state / "announce.json"
        settings = ServerSettings(
            model=MODEL.model_copy(update={"context": context}), name="embedded", token=TOKEN, state=state, sft=SFT,
            seed=0, port=port, announce=announced, queue=QUEUE, slots=SLOTS, max_tokens=max_tokens,
            body_bytes=BODY_BYTES, upload_bytes=UPLOAD_BYTES,
        )  # fmt: skip
        values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        values |= {"model": settings.model.canonical(), "sft": settings.sft.canonical()}
        state.mkdir(parents=True, exist_ok=True)
        announced.unlink(missing_ok=True)
        with (state.parent / f"{state.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, json.dumps(values, default=str)], cwd=ROOT, stderr=log
            )
        wait_until(lambda: announced.exists() or self.process.poll() is not None, every=0.02)
        ready = json.loads(announced.read_text())
        assert ready["pid"] == self.process.pid
        self.port = ready["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of the official client, which checks every response against its own schemas."""
        return {"base_url": f"{self.url}/v1", "api_key": TOKEN, "max_retries": 0, "_strict_response_validation": True}

    @property
    def client(self) -> OpenAI:
        """Return the official client."""
        return OpenAI(**self.options)

    @property
    def usage(self) -> dict[str, int]:
        """Return what was paid for."""
        return httpx2.get(f"{self.url}/usage", headers={"Authorization": f"Bearer {TOKEN}"}).json()

    @property
    def workers(self) -> list[psutil.Process]:
        """Return the processes that the server has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and return the exit code; nothing that the server started is left a moment later."""
        workers = self.workers
        self.process.send_signal(how)
        code = self.process.wait(10)
        assert not psutil.wait_procs(workers, timeout=10)[1]
        return code
