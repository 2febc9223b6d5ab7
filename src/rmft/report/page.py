"""The report: how RMFT works in six pictures, and every figure and table beside what the paper says of it."""

import base64
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.json_files import read_json
from rmft.artifacts.text import read_bytes, read_text
from rmft.params.outputs import Figure
from rmft.report.ancestry import ancestry
from rmft.report.story import read_story
from rmft.report.templates import rendered
from rmft.report.texts import Caption, Captions, Kind, Known, KnownOfPaper, plain, read_texts
from rmft.report.verdicts import (
    EXPLOITS,
    FALLEN,
    HIGH_ENTROPY,
    NEAR,
    NO_LOWER,
    VANISHED,
    VERDICTS,
    Evidence,
    Metrics,
    Seen,
    evidence,
    explained,
    figure_verdict,
    table_verdict,
)
from rmft.tables.layout import CONFIDENT, VALUES
from rmft.workflow.paths import FIGURE_ENDINGS, METRICS, REPORT_TEXTS, TABLE_ENDINGS
from rmft.workflow.records import ReportJob

SINGULAR = {"figures": "figure", "tables": "table"}


@dataclass(frozen=True)
class Entry:
    """A figure or table on the page.

    models: of its experiments. image, size (in pixels), alt: of a figure. evidence: of its claims. games: what was
    played, in numbers. values: of a table, where the paper has one too; more: how many others its csv has. notes: below
    a table.
    """

    kind: Kind
    label: str
    caption: Caption
    verdict: str
    known: list[Known]
    models: dict[str, str]
    scale_note: str | None
    image: str = ""
    size: tuple[int, int] = (0, 0)
    alt: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Return its anchor: a figure and a table may share their label."""
        return f"{SINGULAR[self.kind]}-{self.label}"

    @property
    def name(self) -> str:
        """Return what it is called."""
        return f"{SINGULAR[self.kind].title()} {self.label}"

    @property
    def links(self) -> dict[str, str]:
        """Return its files, relative to the page, by ending."""
        endings = FIGURE_ENDINGS if self.kind == "figures" else TABLE_ENDINGS
        return {ending: f"{self.kind}/{self.label}.{ending}" for ending in endings}

    @property
    def csv(self) -> str:
        """Return the file that its lineage is told of."""
        return f"results/{self.kind}/{self.label}.csv"

    @property
    def counts(self) -> Counter[str]:
        """Return how many values have each verdict."""
        return Counter(value["verdict"] for value in self.values if value["verdict"])


def page(job: ReportJob, files: dict[str, Path]) -> str:
    """Return the page."""
    captions, known = read_texts(*(files[path] for path in REPORT_TEXTS))
    metrics = read_json(files[METRICS[0]])
    entries = [
        *(_figure(job, files, label, captions, known, metrics) for label in _ordered(job.figures, captions.figures)),
        *(_table(job, files, label, captions, known) for label in _ordered(job.tables, captions.tables)),
    ]
    parts = {part: [entry for entry in entries if entry.caption.part == part] for part in captions.parts}
    return rendered(
        files,
        "page.html.j2",
        scale=job.scale,
        smaller=any(entry.scale_note for entry in entries),
        parts={captions.parts[part]: of for part, of in parts.items() if of},
        counts={verdict: sum(entry.verdict == verdict for entry in entries) for verdict in VERDICTS},
        story=None if job.story is None else read_story(job, *job.story, files),
        lineage=ancestry(entry.csv for entry in entries),
        told=job.told,
        rules={
            "confident": CONFIDENT,
            "near": NEAR,
            "no_lower": NO_LOWER,
            "fallen": FALLEN,
            "exploits": EXPLOITS,
            "vanished": VANISHED,
            "entropy": HIGH_ENTROPY,
        },
    )


def _ordered(labels: Iterable[str], captions: Iterable[str]) -> list[str]:
    """Return labels in the order of their captions, those without one last: a job's record is sorted by name."""
    order = {label: place for place, label in enumerate(captions)}
    return sorted(labels, key=lambda label: order.get(label, len(order)))


def _figure(
    job: ReportJob, files: dict[str, Path], label: str, captions: Captions, known: KnownOfPaper, metrics: Metrics
) -> Entry:
    figure, caption = job.figures[label], captions.of("figures", label)
    png, csv = (files[f"results/figures/{label}.{ending}"] for ending in ("png", "csv"))
    frame = read_csv(csv, ["panel", "player", "series", "x", "y"])
    found = evidence(caption.claimed, Seen(figure, metrics, frame, job.models[figure.experiments[0]]))
    note, image = job.figure_notes[label], read_bytes(png)
    return Entry(
        kind="figures",
        label=label,
        caption=caption,
        verdict=figure_verdict(found, note, of_paper=caption.paper is not None),
        known=known.figures.get(label, []),
        models={name: job.models[name] for name in figure.experiments},
        scale_note=note,
        image=f"data:image/png;base64,{base64.b64encode(image).decode()}",
        size=struct.unpack(">II", image[16:24]),  # where a PNG has its width and height
        alt=_alt(caption, frame, job.players),
        evidence=found,
        games=list(_games(figure, metrics)),
    )


def _alt(caption: Caption, frame: pd.DataFrame, players: dict[str, str]) -> str:
    """Return what can be told of a figure in words, from what it draws."""
    panels, drawn = (list(dict.fromkeys(frame[column])) for column in ("panel", "player"))
    names = ", ".join(plain(players.get(name, name)) for name in drawn)
    return f"{caption.title}. Panels: {', '.join(panels)}. Shown: {names}. The csv below holds all that is drawn."


def _games(figure: Figure, metrics: Metrics) -> Iterator[dict[str, Any]]:
    """Yield the final regrets in every evaluation that a figure draws."""
    for experiment, evaluation in figure.sources:
        of = metrics[experiment][evaluation]
        interval = [None if value is None else round(value, 6) for value in of["paired_difference"]]
        others = {name: of["algorithms"][name]["mean"] for name in figure.players if name in of["algorithms"]}
        yield {
            "experiment": experiment,
            "evaluation": evaluation,
            "base": of["base"]["mean"],
            "trained": of["trained"]["mean"],
            "interval": interval,
            "exponent": of["trained"]["exponent"],
            "n": of["n"],
            "others": others,
        }


def _table(job: ReportJob, files: dict[str, Path], label: str, captions: Captions, known: KnownOfPaper) -> Entry:
    table, caption = job.tables[label], captions.of("tables", label)
    csv, md = (files[f"results/tables/{label}.{ending}"] for ending in ("csv", "md"))
    of_label = known.tables.get(label, [])
    tidy = explained(read_csv(csv, VALUES), of_label)
    beside = tidy[tidy["paper"].notna()]
    keys = [column for column in tidy if column not in (*VALUES, "reason")]
    return Entry(
        kind="tables",
        label=label,
        caption=caption,
        verdict=table_verdict(tidy, of_paper=caption.paper is not None),
        known=of_label,
        models={name: job.models[name] for name in table.experiments},
        scale_note=job.table_notes[label],
        keys=keys,
        values=[_value(row, keys) for row in beside.to_dict("records")],
        more=len(tidy) - len(beside),
        notes=[line.removeprefix("- ") for line in read_text(md).splitlines() if line.startswith("- ")],
    )


def _value(row: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return one value beside the paper's; one that is no number, such as <0.001, has no difference."""
    try:
        apart = float(row["ours"]) - float(row["paper"])
    except ValueError:
        apart = None
    return {**row, "key": [row[name] for name in keys], "difference": apart}
