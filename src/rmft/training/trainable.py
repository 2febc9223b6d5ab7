"""Weights that learn: a model made ready for training, whole or with an adapter, and what is written of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import peft
import torch
import transformers

from rmft.agents.weights import ADAPTER_CONFIG, load_adapter, round_stochastically, with_weights
from rmft.artifacts.tensors import read_tensors
from rmft.errors import InputError, first_line
from rmft.params.language import LanguageSFT, LoRA
from rmft.streams import Word
from rmft.training.attention import within_window
from rmft.training.output_layer import learnt_positions_only


def trainable(
    model: transformers.PreTrainedModel, settings: LanguageSFT, start: Path | None, device: str
) -> transformers.PreTrainedModel | peft.PeftModel:
    """Return θ_i, ready to be trained on a device: the model with the weights or the adapter in `start`, if given."""
    learnt_positions_only()
    if settings.method == "lora":
        return with_adapter(within_window(model, device), settings.lora, start)
    # Trained in float32, because bfloat16 would round steps of 5e-5 away.
    return within_window((with_weights(model, start) if start else model).float(), device)


def with_adapter(model: transformers.PreTrainedModel, lora: LoRA, start: Path | None) -> peft.PeftModel:
    """Return the model with a trainable adapter: that of θ_i, or a new one (A random, B = 0, so without effect).

    Raise InputError where the model cannot have such an adapter. On the embedding or the output layer it would be
    trained for one of the two, and merged into both where they share their weights.
    """
    if lora.dropout and any(weight.dim() == 3 for weight in model.parameters()):  # one weight holds all experts
        kind = model.config.model_type
        raise InputError(f"lora.dropout: adapters on the experts of a {kind} have no dropout; set it to 0")
    target = lora.target if isinstance(lora.target, str) else list(lora.target)
    shape = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout, "target_modules": target}
    try:
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **shape))
    except ValueError as error:
        raise InputError(f"lora.target: {first_line(error)}") from None
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if any(isinstance(module, peft.tuners.lora.LoraLayer) for module in ends):
        raise InputError("lora.target: takes layers between the embedding and the output layer, not these two")
    if start:
        tensors, metadata = read_tensors(start)
        if metadata.get(ADAPTER_CONFIG) != _adapter_config(adapted):
            raise InputError(f"{start}: not an adapter that the section lora describes; move it away and run again")
        load_adapter(adapted, tensors, start)
    return adapted


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
