"""Language models in process: many conversations in lock-step, sampled with given random numbers.

Symbols: B conversations, n of them addressed, q tokens fed to each at once, V vocabulary, d actions.

A round feeds each conversation its message in one pass and then decodes token by token until all completions have
ended. No token is fed twice, so a round costs the same whenever it is played (up to the cache that attention reads),
and the model sees exactly the tokens that it was sent and that it sampled.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rmft.agents.cache import ATTENTION, BATCH_INVARIANT, SlotCache, chunk_of, size_of
from rmft.agents.chat_tokenizer import ChatTokenizer, TokenCompletion
from rmft.agents.context import check_in_process
from rmft.agents.norms import fuse_norms
from rmft.agents.policy_from_model import TOP, Probabilities, Tokens, action_policies, probabilities
from rmft.agents.qwen3 import Qwen3Passes
from rmft.agents.sampling import sample
from rmft.agents.weights import load_pretrained, with_weights
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings

COMPARED = 1 << 10  # columns of the product that `products_depend_on_batch` computes twice
USED = 0.95  # of a GPU's free memory: the rest is lost between blocks
# Conversations that are addressed may lie scattered between others. Below this share of addressed ones, their cache is
# gathered; above it, the others are computed too. Gathering reads the cache three times, but with several new tokens in
# each conversation the computation takes longer than the memory.
SHARE_DECODING, SHARE_READING = 0.4, 0.8
BOOKMARKED = 16  # at most one conversation of so many has a bookmark, which takes as much memory as its windows


@dataclass(frozen=True)
class LanguageModel:
    """A model ready to play, with its chat tokenizer.

    passes: its forward passes, where ours are faster. output_rows: of which conversations it computes logits.
    """

    model: PreTrainedModel
    chat_tokenizer: ChatTokenizer
    passes: Qwen3Passes | None
    output_rows: "OutputRows"

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        context: int | None = None,
        threads: int = 1,
        batch_invariant: bool = False,
    ) -> "LanguageModel":
        """Prepare a model for rollouts: our attention, no gradients. threads: on a CPU; two decode small models slower.

        context: see `context_limit`. batch_invariant: have the logits of a conversation on a CPU not depend on the
        conversations beside it, at the cost of some time, where that can be had; see `products_depend_on_batch`.
        Raise InputError for kinds of attention that are not computed in process.
        """
        check_in_process(model.config)
        chat_tokenizer = ChatTokenizer.of(tokenizer, model.config, model.generation_config.eos_token_id, context)
        if model.device.type == "cpu":
            torch.set_num_threads(threads)
        else:
            torch.backends.cuda.enable_cudnn_sdp(False)  # it plans again, for 30 ms, whenever the number of keys grows
            fuse_norms(model)
        invariant = batch_invariant and model.device.type == "cpu" and not products_depend_on_batch(model)
        model.set_attn_implementation(BATCH_INVARIANT if invariant else ATTENTION)
        output_rows = OutputRows()
        model.get_output_embeddings().register_forward_pre_hook(output_rows)
        return cls(model.eval(), chat_tokenizer, Qwen3Passes.of(model, batch_invariant=invariant), output_rows)


class OutputRows:
    """A forward pre-hook of the output layer, which has it compute only those rows of a pass whose logits are used.

    In a small model with a large vocabulary, the output layer takes longer than all other layers together. Its input is
    the last column of a larger tensor, and torch multiplies such a part by frozen weights in bfloat16 after copying the
    weights for each conversation: 20 GB for 64 of them and a vocabulary of 262,144 tokens.

    rows: their places in the next pass, which resets them; None for all.
    """

    rows: np.ndarray | None = None

    def __call__(self, _module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        """Return what the output layer reads in the place of its input."""
        rows, self.rows = self.rows, None
        return (inputs[0].contiguous() if rows is None else inputs[0][rows],)


def load(settings: LanguageModelSettings, tuned: Path | None = None, batch_invariant: bool = False) -> LanguageModel:
    """Load a model to play, with the fine-tuned weights or the adapter in `tuned`. Raise InputError if that fails.

    batch_invariant: see `LanguageModel.of`.
    """
    model, tokenizer = load_pretrained(settings)
    if not settings.quantised:  # a quantised model is on its device already
        model = model.to(settings.device)
    if tuned is not None:
        model = with_weights(model, tuned)
    return LanguageModel.of(model, tokenizer, settings.context, settings.threads, batch_invariant)


@torch.inference_mode()
def products_depend_on_batch(model: PreTrainedModel) -> bool:
    """Return whether a row of a matrix product rounds differently alone and among other rows.

    On Intel's processors, float32 products do not if MKL_CBWR=AVX2,STRICT is set before the first product of a process.
    """
    weights = model.get_output_embeddings().weight[:COMPARED]
    rows = torch.rand(64, weights.shape[1], generator=torch.Generator().manual_seed(0)).to(weights)
    alone = torch.cat([row[None] @ weights.T for row in rows])
    return not torch.equal(alone, rows @ weights.T)


def games_at_a_time(language_model: LanguageModel, capacity: int, max_tokens: int, most: int, free: int | None) -> int:
    """Return how many games are played at a time: `most`, or fewer if `free` bytes of memory hold fewer.

    free: None for no limit. capacity, max_tokens: see `LocalChatModel`. Raise InputError where one game does not fit.
    """
    if free is None:
        return most
    model = language_model.model
    each = size_of(model.config, capacity, max_tokens, model.dtype.itemsize)
    if each > USED * free:
        raise InputError(
            f"models: device: {language_model.model.device} has {free / 1e9:.1f} GB beside the weights, and a"
            f" conversation of {capacity} tokens takes {each / 1e9:.1f};"
            " interaction: summary or quantised: nf4 take less"
        )
    return min(most, int(USED * free / each))


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a GPU; None for a CPU, whose memory is not counted."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


@dataclass(frozen=True)
class Bookmark:
    """A place that a conversation can go back to.

    length: tokens before it. longest: of the conversation when `windows` was copied. windows: see `SlotCache.windows`.
    """

    length: int
    longest: int
    windows: list[torch.Tensor]


class LocalChatModel:
    """A model in B conversations, each at its own length, that decode together.

    count: B. capacity: tokens of the longest conversation, see `context_needed`. max_tokens: of a completion; we end a
    completion that is longer. slack: see `SlotCache`; None for the best one for games. likeliest: whether completions
    have the likeliest tokens, which takes a tenth of the time of a small model, and which `action_policies` needs.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        count: int,
        capacity: int,
        max_tokens: int,
        slack: int | None = None,
        *,
        likeliest: bool = True,
    ) -> None:
        self.model, self.chat_tokenizer = language_model.model, language_model.chat_tokenizer
        self.passes, self.output_rows = language_model.passes, language_model.output_rows
        self.count, self.capacity, self.max_tokens, self.likeliest = count, capacity, max_tokens, likeliest
        # Finding these anew takes longer than some layers.
        self.device, self.dtype = self.model.device, self.model.dtype
        self.chunk = slack or chunk_of(self.model.config, max_tokens)
        # The prefixes of actions that `action_policies` feeds may extend past the longest completion.
        self.cache = SlotCache(self.model.config, count, capacity + max(self.chunk, max_tokens), slack=self.chunk)
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.lengths = np.zeros(self.count, dtype=np.int64)  # tokens in the cache
        self.longest = np.zeros(self.count, dtype=np.int64)  # the largest length since the conversation began
        self.prompted = np.zeros(self.count, dtype=np.int64)  # tokens in the cache before the last completion
        self.prompts: list[list[int]] = [[] for _ in range(self.count)]
        self.waiting: list[list[int]] = [[] for _ in range(self.count)]  # tokens to be fed with the next message
        self.bookmarks: OrderedDict[int, Bookmark] = OrderedDict()  # by row, the oldest first

    @torch.inference_mode()
    def retract(self, rows: Sequence[int]) -> None:
        """Forget the last completion of some conversations, so that `reply` samples another one."""
        rows = np.asarray(rows, dtype=np.int64)
        self.cache.rewind(rows, self.prompted[rows], for_good=True)
        for row in rows:
            self.lengths[row] = self.prompted[row] - 1
            self.waiting[row] = self.prompts[row][-1:]  # fed again, for the logits that follow

    def way_back(self, row: int, length: int) -> int:
        """Return after how many of its first tokens, at most `length`, a conversation can go on with what is cached."""
        if self._holds(row, length):
            return length
        bookmark = self.bookmarks.get(row)
        return bookmark.length if bookmark and bookmark.length <= length else 0

    def _holds(self, row: int, length: int) -> bool:
        return length == 0 or self.cache.slack is None or self.longest[row] - length <= self.cache.slack

    @torch.inference_mode()
    def go_back(self, row: int, length: int) -> None:
        """Forget all but the first tokens of a conversation, a number of them that `way_back` gave."""
        bookmark = self.bookmarks.get(row)
        if bookmark and length < bookmark.length:
            del self.bookmarks[row]
        elif not self._holds(row, length):
            self.cache.put_back(row, bookmark.windows)
            self.longest[row] = bookmark.longest
        self.lengths[row] = length
        self.longest[row] = max(self.longest[row], length) if length else 0

    @torch.inference_mode()
    def bookmark(self, row: int, length: int) -> None:
        """Keep what a conversation needs to go back to its first tokens, though more than the slack may follow them.

        Call this while these tokens can still be gone back to. A conversation has one bookmark; few have one.
        """
        self.bookmarks.pop(row, None)
        self.bookmarks[row] = Bookmark(length, int(self.longest[row]), self.cache.windows(row))
        while len(self.bookmarks) > max(1, self.count // BOOKMARKED):
            self.bookmarks.popitem(last=False)

    @torch.inference_mode()
    def copy(self, source: int, target: int) -> None:
        """Copy one conversation over another."""
        self.cache.copy(source, target, int(self.longest[source]))
        self.lengths[target], self.longest[target] = self.lengths[source], self.longest[source]
        self.bookmarks.pop(target, None)
        if source in self.bookmarks:
            self.bookmarks[target] = self.bookmarks[source]

    @torch.inference_mode()
    def swap(self, rows: Sequence[int], others: Sequence[int]) -> None:
        """Exchange conversations that are only fed: those of rows (n,) with those of others (n,)."""
        sources, targets = np.array([*others, *rows]), np.array([*rows, *others])
        self.cache.move(sources, targets, int(self.longest[sources].max()))
        for of_rows in (self.lengths, self.longest):
            of_rows[targets] = of_rows[sources]
        row_now = dict(zip(sources.tolist(), targets.tolist(), strict=True))
        self.bookmarks = OrderedDict((row_now.get(row, row), bookmark) for row, bookmark in self.bookmarks.items())

    @torch.inference_mode()
    def reply(
        self,
        messages: Sequence[str] | None,
        *,
        temperature: float,
        uniforms: np.ndarray,
        rows: Sequence[int] | None = None,
    ) -> list[TokenCompletion]:
        """Send messages (n,) and return the completions; with messages None, sample again after `retract`.

        uniforms: (n, max_tokens) in [0, 1), one a token. rows: (n,), the conversations addressed; None for all. Once
        messages have been sent to some conversations, no earlier completion can be retracted, of others neither.
        """
        rows = np.arange(self.count) if rows is None else np.asarray(rows)
        if messages is not None:
            template = self.chat_tokenizer.template
            for row, message in zip(rows, messages, strict=True):
                begun = self.lengths[row] + len(self.waiting[row])
                self.prompts[row] = template.next(message) if begun else template.first(message)
                self.waiting[row] = self.waiting[row] + self.prompts[row]
        waiting = [self.waiting[row] for row in rows]
        longest = max(self.lengths[row] + len(new) for row, new in zip(rows, waiting, strict=True)) + self.max_tokens
        if self.cache.limit is not None and longest > self.capacity:
            raise InputError(f"context: a conversation may grow to {longest} tokens, past {self.capacity}")
        if messages is not None:
            self.cache.forget()
        logits = self.feed(rows, waiting) if self.lengths[rows].any() else self._begin(rows, waiting)
        if messages is not None and self.max_tokens > self.chunk:  # then a completion overwrites what `retract` needs
            self.cache.remember()
        self.prompted[rows] = self.lengths[rows]
        sampled = self._decode(rows, logits, temperature, uniforms)
        return [self._completion(row, *of_row) for row, *of_row in zip(rows, *sampled, strict=True)]

    def _begin(self, rows: np.ndarray, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feed the first messages of conversations; copy the conversation where several begin with the same message."""
        first: dict[tuple[int, ...], int] = {}
        sources = [first.setdefault(tuple(prompt), place) for place, prompt in enumerate(prompts)]
        fed, of = np.unique(sources, return_inverse=True)
        logits = self.feed(rows[fed], [prompts[place] for place in fed])
        for place, source in enumerate(sources):
            if place != source:
                self.copy(rows[source], rows[place])
        return logits if len(fed) == len(rows) else logits[of]

    def _decode(
        self, rows: np.ndarray, logits: torch.Tensor, temperature: float, uniforms: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sample until all completions have ended.

        Return tokens (n, max_tokens), -1 after the end, and ids and log-probabilities (n, max_tokens, 5) of the
        likeliest tokens, the latter -inf where they are not asked for.
        """
        at = "cpu" if logits.device.type == "mps" else logits.device  # MPS has no double precision
        uniforms = torch.as_tensor(uniforms, dtype=torch.float64, device=at)
        tokens = np.full((len(rows), self.max_tokens), -1)
        top_ids = np.zeros((*tokens.shape, TOP), dtype=np.int32)
        top_logprobs = np.full(top_ids.shape, -np.inf, dtype=np.float32)
        going = np.arange(len(rows))
        for step in range(self.max_tokens):
            tokens[going, step] = sample(logits.to(at), uniforms[going, step], temperature).cpu()
            if self.likeliest:
                best = logits.log_softmax(dim=-1).topk(TOP)
                top_ids[going, step], top_logprobs[going, step] = best.indices.cpu(), best.values.cpu()
            going = going[[token not in self.chat_tokenizer.ends for token in tokens[going, step].tolist()]]
            if not len(going) or step == self.max_tokens - 1:
                break
            logits = self.feed(rows[going], tokens[going, step, None].tolist())
        return tokens, top_ids, top_logprobs

    def _completion(
        self, row: int, tokens: np.ndarray, top_ids: np.ndarray, top_logprobs: np.ndarray
    ) -> TokenCompletion:
        """Return the completion made of a row's tokens, and keep the tokens that are not in the cache yet."""
        completion = self.chat_tokenizer.completion(
            tokens[tokens >= 0].tolist(), self.prompts[row], top_ids, top_logprobs
        )
        self.waiting[row] = completion.ids[int(self.lengths[row] - self.prompted[row]) :]
        return completion

    @torch.inference_mode()
    def feed(self, rows: np.ndarray, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feed tokens, one list for each conversation of rows (n,), and return the logits (n, V) after each list."""
        first, last = int(rows.min()), int(rows.max())
        counts = np.array([len(new) for new in tokens])
        q = int(counts.max())
        few = len(rows) <= (SHARE_DECODING if q == 1 else SHARE_READING) * (last + 1 - first)
        computed = rows if few else np.arange(first, last + 1)
        place = np.arange(len(rows)) if few else rows - first
        ids = np.zeros((len(computed), q), dtype=np.int64)
        kept = np.zeros((len(computed), q), dtype=bool)
        new = np.arange(q) >= q - counts[:, None]  # padded on the left, so that all end in the last column
        padded = np.zeros(new.shape, dtype=np.int64)
        padded[new] = list(chain.from_iterable(tokens))
        ids[place], kept[place] = padded, new
        positions = self.lengths[computed][:, None] + np.cumsum(kept, axis=1) - 1
        self.lengths[rows] += counts
        self.longest[rows] = np.maximum(self.longest[rows], self.lengths[rows])
        for end in range((q - 1) % self.chunk + 1, q + 1, self.chunk):
            part = np.s_[:, max(0, end - self.chunk) : end]
            self.output_rows.rows = place if end == q else place[:0]
            logits = self._forward(rows if few else slice(first, last + 1), ids[part], positions[part], kept[part])
        return logits

    def _forward(
        self, rows: np.ndarray | slice, ids: np.ndarray, positions: np.ndarray, kept: np.ndarray
    ) -> torch.Tensor:
        """Run the model on (n, q) tokens and return the logits of the last column, of the conversations to be read."""
        device, used = self.device, int(positions[:, -1].max()) + 1
        ids, positions, kept = (torch.as_tensor(array, device=device) for array in (ids, positions, kept))
        if not isinstance(rows, slice):
            rows = torch.as_tensor(rows, device=device)
        self.cache.prepare(rows, positions, kept, used, self.dtype)
        positions = positions.clamp(min=0)  # that of padding is -1
        if self.passes:
            return self.passes(ids, positions, self.cache)
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=self.cache.masks(),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    @torch.inference_mode()
    def action_policies(
        self,
        completions: Sequence[TokenCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) of the model at the places where it wrote its actions.

        See `policy_from_model.action_policies`. The conversations are unchanged afterwards.
        """
        rows = np.arange(self.count) if rows is None else np.asarray(rows)

        def likeliest_after(cases: list[int], places: list[int], prefixes: list[Tokens]) -> list[Probabilities]:
            return self._likeliest_after(rows[cases], self.prompted[rows[cases]] + places, prefixes)

        return action_policies(self.chat_tokenizer.tokenizer, completions, spans, actions, names, likeliest_after)

    def _likeliest_after(self, rows: np.ndarray, places: np.ndarray, prefixes: Sequence[Tokens]) -> list[Probabilities]:
        """Return the likeliest tokens after prefixes at positions of conversations.

        The prefixes are written over the completions in the cache, which is then restored. Where more than the slack
        lies behind a position, what the completion overwrote is put back first.
        """
        fed = self.lengths[rows]
        longest, taken_back = max(map(len, prefixes)), int((fed - places).max())
        rewinds = self.cache.slack is not None and taken_back > self.cache.slack
        span = torch.arange(max(longest, taken_back) if rewinds else longest, device=self.device)
        where = torch.as_tensor(rows, device=span.device), torch.as_tensor(places, device=span.device)[:, None] + span
        saved = self.cache.save(*where)
        if rewinds:
            self.cache.rewind(rows, places, for_good=False)
        self.lengths[rows] = places
        best = self.feed(rows, [list(prefix) for prefix in prefixes]).log_softmax(dim=-1).topk(TOP)
        self.cache.restore(*where, saved)
        self.lengths[rows] = fed
        return [probabilities(*row) for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
