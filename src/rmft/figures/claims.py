"""What responses claim, beside what happened: Fig. `reasoning-comparison`."""

import textwrap
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.replies import read_claims, read_replies
from rmft.figures.frames import joined
from rmft.figures.page import PLAIN, Run, draw_page, height_of, rows_of, runs_of
from rmft.figures.style import label
from rmft.params.outputs import Style
from rmft.reasoning import ALL, DIFFERENCE
from rmft.workflow.records_outputs import FigureJob

COLUMN, BETWEEN, MARGIN = 58, 2, 1  # characters: of a response's box, between two boxes, within a box
TITLE, PLAYER, HISTORY, RIGHT, WRONG, NOTE = "title", "player", "history", "right", "wrong", "note"
LOOKS = {
    TITLE: {"weight": "bold"},
    PLAYER: {"weight": "bold"},
    HISTORY: {"color": "#666666"},
    RIGHT: {"color": "#0072B2"},
    WRONG: {"color": "#C00000", "weight": "bold"},
    NOTE: {"color": "#7B3294"},
}
BOXES = {"base": "#F1F1F1", "trained": "#FBEFE4"}
ACCURACY = ["player", "kind", "claims", "with_claims", "accuracy", "low", "high"]
KEY = (("What can be checked: ", PLAIN), ("right is blue", RIGHT), (", ", PLAIN), ("wrong is red and bold", WRONG))


