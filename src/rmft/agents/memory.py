"""What a large language model needs of memory: one line before it loads."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from rmft.agents.cache import size_of
from rmft.agents.checkpoint import checkpoint
from rmft.agents.context import check_in_process
from rmft.agents.model_shapes import bytes_of_weights, shape_of_gguf
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings

LARGE = 100_000_000  # parameters


@dataclass(frozen=True)
class ModelSize:
    """A model that is not loaded yet. parameters: their number. linear: how many of them nf4 quantises."""

    config: PretrainedConfig
    parameters: int
    linear: int

    @property
    def is_large(self) -> bool:
        """Return whether a user should know what the model needs before it loads."""
        return self.parameters >= LARGE


def size_of_model(settings: LanguageModelSettings) -> ModelSize:
    """Return the size of a model without loading its weights."""
    with checkpoint(settings) as origin:
        config = AutoConfig.from_pretrained(settings.folder, **origin)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except ValueError:
        raise InputError(f"{settings.folder}: a {config.model_type} is no causal language model") from None
    # Not the output layer, nor experts: they are no linear layers in transformers.
    linear = {id(module): module for module in model.modules() if type(module) is torch.nn.Linear}
    linear.pop(id(model.get_output_embeddings()), None)
    return ModelSize(config, model.num_parameters(), sum(module.weight.numel() for module in linear.values()))


def say_memory(settings: LanguageModelSettings, parts: dict[str, float]) -> None:
    """Print what a job needs of memory. parts: bytes by what they are for."""
    listed = ", ".join(f"{what} {size / 1e9:.1f}" for what, size in parts.items())
    print(f"{settings.folder}: needs about {sum(parts.values()) / 1e9:.1f} GB: {listed}", file=sys.stderr, flush=True)


def say_memory_to_play(settings: LanguageModelSettings, size: ModelSize, capacity: int, max_tokens: int) -> None:
    """Print what games in process need of memory. capacity, max_tokens: see `local.LocalChatModel`."""
    check_in_process(size.config)
    each = size_of(size.config, capacity, max_tokens, getattr(torch, settings.dtype).itemsize)
    # On a GPU with less memory, fewer games are played at a time.
    games = f"{'up to ' * settings.device.startswith('cuda')}{settings.batch} games of {capacity} tokens"
    weights = bytes_of_weights(settings, size.parameters, size.linear)
    say_memory(settings, {"weights": weights, games: settings.batch * each})


def say_memory_to_play_gguf(settings: LanguageModelSettings, gguf: Path, capacity: int) -> None:
    """Print what games in llama.cpp need of memory. capacity: tokens of a game."""
    each = shape_of_gguf(gguf).state_bytes(capacity)
    games = f"{settings.batch} games of {capacity} tokens"
    say_memory(settings, {"weights": gguf.stat().st_size, games: settings.batch * each})
