"""A language model's checkpoint, a folder or a pinned revision on the hub: which files it has, and its tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmft.agents.chat_tokenizer import ChatTokenizer
from rmft.artifacts.files import note_hub, note_reading, noted, sha256
from rmft.errors import InputError, first_line, without_credentials
from rmft.params.language_model import MODEL_FILES, Checkpoint, LanguageModelSettings, check_gguf, model_files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def note_model(settings: LanguageModelSettings, *, weights: bool = True) -> None:
    """Note a model's files for the receipts of a job; download from the hub those that are not in the cache yet.

    weights: whether the job uses the weights as well. Raise InputError if a file cannot be read or downloaded.
    """
    if Path(settings.folder).is_dir():
        note_reading(map(Path, model_files(settings.folder)))
        return
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.utils import disable_progress_bars

    kinds = MODEL_FILES if weights else MODEL_FILES[:-1]
    with checkpoint(settings) as origin:
        if try_to_load_from_cache(settings.weights, "config.json", revision=origin["revision"]):
            disable_progress_bars()  # reading the cache takes a moment only
        snapshot = snapshot_download(
            settings.weights,
            revision=origin["revision"],
            allow_patterns=[f"*{kind}" for kind in kinds],
            ignore_patterns="*/*",
        )
    used = [file for file in map(Path, model_files(snapshot)) if file.suffix in kinds]
    note_hub(f"{settings.weights}@{settings.revision}", used)


def gguf_file(settings: Checkpoint) -> Path:
    """Return the local path of a model's GGUF file, noted for receipts; download the file if the cache lacks it.

    Raise InputError where the file is absent, cannot be downloaded, or has another hash than the settings say.
    """
    if settings.file is None:
        check_gguf(settings)
        path = noted(Path(settings.weights))
    else:
        from huggingface_hub import hf_hub_download

        with hub_errors(settings, is_folder=False):
            path = Path(hf_hub_download(settings.weights, settings.file, revision=settings.revision))
        note_hub(f"{settings.weights}@{settings.revision}", [path])
    if settings.sha256 and (found := sha256(path)) != settings.sha256:
        raise InputError(f"{path}: is another file than params.yaml names: its sha256 is {found}")
    return path


def load_chat_tokenizer(settings: LanguageModelSettings) -> ChatTokenizer:
    """Load a model's tokenizer, chat template and limits without its weights. Raise InputError if that fails."""
    from transformers import AutoConfig, GenerationConfig

    tokenizer = load_tokenizer(settings)
    with checkpoint(settings) as origin:
        config = AutoConfig.from_pretrained(settings.folder, **origin)
        try:
            stops = GenerationConfig.from_pretrained(settings.folder, **origin).eos_token_id
        except OSError:  # the checkpoint has no generation config
            stops = config.get_text_config(decoder=True).eos_token_id
    return ChatTokenizer.of(tokenizer, config, stops, settings.context)


def load_tokenizer(settings: LanguageModelSettings) -> "PreTrainedTokenizerBase":
    """Load a model's tokenizer. Raise InputError if that fails."""
    from transformers import AutoTokenizer

    with checkpoint(settings) as origin:
        return AutoTokenizer.from_pretrained(settings.folder, **origin)


@contextmanager
def checkpoint(settings: Checkpoint) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `from_pretrained` that pin a checkpoint; turn a failure to read it into an InputError."""
    is_folder = Path(settings.folder).is_dir()
    if settings.is_gguf and not is_folder:
        raise InputError(f"{settings.folder}: no such folder; `snakemake {settings.folder}/config.json` makes it")
    if not is_folder and settings.revision is None:
        raise InputError(f"{settings.folder}: no such folder, and a model of the hub needs a pinned revision")
    with hub_errors(settings, is_folder=is_folder):
        yield {"revision": None if is_folder else settings.revision, "trust_remote_code": False}


@contextmanager
def hub_errors(settings: Checkpoint, *, is_folder: bool) -> Iterator[None]:
    """Turn a failure to read a folder, or to download from the hub, into an InputError."""
    from httpx2 import HTTPError
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    from safetensors import SafetensorError

    hub = without_credentials(ENDPOINT)
    try:
        yield
    except GatedRepoError:
        page = f"{hub}/{settings.weights}"
        cure = "accept them there, then `hf auth login`, or export HF_TOKEN=…"
        raise InputError(f"{settings.weights}: its makers ask you to accept conditions: {page}; {cure}") from None
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        what = "model" if isinstance(error, RepositoryNotFoundError) else f"revision {settings.revision} of it"
        raise InputError(f"{settings.weights}: no such {what} at {hub}, or none that you may read") from None
    except (OSError, ValueError, RuntimeError, HTTPError, SafetensorError) as error:
        reason = first_line(error).rstrip(".")
        if isinstance(error, RuntimeError) and "memory" in reason:
            raise InputError(f"{settings.weights}: needs more memory than there is ({reason})") from None
        if is_folder:
            raise InputError(f"{settings.folder}: a file in it is damaged ({reason}); restore the file") from None
        wanted = " ".join(filter(None, [settings.weights, settings.file]))
        cure = f"hf download {wanted} --revision {settings.revision}"
        raise InputError(f"{settings.weights}: {reason}. Download it first ({cure}) or use scale: demo") from None
