"""A language model made for tests of training: a random Qwen3 of two layers, one of them with a sliding window."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rmft.params.language_model import LanguageModelSettings

VOCABULARY = 40  # tokens: the numbers from 0


def write_tiny_model(folder: Path, context: int) -> LanguageModelSettings:
    """Write the model with its tokenizer into a folder. context: tokens of the longest conversation."""
    torch.manual_seed(1)
    Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=context,
            sliding_window=8,
            use_sliding_window=True,
            layer_types=["full_attention", "sliding_attention"],
            initializer_range=0.2,
            tie_word_embeddings=True,
        )
    ).save_pretrained(folder)
    words = Tokenizer(WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1").save_pretrained(folder)
    return LanguageModelSettings(kind="language", weights=str(folder), dtype="float32", device="cpu", batch=4)
