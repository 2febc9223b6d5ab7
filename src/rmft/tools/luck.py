"""`rmft luck`: how much of a best-of-n's advantage is left where the same actions meet rewards that are drawn again.

Rewards drawn again are not drawn here: earnings are linear in rewards, so the average over all new draws is what the
same actions earn on the mean rewards. The comparator of regret is a constant of its group, and cancels.

Symbols: T rounds, d actions, K of each L trajectories are kept.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rmft.artifacts.files import reading
from rmft.artifacts.here import from_here
from rmft.artifacts.trajectories import read_selection, trajectory_batches
from rmft.environments.regret import Notion
from rmft.errors import InputError
from rmft.metrics.luck import Selection, lead_of_selected, survival
from rmft.params import load
from rmft.params.files import experiment_in
from rmft.selection import Scoring, final_regrets, rerolled_regrets, table_of
from rmft.tools.show import scoring_of
from rmft.tools.terminal import empty_table

if TYPE_CHECKING:
    from rich.table import Table

FILES = "rollouts.parquet, selection.parquet or a file of JSON lines (.jsonl)"
NO_REDRAW = (
    "has neither `means` (of each action's reward) nor `redrawn` (what the same actions earned on new draws), "
    "so its rewards cannot be drawn again"
)


@dataclass(frozen=True)
class Keep:
    """Which trajectories are kept: the best K of each L of a group, in the file's order; of all where L is None."""

    best: int
    of: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `best:K/L` or `best:K` says. Raise InputError for any other text."""
        match = re.fullmatch(r"best:([1-9][0-9]*)(?:/([1-9][0-9]*))?", text)
        best, of = (int(match[1]), match[2] and int(match[2])) if match else (0, None)
        if not best or (of is not None and best >= of):
            raise InputError(f"--keep: {text!r}: must be best:K/L, such as best:1/10, with K less than L; or best:K")
        return cls(best, of)

    def __str__(self) -> str:
        return f"best {self.best}{'' if self.of is None else f' of {self.of}'}"

    def mask(self, scenario: np.ndarray, regret: np.ndarray) -> np.ndarray:
        """Return which trajectories are kept. Raise InputError where a group does not divide into parts of L."""
        kept = np.zeros(len(scenario), dtype=bool)
        _, first, place, counts = np.unique(scenario, return_index=True, return_inverse=True, return_counts=True)
        groups = np.split(np.argsort(place, kind="stable"), np.cumsum(counts)[:-1])
        for group in np.argsort(first):
            rows = groups[group]
            size = self.of or len(rows)
            count = f"--keep: group {scenario[rows[0]]} has {len(rows)} trajectories"
            if len(rows) < size or self.best >= size:
                raise InputError(f"{count}, too few to keep the {self}")
            if len(rows) % size:
                raise InputError(f"{count}, which do not divide into parts of {size}: some would be in no part")
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                kept[part[np.argsort(regret[part], kind="stable")[: self.best]]] = True
        return kept


def selection_in(path: Path, keep: Keep | None, notion: Notion | None) -> Selection:
    """Return a selection of the trajectories in a file: rollouts, a selection, or JSON lines.

    keep: which are selected; None where the file says so itself. notion: the regret that selects, of rollouts that
    belong to no experiment. Raise InputError where the file does not hold what the audit needs.
    """
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; name {FILES}")
    if notion and (path.suffix == ".jsonl" or path.stem == "selection"):
        raise InputError(f"--regret: goes with rollouts.parquet alone; {path} has the regrets that it is about")
    if path.suffix == ".jsonl":
        selection = _of_lines(path)
    elif path.suffix == ".parquet":
        selection = read_selection(path) if path.stem == "selection" else _of_rollouts(path, notion)
    else:
        raise InputError(f"{path}: must be {FILES}")
    if keep:
        selection["selected"] = keep.mask(selection["scenario"], selection["regret"])
    elif "selected" not in selection:
        raise InputError(f"{path}: does not say which trajectories were selected; say it: --keep best:1/10")
    if not selection["selected"].any():
        raise InputError(f"{path}: no trajectory of it is selected")
    return selection | {"scenario": np.unique(selection["scenario"], return_inverse=True)[1]}


def _of_rollouts(path: Path, notion: Notion | None) -> Selection:
    scoring = _scoring(path, notion)
    parts: list[tuple[np.ndarray, ...]] = []
    for played in trajectory_batches(path, tokens=False):
        rewards = table_of(played)
        regrets = (of(played, rewards, scoring) for of in (final_regrets, rerolled_regrets))
        parts.append((np.array(played["scenario"]), *regrets))
    columns = map(np.concatenate, zip(*parts, strict=True))
    return dict(zip(("scenario", "regret", "rerolled"), columns, strict=True))


def _scoring(path: Path, notion: Notion | None) -> Scoring:
    """Return the regret that selects rollouts: this one, or that of their experiment."""
    name = experiment_in(from_here(path))
    if name and Path("params.yaml").exists() and name in (params := load().at_scale()).experiments:
        scoring = scoring_of(path, params)
        return replace(scoring, notion=notion) if notion else scoring
    if not notion:
        raise InputError(f"{path}: of no experiment here; say what selects: --regret realized (actions) or expected")
    return Scoring("fol", notion)  # of the rewards that were drawn


def _of_lines(path: Path) -> Selection:
    """Return the selection in a file of JSON lines, which docs/measure.md describes."""
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path}: has no lines")
    scenario, regret, rerolled, selected = zip(*rows, strict=True)
    columns = {"scenario": scenario, "regret": regret, "rerolled": rerolled}
    selection = {name: np.array(column) for name, column in columns.items()}
    if None in selected and any(one is not None for one in selected):
        raise InputError(f"{path}: `selected` is in some lines only; give it in all, or in none with --keep")
    return selection if None in selected else selection | {"selected": np.array(selected, dtype=bool)}


def _rows(path: Path) -> Iterator[tuple[str, float, float, bool | None]]:
    """Yield group, -earned, -earned on new draws, and whether it was selected, of each line."""
    with reading(path), path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                earned, again = _earned(line)
                if line.get("selected") not in (None, True, False):
                    raise ValueError("`selected` must be true or false")
                yield str(line["group"]), -earned, -again, line.get("selected")
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                reason = f"has no {error}" if isinstance(error, KeyError) else str(error) or "is no trajectory"
                raise InputError(f"{path}: line {number}: {' '.join(reason.split())}") from None


def _earned(line: dict[str, Any]) -> tuple[float, float]:
    """Return what a line's trajectory earned, and what it earns on average where rewards are drawn again."""
    if "redrawn" in line:
        totals = np.array(line["reward"], dtype=float), np.array(line["redrawn"], dtype=float)
        if totals[0].ndim or not totals[1].size or not all(np.isfinite(of).all() for of in totals):
            raise ValueError("`reward` must be a number, and `redrawn` a number or several")
        return float(totals[0]), float(totals[1].mean())
    if "means" not in line:
        raise ValueError(NO_REDRAW)
    actions = np.array(line["actions"])
    if actions.ndim != 1 or not len(actions) or actions.dtype.kind != "i":
        raise ValueError("`actions` must be whole numbers from 0, one a round")
    rewards, means = _table(line, "rewards", actions), _table(line, "means", actions)
    return float(rewards.sum()), float(means.sum())


