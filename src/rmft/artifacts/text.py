"""Text, bytes and YAML."""

from pathlib import Path
from typing import Any

from rmft.artifacts.files import artifact, reading


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with artifact(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    """Return the content of a text file."""
    with reading(path):
        return path.read_text(encoding="utf-8")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file."""
    with reading(path):
        return path.read_bytes()


def read_yaml(path: Path) -> Any:  # noqa: ANN401 (any YAML value)
    """Return the value in a YAML file."""
    import yaml

    with reading(path, yaml.YAMLError):
        return yaml.safe_load(path.read_text(encoding="utf-8"))
