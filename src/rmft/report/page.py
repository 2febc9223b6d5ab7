"""The report: its question and answer, and every figure and table with its verdict and the paper's claims or values."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.json_files import read_json
from rmft.artifacts.text import read_text
from rmft.metrics.growth import LESS
from rmft.params.outputs import Figure, Table, variant_name
from rmft.report import claims
from rmft.report.ancestry import ancestry
from rmft.report.answer import count, read_answers
from rmft.report.claims import CheckedClaim, FigureData, Metrics, check_claims
from rmft.report.evidence import Picture, final_regrets, picture
from rmft.report.glossary import linker, read_glossary
from rmft.report.recorded import read_recorded
from rmft.report.story import read_story
from rmft.report.templates import plain, rendered
from rmft.report.texts import Caption, Captions, Kind, KnownIssue, KnownIssues, read_texts
from rmft.report.verdicts import UNJUDGED, VERDICTS, explain, figure_verdict, table_verdict
from rmft.tables.layout import VALUES
from rmft.workflow.paths import FIGURE_ENDINGS, GLOSSARY, REPORT_TEXTS, TABLE_ENDINGS
from rmft.workflow.records_outputs import ReportJob

SINGULAR = {"figures": "figure", "tables": "table"}
RULES = {  # numbers in the page's explanation of verdicts
    "less": LESS,
    "near": claims.NEAR,
    "no_lower": claims.NO_LOWER,
    "fallen": claims.FALLEN,
    "exploits": claims.EXPLOITS,
    "vanished": claims.VANISHED,
    "entropy": claims.HIGH_ENTROPY,
}


@dataclass(frozen=True)
class Entry:
    """A figure or table on the page.

    issues: known ones of the paper. models: of its experiments. Of a figure: picture, alt, checked claims, and the
    final regrets of each evaluation. Of a table: key columns, the values that the paper has too, how many more its csv
    has, its cells where the paper has none of its values (the headers first), and the notes below it.
    """

    kind: Kind
    label: str
    caption: Caption
    verdict: str
    issues: list[KnownIssue]
    models: dict[str, str]
    scale_note: str | None
    picture: Picture | None = None
    alt: str = ""
    claims: list[CheckedClaim] = field(default_factory=list)
    regrets: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    cells: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Return the entry's anchor: a figure and a table may have the same label."""
        return f"{SINGULAR[self.kind]}-{self.label}"

    @property
    def name(self) -> str:
        """Return the entry's kind and label, for a reader."""
        return f"{SINGULAR[self.kind].title()} {self.label}"

    @property
    def links(self) -> dict[str, str]:
        """Return the entry's files, relative to the page, by ending."""
        endings = FIGURE_ENDINGS if self.kind == "figures" else TABLE_ENDINGS
        return {ending: f"{self.kind}/{self.label}.{ending}" for ending in endings}

    @property
    def csv(self) -> str:
        """Return the file whose ancestry the page shows."""
        return f"results/{self.kind}/{self.label}.csv"

    @property
    def counts(self) -> Counter[str]:
        """Return how many values have each verdict."""
        return Counter(value["verdict"] for value in self.values if value["verdict"])


def page(job: ReportJob, files: dict[str, Path]) -> str:
    """Return the page. files: all inputs of the report, by their path in the workflow."""
    captions, known = read_texts(*(files[path] for path in REPORT_TEXTS))
    metrics = read_json(files[f"results/{job.prefix}metrics.json"])
    entries = [
        *(_figure(job, files, label, captions, known, metrics) for label in _ordered(job.figures, captions.figures)),
        *(_table(job, files, label, captions, known) for label in _ordered(job.tables, captions.tables)),
    ]
    glossary = read_glossary(files[GLOSSARY])
    parts = {part: [entry for entry in entries if entry.caption.part == part] for part in captions.parts}
    return rendered(
        files,
        "page.html.j2",
        scale=job.scale,
        prefix=job.prefix,
        judged=bool(job.prefix) or job.scale != UNJUDGED,
        answers=read_answers(job, metrics),
        count_of=count,
        glossary=glossary,
        linked=linker(glossary),
        titles=job.titles,
        players={name: plain(label) for name, label in job.players.items()},
        smaller=any(entry.scale_note for entry in entries),
        parts={captions.parts[part]: of_part for part, of_part in parts.items() if of_part},
        counts={verdict: sum(entry.verdict == verdict for entry in entries) for verdict in VERDICTS},
        story=None if job.story is None else read_story(job, *job.story, files),
        recorded=read_recorded(files, captions),
        lineage=ancestry((entry.csv for entry in entries), files),
        in_viewer=list(job.in_words),
        rules=RULES,
    )


