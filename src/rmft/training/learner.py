"""A language model that learns in this process by one of TRL's trainers: what SFT, GRPO and extensions share."""

import logging
import math
import os
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import peft
import torch
import transformers
from huggingface_hub import constants

from rmft.agents.context import context_limit
from rmft.agents.weights import load_pretrained
from rmft.errors import InputError
from rmft.params.language import LanguageSFT
from rmft.params.language_model import LanguageModelSettings
from rmft.streams import Word, stream
from rmft.training.trainable import to_write, trainable

TENSORBOARD = "logs/tensorboard/"  # the folder of each training's log, where `report_to` names tensorboard


@dataclass(frozen=True)
class FineTuned:
    """θ_{i+1}, the content of one safetensors file, and the training log, a row for each step."""

    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]  # one key at most: safetensors writes several keys in random order
    log: list[dict[str, float]]


class LogCallback(transformers.TrainerCallback, ABC):
    """The log of a training by one of TRL's trainers, which stops where the loss diverges.

    key: the parameter that would have to be lowered then. on_step: called with the step, the number of steps and the
    loss. rows: a row each time that the trainer logs: the step, and what `row` gives.
    """

    def __init__(self, key: str, on_step: Callable[[int, int, float], object]) -> None:
        self.key, self.on_step, self.rows = key, on_step, []

    def on_log(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        *_: object,
        logs: dict[str, float],
        **__: object,
    ) -> None:
        """Add a row. Raise InputError where the loss diverges."""
        if "loss" not in logs:  # the summary at the end
            return
        step = state.global_step
        if not math.isfinite(logs["grad_norm"]):  # for a NaN loss the trainer logs the mean of earlier losses
            raise InputError(f"{self.key}: at {args.learning_rate} the loss diverges in step {step}; lower it")
        self.rows.append({"step": step} | self.row(args, state, logs))
        self.on_step(step, state.max_steps, logs["loss"])

    @abstractmethod
    def row(
        self, args: transformers.TrainingArguments, state: transformers.TrainerState, logs: dict[str, float]
    ) -> dict[str, float]:
        """Return the columns of a step, from what TRL logs; the same columns for all steps."""


@dataclass(frozen=True)
class Learner:
    """The model that played (θ_i), ready to be trained once by one of TRL's trainers.

    ```python
    with Learner.of(job.model, start, job.sft, "my-method", job.seed, (job.stream,)) as learner:
        config = KTOConfig(**learner.arguments, max_length=None)  # the default cuts conversations to 1,024 tokens
        return learner.train(KTOTrainer, config, log, train_dataset=data)
    ```

    model: with the adapter that learns, or in float32 where all weights learn. context: how many tokens it can read,
    None for no limit. arguments: those of every configuration of TRL or transformers. folder: for files that training
    alone needs, deleted with the block. seed, words: name the random streams. dtype: of the base model.
    """

    model: transformers.PreTrainedModel | peft.PeftModel
    tokenizer: transformers.PreTrainedTokenizerBase
    context: int | None
    arguments: dict[str, Any]
    folder: Path
    seed: int
    words: tuple[Word, ...]
    dtype: torch.dtype

    @classmethod
    @contextmanager
    def of(
        cls,
        base: LanguageModelSettings,
        start: Path | None,
        settings: LanguageSFT,
        method: str,
        seed: int,
        words: tuple[Word, ...],
    ) -> Iterator[Self]:
        """Load the model that played, for a `with` block, once in a process.

        base, start: the base model, with the weights or the adapter in `start`; itself where `start` is None. settings:
        the steps. method, seed, words: the name of the method, the root seed and e.g. `(job.stream,)` name the random
        streams. Threads, visible GPUs and determinism stay set after the block.

        Raise InputError where the model, its adapter, its device or the tracker of `settings.report_to` is not there.
        """
        base = on_one_gpu(base)
        _be_deterministic(base)
        seeds = [int(stream(seed, use, method, *words).integers(2**32)) for use in ("initialisation", "shuffle")]
        with _quiet_libraries(), tempfile.TemporaryDirectory() as folder:
            model, tokenizer = load_pretrained(base)
            context, dtype = context_limit(model.config, base.context), model.dtype
            if hasattr(text := model.config.get_text_config(), "router_aux_loss_coef"):
                text.router_aux_loss_coef = 0.0  # TRL would add a load-balancing loss for mixtures of experts
            torch.manual_seed(seeds[0])
            model = trainable(model, settings, start, base.device)
            arguments = _arguments(settings, base, seeds, folder, "/".join(map(str, words)))
            yield cls(model, tokenizer, context, arguments, Path(folder), seed, words, dtype)

    def refuse_longer(self, conversations: Iterable[Sequence[int]], where: str) -> None:
        """Raise InputError where a conversation does not fit into the context; nothing is ever cut.

        where: what the message begins with.
        """
        longest = max(map(len, conversations))
        if self.context is not None and longest > self.context:
            has = f"a conversation has {longest} tokens, the context {self.context}"
            raise InputError(f"{where}: {has}; play fewer rounds")

    def train(
        self,
        trainer_class: type[transformers.Trainer],
        config: transformers.TrainingArguments,
        log: LogCallback,
        **options: object,
    ) -> FineTuned:
        """Train with one of TRL's trainers; return what is to be written.

        log: a new one. options: what the trainer takes besides model, args, processing_class and callbacks. Where all
        weights learn, TRL takes the base model for a reference model; pass a copy of `model` as `ref_model` where the
        model that played is meant. Raise InputError where the loss diverges.
        """
        with _keep_precision(self.model):
            trainer = trainer_class(
                model=self.model, args=config, processing_class=self.tokenizer, callbacks=[log], **options
            )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        sharded = trainer.is_fsdp_enabled
        weights = trainer.accelerator.get_state_dict(trainer.model) if sharded else self.model.state_dict()
        return FineTuned(*to_write(self.model, weights, self.dtype, self.seed, self.words), log.rows)


