"""Pre-training of the embedded model on its corpus, on a CPU in an hour.

Symbols: B rows a step, N tokens a row.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from transformers import Qwen3ForCausalLM

from rmft.embedded_model.corpus import STYLES, Corpus, MadeUpScenarios, Shares
from rmft.embedded_model.muon import Muon
from rmft.embedded_model.tokenizer import ASSISTANT, END, USER, architecture
from rmft.language.prompts import Prompts
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language_model import Coverage, Pretraining
from rmft.streams import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SKILLED: Shares = {  # the mixture that training begins with: mostly tallies, which are hardest to learn
    ("dialogue", "action"): {"random": 0.10, "turn": 0.10, "recent": 0.15, "tally": 0.65},
    ("dialogue", "distribution"): {"even": 0.10, "mild": 0.20, "recent": 0.15, "tally": 0.55},
    ("summary", "action"): STYLES["summary", "action"],
    ("summary", "distribution"): STYLES["summary", "distribution"],
}


def learning_rate(settings: Pretraining, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine decay to a hundredth."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / (settings.steps - settings.warmup_steps)
    return settings.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


class PackedGames:
    """Training rows of N tokens: whole games, one after the other, with labels on the replies to learn."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", corpus: Corpus, length: int) -> None:
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.length = length
        self.left: tuple[list[int], list[int]] | None = None

    def batch(self, rows: int, shares: Shares) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and labels (rows, N). Each game goes into the first row with room, until one fits in no row."""
        ids, labels = [[] for _ in range(rows)], [[] for _ in range(rows)]
        game = self.left or self._game(shares)
        while (row := next((r for r in range(rows) if len(ids[r]) + len(game[0]) <= self.length), None)) is not None:
            ids[row] += game[0]
            labels[row] += game[1]
            game = self._game(shares)
        self.left = game
        padding = self.tokenizer.pad_token_id
        return self._padded(ids, padding), self._padded(labels, NOT_LEARNT)

    def _padded(self, rows: list[list[int]], padding: int) -> torch.Tensor:
        return torch.tensor([row + [padding] * (self.length - len(row)) for row in rows])

    def _game(self, shares: Shares) -> tuple[list[int], list[int]]:
        """Return ids and labels of a game, at most N of each."""
        turns = self.corpus.game(int(self.corpus.rng.integers(2, 9)), shares)
        texts = [text for turn in turns for text in (USER + turn.message + ASSISTANT, turn.reply + END)]
        pieces = [piece.ids for piece in self.tokenizer.backend_tokenizer.encode_batch_fast(texts)]
        ids, labels = [], []
        for turn, prompt, reply in zip(turns, pieces[::2], pieces[1::2], strict=True):
            prompt = prompt[-(self.length - len(reply)) :]  # the end of a summary that is too long for a row
            if len(ids) + len(prompt) + len(reply) > self.length:
                break
            ids += prompt + reply
            labels += [NOT_LEARNT] * len(prompt) + (reply if turn.learnt else [NOT_LEARNT] * len(reply))
        return ids, labels


def pretrain(
    seed: int,
    settings: Pretraining,
    coverage: Coverage,
    prompts: Prompts,
    tokenizer: "PreTrainedTokenizerFast",
    on_step: Callable[[int, int, float], object] = lambda *_: None,
) -> Qwen3ForCausalLM:
    """Return a model, pre-trained on a corpus of that coverage.

    on_step: called with the step from 1, the number of steps, and the step's loss.
    """
    torch.set_num_threads(settings.threads)
    rng = stream(seed, "environment", "corpus")
    packed = PackedGames(tokenizer, Corpus(seed, rng, coverage, prompts, MadeUpScenarios(rng)), settings.tokens)
    torch.manual_seed(int(stream(seed, "initialisation", "embedded").integers(2**31)))
    end, pad = (tokenizer.convert_tokens_to_ids(token) for token in (END, tokenizer.pad_token))
    model = Qwen3ForCausalLM(architecture(len(tokenizer), end, pad))
    optimizers = _optimizers(model)
    for step in range(settings.steps):
        shares = STYLES if step >= (1 - settings.settle) * settings.steps else SKILLED
        ids, labels = packed.batch(settings.rows, shares)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(settings, step)
            optimizer.step()
            optimizer.zero_grad()
        on_step(step + 1, settings.steps, loss.item())
    # So small a model leaves some probability to tokens that make no sense. Steeper logits remove it, and hardly change
    # choices between equally likely tokens.
    model.model.norm.weight.data *= settings.sharpen
    return model


def _optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices, which halves the number of steps needed, and AdamW for the rest."""
    matrices = [weights for name, weights in model.named_parameters() if weights.ndim == 2 and "layers" in name]
    others = [weights for name, weights in model.named_parameters() if weights.ndim != 2 or "layers" not in name]
    rest = torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    return [Muon(matrices, weight_decay=0.01), rest]
