"""Language models in process: many conversations in lock-step on one memory, each token sampled by a given number.

Symbols: B conversations, n of them asked, q tokens fed to each at once, V vocabulary, d actions.

A round feeds every conversation its message in one pass and then decodes token by token until all have ended their
reply. Nothing is ever fed twice, so a round costs the same whenever it is played (up to the memory that attention
reads), and what a model sees is exactly what it has been sent and has sampled.
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from rmft.agents.cache import ATTENTION, SlotCache, layer_windows
from rmft.agents.policies import Tokens, on_record, policy, spellings, table, text_of, unknown
from rmft.agents.turns import Turns
from rmft.artifacts import read_tensors
from rmft.errors import InputError
from rmft.params.language import LanguageModelSettings

TOP = 5  # alternatives kept with each token, as an endpoint gives them: the paper's policies are made of them
LEAST_SLACK = 16  # tokens fed in one pass, at least
# Of the lanes between the first and the last, so few are gathered, and more are computed in place: gathering reads what
# is in memory thrice, but of several new tokens in each lane those take longer than the memory.
FEW, FEW_READING = 0.4, 0.8

ADAPTER_CONFIG = "adapter_config"  # where an adapter's file has its configuration, in the metadata


@dataclass(frozen=True)
class LanguageModel:
    """A model ready to play. limit: tokens a conversation may have, None where old ones fall out of every window."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    turns: Turns
    ends: frozenset[int]
    limit: int | None

    @classmethod
    def of(
        cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, context: int | None = None
    ) -> "LanguageModel":
        """Prepare a model for rollouts: our attention, no gradients, one thread."""
        turns = Turns.probe(tokenizer)
        if model.device.type == "cpu":
            torch.set_num_threads(1)  # processes, not threads, use the cores: two threads decode slower than one
        model.set_attn_implementation(ATTENTION)
        stops = model.generation_config.eos_token_id
        stops = stops if isinstance(stops, list) else [stops] if stops is not None else []
        return cls(model.eval(), tokenizer, turns, frozenset([turns.end, *stops]), context_limit(model, context))


def context_limit(model: PreTrainedModel, context: int | None) -> int | None:
    """Return how many tokens a model can read: `context` if it is fewer, None if every layer slides along."""
    most = model.config.get_text_config(decoder=True).max_position_embeddings
    slides = all(window is not None and window < most for window in layer_windows(model.config))
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


def load(settings: LanguageModelSettings, tuned: Path | None = None) -> LanguageModel:
    """Load a model to play, with fine-tuned weights or an adapter if there are any.

    Raise InputError if it cannot be had.
    """
    model, tokenizer = load_pretrained(settings)
    if tuned is not None:
        model = with_weights(model, tuned)
    return LanguageModel.of(model.to(settings.device), tokenizer, settings.context)


def load_pretrained(settings: LanguageModelSettings) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model as it was published, on the CPU, and its tokenizer. Raise InputError if it cannot be had."""
    logging.disable_progress_bar()  # jobs share a terminal, and these are read in a moment
    with _published(settings) as origin:
        model = AutoModelForCausalLM.from_pretrained(settings.weights, dtype=settings.dtype, **origin)
    return model, load_tokenizer(settings)


def load_tokenizer(settings: LanguageModelSettings) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer alone. Raise InputError if it cannot be had."""
    with _published(settings) as origin:
        return AutoTokenizer.from_pretrained(settings.weights, **origin)


@contextmanager
def _published(settings: LanguageModelSettings) -> Iterator[dict[str, Any]]:
    """Yield what pins a publication, and turn any way in which reading it fails into a line that says what to do."""
    here = Path(settings.weights).is_dir()
    if not here and settings.revision is None:
        raise InputError(f"{settings.weights}: no such folder, and a model of the hub needs a pinned revision")
    origin = {"revision": None if here else settings.revision, "trust_remote_code": False}
    try:
        yield origin
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        if here:
            raise InputError(f"{settings.weights}: a file in it is damaged ({reason}); put it back as it was") from None
        cure = f"hf download {settings.weights} --revision {settings.revision}"
        raise InputError(f"{settings.weights}: {reason} Get it beforehand ({cure}) or use scale: demo") from None


