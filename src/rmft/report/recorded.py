"""Recorded results in the report: what real language models gave elsewhere, from the bundles in data/recorded."""

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts.json_files import read_json
from rmft.artifacts.text import read_bytes
from rmft.recorded.bundle import DESCRIPTION, METRICS, Bundle, read_bundle
from rmft.report.texts import Captions


@dataclass(frozen=True)
class RecordedFigure:
    """A recorded figure. image: as a data URL. size: in pixels. title, text: its caption."""

    label: str
    title: str
    text: str
    image: str
    size: tuple[int, int]


@dataclass(frozen=True)
class RecordedResults:
    """A bundle as the page shows it. regrets: final regrets of each evaluation, with the seeds of training."""

    folder: str
    bundle: Bundle
    figures: list[RecordedFigure]
    regrets: list[dict[str, Any]]


def read_recorded(files: dict[str, Path], captions: Captions) -> list[RecordedResults]:
    """Return the bundles among the report's inputs."""
    return [_read(path.parent, captions) for name, path in files.items() if name.endswith(f"/{DESCRIPTION}")]


def _read(folder: Path, captions: Captions) -> RecordedResults:
    bundle, metrics = read_bundle(folder), read_json(folder / METRICS)
    return RecordedResults(
        folder=folder.as_posix(),
        bundle=bundle,
        figures=[_figure(folder, label, captions) for label in bundle.figures],
        regrets=list(_regrets(bundle, metrics)),
    )


def _figure(folder: Path, label: str, captions: Captions) -> RecordedFigure:
    image, caption = read_bytes(folder / "figures" / f"{label}.png"), captions.of("figures", label)
    size = struct.unpack(">II", image[16:24])  # a PNG has its width and height there
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return RecordedFigure(label, caption.title, caption.text, url, size)


def _regrets(bundle: Bundle, metrics: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for experiment, evaluations in metrics.items():
        chosen = bundle.experiments[experiment]["experiment"]
        for evaluation, of in evaluations.items():
            yield {
                "experiment": experiment,
                "model": chosen["model"],
                "evaluation": evaluation,
                "base": of["base"]["mean"],
                "trained": of["trained"]["mean"],
                "interval": of["paired_difference"],
                "n": of["n"],
                "trainings": chosen.get("rmft", chosen.get("grpo"))["training_seeds"],
                "others": {name: algorithm["mean"] for name, algorithm in of["algorithms"].items()},
            }
