"""Recorded results in the report: what real language models gave elsewhere, from the bundles in data/recorded."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmft.artifacts.json_files import read_json
from rmft.recorded.bundle import Bundle, read_bundle
from rmft.report.evidence import Picture, final_regrets, picture
from rmft.report.texts import Captions
from rmft.workflow.paths import BUNDLE, BUNDLE_FIGURES, BUNDLE_METRICS


@dataclass(frozen=True)
class RecordedFigure:
    """A recorded figure with its caption."""

    label: str
    title: str
    text: str
    picture: Picture


@dataclass(frozen=True)
class RecordedResults:
    """A bundle as the page shows it. regrets: final regrets of each evaluation."""

    folder: str
    bundle: Bundle
    figures: list[RecordedFigure]
    regrets: list[dict[str, Any]]


def read_recorded(files: dict[str, Path], captions: Captions) -> list[RecordedResults]:
    """Return the bundles among the report's inputs."""
    return [_read(path.parent, captions) for name, path in files.items() if name.endswith(f"/{BUNDLE}")]


def _read(folder: Path, captions: Captions) -> RecordedResults:
    bundle, metrics = read_bundle(folder), read_json(folder / BUNDLE_METRICS)
    return RecordedResults(
        folder=folder.as_posix(),
        bundle=bundle,
        figures=[_figure(folder, label, captions) for label in bundle.figures],
        regrets=list(_regrets(bundle, metrics)),
    )


def _figure(folder: Path, label: str, captions: Captions) -> RecordedFigure:
    caption = captions.of("figures", label)
    return RecordedFigure(label, caption.title, caption.text, picture(folder / BUNDLE_FIGURES / f"{label}.png"))


def _regrets(bundle: Bundle, metrics: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for experiment, evaluations in metrics.items():
        chosen = bundle.experiments[experiment]["experiment"]
        for evaluation, of in evaluations.items():
            yield final_regrets(experiment, evaluation, of) | {"model": chosen["model"]}
