"""How far a language model reads, from its configuration alone, and how long a game's conversation can get."""

from typing import TYPE_CHECKING

from rmft.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

WINDOWED, FULL = "sliding_attention", "full_attention"


def layer_windows(config: "PretrainedConfig") -> list[int | None]:
    """Return how many tokens each layer sees, its own included; None is all of them."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or [WINDOWED if window else FULL] * config.num_hidden_layers
    if strange := set(kinds) - {WINDOWED, FULL}:
        raise InputError(f"{config.model_type}: layers of type {strange.pop()} cannot be cached; attention layers can")
    return [window if kind == WINDOWED else None for kind in kinds]


def short_of_two(config: "PretrainedConfig") -> int | None:
    """Return the longest text for which LongRoPE (Phi-3.5) has its factors for short ones; None without LongRoPE."""
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None


def context_limit(config: "PretrainedConfig", context: int | None) -> int | None:
    """Return how many tokens a model can read: `context` if it is fewer, None if every layer slides along.

    Of a model with LongRoPE those for which it has one set of factors, unless `context` says that longer texts are
    meant, see `local.settle_rotation`.
    """
    most = config.get_text_config(decoder=True).max_position_embeddings
    short = short_of_two(config)
    if short is not None and (context is None or context <= short):
        most = short
    slides = all(window is not None and window < most for window in layer_windows(config))
    return min([limit for limit in (context, None if slides else most) if limit is not None], default=None)


def context_needed(limit: int | None, opening: int, rounds: int, feedback: int, max_tokens: int) -> int:
    """Return how many tokens a conversation can come to. Raise InputError if they are more than the limit.

    opening: tokens before the first reply. feedback: tokens between two replies. max_tokens: in a reply.
    """
    needed = opening + (rounds - 1) * feedback + rounds * (max_tokens + 1)
    if limit is not None and needed > limit:
        raise InputError(
            f"context: {rounds} rounds need up to {opening} (opening) + {rounds - 1} × {feedback} (feedback) + "
            f"{rounds} × ({max_tokens} + 1) (replies) = {needed} tokens; the model reads {limit}. "
            "Play fewer rounds, allow shorter replies or use interaction: summary"
        )
    return needed
