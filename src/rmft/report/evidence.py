"""What the report shows of a figure, whoever made it: the picture itself, and the final regrets behind it."""

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts.files import reading
from rmft.artifacts.text import read_bytes


@dataclass(frozen=True)
class Picture:
    """A PNG file in the page. url: a data URL, with the whole file. size: width and height in pixels."""

    url: str
    size: tuple[int, int]


def picture(path: Path) -> Picture:
    """Return a PNG file for the page."""
    image = read_bytes(path)
    with reading(path, struct.error):
        size = struct.unpack_from(">II", image, 16)  # a PNG has its width and height there
    return Picture(f"data:image/png;base64,{base64.b64encode(image).decode()}", size)


def final_regrets(experiment: str, evaluation: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the final regrets of an evaluation, from its part of metrics.json."""
    return {
        "experiment": experiment,
        "evaluation": evaluation,
        "base": metrics["base"]["mean"],
        "trained": metrics["trained"]["mean"],
        "interval": [None if value is None else round(value, 6) for value in metrics["paired_difference"]],
        "p": metrics["paired_p"],
        "n": metrics["n"],
        "trainings": len(metrics["by_training_seed"]),
        "others": {name: algorithm["mean"] for name, algorithm in metrics["algorithms"].items()},
    }