def claims_side_by_side(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw, for each evaluation, the players' responses in one round of one instance, with their claims marked.

    The round is the one in which the players differ most in claims that are wrong; of several, one in which they differ
    as they do over all rounds, with most claims, and the first of those.
    """
    frames, boxes, top = [], [], 0.0
    for i, (experiment, evaluation) in enumerate(job.figure.sources):
        title = f"{job.experiment_titles[experiment]}: {job.titles[evaluation]}"
        sides, place = _sides(job.figure.players, *paths[3 * i : 3 * i + 3])
        panel = f"{title}; {place}"
        frames.append(rows_of(panel, "caption", [Run(0, top, panel, TITLE)]))
        height = max(len(history) + height_of(response) + len(notes) for history, response, notes in sides.values()) + 1
        for number, (player, side) in enumerate(sides.items()):
            left = number * (COLUMN + BETWEEN)
            runs, box = _side(player, side, left, top + 1.5, height, job.style)
            frames.append(rows_of(panel, player, runs))
            boxes.append(box)
        top += height + 3
    ends = accumulate(len(text) for text, _ in KEY)
    key = [Run(end - len(text), top, text, look) for end, (text, look) in zip(ends, KEY, strict=True)]
    frame = joined([*frames, rows_of("key", "caption", key)])
    columns = len(job.figure.players) * (COLUMN + BETWEEN) - BETWEEN
    return draw_page(frame, boxes, LOOKS, job.style, columns), frame


Side = tuple[list[str], list[Run], list[str]]  # what a player was shown before, its response, and notes on it


def _side(player: str, side: Side, left: int, top: float, height: int, style: Style) -> tuple[list[Run], Rectangle]:
    """Return one player's side of a panel: all its text, and the box of its response.

    height: lines of the highest side, so that boxes beside each other are equally high.
    """
    history, response, notes = side
    box_top, box_height = top + 1 + len(history), height - 1 - len(history) - len(notes)
    runs = [Run(left, top, label(style, player), PLAYER)]
    runs += [Run(left, top + 1 + i, line, HISTORY) for i, line in enumerate(history)]
    runs += [run._replace(x=left + MARGIN + run.x, line=box_top + 0.2 + run.line) for run in response]
    runs += [Run(left, box_top + box_height + 0.6 + i, line, NOTE) for i, line in enumerate(notes)]
    colour = BOXES.get(player, BOXES["base"])
    return runs, Rectangle((left, box_top), COLUMN, box_height + 0.35, color=colour, linewidth=0)


def _sides(players: Sequence[str], replies: Path, claims: Path, accuracy: Path) -> tuple[dict[str, Side], str]:
    """Return the sides of one evaluation's example by player, and which instance and round it is."""
    responses, claimed, shares = read_replies(replies), read_claims(claims), read_csv(accuracy, ACCURACY)
    overall = shares[shares["kind"] == ALL].set_index("player")
    instance, t = _example(responses, overall["accuracy"].get(DIFFERENCE, 0.0))
    at = {"training_seed": 0, "instance": instance, "t": t}
    sides = {}
    for player in players:
        row, marks = _rows(responses, player, at).iloc[0], _rows(claimed, player, at)
        last = _rows(responses, player, {**at, "t": t - 1})
        response = runs_of(row["reply"], _looks(row["reply"], marks), COLUMN - 2 * MARGIN)
        notes = [_decision(row), *textwrap.wrap(_accuracy(overall.loc[player]), COLUMN)]
        sides[player] = (textwrap.wrap(_history(row, last), COLUMN), response, notes)
    return sides, f"instance {instance}, round {t}"


def _rows(frame: pd.DataFrame, player: str, at: dict[str, int]) -> pd.DataFrame:
    mask = frame["player"] == player
    for name, value in at.items():
        mask &= frame[name] == value
    return frame[mask]


def _example(responses: pd.DataFrame, difference: float) -> tuple[int, int]:
    """Return the instance and round to show. difference: of all rounds' accuracy, trained - base."""
    first = responses[responses["training_seed"] == 0].set_index(["instance", "t"])
    base, trained = (first[first["player"] == player] for player in ("base", "trained"))
    fewer_wrong = (base["claims"] - base["right"]) - (trained["claims"] - trained["right"])
    order = pd.DataFrame(
        {
            "apart": -fewer_wrong.abs(),
            "unlike": (np.sign(fewer_wrong) != np.sign(difference)).astype(int),
            "claims": -(base["claims"] + trained["claims"]),
        }
    ).reset_index()
    chosen = order.sort_values(["apart", "unlike", "claims", "instance", "t"]).iloc[0]
    return int(chosen["instance"]), int(chosen["t"])


def _history(row: pd.Series, last: pd.DataFrame) -> str:
    """Return what a player was shown before a response, action by action. last: the row of the round before, if any."""
    parts = [
        f"{action + 1} tried {times}×" + ("" if np.isnan(average) else f", mean {average:.2f}")
        for action, (times, average) in enumerate(zip(row["times"], row["averages"], strict=True))
    ]
    before = [f" Last, {of.action + 1} paid {of.reward:.2f}." for of in last.itertuples()]
    return "So far: " + "; ".join(parts) + "." + "".join(before)


def _decision(row: pd.Series) -> str:
    """Return whether a response passes over the best action; an even policy passes over none."""
    best = row["best_action"]
    if not row["valid"]:
        return "Decides nothing valid."
    verb = "Passes over" if row["passes_over"] else "Does not pass over"
    return f"{verb} the best action, {best + 1} (true mean {row['means'][best]:.2f})."


def _accuracy(of: pd.Series) -> str:
    """Return how many claims of all rounds are right."""
    if not of["claims"]:
        return "All rounds: no claim that can be checked."
    interval = f" ({of['low']:.2%} to {of['high']:.2%})" if of["high"] > of["low"] else ""
    return (
        f"All rounds: {of['accuracy']:.2%} of {of['claims']:,.0f} claims are right{interval}; "
        f"{of['with_claims']:.0%} of replies make one."
    )


def _looks(reply: str, marks: pd.DataFrame) -> list[str]:
    """Return the look of each character of a reply: where claims overlap, a wrong one is shown."""
    looks = [PLAIN] * len(reply)
    for right in (True, False):
        for begin, end in marks.loc[marks["right"] == right, ["begin", "end"]].itertuples(index=False):
            looks[begin:end] = [RIGHT if right else WRONG] * (end - begin)
    return looks
