"""The embedded model's tokenizer and architecture: a tiny Qwen3 whose cache does not grow with the number of rounds."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from rmft.embedded_model.corpus import STYLES, Corpus, MadeUpScenarios
from rmft.language.prompts import Prompts
from rmft.language.protocol import Scenario
from rmft.params.language_model import Coverage
from rmft.streams import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3Config

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}" + USER + "{{ message.content }}"
    "{%- else -%}" + ASSISTANT + "{{ message.content }}" + END + "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}" + ASSISTANT + "{%- endif -%}"
)
# The variable parts of a game are split into tokens of one meaning each: a score with its action, a number's integer
# part, its decimals. A reply then consists of local steps, which a tiny model can learn.
VARIABLES = [
    *(f" {action}={score}" for action in range(1, 6) for score in range(10)),
    *(f"{action} paid " for action in range(1, 6)),
    *(f" {action} goes from " for action in range(1, 6)),
    *(f" {action}: **" for action in range(1, 6)),
    *(str(number) for number in range(101)),
    *(f".{number:02d}" for number in range(100)),
]
VARIABLE = re.compile("|".join(re.escape(text) for text in sorted(VARIABLES, key=len, reverse=True)))
NAME = "\x00"  # in place of the words of a scenario


class BlankScenarios(MadeUpScenarios):
    """Scenarios without words, so that the texts of games hold only what all games have in common."""

    def scenario(self, d: int) -> Scenario:
        """Return a scenario of d actions whose names are all NAME."""
        return Scenario(NAME, (NAME,) * d)


def fixed_spans(seed: int, coverage: Coverage, prompts: Prompts, games: int = 3000) -> list[str]:
    """Return the pieces of text that games of the corpus have in common; each becomes one token."""
    rng = stream(seed, "environment", "spans")
    corpus = Corpus(seed, rng, coverage, prompts, BlankScenarios(rng))
    texts = (text for _ in range(games) for turn in corpus.game(3, STYLES) for text in (turn.message, turn.reply))
    counts = Counter(span for text in texts for piece in text.split(NAME) for span in VARIABLE.split(piece))
    return sorted(span for span, count in counts.items() if len(span) > 1 and count >= 5)


def build_tokenizer(seed: int, coverage: Coverage, prompts: Prompts, merges: int = 250) -> "PreTrainedTokenizerFast":
    """Return the tokenizer: fixed spans and variables as single tokens, byte-level BPE for all other text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made_up = MadeUpScenarios(stream(seed, "environment", "names"))
    scenarios = [made_up.scenario(4) for _ in range(2000)]
    words = (text for scenario in scenarios for text in (scenario.text, *scenario.names))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in (PAD, USER, ASSISTANT, END)])
    known = set(tokenizer.get_vocab())
    added = [text for text in dict.fromkeys([*VARIABLES, *fixed_spans(seed, coverage, prompts)]) if text not in known]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = TEMPLATE
    return fast


def architecture(vocabulary: int, end: int | None, pad: int | None) -> "Qwen3Config":
    """Return the configuration. Every layer has a sliding window of 192 tokens, which holds the last rounds.

    end: token that ends a reply; with None, none does.
    """
    from transformers import Qwen3Config

    layers = 2
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=160,
        intermediate_size=640,
        num_hidden_layers=layers,
        num_attention_heads=5,
        num_key_value_heads=5,
        head_dim=32,
        max_position_embeddings=65536,
        use_sliding_window=True,
        sliding_window=192,
        layer_types=["sliding_attention"] * layers,
        tie_word_embeddings=True,
        initializer_range=0.03,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
    )