def with_weights(model: PreTrainedModel, path: Path) -> PreTrainedModel:
    """Return a model with the weights of a .safetensors file; an adapter has its configuration in the metadata.

    Adapters are merged: two small products in each projection would cost more than what they add, and plain weights
    are read once however they came about.
    """
    tensors, metadata = read_tensors(path)
    if ADAPTER_CONFIG in metadata:
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

        warnings.filterwarnings("ignore", category=FutureWarning)  # peft calls transformers by an old name
        adapted = get_peft_model(model, LoraConfig(**json.loads(metadata[ADAPTER_CONFIG])))
        strange = set_peft_model_state_dict(adapted, tensors).unexpected_keys
        model = adapted.merge_and_unload()
    else:
        result = model.load_state_dict(tensors, strict=False)
        strange = [*result.unexpected_keys, *set(result.missing_keys).difference(model.all_tied_weights_keys)]
    if strange:
        raise InputError(f"{path}: not weights of a {model.config.model_type} of this shape: see {strange[0]}")
    return model


@dataclass(frozen=True)
class Turn:
    """A reply. ids: its tokens; the last one ends it. text: without that one. prompt_ids: what was fed before.

    sampled: how many ids the model chose. The one more that there is in a reply cut short, or ended in the model's own
    way rather than the template's, is the end token put there by us: not a thing to learn from.
    top_ids, top_logprobs: (sampled, 5), the likeliest tokens at each place, at temperature 1.
    """

    ids: list[int]
    sampled: int
    text: str
    prompt_ids: list[int]
    top_ids: np.ndarray
    top_logprobs: np.ndarray

    @property
    def replied(self) -> list[bool]:
        """Return which of prompt_ids + ids the model chose."""
        forced = len(self.ids) - self.sampled
        return [False] * len(self.prompt_ids) + [True] * self.sampled + [False] * forced


