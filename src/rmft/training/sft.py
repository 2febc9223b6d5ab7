"""Algorithm `ssft-language-model`, last line: fine-tune θ_i on the selected dialogues, which gives θ_{i+1}.

TRL's SFTTrainer minimises the cross-entropy of the model's replies, all rounds of a dialogue in one pass. A
demonstration has `ids`, the tokens of a conversation as they were sampled, and `labels`, equal to the id where the
model sampled the token and NOT_LEARNT elsewhere. Nothing here renders, tokenises, truncates or packs: the input
is the tokens of the rollouts.

# ASSUME: a step's loss is the mean over the sampled tokens of its batch (the paper's sum, scaled), as in TRL.
"""

import json
import math
import os
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import peft
import pyarrow as pa
import torch
import transformers
from datasets import Dataset
from huggingface_hub import constants
from trl import SFTConfig, SFTTrainer

from rmft.agents.context import context_limit
from rmft.agents.weights import ADAPTER_CONFIG, load_pretrained, round_stochastically, with_weights
from rmft.artifacts.parquet import GROUP
from rmft.artifacts.tensors import read_tensors
from rmft.errors import InputError, first_line
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import LanguageSFT, LoRA
from rmft.params.language_model import LanguageModelSettings
from rmft.streams import Word, stream
from rmft.training.attention import within_window
from rmft.training.output_layer import learnt_positions_only

TENSORBOARD = "logs/tensorboard/"  # the folder of each training's log, where `report_to` names tensorboard


@dataclass(frozen=True)
class FineTuned:
    """θ_{i+1}, the content of one safetensors file, and the training log.

    A row of the log: step, epoch, loss (before the step), learning_rate, tokens (in this step, without padding),
    grad_norm (before clipping).
    """

    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]  # one key at most: safetensors writes several keys in random order
    log: list[dict[str, float]]


def fine_tune(
    demonstrations: Iterable[Mapping[str, Any]],
    base: LanguageModelSettings,
    start: Path | None,
    settings: LanguageSFT,
    seed: int,
    words: tuple[Word, ...] = (),
    on_step: Callable[[int, int, float], object] = lambda *_: None,
) -> FineTuned:
    """Fine-tune θ_i: `base` with the weights or the adapter in `start`; `base` itself where `start` is None.

    seed, words: the root seed and the words that name this training's random streams (experiment, iteration). The same
    arguments give the same bytes on the same machine. on_step: called with the step, the number of steps and the loss.
    """
    base = on_one_gpu(base)
    be_deterministic(base)
    seeds = [int(stream(seed, purpose, "sft", *words).integers(2**32)) for purpose in ("initialisation", "shuffle")]

    log = _Log("sft.learning_rate", on_step)
    with quiet_libraries(), tempfile.TemporaryDirectory() as folder:
        model, tokenizer = load_pretrained(base)
        data = conversations(demonstrations, context_limit(model.config, base.context), Path(folder))
        dtype = model.dtype
        torch.manual_seed(seeds[0])
        model = trainable(model, settings, start, base.device)
        config = SFTConfig(
            **trainer_arguments(settings, base, seeds, folder, "/".join(map(str, words))),
            max_length=None,  # the default truncates conversations to 1,024 tokens
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        with keep_precision(model):
            trainer = SFTTrainer(model, config, train_dataset=data, processing_class=tokenizer, callbacks=[log])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        weights = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else model.state_dict()
    return FineTuned(*to_write(model, weights, dtype, seed, words), log.rows)


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


def be_deterministic(model: LanguageModelSettings) -> None:
    """Make training reproducible to the byte: a given number of threads, and kernels that sum in a fixed order."""
    torch.set_num_threads(model.threads)
    if model.device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.utils.deterministic.fill_uninitialized_memory = False  # it would overwrite all allocated memory
        torch.use_deterministic_algorithms(True)  # with warn_only, attention would sum in any order


def trainable(
    model: transformers.PreTrainedModel, settings: LanguageSFT, start: Path | None, device: str
) -> transformers.PreTrainedModel | peft.PeftModel:
    """Return θ_i, ready to be trained on a device: the model with the weights or the adapter in `start`, if given."""
    learnt_positions_only()
    if settings.method == "lora":
        return with_adapter(within_window(model, device), settings.lora, start)
    # Trained in float32, because bfloat16 would round steps of 5e-5 away.
    return within_window((with_weights(model, start) if start else model).float(), device)


def conversations(demonstrations: Iterable[Mapping[str, Any]], context: int | None, folder: Path) -> Dataset:
    """Return the conversations as a data set in a file of `folder`, so that memory does not grow with M.

    Raise InputError for a conversation that cannot be trained on; none is truncated.
    """
    file, lines = folder / "conversations.arrow", enumerate(demonstrations, start=1)
    tokens = pa.list_(pa.int32())
    schema = pa.schema([("input_ids", tokens), ("labels", tokens)])
    with pa.ipc.new_stream(file, schema) as writer:
        while group := list(islice(lines, GROUP)):
            for line, one in group:
                check_conversation(line, one["ids"], one["labels"], context)
            columns = [one["ids"] for _, one in group], [one["labels"] for _, one in group]
            writer.write_table(pa.table(dict(zip(schema.names, columns, strict=True)), schema))
    data = Dataset.from_file(str(file))
    if not len(data):
        raise InputError("demonstrations: there are none; selection must keep at least one trajectory")
    return data


class TooLongError(InputError):
    """A demonstration is longer than the context. line: its number. sizes: its tokens beside those of the context."""

    def __init__(self, line: int, tokens: int, context: int) -> None:
        self.line, self.sizes = line, f"{tokens} tokens, the context {context}"
        advice = "take a shorter horizon T, summary interaction, or a model with a longer context"
        super().__init__(f"demonstrations: line {line} has {self.sizes}; {advice}")


def check_conversation(line: int, ids: Sequence[int], labels: Sequence[int], context: int | None) -> None:
    """Raise InputError for a conversation that exceeds the context, or whose labels are not sampled ids."""
    if context is not None and len(ids) > context:
        raise TooLongError(line, len(ids), context)
    learnt = [(token, label) for token, label in zip(ids, labels, strict=False) if label != NOT_LEARNT]
    if len(ids) != len(labels) or not learnt or any(token != label for token, label in learnt):
        raise InputError(f"demonstrations: line {line}: labels must be replied ids, else {NOT_LEARNT}")


def with_adapter(model: transformers.PreTrainedModel, lora: LoRA, start: Path | None) -> peft.PeftModel:
    """Return the model with a trainable adapter: that of θ_i, or a new one (A random, B = 0, so without effect).

    Raise InputError where the model cannot have such an adapter. On the embedding or the output layer it would be
    trained for one of the two, and merged into both where they share their weights.
    """
    if lora.dropout and any(weight.dim() == 3 for weight in model.parameters()):  # one weight holds all experts
        kind = model.config.model_type
        raise InputError(f"sft.lora.dropout: adapters on the experts of a {kind} have no dropout; set it to 0")
    target = lora.target if isinstance(lora.target, str) else list(lora.target)
    shape = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout, "target_modules": target}
    try:
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **shape))
    except ValueError as error:
        raise InputError(f"sft.lora.target: {first_line(error)}") from None
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(isinstance(module, peft.tuners.lora.LoraLayer) for module in ends):
        raise InputError("sft.lora.target: takes layers between the embedding and the output layer, not these two")
    if start:
        tensors, metadata = read_tensors(start)
        if metadata.get(ADAPTER_CONFIG) != _adapter_config(adapted):
            raise InputError(f"{start}: not an adapter that sft.lora describes; move it away and run again")
        peft.set_peft_model_state_dict(adapted, tensors)
    return adapted


