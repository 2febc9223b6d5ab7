"""How many tokens a language model can read, from its configuration, and how many a game's conversation needs."""

from typing import TYPE_CHECKING

from rmft.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

NOT_IN_PROCESS = "its kind of attention is not computed in process; play it with vLLM, llama.cpp or another endpoint"
WINDOWED, FULL = "sliding_attention", "full_attention"


def layer_windows(config: "PretrainedConfig") -> list[int | None]:
    """Return for each layer how many tokens a token attends to, itself included; None for all, or no known number."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or [WINDOWED if window else FULL] * config.num_hidden_layers
    return [window if kind == WINDOWED else None for kind in kinds]


def heads_of(config: "PretrainedConfig") -> tuple[int, int]:
    """Return how many heads have queries, and how many have keys."""
    config = config.get_text_config(decoder=True)
    return config.num_attention_heads, config.num_key_value_heads


def check_in_process(config: "PretrainedConfig") -> None:
    """Raise InputError for a model with layers or heads that `cache.SlotCache` does not hold."""
    config = config.get_text_config(decoder=True)
    of_each_layer = getattr(config, "is_heterogeneous", False)  # then reading the number of heads is an error
    others = set(getattr(config, "layer_types", None) or []) - {WINDOWED, FULL}
    compressed = getattr(config, "kv_lora_rank", None)
    if of_each_layer or others or compressed or not hasattr(config, "num_key_value_heads"):
        raise InputError(f"{config.model_type}: {NOT_IN_PROCESS}")


def short_context(config: "PretrainedConfig") -> int | None:
    """Return up to which length LongRoPE (Phi-3.5) uses its factors for short texts; None without LongRoPE."""
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None


def context_limit(config: "PretrainedConfig", context: int | None) -> int | None:
    """Return how many tokens a conversation may have: at most `context`; None where every layer has a sliding window.

    With LongRoPE the limit is the length of short texts, unless `context` is longer: see `weights.fix_rotary_factors`.
    """
    most = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)  # none with ALiBi
    short = short_context(config)
    if short is not None and (context is None or context <= short):
        most = short
    slides = all(window is not None and (most is None or window < most) for window in layer_windows(config))
    return min([limit for limit in (context, None if slides else most) if limit is not None], default=None)


def context_needed(limit: int | None, opening: int, rounds: int, feedback: int, max_tokens: int) -> int:
    """Return how many tokens a conversation may come to. Raise InputError if that exceeds the limit.

    opening: tokens before the first completion. feedback: tokens between two completions. max_tokens: of a completion.
    """
    needed = opening + (rounds - 1) * feedback + rounds * (max_tokens + 1)
    if limit is not None and needed > limit:
        raise InputError(
            f"context: {rounds} rounds need up to {opening} (opening) + {rounds - 1} × {feedback} (feedback) + "
            f"{rounds} × ({max_tokens} + 1) (replies) = {needed} tokens; the model reads {limit}. "
            "Play fewer rounds, allow shorter replies or use interaction: summary"
        )
    return needed
