"""What replies say, held against what happened: Fig. `reasoning-comparison` and `reasoning-variance`."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import PercentFormatter

from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.replies import read_claims, read_replies
from rmft.figures.style import Drawing
from rmft.metrics.agreement import agreement
from rmft.reasoning import ALL, DIFFERENCE, SHARE, SHARE_ERROR
from rmft.workflow.records import FigureJob

# --- Claims ---

COLUMN, BETWEEN, MARGIN = 58, 2, 1  # characters: of a reply's box, between two boxes, within a box
WIDE = 0.602  # of a character of the font, over its size
TALL = 1.3  # of a line, over the size
PAD_POINTS = 6.0  # that the layout leaves at the sides
PLAIN, RIGHT, WRONG = "plain", "right", "wrong"
COLOURS = {PLAIN: "#222222", RIGHT: "#0072B2", WRONG: "#C00000"}
PURPLE, QUIET = "#7B3294", "#666666"
BOXES = {"base": "#F1F1F1", "trained": "#FBEFE4"}
ACCURACY = ["player", "kind", "claims", "with_claims", "accuracy", "low", "high"]
KEY = (
    ("What can be checked: ", PLAIN),
    ("right is blue", RIGHT),
    (", ", PLAIN),
    ("wrong is red and bold", WRONG),
    (".", PLAIN),
)


@dataclass(frozen=True)
class ReplySide:
    """One player's side of a round. lines: of the reply, as runs of characters (text, how it is shown)."""

    player: str
    seen: list[str]
    lines: list[list[tuple[str, str]]]
    notes: list[str]

    @property
    def height(self) -> int:
        """Return how many lines it takes."""
        return 1 + len(self.seen) + len(self.lines) + len(self.notes)