def _ordered(labels: Iterable[str], captions: Iterable[str]) -> list[str]:
    """Return labels in the order of their captions, those without one last: a job's record sorts them by name."""
    order = {label: place for place, label in enumerate(captions)}
    return sorted(labels, key=lambda label: order.get(label, len(order)))


def _figure(
    job: ReportJob, files: dict[str, Path], label: str, captions: Captions, known: KnownIssues, metrics: Metrics
) -> Entry:
    figure, caption = job.figures[label], captions.of("figures", label)
    png, csv = (files[f"results/figures/{label}.{ending}"] for ending in ("png", "csv"))
    frame = read_csv(csv, ["panel", "player", "series", "x", "y"])
    checked = check_claims(caption.claims, FigureData(figure, metrics, frame, job.models[figure.experiments[0]]))
    note = job.figure_notes[label]
    return Entry(
        kind="figures",
        label=label,
        caption=caption,
        verdict=figure_verdict(checked, note, in_paper=caption.paper is not None),
        issues=known.figures.get(label, []),
        models={name: job.models[name] for name in figure.experiments},
        scale_note=note,
        picture=picture(png),
        alt=_alt(caption, frame, job.players),
        claims=checked,
        regrets=list(_regrets(figure, metrics)),
    )


def _alt(caption: Caption, frame: pd.DataFrame, players: dict[str, str]) -> str:
    """Return a description of a figure for readers who do not see it."""
    panels, drawn = (list(dict.fromkeys(frame[column])) for column in ("panel", "player"))
    names = ", ".join(plain(players.get(name, name)) for name in drawn)
    return f"{caption.title}. Panels: {', '.join(panels)}. Shown: {names}. The csv below holds all that is drawn."


def _regrets(figure: Figure, metrics: Metrics) -> Iterator[dict[str, Any]]:
    """Yield the final regrets in every evaluation that a figure draws."""
    for experiment, evaluation in figure.sources:
        of = metrics[experiment][evaluation]
        regrets = final_regrets(experiment, evaluation, of)
        drawn = {name: regrets["others"][name] for name in figure.players if name in regrets["others"]}
        yield regrets | {"exponent": of["trained"]["exponent"], "others": drawn}


def _table(job: ReportJob, files: dict[str, Path], label: str, captions: Captions, known: KnownIssues) -> Entry:
    table, caption = job.tables[label], captions.of("tables", label)
    csv, md = (files[f"results/tables/{label}.{ending}"] for ending in ("csv", "md"))
    issues = known.tables.get(label, [])
    tidy = explain(read_csv(csv, VALUES), issues)
    compared = tidy[tidy["paper"].notna()]
    keys = [column for column in tidy if column not in (*VALUES, "reason")]
    rows, lines = compared.to_dict("records"), read_text(md).splitlines()
    return Entry(
        kind="tables",
        label=label,
        caption=caption,
        verdict=table_verdict(tidy, in_paper=caption.paper is not None),
        issues=issues,
        models={name: job.models[name] for name in table.experiments},
        scale_note=job.table_notes[label],
        keys=keys,
        values=[_value(row, keys) | {"source": _source(job, table, row)} for row in rows],
        more=len(tidy) - len(compared),
        cells=[] if rows else _cells(lines),
        notes=[line.removeprefix("- ") for line in lines if line.startswith("- ")],
    )


def _cells(lines: list[str]) -> list[list[str]]:
    """Return the cells of a table in Markdown, the headers first."""
    header, _, *rows = (line for line in lines if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]


def _value(row: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return a value of ours beside the paper's; a text such as <0.001 has no difference."""
    try:
        difference = float(row["ours"]) - float(row["paper"])
    except ValueError:
        difference = None
    return {**row, "key": [row[name] for name in keys], "difference": difference}


def _source(job: ReportJob, table: Table, row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the experiment and evaluation whose games a value comes from; None where its row does not name them."""
    if not table.experiments:
        return None
    first, player = table.experiments[0], str(row.get("player", ""))
    variants = (name for name in table.experiments if player.endswith(f"-{variant_name(first, name)}"))
    experiment = row.get("experiment") or next(variants, first)
    evaluation = row.get("evaluation") or row.get("reward") or next(iter(table.evaluations), None)
    return (experiment, evaluation) if evaluation in job.titles[experiment] else None
