"""What a large language model needs of memory: one line before it loads."""

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from rmft.agents.cache import size_of
from rmft.agents.checkpoint import checkpoint
from rmft.agents.context import heads_of
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings

LARGE = 100_000_000  # parameters


def shape_of(settings: LanguageModelSettings) -> tuple[PretrainedConfig, int]:
    """Return the configuration of a model, and the number of its parameters, without loading them."""
    with checkpoint(settings) as origin:
        config = AutoConfig.from_pretrained(settings.folder, **origin)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except ValueError:
        raise InputError(f"{settings.folder}: a {config.model_type} is no causal language model") from None
    return config, model.num_parameters()


def is_large(settings: LanguageModelSettings) -> bool:
    """Return whether a model is so large that a user should know what it needs."""
    return shape_of(settings)[1] >= LARGE


def say_memory(settings: LanguageModelSettings, parts: dict[str, float]) -> None:
    """Print what a job needs of memory. parts: bytes by what they are for."""
    listed = ", ".join(f"{what} {size / 1e9:.1f}" for what, size in parts.items())
    print(f"{settings.folder}: needs about {sum(parts.values()) / 1e9:.1f} GB: {listed}", file=sys.stderr, flush=True)


def weights_bytes(settings: LanguageModelSettings, parameters: int) -> float:
    """Return the bytes of a model's weights in memory."""
    return parameters * (0.55 if settings.quantised else getattr(torch, settings.dtype).itemsize)


def say_memory_to_play(settings: LanguageModelSettings, capacity: int, max_tokens: int) -> None:
    """Print what games in process need of memory. capacity, max_tokens: see `local.LocalChatModel`."""
    config, parameters = shape_of(settings)
    each = size_of(config, capacity, max_tokens, getattr(torch, settings.dtype).itemsize)
    # On a GPU with less memory, fewer games are played at a time.
    games = f"{'up to ' * settings.device.startswith('cuda')}{settings.batch} games of {capacity} tokens"
    say_memory(settings, {"weights": weights_bytes(settings, parameters), games: settings.batch * each})


def say_memory_to_play_gguf(settings: LanguageModelSettings, gguf: Path, capacity: int) -> None:
    """Print what games in llama.cpp need of memory. capacity: tokens of a game."""
    config = shape_of(settings)[0].get_text_config(decoder=True)
    heads, pairs = heads_of(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    each = 4 * config.num_hidden_layers * pairs * head * capacity  # keys, values in half precision
    games = f"{settings.batch} games of {capacity} tokens"
    say_memory(settings, {"weights": gguf.stat().st_size, games: settings.batch * each})
