"""Tables of how large regret gets and how fast it grows: `open-FOL-indist`, `-appendix-A2`, `FOL-*`, `nsmab`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmft.artifacts.csv_files import read_csv
from rmft.results import PlayerResults, read_variants
from rmft.tables.layout import (
    AGREEMENT,
    CONFIDENT,
    NOT_REPRODUCED,
    TOLERANCE,
    VALUES,
    RenderedTable,
    direction_verdict,
    value_verdict,
)
from rmft.tables.measured import Measured, measure
from rmft.workflow.records import TableJob

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


@dataclass(frozen=True)
class Printed:
    """What the paper prints of one player under one process, and of which games."""

    model: str | None
    horizon: int
    instances: int
    values: dict[str, float]


def _columns(printed: Iterable[Printed]) -> dict[str, str]:
    """Return the statistics that the paper prints in this table, with the headers of their columns."""
    there = {name for of in printed for name in of.values}
    return {name: header for name, header in HEADERS.items() if name in there}


@dataclass(frozen=True)
class Row:
    """One player under one process on so many instances, what the paper prints, and what became of it."""

    reward: str
    player: str
    measured: Measured
    printed: Printed | None
    verdicts: dict[str, str]


def regret_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Set largest and mean regret and its growth beside the paper's: on as many instances, and on all there are."""
    *evaluations, paper = paths
    printed = _printed(paper)
    rows = [
        row
        for reward, players in read_variants(job.sources, evaluations).items()
        for row in _rows(job, printed, reward, players)
    ]
    tidy = pd.concat(map(_tidy, rows), ignore_index=True)
    columns = _columns(printed.values())
    return RenderedTable(TITLES.get(job.label, job.label), tidy, _shaped(job, rows, columns), _notes(job, rows))


def _printed(path: Path) -> dict[tuple[str, str], Printed]:
    """Read the paper's values by reward process and player."""
    frame = read_csv(path, ["reward", "player", "model", "T", "instances", "statistic", "value"])
    found = {}
    for key, of_player in frame.groupby(["reward", "player"], sort=False):
        first = of_player.iloc[0]
        values = dict(zip(of_player["statistic"], of_player["value"].astype(float), strict=True))
        model = first["model"] if isinstance(first["model"], str) else None
        found[key] = Printed(model, int(first["T"]), int(first["instances"]), values)
    return found


def _rows(
    job: TableJob, printed: dict[tuple[str, str], Printed], reward: str, players: dict[str, PlayerResults]
) -> Iterator[Row]:
    """Yield the players: those of the paper in its order, then the others."""
    beside = {job.table.beside.get(name, name): name for name in players}
    papers = {name: printed.get((reward, theirs)) for theirs, name in beside.items()}
    first = [beside[player] for of, player in printed if of == reward and player in beside]
    m = max(of.instances for of in printed.values())
    measured = {name: measure(job, reward, name, played, m) for name, played in players.items()}
    for name in dict.fromkeys([*first, *players]):
        paper = papers[name]
        for ours, base in zip(measured[name], measured["base"], strict=True):
            verdicts = dict.fromkeys(HEADERS, "")
            if paper and players[name].regret.shape[2] == paper.horizon:
                against = (base, papers["base"]) if name == "trained" else None
                verdicts |= {of: _verdict(of, ours, paper, job.models[0], against) for of in paper.values}
            yield Row(reward, name, ours, paper, verdicts)


def _verdict(statistic: str, ours: Measured, paper: Printed, model: str, base: tuple[Measured, Printed] | None) -> str:
    """Say what became of a value of the paper. base: of a trained model, what it is held against where values fail.

    Values are held against each other where the same model played, or none, as many instances as the paper's; of a
    trained model only where several training seeds tell how far two runs are apart. A direction needs no such number:
    its error says whether the instances were enough.
    """
    verdict = ""
    if paper.model in (None, model) and ours.instances >= paper.instances and not (base and ours.runs == 1):
        error = ours.error_to_paper(statistic)
        verdict = value_verdict(ours.values[statistic], error, paper.values[statistic], DECIMALS)
    if base is None or verdict not in ("", NOT_REPRODUCED):
        return verdict
    of_ours, of_paper = base
    above = ours.above(of_ours, statistic)
    return direction_verdict(*above, paper.values[statistic] - of_paper.values[statistic])


