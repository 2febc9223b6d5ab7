"""Tables of how large regret gets and how fast it grows: `open-FOL-indist`, `-appendix-A2`, `FOL-*`, `nsmab`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from rmft.metrics.comparison import smallest_sample
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import (
    NOT_REPRODUCED,
    RULE,
    Estimation,
    RenderedTable,
    direction_verdict,
    notes_on_comparison,
    tidy_frame,
    value_verdict,
)
from rmft.tables.measured import MAXIMA, RegretStatistics, regret_statistics

TITLES = {
    "open-FOL-indist": "Regret in full-information online learning with d = 3, trained on T = 25, played to T = 50",
    "open-FOL-indist-appendix-A2": "The same with d = 2 and policies stated in words",
    "FOL-indist": "Regret in full-information online learning with real-world contexts, trained and played on T = 15",
    "FOL-ood-horizon": "The same played to T = 25",
    "FOL-ood-gemini": "The same told in another voice",
    "FOL-ood-reward": "The same with rewards of other processes",
    "FOL-ood-action": "The same with d = 4, trained on d = 3",
    "nsmab": "Regret in non-stationary bandits with real-world contexts, trained on T = 25",
}
HEADERS = {  # the statistics that the paper may print, by their name in csv
    "max": "max(LR)",
    "mean": "avg(LR)",
    "exponent": "exponent",
    "suff_fail_freq": "SuffFailFreq(0.98T)",
}
DECIMALS = 2  # that the paper prints
KEYS = ["reward", "player", "instances"]
PAPER = ["reward", "player", "model", "T", "instances", "statistic", "value"]  # columns of the paper's values


@dataclass(frozen=True)
class PaperRegret:
    """The paper's values for one player under one reward process, and the games they come from."""

    model: str | None
    horizon: int
    instances: int
    values: dict[str, float]


@dataclass(frozen=True)
class RegretRow:
    """One player under one reward process on so many instances, the paper's values, and the verdicts on them."""

    reward: str
    player: str
    ours: RegretStatistics
    paper: PaperRegret | None
    verdicts: dict[str, str]


def regret_table(
    estimation: Estimation,
    results: Mapping[str, Mapping[str, PlayerResults]],
    paper: pd.DataFrame,
    beside: Mapping[str, str],
    model: str,
) -> RenderedTable:
    """Set largest and mean regret and its growth beside the paper's: on as many instances, and on all there are.

    results: by reward process and player. beside: the paper's players by our names for them.
    model: the one that plays as `base` and `trained`.
    """
    of_paper = _read(paper)
    rows = [row for item in results.items() for row in _rows(estimation, *item, of_paper, beside, model)]
    return RenderedTable(
        TITLES.get(estimation.label, estimation.label),
        tidy_frame(KEYS, (line for row in rows for line in _tidy(row))),
        _shaped(rows, [name for name in HEADERS if name in set(paper["statistic"])], model),
        _notes(rows, beside, model),
    )


def _read(paper: pd.DataFrame) -> dict[tuple[str, str], PaperRegret]:
    """Return the paper's values by reward process and player."""
    regrets = {}
    for key, rows in paper.groupby(["reward", "player"], sort=False):
        first = rows.iloc[0]
        values = dict(zip(rows["statistic"], rows["value"].astype(float), strict=True))
        model = first["model"] if isinstance(first["model"], str) else None
        regrets[key] = PaperRegret(model, int(first["T"]), int(first["instances"]), values)
    return regrets


def _rows(
    estimation: Estimation,
    reward: str,
    players: Mapping[str, PlayerResults],
    of_paper: Mapping[tuple[str, str], PaperRegret],
    beside: Mapping[str, str],
    model: str,
) -> Iterator[RegretRow]:
    """Yield the rows of one reward process: the paper's players in its order, then the others."""
    ours_of = {beside.get(name, name): name for name in players}
    papers = {name: of_paper.get((reward, theirs)) for theirs, name in ours_of.items()}
    first = [ours_of[player] for process, player in of_paper if process == reward and player in ours_of]
    m = max(printed.instances for printed in of_paper.values())
    statistics = {name: regret_statistics(estimation, reward, name, of, m) for name, of in players.items()}
    for name in dict.fromkeys([*first, *players]):
        paper = papers[name]
        for ours, base in zip(statistics[name], statistics["base"], strict=True):
            verdicts = dict.fromkeys(HEADERS, "")
            if paper and players[name].regret.shape[2] == paper.horizon:
                fall_from = (base, papers["base"]) if name == "trained" else None
                verdicts |= {
                    statistic: _verdict(statistic, ours, paper, model, fall_from) for statistic in paper.values
                }
            yield RegretRow(reward, name, ours, paper, verdicts)


