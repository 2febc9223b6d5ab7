"""Table `prompt-diversity-ablation`: how varied sets of scenarios are."""

from collections.abc import Collection, Mapping, Sequence

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
    verdicts = dict.fromkeys(HEADERS, "")
    if generated and len(measures) > 1:
        rich, simple, *_ = measures.values()
        for statistic in HEADERS:
            more, less = (simple, rich) if statistic in FALLS else (rich, simple)
            as_paper = more[statistic] > less[statistic]
            verdicts[statistic] = DIRECTION_ONLY if as_paper else NOT_REPRODUCED
    lines = []
    for place, (name, values) in enumerate(measures.items()):
        theirs = of_prompt.get(beside.get(name), {})
        for statistic, value in values.items():
            verdict = "" if place else verdicts[statistic]
            lines.append((name, len(texts[name]), statistic, value, None, theirs.get(statistic), verdict))
    shaped = [
        {"": header}
        | {f"paper, {prompt} prompt": _number(of_prompt[prompt][statistic]) for prompt in beside.values()}
        | {f"ours, {name} (n = {len(texts[name])})": _number(of[statistic]) for name, of in measures.items()}
        | {"verdict": verdicts[statistic]}
        for statistic, header in HEADERS.items()
    ]
    notes = [
        f"Of each set the first {most} texts, or all there are. MSTTR: of segments of {SEGMENT} words. Jargon: terms "
        "in data/scenarios/jargon.txt. The paper says neither.",
        "direction only: the first set is the more varied one of the first two, as in the paper; said where a model "
        "wrote both from their prompts."
        + ("" if generated else " These sets were written by hand, the second to be plain: no verdict."),
    ]
    title = "How varied scenarios are, by prompt"
    return RenderedTable(title, tidy_frame(KEYS, lines), pd.DataFrame(shaped), notes)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"