def _tidy(row: Row) -> pd.DataFrame:
    measured, lines = row.measured, []
    for name, value in measured.values.items():
        error = None if name == "dropped" else measured.error(name)
        paper = row.printed.values.get(name) if row.printed else None
        key = (row.reward, row.player, measured.instances)
        lines.append((*key, name, value, error, paper, row.verdicts.get(name, "")))
    return pd.DataFrame(lines, columns=[*KEYS, *VALUES])


def _shaped(job: TableJob, rows: list[Row], columns: dict[str, str]) -> pd.DataFrame:
    """Return the paper's columns: of every player a line with the paper's values, lines of ours, and the verdicts."""
    lines: dict[tuple[str, str], dict[str, str]] = {}

    def put(row: Row, source: str, cells: list[str]) -> None:
        headers = (f"{row.reward} {header}" for header in columns.values())
        lines.setdefault((row.player, source), {}).update(zip(headers, cells, strict=True))

    for row in rows:
        if row.printed:
            by = f"paper, {row.printed.model}" if row.printed.model else "paper"
            put(row, by, [f"{row.printed.values[name]:.2f}" for name in columns])
        by = f"ours, {job.models[0]}" if row.player in ("base", "trained") else "ours"
        ours = [f"{row.measured.values[name]:.2f} ± {row.measured.error(name):.2f}" for name in columns]
        put(row, f"{by}, n = {row.measured.instances}", ours)
    for row in rows:
        if any(row.verdicts.values()):
            put(row, "verdict", [row.verdicts[name] for name in columns])  # on the most instances, which come last
    shown = [{"player": player, "": source, **cells} for (player, source), cells in lines.items()]
    order = {player: place for place, player in enumerate(dict.fromkeys(row.player for row in rows))}
    return pd.DataFrame(sorted(shown, key=lambda line: order[line["player"]]))


def _notes(job: TableJob, rows: list[Row]) -> list[str]:
    printed = next(row.printed for row in rows if row.printed)
    m, runs = printed.instances, max(row.measured.runs for row in rows)
    models = {row.printed.model for row in rows if row.printed and row.printed.model}
    return [
        "max(LR), avg(LR): largest and mean regret at round T. exponent: β̂ of log Regret(t) on log t, as the paper's "
        "text defines it. Of FTRL it is near the β̂ printed here, while in the tables of Section 4 the slope is.",
        f"n: instances. Where they are more than the paper's {m}, max(LR) is the mean of the largest of {m} among them "
        "and the verdict is on them; the csv has the largest of all as well, and the slope.",
        f"±: standard error over instances{' and training seeds' if runs > 1 else ', of one training run'}.",
        f"reproduced: at most {AGREEMENT:g} standard errors apart, the paper's value having that of one run on {m} "
        f"instances, and the difference plus {CONFIDENT:g} errors within {TOLERANCE:.0%} of the paper's value. "
        "inconclusive: as close, but it is wider. not reproduced: else.",
        f"Values are compared where at least {m} instances were played, of a trained model where it is the paper's and "
        "several training seeds are run. Else it is "
        "compared with its base model on the same instances: direction only where it is below it too, not reproduced "
        f"where it is above, inconclusive where that is not sure by {CONFIDENT:g} standard errors, empty where the "
        "paper's is not below.",
        *(f"{job.models[0]} plays where the paper has {model}." for model in sorted(models - {job.models[0]})),
        *(f"{ours} is set beside the paper's {theirs}." for ours, theirs in job.table.beside.items()),
        *([] if any(any(row.verdicts.values()) for row in rows) else ["No verdicts: other games than the paper's."]),
        *([job.scale_note] if job.scale_note else []),
    ]
