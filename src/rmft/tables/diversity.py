"""Table `prompt-diversity-ablation`: how varied sets of scenarios are."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import pandas as pd

from rmft.language.diversity import SEGMENT, diversity
from rmft.tables.layout import DIRECTION_ONLY, NOT_REPRODUCED, RenderedTable, tidy_frame

HEADERS = {
    "vocabulary": "vocabulary (higher: more varied)",
    "yule_k": "Yule's K (lower: more varied)",
    "msttr": "MSTTR (higher: more varied)",
    "jargon": "jargon terms (higher: more varied)",
}
FALLS = {"yule_k"}  # measures that fall as texts become more varied
RICH, SIMPLE = "rich", "simple"  # the paper's prompts, set beside the first and the second set
KEYS = ["scenarios", "texts"]
PAPER = ["prompt", "texts", "statistic", "value"]  # columns of the paper's values


def diversity_table(
    texts: Mapping[str, Sequence[str]], jargon: Collection[str], paper: pd.DataFrame, *, generated: bool
) -> RenderedTable:
    """Measure the first texts of each set, as many as the paper has; the first two stand beside its two prompts.

    texts: of each set of scenarios. generated: whether a model wrote the first two sets, so that they have verdicts.
    """
    most = int(paper["texts"].max())
    texts = {name: of_set[:most] for name, of_set in texts.items()}
    measures = {name: diversity(of_set, jargon) for name, of_set in texts.items()}
    of_prompt = {
        prompt: dict(zip(rows["statistic"], rows["value"].astype(float), strict=True))
        for prompt, rows in paper.groupby("prompt")
    }
    beside = dict(zip(texts, (RICH, SIMPLE), strict=False))
    first_two = list(measures.values())[:2] if generated else []
    verdicts = dict(zip(HEADERS, _verdicts(first_two), strict=True))
    lines = []
    for place, (name, values) in enumerate(measures.items()):
        theirs = of_prompt.get(beside.get(name), {})
        for statistic, value in values.items():
            verdict = "" if place else verdicts[statistic]
            lines.append((name, len(texts[name]), statistic, value, None, theirs.get(statistic), verdict))
    tidy = tidy_frame(KEYS, lines)
    notes = [
        f"Of each set the first {most} texts, or all there are. MSTTR: of segments of {SEGMENT} words. Jargon: terms "
        "in data/scenarios/jargon.txt. The paper says neither.",
        "direction only: the first set is the more varied one of the first two, as in the paper; said where a model "
        "wrote both from their prompts."
        + ("" if generated else " These sets were written by hand, the second to be plain: no verdict."),
    ]
    return RenderedTable("How varied scenarios are, by prompt", tidy, pd.DataFrame(_shaped(tidy, beside)), notes)


def _verdicts(first_two: Sequence[dict[str, float]]) -> list[str]:
    """Return for each measure whether the first set is more varied than the second; no verdict for fewer sets."""
    if len(first_two) < 2:
        return [""] * len(HEADERS)
    rich, simple = first_two
    as_paper = [(rich[name] < simple[name]) if name in FALLS else (rich[name] > simple[name]) for name in HEADERS]
    return [DIRECTION_ONLY if agrees else NOT_REPRODUCED for agrees in as_paper]


def _shaped(tidy: pd.DataFrame, beside: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield a line for each measure: the paper's values, then ours by set."""
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