def sample(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return tokens (n,) of logits (n, V): where numbers (n,) in [0, 1) fall in the distribution function."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    below = torch.softmax(logits / temperature, dim=-1).double().cumsum(dim=-1)
    # Rounding may leave the last sum short of 1. A token of probability zero is never where a number falls.
    return torch.searchsorted(below, (uniforms * below[:, -1])[:, None], right=True)[:, 0]


class Conversations:
    """Conversations with a model, each at its own length, that are asked and answer together.

    count: B of them. capacity: tokens of the longest, see `context_needed`. max_tokens: of the longest reply; one that
    has not ended by then is ended by us.
    """

    def __init__(self, language_model: LanguageModel, count: int, capacity: int, max_tokens: int) -> None:
        self.model, self.tokenizer, self.turns = language_model.model, language_model.tokenizer, language_model.turns
        self.ends = language_model.ends
        self.count, self.capacity, self.max_tokens = count, capacity, max_tokens
        self.chunk = max(max_tokens, LEAST_SLACK)
        # Beginnings of actions that are asked for may go on a little further than any reply.
        self.cache = SlotCache(self.model.config, count, capacity + self.chunk, slack=self.chunk)
        _fix_rotation(self.model, capacity)
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.lengths = np.zeros(self.count, dtype=np.int64)  # tokens fed
        self.longest = np.zeros(self.count, dtype=np.int64)  # the most there were since a conversation began
        self.answered = np.zeros(self.count, dtype=np.int64)  # tokens fed before the last reply
        self.prompts: list[list[int]] = [[] for _ in range(self.count)]
        self.waiting: list[list[int]] = [[] for _ in range(self.count)]  # not fed yet: it goes in with what comes next

    def retract(self, rows: Iterable[int]) -> None:
        """Forget the last reply of some conversations; what they were asked stands, to be answered again."""
        for row in rows:
            self.lengths[row] = self.answered[row] - 1
            self.waiting[row] = self.prompts[row][-1:]  # fed again for what follows it

    def can_go_back(self, row: int, length: int) -> bool:
        """Return whether all that a conversation's first tokens saw is still in memory, so that it can go on there."""
        slack = self.cache.slack
        return length == 0 or slack is None or self.longest[row] - length <= slack

    def go_back(self, row: int, length: int) -> None:
        """Forget all but the first tokens of a conversation; see `can_go_back`."""
        self.lengths[row] = length
        self.longest[row] = max(self.longest[row], length) if length else 0

    @torch.inference_mode()
    def copy(self, source: int, target: int) -> None:
        """Have one conversation stand where another one does."""
        self.cache.copy(source, target, int(self.longest[source]))
        self.lengths[target], self.longest[target] = self.lengths[source], self.longest[source]

    @torch.inference_mode()
    def reply(
        self,
        messages: Sequence[str] | None,
        *,
        temperature: float,
        uniforms: np.ndarray,
        rows: Sequence[int] | None = None,
    ) -> list[Turn]:
        """Send messages (n) and return the replies; with messages None, have retracted replies given anew.

        uniforms: (n, max_tokens) in [0, 1), one a token. rows: (n,) the conversations that are meant, None for all.
        """
        rows = np.arange(self.count) if rows is None else np.asarray(rows)
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                begun = self.lengths[row] + len(self.waiting[row])
                self.prompts[row] = self.turns.next(message) if begun else self.turns.first(message)
                self.waiting[row] = self.waiting[row] + self.prompts[row]
        waiting = [self.waiting[row] for row in rows]
        longest = max(self.lengths[row] + len(new) for row, new in zip(rows, waiting, strict=True)) + self.max_tokens
        if self.cache.limit is not None and longest > self.capacity:
            raise InputError(f"context: a conversation may grow to {longest} tokens, past {self.capacity}")
        logits = self.feed(rows, waiting)
        self.answered[rows] = self.lengths[rows]
        tokens, tops = self._decode(rows, logits, temperature, uniforms)
        return [self._close(row, *written) for row, *written in zip(rows, tokens, *tops, strict=True)]

    def _decode(
        self, rows: np.ndarray, logits: torch.Tensor, temperature: float, uniforms: np.ndarray
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Sample until all replies have ended. Return tokens (n, steps), -1 behind the end, and the likeliest ones."""
        drawn = torch.as_tensor(uniforms, dtype=torch.float64, device=logits.device)
        tokens = np.full((len(rows), self.max_tokens), -1)
        top_ids = np.zeros((*tokens.shape, TOP), dtype=np.int32)
        top_logprobs = np.zeros(top_ids.shape, dtype=np.float32)
        ends = torch.tensor(sorted(self.ends), device=logits.device)
        going = np.arange(len(rows))
        for step in range(self.max_tokens):
            chosen = sample(logits, drawn[going, step], temperature)
            best = logits.log_softmax(dim=-1).topk(min(TOP, logits.shape[-1]))
            tokens[going, step] = chosen.cpu()
            top_ids[going, step], top_logprobs[going, step] = best.indices.cpu(), best.values.cpu()
            on = ~torch.isin(chosen, ends).cpu().numpy()
            going = going[on]
            if not len(going) or step == self.max_tokens - 1:
                break
            logits = self.feed(rows[going], tokens[going, step, None].tolist())
        return tokens, (top_ids, top_logprobs)

    def _close(self, row: int, tokens: np.ndarray, top_ids: np.ndarray, top_logprobs: np.ndarray) -> Turn:
        """Return a reply from its tokens, ended by us where it has not ended, and note what is still to be fed."""
        ids = tokens[tokens >= 0].tolist()
        sampled = len(ids)
        if ids[-1] != self.turns.end:
            ids.append(self.turns.end)
        fed = int(self.lengths[row] - self.answered[row])
        self.waiting[row] = ids[fed:]
        text = text_of(self.tokenizer, ids[: sampled - (ids[sampled - 1] in self.ends)])
        return Turn(ids, sampled, text, self.prompts[row], top_ids[:sampled], top_logprobs[:sampled])

    @torch.inference_mode()
    def feed(self, rows: np.ndarray, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feed tokens, one list a conversation, and return the logits (n, V) of what follows each list."""
        first, last = int(rows.min()), int(rows.max())
        q = max(map(len, tokens))
        few = len(rows) <= (FEW if q == 1 else FEW_READING) * (last + 1 - first)
        lanes = rows if few else np.arange(first, last + 1)
        place = np.arange(len(rows)) if few else rows - first
        ids = np.zeros((len(lanes), q), dtype=np.int64)
        kept = np.zeros((len(lanes), q), dtype=bool)
        for lane, new in zip(place, tokens, strict=True):  # to the right, so that all end together
            ids[lane, q - len(new) :] = new
            kept[lane, q - len(new) :] = True
        positions = self.lengths[lanes][:, None] + np.cumsum(kept, axis=1) - 1
        self.lengths[rows] += [len(new) for new in tokens]
        self.longest[rows] = np.maximum(self.longest[rows], self.lengths[rows])
        for end in range((q - 1) % self.chunk + 1, q + 1, self.chunk):
            part = np.s_[:, max(0, end - self.chunk) : end]
            taken = rows if few else slice(first, last + 1)
            logits = self._forward(taken, ids[part], positions[part], kept[part])
        return logits[place]

    def _forward(
        self, lanes: np.ndarray | slice, ids: np.ndarray, positions: np.ndarray, kept: np.ndarray
    ) -> torch.Tensor:
        """Run the model on (n, q) tokens and return the logits (n, V) of the last column."""
        device = self.model.device
        ids, positions, kept = (torch.as_tensor(array, device=device) for array in (ids, positions, kept))
        if not isinstance(lanes, slice):
            lanes = torch.as_tensor(lanes, device=device)
        self.cache.prepare(lanes, positions, kept, self.model.dtype)
        output = self.model(
            input_ids=ids,
            position_ids=positions.clamp(min=0),
            attention_mask=self.cache.masks(),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    @torch.inference_mode()
    def action_policies(
        self,
        turns: Sequence[Turn],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) that the model had in mind where it wrote its actions.

        turns: the last replies of conversations (n,). spans: where in each text the action stands. actions: the
        0-based ones that stand there. names: what each of the d actions would be written like in its place.

        The probability of an action is the product of those of its tokens, each among the five likeliest in its place
        or else zero (the paper's top-5), and normalised over the d actions. Where one action begins another ("1" and
        "10") it also has not to go on like the other. What follows a beginning that was sampled is on record; what
        follows one that was not is asked of the model, by writing it over the reply and then putting the reply back:
        so the result is what enumerating all actions gives. An action counts as written in one way only, in the
        tokenizer's tokens, behind and before whatever else is in the sampled tokens. If no action is among the
        likeliest the policy is the action taken.
        """
        rows = np.arange(self.count) if rows is None else np.asarray(rows)
        found = [spellings(self.tokenizer, *case) for case in zip(turns, spans, actions, names, strict=True)]
        known = [
            on_record(turn, begin, paths[a]) for turn, (begin, paths), a in zip(turns, found, actions, strict=True)
        ]
        while True:
            asked = [(i, new) for i, (_, paths) in enumerate(found) if (new := unknown(paths, known[i])) is not None]
            if not asked:
                break
            cases, beginnings = zip(*asked, strict=True)
            places = self.answered[rows[list(cases)]] + [found[i][0] for i in cases]
            for i, new, after in zip(
                cases, beginnings, self._after(rows[list(cases)], places, beginnings), strict=True
            ):
                known[i][new] = after
        return np.array([policy(found[i][1], known[i], actions[i]) for i in range(len(rows))])

    def _after(self, rows: np.ndarray, places: np.ndarray, beginnings: Sequence[Tokens]) -> list[dict[int, float]]:
        """Return the likeliest tokens after beginnings that are put at places of conversations, which do not change."""
        fed = self.lengths[rows]
        span = torch.arange(max(map(len, beginnings)), device=self.model.device)
        where = torch.as_tensor(rows, device=span.device), torch.as_tensor(places, device=span.device)[:, None] + span
        saved = self.cache.save(*where)
        self.lengths[rows] = places
        best = self.feed(rows, [list(new) for new in beginnings]).log_softmax(dim=-1).topk(TOP)
        self.cache.restore(*where, saved)
        self.lengths[rows] = fed
        return [table(*row) for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)]


def _fix_rotation(model: PreTrainedModel, capacity: int) -> None:
    """Have position embeddings that depend on a text's length (LongRoPE) depend on the longest one's.

    Otherwise they would change in mid-conversation, and past keys would be turned by other angles than new ones.
    """
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None or not isinstance(rotary.rope_type, str):
        return
    rotary.rope_type = rotary.config.rope_parameters["rope_type"]
    if rotary.rope_type in ("longrope", "dynamic"):
        rotary(torch.zeros(1, device=model.device), torch.tensor([[capacity - 1]], device=model.device))
        rotary.rope_type = "default"