def _table(line: dict[str, Any], name: str, actions: np.ndarray) -> np.ndarray:
    """Return what the actions (T,) are paid: (T,), by a table (T, d); `rewards` may be (T,) and `means` (d,)."""
    values, rounds = np.array(line[name], dtype=float), np.arange(len(actions))
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite numbers")
    if values.ndim == 1 and name == "rewards" and len(values) == len(actions):
        return values
    table = np.broadcast_to(values, (len(actions), len(values))) if values.ndim == 1 and name == "means" else values
    if table.ndim != 2 or len(table) != len(actions):
        short = "of the actions played" if name == "rewards" else "of each action"
        raise ValueError(f"`{name}` must have a row for each of the {len(actions)} rounds, or be a list {short}")
    if actions.min() < 0 or actions.max() >= table.shape[1]:
        raise ValueError(f"`{name}` has {table.shape[1]} actions, 0 to {table.shape[1] - 1}, and `actions` has others")
    return table[rounds, actions]


def as_text(selection: Selection) -> Iterator["Table | str"]:
    """Yield the audit: a table, and what it says in a sentence."""
    (hindsight, again), (share, error) = lead_of_selected(selection), survival(selection)
    groups, kept = len(np.unique(selection["scenario"])), int(selection["selected"].sum())
    table = empty_table(f"{kept} of {len(selection['regret'])} trajectories are selected")
    for header in ("advantage in hindsight", "on redrawn rewards", "share", "standard error", "groups"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = [f"{round(value, 2) + 0.0:.0%}" if np.isfinite(value) else "unknown" for value in (share, error)]
    table.add_row(*(f"{round(value, 2) + 0.0:+.2f}" for value in (hindsight, again)), *shown, str(groups))
    yield table
    if np.isnan(share):
        yield "The selected trajectories earned no more than the average of their group: no advantage could be luck."
        return
    known = (
        f"with a standard error of {shown[1]}" if groups > 1 else "and one group alone does not say how sure that is"
    )
    yield (
        f"The selected trajectories earned {hindsight:.2f} more than the average of their group; where the same "
        f"actions meet rewards that are drawn again, {shown[0]} of that is left, {known}."
    )