@contextmanager
def keep_precision(model: torch.nn.Module) -> Iterator[None]:
    """Restore trainable weights after TRL's trainer has been constructed.

    TRL casts adapters beside quantised weights to bfloat16. They would then differ from the adapters of the rollouts,
    and small steps would be lost.
    """
    kept = [(weight, weight.data) for weight in model.parameters() if weight.requires_grad]
    yield
    for weight, data in kept:
        weight.data = data


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Turn off the libraries' progress bars, warnings about deprecated names, and telemetry."""
    constants.HF_HUB_DISABLE_TELEMETRY = True
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def trainer_arguments(
    settings: LanguageSFT, model: LanguageModelSettings, seeds: Sequence[int], folder: str, name: str = ""
) -> dict[str, Any]:
    """Return the arguments of all TRL trainers.

    seeds: of dropout, and of the order of conversations in each epoch. name: of the run, where `report_to` shows it.
    Raise InputError where what `report_to` names is not installed.
    """
    if settings.report_to:
        if find_spec(settings.report_to) is None:
            raise InputError(f"sft.report_to: {settings.report_to} is not installed: pip install {settings.report_to}")
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
        "router_aux_loss_coef": 0.0,  # TRL would add a load-balancing loss for mixtures of experts
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


class LogCallback(transformers.TrainerCallback, ABC):
    """The log of a training by one of TRL's trainers, which stops where the loss diverges.

    key: the parameter that would have to be lowered then. rows: a row for each step: the step, and what `row` gives.
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
        """Return the columns of a step, from what TRL logs."""


class _Log(LogCallback):
    def row(self, args: SFTConfig, state: transformers.TrainerState, logs: dict[str, float]) -> dict[str, float]:
        """Return the columns of `FineTuned`."""
        tokens = int(logs["num_tokens"]) - sum(row["tokens"] for row in self.rows)
        row = {name: logs[name] for name in ("epoch", "loss", "learning_rate")}
        return row | {"tokens": tokens, "grad_norm": logs["grad_norm"]}


def to_write(
    model: transformers.PreTrainedModel | peft.PeftModel,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    seed: int,
    words: Sequence[Word],
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return tensors and metadata to write: the adapter, or all weights in the base model's dtype, tied ones once.

    seed, words: the root seed and the words that name the random streams of this training and iteration.
    """
    if isinstance(model, peft.PeftModel):
        metadata = {ADAPTER_CONFIG: _adapter_config(model)}
        tensors = peft.get_peft_model_state_dict(model, weights, save_embedding_layers=False)
    else:
        metadata = {"format": "pt"}
        own = (name for name in weights if name not in model.all_tied_weights_keys)
        tensors = {name: round_stochastically(weights[name], dtype, seed, *words, name) for name in own}
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, metadata


def _adapter_config(model: peft.PeftModel) -> str:
    """Return the adapter's configuration as JSON, without entries that differ between machines."""
    config = model.peft_config["default"].to_dict() | {"base_model_name_or_path": None, "peft_version": None}
    return json.dumps({key: sorted(value) if isinstance(value, set) else value for key, value in config.items()})
