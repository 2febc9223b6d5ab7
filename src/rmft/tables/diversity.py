"""RenderedTable `prompt-diversity-ablation`: how varied sets of scenarios are."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.files import noted
from rmft.language.diversity import SEGMENT, diversity, read_jargon
from rmft.language.scenarios import read_scenarios
from rmft.tables.layout import DIRECTION_ONLY, NOT_REPRODUCED, VALUES, RenderedTable
from rmft.workflow.records import TableJob

HEADERS = {
    "vocabulary": "vocabulary (higher: more varied)",
    "yule_k": "Yule's K (lower: more varied)",
    "msttr": "MSTTR (higher: more varied)",
    "jargon": "jargon terms (higher: more varied)",
}
FALLS = {"yule_k"}  # where texts are more varied
RICH, SIMPLE = "rich", "simple"  # the paper's prompts, beside the first set and the second
KEYS = ["scenarios", "texts"]


def diversity_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Measure the first texts of each set, as many as the paper has; the first two stand beside its two prompts."""
    *files, terms, values = paths
    paper = read_csv(values, ["prompt", "texts", "statistic", "value"])
    jargon, most = read_jargon(noted(terms)), int(paper["texts"].max())
    measured = {
        name: (texts := [scenario.text for scenario in read_scenarios(noted(file))][:most], diversity(texts, jargon))
        for name, file in zip(job.table.scenarios, files, strict=True)
    }
    printed = {
        name: dict(zip(of["statistic"], of["value"].astype(float), strict=True)) for name, of in paper.groupby("prompt")
    }
    beside = dict(zip(job.table.scenarios, (RICH, SIMPLE), strict=False))
    first_two = [found for _, found in measured.values()][:2] if job.generated else []
    verdicts = dict(zip(HEADERS, _verdicts(first_two), strict=True))
    lines = []
    for place, (name, (texts, found)) in enumerate(measured.items()):
        theirs = printed.get(beside.get(name), {})
        for statistic, value in found.items():
            verdict = "" if place else verdicts[statistic]
            lines.append((name, len(texts), statistic, value, None, theirs.get(statistic), verdict))
    tidy = pd.DataFrame(lines, columns=[*KEYS, *VALUES])
    notes = [
        f"Of each set the first {most} texts, or all there are. MSTTR: of segments of {SEGMENT} words. Jargon: terms "
        "in data/scenarios/jargon.txt. The paper says neither.",
        "direction only: the first set is the more varied one of the first two, as in the paper; said where a model "
        "wrote both from their prompts."
        + ("" if job.generated else " These sets were written by hand, the second to be plain: no verdict."),
    ]
    return RenderedTable("How varied scenarios are, by prompt", tidy, pd.DataFrame(_shaped(tidy, beside)), notes)


def _verdicts(first_two: Sequence[dict[str, float]]) -> list[str]:
    """Say of each statistic whether the first set is the more varied one."""
    if len(first_two) < 2:
        return [""] * len(HEADERS)
    rich, simple = first_two
    as_paper = [(rich[name] < simple[name]) if name in FALLS else (rich[name] > simple[name]) for name in HEADERS]
    return [DIRECTION_ONLY if so else NOT_REPRODUCED for so in as_paper]


def _shaped(tidy: pd.DataFrame, beside: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield a line a statistic: the paper's values, then ours by set."""
    for statistic, header in HEADERS.items():
        rows = tidy[tidy["statistic"] == statistic]
        line = {"": header}
        for _, row in rows.iterrows():
            if row["scenarios"] in beside:
                line[f"paper, {beside[row['scenarios']]} prompt"] = _number(row["paper"])
        for _, row in rows.iterrows():
            line[f"ours, {row['scenarios']} (n = {row['texts']})"] = _number(row["ours"])
        line["verdict"] = "".join(rows["verdict"])
        yield line


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"