def claims_side_by_side(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw, for each evaluation, what players say in the same round of the same instance, with their claims marked.

    The round is the one in which the players differ most in claims that are wrong; of several, one in which they differ
    as they do over all rounds, with most claims, and the first of those.
    """
    drawing = Drawing(job.style, job.scale_note, 1, 1)
    blocks = [_block(job, source, *paths[3 * i : 3 * i + 3]) for i, source in enumerate(job.figure.sources)]
    lines = sum(2 + max(told.height for told in sides) + 1 for _, sides in blocks) + 1.5
    width = len(job.figure.players) * (COLUMN + BETWEEN) - BETWEEN
    size = (job.style.width_inches * 72 - PAD_POINTS) / width / WIDE
    drawing.figure.set_figheight((lines * TALL * size + PAD_POINTS) / 72 + (0.15 if job.scale_note else 0))
    ax = drawing.axes[0, 0]
    ax.set(xlim=(0, width), ylim=(lines, 0))
    ax.set_axis_off()
    pen, top = _Pen(drawing, ax, size), 0.0
    for title, sides in blocks:
        pen.write(0, top, title, weight="bold")
        for place, told in enumerate(sides):
            _draw_side(pen, place * (COLUMN + BETWEEN), top + 1.5, told, max(side.height for side in sides), title)
        top += 2 + max(told.height for told in sides) + 1
    at = 0
    for part, how in KEY:
        pen.write(at, top, part, color=COLOURS[how], weight="bold" if how == WRONG else "normal")
        at += len(part)
    return drawing


@dataclass(frozen=True)
class _Pen:
    """Writes in a fixed-width font: x in characters, y in lines."""

    drawing: Drawing
    ax: Axes
    size: float

    def write(self, x: float, y: float, text: str, **look: str) -> None:
        """Write a text that begins at x, below y."""
        about = {"family": "DejaVu Sans Mono", "fontsize": self.size, "color": COLOURS[PLAIN], "parse_math": False}
        self.ax.text(x, y, text, va="top", **(about | look))


def _draw_side(pen: _Pen, left: float, top: float, told: ReplySide, height: int, panel: str) -> None:
    """Draw what one player says: what it has seen, the reply in a box, what follows."""
    pen.write(left, top, pen.drawing.label(told.player), weight="bold")
    y = top + 1
    for line in told.seen:
        pen.write(left, y, line, color=QUIET)
        y += 1
    inside = height - 1 - len(told.seen) - len(told.notes)  # so that boxes that stand side by side are equally high
    look = {"boxstyle": "square,pad=0", "facecolor": BOXES.get(told.player, BOXES["base"]), "linewidth": 0}
    pen.ax.add_patch(FancyBboxPatch((left, y), COLUMN, inside + 0.35, **look))
    for number, line in enumerate(told.lines):
        at = left + MARGIN
        for text, how in line:
            pen.write(at, y + 0.2 + number, text, color=COLOURS[how], weight="bold" if how == WRONG else "normal")
            at += len(text)
    for number, note in enumerate(told.notes):
        pen.write(left, y + inside + 0.6 + number, note, color=PURPLE)
    lines = ["".join(text for text, _ in line) for line in told.lines]
    pen.drawing.said(panel, told.player, [*told.seen, *lines, *told.notes])
    for kind in (RIGHT, WRONG):
        marked = [text for line in told.lines for text, how in line if how == kind]
        pen.drawing.said(panel, told.player, marked, f"text: {kind}")


def _block(
    job: FigureJob, source: tuple[str, str], replies: Path, claims: Path, accuracy: Path
) -> tuple[str, list[ReplySide]]:
    """Return the title of one evaluation's example, and what each player says in it."""
    said, claimed, shares = read_replies(replies), read_claims(claims), read_csv(accuracy, ACCURACY)
    overall = shares[shares["kind"] == ALL].set_index("player")
    instance, t = _example(said, overall["accuracy"].get(DIFFERENCE, 0.0))
    at = {"training_seed": 0, "instance": instance, "t": t}
    sides = []
    for player in job.figure.players:
        row, marks = _rows(said, player, at).iloc[0], _rows(claimed, player, at)
        last = _rows(said, player, {**at, "t": t - 1})
        notes = [_decided(row), *textwrap.wrap(_overall(overall.loc[player]), COLUMN)]
        sides.append(ReplySide(player, textwrap.wrap(_seen(row, last), COLUMN), _lines(row["reply"], marks), notes))
    return f"{source[0]}, {source[1]}: instance {instance}, round {t}", sides


def _rows(frame: pd.DataFrame, player: str, at: dict[str, int]) -> pd.DataFrame:
    there = frame["player"] == player
    for name, value in at.items():
        there &= frame[name] == value
    return frame[there]


def _example(said: pd.DataFrame, difference: float) -> tuple[int, int]:
    """Return the instance and round to show. difference: of all rounds' accuracy, trained - base."""
    first = said[said["training_seed"] == 0].set_index(["instance", "t"])
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


def _seen(row: pd.Series, last: pd.DataFrame) -> str:
    """Say what a player has been shown before a reply, action by action. last: the row of the round before, if any."""
    parts = [
        f"{action + 1} tried {times}×" + ("" if np.isnan(average) else f", mean {average:.2f}")
        for action, (times, average) in enumerate(zip(row["times"], row["averages"], strict=True))
    ]
    lately = [f" Last, {of.action + 1} paid {of.reward:.2f}." for of in last.itertuples()]
    return "So far: " + "; ".join(parts) + "." + "".join(lately)


def _decided(row: pd.Series) -> str:
    """Say whether a reply passes over the best action; an even policy passes over none."""
    best = row["best_action"]
    if not row["valid"]:
        return "Decides nothing valid."
    verb = "Passes over" if row["passes_over"] else "Does not pass over"
    return f"{verb} the best action, {best + 1} (true mean {row['means'][best]:.2f})."


def _overall(of: pd.Series) -> str:
    """Say how many claims of all rounds are right."""
    if not of["claims"]:
        return "All rounds: no claim that can be checked."
    interval = f" ({of['low']:.2%} to {of['high']:.2%})" if of["high"] > of["low"] else ""
    return (
        f"All rounds: {of['accuracy']:.2%} of {of['claims']:,.0f} claims are right{interval}; "
        f"{of['with_claims']:.0%} of replies make one."
    )


def _lines(reply: str, marks: pd.DataFrame) -> list[list[tuple[str, str]]]:
    """Return a reply in lines, each as runs of characters with how they are shown."""
    how = [PLAIN] * len(reply)
    for right in (True, False):  # what is wrong is seen where two overlap
        for begin, end in marks.loc[marks["right"] == right, ["begin", "end"]].itertuples(index=False):
            how[begin:end] = [RIGHT if right else WRONG] * (end - begin)
    lines = []
    for begin, end in _wrapped(reply, COLUMN - 2 * MARGIN):
        runs = groupby(range(begin, end), key=how.__getitem__)
        lines.append([("".join(reply[i] for i in places), shown) for shown, places in runs])
    return lines


def _wrapped(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a text begin and end, broken at line ends and, where they are too long, at spaces."""
    begin = 0
    for line in text.split("\n"):
        stop = begin + len(line)
        while stop - begin > width:
            space = text.rfind(" ", begin + 1, begin + width + 1)
            cut = space if space > begin else begin + width
            yield begin, cut
            begin = cut + (text[cut] == " ")
        yield begin, stop
        begin = stop + 1


# --- Avoidance ---

JUDGES = {"unstable": "by words", "unstable_judged": "by a model"}  # columns of the replies
Z = 1.96  # of the normal distribution, for 95%


def avoidance(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw which share of replies passes over the best action because of unstable rewards, and for whatever reason.

    A line of panels an evaluation: one panel a judge that was asked, then whatever the reason. Bands are 95% intervals
    of a share (Wilson).
    """
    everything = [read_replies(path) for path in paths]
    judges = [name for name in JUDGES if any(said[name].notna().any() for said in everything)]
    drawing = Drawing(job.style, job.scale_note, len(everything), len(judges) + 1)
    for axes, (experiment, evaluation), said in zip(drawing.axes, job.figure.sources, everything, strict=True):
        for ax, column in zip(axes, [*judges, "passes_over"], strict=True):
            why = f"unstable rewards, {JUDGES[column]}" if column in JUDGES else "whatever the reason"
            panel = f"{experiment}, {evaluation}: {why}"
            totals = [_share_by_round(drawing, ax, panel, player, said, column) for player in job.figure.players]
            ax.set_title("\n".join((f"Best action passed over:\n{why}", *totals)), fontsize="small")
            ax.set(xlabel="Round $t$", ylim=(0, None))
            ax.yaxis.set_major_formatter(PercentFormatter(1))
        axes[0].set_ylabel("Share of replies")
        if len(judges) > 1:
            _tell_agreement(drawing, axes[1], f"{experiment}, {evaluation}", said)
    drawing.legend()
    return drawing


def _share_by_round(drawing: Drawing, ax: Axes, panel: str, player: str, said: pd.DataFrame, column: str) -> str:
    """Draw the share of a player's replies in each round for which a column holds; return that of all rounds."""
    of = said[said["player"] == player].dropna(subset=column)
    by_round = of[column].astype(float).groupby(of["t"])
    share, n = by_round.mean(), by_round.size()
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    spread = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    rounds = share.index.to_numpy()
    drawing.band(ax, panel, player, rounds, (middle - spread).clip(lower=0).to_numpy(), (middle + spread).to_numpy())
    drawing.line(ax, panel, player, rounds, share.to_numpy())
    total = float(of[column].astype(float).mean())
    error = error_over_instances(of, column)
    drawing.printed(panel, player, SHARE, total)
    drawing.printed(panel, player, SHARE_ERROR, error)
    return f"{drawing.label(player)} {total:.1%} ± {error:.1%}" if total else f"{drawing.label(player)}: no reply"


def error_over_instances(said: pd.DataFrame, column: str) -> float:
    """Return the standard error of a share of replies, those of one instance being alike: of a ratio of two means."""
    by_instance = said[column].astype(float).groupby(said["instance"])
    yes, n = by_instance.sum(), by_instance.size()
    apart = yes - n * yes.sum() / n.sum()
    instances = len(n)
    return float(np.sqrt((apart**2).sum() * instances / (instances - 1)) / n.sum()) if instances > 1 else math.nan


def _tell_agreement(drawing: Drawing, ax: Axes, panel: str, said: pd.DataFrame) -> None:
    """Write how the two judges agree on replies that pass over the best action."""
    both = said[said["passes_over"]].dropna(subset=list(JUDGES))
    found = agreement(*(both[name].to_numpy(dtype=bool) for name in JUDGES))
    drawing.printed(panel, "judges", "share equal", found.equal)
    drawing.printed(panel, "judges", "Cohen's kappa", found.kappa)
    kappa = "undefined" if np.isnan(found.kappa) else f"{found.kappa:.2f}"
    text = f"the judges agree on {found.equal:.1%}\nof {found.n:,} replies ($\\kappa$ = {kappa})"
    ax.text(0.97, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize="x-small")
