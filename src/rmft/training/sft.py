"""Algorithm `ssft-language-model`, its last line: fine-tune θ_i on the selected dialogues, which gives θ_{i+1}.

TRL's SFTTrainer minimises the cross-entropy of what the model replied, all rounds of a dialogue in one pass. A
demonstration has `ids`, a conversation's tokens as they were sampled, and `labels`, the same id where the model replied
and NOT_LEARNT elsewhere. Nothing here renders, tokenises, cuts, packs or joins them: training reads what rollouts
wrote.

# ASSUME: a step's loss is the mean over the replied tokens of its batch (the paper's sum, scaled), as TRL has it.
"""

import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from datasets import Dataset
from huggingface_hub import constants
from trl import SFTConfig, SFTTrainer

from rmft.agents.local import ADAPTER_CONFIG, context_limit, load_pretrained, with_weights
from rmft.artifacts import read_tensors
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import LanguageModelSettings, LanguageSFT, LoRA
from rmft.streams import Word, stream


@dataclass(frozen=True)
class FineTuned:
    """θ_{i+1}, to be written as one safetensors file, and the log.

    A row of the log: step, epoch, loss (before the step), learning_rate, tokens (read in this step, without padding),
    grad_norm (before clipping).
    """

    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]  # a single key: safetensors writes several in an order that changes from run to run
    log: list[dict[str, float]]


def fine_tune(
    demonstrations: Sequence[Mapping[str, Any]],
    base: LanguageModelSettings,
    start: Path | None,
    settings: LanguageSFT,
    seed: int,
    words: tuple[Word, ...] = (),
    on_step: Callable[[int, int, float], object] = lambda *_: None,
) -> FineTuned:
    """Fine-tune θ_i: `base` with the weights or the adapter in `start`, or `base` itself where that is None.

    seed, words: the root seed, and what tells this training's random streams from others' (experiment, iteration). The
    same arguments give the same bytes on the same machine. on_step is told (step, of how many, its loss).
    """
    same_every_time(base.device)
    seeds = [int(stream(seed, purpose, "sft", *words).integers(2**32)) for purpose in ("initialisation", "shuffle")]

    data = Dataset.from_list([{"input_ids": line["ids"], "labels": line["labels"]} for line in demonstrations])
    log = _Log(on_step)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        model, tokenizer = load_pretrained(base)
        check(demonstrations, context_limit(model, base.context))
        dtype = model.dtype
        torch.manual_seed(seeds[0])
        model = trainable(model, settings, start)
        config = SFTConfig(
            **arguments(settings, base.device, seeds, folder),
            max_length=None,  # by default conversations are cut to 1,024 tokens
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        trainer = SFTTrainer(model, config, train_dataset=data, processing_class=tokenizer, callbacks=[log])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return FineTuned(*to_write(model, dtype), log.rows)


def same_every_time(device: str) -> None:
    """Have the same training give the same bytes: one thread, and kernels that add up in one order."""
    torch.set_num_threads(1)
    if device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def trainable(
    model: transformers.PreTrainedModel, settings: LanguageSFT, start: Path | None
) -> transformers.PreTrainedModel | peft.PeftModel:
    """Return θ_i, ready to be trained: the model with the weights or the adapter in `start`, if there are any."""
    if settings.method == "lora":
        return with_adapter(model, settings.lora, start)
    # In float32 while they are trained: bfloat16 rounds steps of 5e-5 away.
    return (with_weights(model, start) if start else model).float()


def check(demonstrations: Sequence[Mapping[str, Any]], context: int | None) -> None:
    """Refuse what cannot be trained on as it is; nothing is ever cut."""
    if not demonstrations:
        raise InputError("demonstrations: there are none; selection must keep at least one trajectory")
    for line, (ids, labels) in enumerate(((item["ids"], item["labels"]) for item in demonstrations), start=1):
        if context is not None and len(ids) > context:
            advice = "take a shorter horizon T, summary interaction, or a model with a longer context"
            raise InputError(f"demonstrations: line {line} has {len(ids)} tokens, the context {context}; {advice}")
        replied = [(token, label) for token, label in zip(ids, labels, strict=False) if label != NOT_LEARNT]
        if len(ids) != len(labels) or not replied or any(token != label for token, label in replied):
            raise InputError(f"demonstrations: line {line}: labels must be replied ids, else {NOT_LEARNT}")


def with_adapter(model: transformers.PreTrainedModel, lora: LoRA, start: Path | None) -> peft.PeftModel:
    """Put a trainable adapter on the model: that of θ_i, or a fresh one (A random, B = 0, so nothing changes yet)."""
    target = lora.target if isinstance(lora.target, str) else list(lora.target)
    shape = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout, "target_modules": target}
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **shape))
    if start:
        tensors, metadata = read_tensors(start)
        if metadata.get(ADAPTER_CONFIG) != _adapter_config(adapted):
            raise InputError(f"{start}: not an adapter that sft.lora describes; delete it and fine-tune from the start")
        peft.set_peft_model_state_dict(adapted, tensors)
    return adapted


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries from showing bars, warning of each other's old names, and reporting to their makers."""
    constants.HF_HUB_DISABLE_TELEMETRY = True
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def arguments(settings: LanguageSFT, device: str, seeds: Sequence[int], folder: str) -> dict[str, Any]:
    """Return what every trainer of TRL is told. seeds: of dropout, and of the order, another one in every epoch."""
    return {
        "learning_rate": settings.learning_rate,
        "per_device_train_batch_size": settings.batch_size // settings.accumulation,
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
        "bf16": device.startswith("cuda"),
        "use_cpu": device == "cpu",
        "dataloader_pin_memory": device != "cpu",
        "seed": seeds[0],
        "data_seed": seeds[1],
        "logging_steps": 1,
        "output_dir": folder,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "log_level": "error",
    }


class _Log(transformers.TrainerCallback):
    def __init__(self, on_step: Callable[[int, int, float], object]) -> None:
        self.on_step, self.rows = on_step, []

    def on_log(
        self, args: SFTConfig, state: transformers.TrainerState, *_: object, logs: dict[str, float], **__: object
    ) -> None:
        if "loss" not in logs:  # the summary at the end
            return
        step, loss = state.global_step, logs["loss"]
        if not math.isfinite(logs["grad_norm"]):  # a loss of NaN the trainer would log as the mean of those before it
            raise InputError(f"sft.learning_rate: at {args.learning_rate} the loss diverges in step {step}; lower it")
        row = {"step": step} | {name: logs[name] for name in ("epoch", "loss", "learning_rate")}
        tokens = int(logs["num_tokens"]) - sum(row["tokens"] for row in self.rows)
        self.rows.append(row | {"tokens": tokens, "grad_norm": logs["grad_norm"]})
        self.on_step(step, state.max_steps, loss)


def to_write(
    model: transformers.PreTrainedModel | peft.PeftModel, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return tensors and metadata: the adapter, or all weights in the base model's dtype, tied ones once."""
    if isinstance(model, peft.PeftModel):
        metadata = {ADAPTER_CONFIG: _adapter_config(model)}
        tensors = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    else:
        metadata, weights = {"format": "pt"}, model.state_dict()
        tensors = {name: weights[name].to(dtype) for name in weights if name not in model.all_tied_weights_keys}
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, metadata


def _adapter_config(model: peft.PeftModel) -> str:
    """Return the adapter's configuration as JSON, without what changes from machine to machine."""
    config = model.peft_config["default"].to_dict() | {"base_model_name_or_path": None, "peft_version": None}
    return json.dumps({key: sorted(value) if isinstance(value, set) else value for key, value in config.items()})
