"""What a language model is published with, besides its weights: its tokenizer and its configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rmft.agents.chat_template import ChatTemplate, TokenCompletion
from rmft.agents.context import context_limit
from rmft.agents.policies import text_of
from rmft.artifacts.files import note_hub, note_reading
from rmft.errors import InputError
from rmft.params.language import LanguageModelSettings
from rmft.workflow.paths import MODEL_FILES, model_files

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


@dataclass(frozen=True)
class ChatTokenizer:
    """How a model reads and replies, whoever computes it.

    ends: the ids that end a reply. limit: tokens a conversation may have, None where old ones fall out of every window.
    """

    tokenizer: "PreTrainedTokenizerBase"
    turns: ChatTemplate
    ends: frozenset[int]
    limit: int | None

    @classmethod
    def of(
        cls,
        tokenizer: "PreTrainedTokenizerBase",
        config: "PretrainedConfig",
        stops: int | list[int] | None,
        context: int | None,
    ) -> Self:
        """Return the reader of a model. stops: what its makers end replies with. context: see `context_limit`."""
        turns = ChatTemplate.probe(tokenizer)
        stops = stops if isinstance(stops, list) else [stops] if stops is not None else []
        return cls(tokenizer, turns, frozenset([turns.end, *stops]), context_limit(config, context))

    def turn(
        self, sampled: list[int], prompt_ids: list[int], top_ids: np.ndarray, top_logprobs: np.ndarray
    ) -> TokenCompletion:
        """Return a reply from the tokens that were sampled, ended by us where it has not ended."""
        ids = sampled if sampled[-1] == self.turns.end else [*sampled, self.turns.end]
        text = text_of(self.tokenizer, sampled[: len(sampled) - (sampled[-1] in self.ends)])
        return TokenCompletion(
            ids, len(sampled), text, prompt_ids, top_ids[: len(sampled)], top_logprobs[: len(sampled)]
        )


def note_model(settings: LanguageModelSettings, *, weights: bool = True) -> None:
    """Note, for the receipts of a job, the files of a model; those of a hub's are fetched where they are not yet.

    weights: whether they are used as well. Raise InputError if the files cannot be had.
    """
    if Path(settings.weights).is_dir():
        note_reading(map(Path, model_files(settings.weights)))
        return
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.utils import disable_progress_bars

    kinds = MODEL_FILES if weights else MODEL_FILES[:-1]
    with published(settings) as origin:
        if try_to_load_from_cache(settings.weights, "config.json", revision=origin["revision"]):
            disable_progress_bars()  # of what is read in a moment
        snapshot = snapshot_download(
            settings.weights,
            revision=origin["revision"],
            allow_patterns=[f"*{kind}" for kind in kinds],
            ignore_patterns="*/*",
        )
    used = [file for file in map(Path, model_files(snapshot)) if file.suffix in kinds]
    note_hub(f"{settings.weights}@{settings.revision}", used)


def load_chat_tokenizer(settings: LanguageModelSettings) -> ChatTokenizer:
    """Load what tells how a model reads and replies, without its weights. Raise InputError if it cannot be had."""
    from transformers import AutoConfig, GenerationConfig

    tokenizer = load_tokenizer(settings)
    with published(settings) as origin:
        config = AutoConfig.from_pretrained(settings.weights, **origin)
        try:
            stops = GenerationConfig.from_pretrained(settings.weights, **origin).eos_token_id
        except OSError:  # there is none
            stops = config.get_text_config(decoder=True).eos_token_id
    return ChatTokenizer.of(tokenizer, config, stops, settings.context)


def load_tokenizer(settings: LanguageModelSettings) -> "PreTrainedTokenizerBase":
    """Load a model's tokenizer. Raise InputError if it cannot be had."""
    from transformers import AutoTokenizer

    with published(settings) as origin:
        return AutoTokenizer.from_pretrained(settings.weights, **origin)


@contextmanager
def published(settings: LanguageModelSettings) -> Iterator[dict[str, Any]]:
    """Yield what pins a publication, and turn any way in which reading it fails into a line that says what to do."""
    from httpx2 import HTTPError
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    from safetensors import SafetensorError

    here = Path(settings.weights).is_dir()
    if not here and settings.revision is None:
        raise InputError(f"{settings.weights}: no such folder, and a model of the hub needs a pinned revision")
    origin = {"revision": None if here else settings.revision, "trust_remote_code": False}
    try:
        yield origin
    except GatedRepoError:
        page = f"{ENDPOINT}/{settings.weights}"
        cure = "accept its conditions there, then `hf auth login`, or export HF_TOKEN=…"
        raise InputError(f"{settings.weights}: its makers want to know who has it: {page}; {cure}") from None
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        what = "model" if isinstance(error, RepositoryNotFoundError) else f"revision {settings.revision} of it"
        raise InputError(f"{settings.weights}: no such {what} at {ENDPOINT}, or none for who asks") from None
    except (OSError, ValueError, HTTPError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if here:
            raise InputError(f"{settings.weights}: a file in it is damaged ({reason}); put it back as it was") from None
        cure = f"hf download {settings.weights} --revision {settings.revision}"
        raise InputError(f"{settings.weights}: {reason} Get it beforehand ({cure}) or use scale: demo") from None