def _verdict(
    statistic: str,
    ours: RegretStatistics,
    paper: PaperRegret,
    model: str,
    base: tuple[RegretStatistics, PaperRegret] | None,
) -> str:
    """Return the verdict on a value of the paper. base: ours and the paper's base model, if this is the trained one.

    Values are compared if the same model played, or an algorithm, on at least the paper's number of instances; for a
    trained model only if several training seeds show how far two runs differ. If the value is not compared or not
    reproduced, the trained model's difference to the base model is compared in direction, on any number of instances.
    A largest regret has no verdict where it has no standard error.
    """
    if statistic in MAXIMA and math.isnan(ours.error(statistic)):
        return ""
    verdict = ""
    if paper.model in (None, model) and ours.instances >= paper.instances and not (base and ours.runs == 1):
        error = ours.error_to_paper(statistic)
        sample = smallest_sample(ours.instances, ours.runs)
        verdict = value_verdict(ours.values[statistic], error, paper.values[statistic], sample, DECIMALS)
    if base is None or verdict not in ("", NOT_REPRODUCED):
        return verdict
    our_base, paper_base = base
    difference = paper.values[statistic] - paper_base.values[statistic]
    return direction_verdict(*ours.above(our_base, statistic), difference)


def _tidy(row: RegretRow) -> Iterator[tuple]:
    for name, value in row.ours.values.items():
        error = None if name == "dropped" else row.ours.error(name)
        paper = row.paper.values.get(name) if row.paper else None
        yield row.reward, row.player, row.ours.instances, name, value, error, paper, row.verdicts.get(name, "")


def _shaped(rows: list[RegretRow], columns: list[str], model: str) -> pd.DataFrame:
    """Return the paper's columns; for every player a line with the paper's values, lines of ours, and the verdicts.

    columns: the statistics that the paper prints in this table.
    """
    lines: dict[tuple[str, str], dict[str, str]] = {}

    def put(row: RegretRow, source: str, cells: list[str]) -> None:
        headers = (f"{row.reward} {HEADERS[name]}" for name in columns)
        lines.setdefault((row.player, source), {}).update(zip(headers, cells, strict=True))

    for row in rows:
        if row.paper:
            source = f"paper, {row.paper.model}" if row.paper.model else "paper"
            put(row, source, [f"{row.paper.values[name]:.2f}" for name in columns])
        source = f"ours, {model}" if row.player in ("base", "trained") else "ours"
        ours = [_with_error(row.ours.values[name], row.ours.error(name)) for name in columns]
        put(row, f"{source}, n = {row.ours.instances}", ours)
    for row in rows:
        if any(row.verdicts.values()):
            put(row, "verdict", [row.verdicts[name] for name in columns])  # rows with the most instances come last
    shown = [{"player": player, "": source, **cells} for (player, source), cells in lines.items()]
    order = {player: place for place, player in enumerate(dict.fromkeys(row.player for row in rows))}
    return pd.DataFrame(sorted(shown, key=lambda line: order[line["player"]])).fillna("")


def _with_error(value: float, error: float) -> str:
    return f"{value:.2f}" if math.isnan(error) else f"{value:.2f} ± {error:.2f}"


def _notes(rows: list[RegretRow], beside: Mapping[str, str], model: str) -> list[str]:
    m, runs = next(row.paper for row in rows if row.paper).instances, max(row.ours.runs for row in rows)
    return [
        "max(LR), avg(LR): largest and mean regret at round T. exponent: β̂ of log Regret(t) on log t, as the paper's "
        "text defines it. Of FTRL it is near the β̂ printed here, while in the tables of Section 4 the slope is.",
        f"n: instances. The paper's are {m}, as it says for Section 5; for Section 6 we assume it. Where ours are "
        f"more, max(LR) is the mean of the largest of {m} among them and the verdict is on them; the csv has the "
        "largest of all as well, and the slope. Where they are fewer, max(LR) is the largest of n games, on average "
        f"below that of {m}.",
        f"±: standard error over instances{' and training seeds' if runs > 1 else ', of one training'}. max(LR) "
        "has none, and no verdict either, unless all games are alike: the bootstrap of a maximum does not converge.",
        f"{RULE}not reproduced: else. The paper's value has the standard error of one run on {m} instances.",
        f"Values are compared where at least {m} instances were played, of a trained model where it is the paper's and "
        "several training seeds are run. Else it is "
        "compared with its base model on the same instances: direction only where it is below it too, not reproduced "
        "where it is above, inconclusive where that is not sure (95% interval, Student's t), empty where the "
        "paper's is not below.",
        *notes_on_comparison(beside, model, (row.paper.model for row in rows if row.paper and row.paper.model)),
        *([] if any(any(row.verdicts.values()) for row in rows) else ["No verdicts: other games than the paper's."]),
    ]
