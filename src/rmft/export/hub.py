"""Send an exported folder to the Hugging Face hub, or to what HF_ENDPOINT names."""

from pathlib import Path
from typing import Literal

from rmft.errors import InputError, first_line, without_credentials
from rmft.export import ADAPTER_GGUF, DATA

MODEL = ("adapter_config.json", "config.json", ADAPTER_GGUF)  # of which an exported model has one


def push(folder: Path, repository: str, *, private: bool) -> str:
    """Send a folder to a repository, made if it is not there, and return its address.

    Raise InputError where the folder is not exported, or the hub refuses.
    """
    kind = kind_of(folder)
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api, hub = HfApi(), without_credentials(ENDPOINT)
    try:
        url = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        message = f"Upload {folder.resolve().name} with rmft"
        api.upload_folder(repo_id=url.repo_id, repo_type=kind, folder_path=folder, commit_message=message)
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            cure = "`hf auth login` with a token that may write there, or export HF_TOKEN=…"
            raise InputError(f"{repository}: {hub} refuses the token, or there is none ({status}): {cure}") from None
        raise InputError(f"{repository}: {hub} refuses ({status}): {first_line(error)}") from None
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{repository}: cannot be sent to {hub}: {first_line(error.__cause__ or error)}") from None
    return str(url)


def kind_of(folder: Path) -> Literal["model", "dataset"]:
    """Return what was exported to a folder. Raise InputError where it is neither."""
    if (folder / "README.md").is_file():
        if (folder / DATA).is_file():
            return "dataset"
        if any((folder / name).is_file() for name in MODEL):
            return "model"
    raise InputError(f"{folder}: is no folder that `rmft export` made")