def on_one_gpu(model: LanguageModelSettings) -> LanguageModelSettings:
    """Hide all other GPUs from a process that trains alone; return the model's settings with the device left.

    A trainer of transformers multiplies its batch size by the number of visible GPUs.
    """
    if not model.device.startswith("cuda") or "LOCAL_RANK" in os.environ:  # which torchrun sets
        return model
    kind, _, index = model.device.partition(":")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if visible and int(index or 0) >= len(visible):
        count = f"CUDA_VISIBLE_DEVICES lists {len(visible)} GPU{'s' if len(visible) > 1 else ''}"
        raise InputError(f"models: device: {model.device}: no such GPU; {count}, numbered from 0")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(index or 0)] if visible else index or "0"
    return model.model_copy(update={"device": kind})


def _be_deterministic(model: LanguageModelSettings) -> None:
    """Make training reproducible to the byte: a given number of threads, and kernels that sum in a fixed order."""
    torch.set_num_threads(model.threads)
    if model.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.utils.deterministic.fill_uninitialized_memory = False  # it would overwrite all allocated memory
        torch.use_deterministic_algorithms(True)  # with warn_only, attention would sum in any order


@contextmanager
def _keep_precision(model: torch.nn.Module) -> Iterator[None]:
    """Restore trainable weights after TRL's trainer has been constructed.

    TRL casts adapters beside quantised weights to bfloat16. They would then differ from the adapters of the rollouts,
    and small steps would be lost.
    """
    kept = [(weight, weight.data) for weight in model.parameters() if weight.requires_grad]
    yield
    for weight, data in kept:
        weight.data = data


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Turn off the libraries' progress bars, warnings about deprecated names and unused arguments, and telemetry."""
    constants.HF_HUB_DISABLE_TELEMETRY = True
    transformers.logging.disable_progress_bar()
    logging.getLogger("trl").setLevel(logging.ERROR)  # it says that the revision of GRPO's reference is ignored
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _arguments(
    settings: LanguageSFT, model: LanguageModelSettings, seeds: Sequence[int], folder: str, name: str
) -> dict[str, Any]:
    """Return the arguments of all TRL trainers.

    seeds: of dropout, and of the order of conversations in each epoch. name: of the run, where `report_to` shows it.
    Raise InputError where what `report_to` names is not installed.
    """
    if settings.report_to:
        if find_spec(settings.report_to) is None:
            raise InputError(f"report_to: {settings.report_to} is not installed: pip install {settings.report_to}")
        if os.environ.get("TENSORBOARD_LOGGING_DIR", TENSORBOARD).startswith(TENSORBOARD):  # not the user's own
            os.environ["TENSORBOARD_LOGGING_DIR"] = f"{TENSORBOARD}{name}"
        os.environ.setdefault("WANDB_PROJECT", "rmft")
    return {
        "learning_rate": settings.learning_rate,
        "per_device_train_batch_size": settings.batch_size // settings.accumulation // settings.processes,
        "gradient_accumulation_steps": settings.accumulation,
        "num_train_epochs": settings.epochs,
        "lr_scheduler_type": "constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "adam_beta1": settings.betas[0],
        "adam_beta2": settings.betas[1],
        "adam_epsilon": settings.epsilon,
        "max_grad_norm": settings.max_grad_norm,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "bf16": model.device.startswith("cuda") and model.dtype != "float32",
        "use_cpu": model.device == "cpu",
        "fsdp": settings.processes > 1 and settings.method == "full",
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": model.device != "cpu",
        "seed": seeds[0],
        "data_seed": seeds[1],
        "logging_steps": 1,
        "output_dir": folder,
        "save_strategy": "no",
        "report_to": settings.report_to or "none",
        "run_name": name or None,
        "project": "rmft",
        "disable_tqdm": True,
        "log_level": "error",
    }
