"""docs/forensics.md, made from data/forensics: the questions, and which readings fit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rmft.algorithms.full_information import constant_step_size
from rmft.artifacts.number_text import p_value
from rmft.metrics.comparison import holm
from rmft.tools.forensics.fits import LEVEL
from rmft.tools.forensics.questions import Question, Questions, Reading
from rmft.tools.forensics.readings import MEANS, VARIANCES
from rmft.tools.forensics.sweeps import AXES, Sweep, Sweeps

SHOWN = 5  # fitting readings, at most
NEAREST = 2  # shown where none fits
ETA_25 = constant_step_size(3, 25)
NEAREST_TRAINED = 8  # models of a sweep that are shown
SYMBOLS = {"exponent": "β̂", "beta_hat": "β̂", "suff_fail_freq": "SuffFailFreq"}
HEAD = """# Which readings of the paper fit its tables

`rmft forensics` makes this page from `data/forensics`. `data/forensics/questions.yaml` holds the questions, and
`rmft forensics QUESTION` answers one again.

Some rows of the paper's tables belong to reference algorithms. These rows need no training, so whoever plays the
documented game should find the same values up to chance. Where that fails, the text can be read in other ways. A
*reading* is one way to understand it, for example which variance the rewards have. For
each question below rmft plays every combination of the readings listed, {groups} groups of as many games as the
paper's row reports; where the paper does not say, of as many as we assume, or as the reading says.

- **As documented** means as the paper's appendix has it. Gaussian rewards have means drawn from N(5, 1) and, in each
  round, one of the variances 1, 3 and 10.
- **z** is how many standard deviations the paper's value lies above ours. The standard deviation is that of one group,
  with the error of rounding.
- **p** belongs to one test of all values of a question together: Hotelling's T² for one more group, which knows how
  values of the same games vary together. A reading *fits* if p is at least {level:g}. Among readings that fit, a
  higher p is no reason to prefer one.
- **By chance** corrects for how many readings were tried. A wrong reading can fit by chance, and with many readings one
  of them does so more easily. The column is the share of arbitrary rows that fit at least one of the readings; an
  arbitrary row has values uniform in the range that the readings span. A fit is evidence only where this share is
  small.
- **p as documented** is corrected by Holm's method for the number of questions, and *fit* is not. So p as documented
  may be above {level:g} where the documented reading does not fit.

`gaussian*` stands for Gaussian rewards with means drawn from {means}, and with one variance or an even
mixture of variances ({variances}) that is drawn for each round, action or game; clipped to
[0, 10] or not. `sine-trend*` stands for sines with other ranges of frequencies, other counts of rounds, and a
frequency or phase that all actions share. `noisy-alternating*` stands for other values on the turn and off it, other
orders of turns, and rounds that count from 0; *fading* is min(25/(t + 1), 10).

"""

SWEEP_HEAD = """# The trained rows of Section 4 under other readings

The numeric agent trained anew under every combination of the readings listed, {seeds} time{s} each, and evaluated in
{instances} games of {T} rounds. Differences between single trainings are part of what the tables show.

- **c** is the step of the FTRL nearest to the model, for rewards in [0, 1]; FTRL tuned to T = 25 has {eta:.3f}. A
  model with a negative c is no FTRL; low regret beside it comes from a fixed direction, see
  [findings](findings.md#on-the-ball).
- **distances** is the largest distance of Fig. `parameter`, as a share of its value after the first iteration.
- Columns named for rewards are slopes of Regret(t), with the paper's in the head. Gaussian rewards are drawn from the
  process of training.
- **off by** is the factor by which these slopes differ from the paper's, as a geometric mean. 1 × means equal.

"""


def page(questions: Questions, fits: Sequence[Mapping[str, Any]], sweeps: Sweeps, trained: pd.DataFrame) -> str:
    """Return the page from the lines of fits.jsonl and the frame of sweeps.csv."""
    answers = {name: [line for line in fits if line["question"] == name] for name in questions.questions}
    head = HEAD.format(
        groups=questions.groups, level=LEVEL, means=", ".join(MEANS), variances="; ".join(of for of in VARIANCES)
    )
    parts = [head, *_summary(questions, answers), "\n"]
    for name, question in questions.questions.items():
        parts += _answer(name, question, answers[name])
    seeds, instances = sweeps.training_seeds, sweeps.instances
    plural = "s" if seeds > 1 else ""
    parts.append(SWEEP_HEAD.format(seeds=seeds, s=plural, instances=instances, T=sweeps.T, eta=ETA_25))
    for name, sweep in sweeps.sweeps.items():
        parts += _sweep(sweep, trained[trained["sweep"] == name])
    return "".join(parts)


def _summary(questions: Questions, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield "| question | readings tried | fit | by chance | p as documented | with the highest p |\n"
    yield "|---|---|---|---|---|---|\n"
    corrected = holm([lines[0]["p"] for lines in answers.values()])
    for (name, lines), p in zip(answers.items(), corrected, strict=True):
        fitting = sum(line["p"] >= LEVEL for line in lines)
        best = _by_fit(lines)[0]
        reading = reading_text(best["reading"]) if fitting else "none fits"
        yield f"| [{questions.questions[name].title}](#{name}) | {len(lines)} | {fitting} "
        yield f"| {p_value(lines[0]['chance'])} | {p_value(p)} | {reading} |\n"


def _answer(name: str, question: Question, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a question's part of the page: the values, under the documented reading and those that fit best."""
    documented, *others = lines
    fitting = [line for line in _by_fit(others) if line["p"] >= LEVEL]
    nearest = _by_fit(others)[:NEAREST] if documented["p"] < LEVEL and not fitting else []
    shown = [documented, *fitting[:SHOWN], *nearest]
    yield f'<a id="{name}"></a>\n\n## {question.title}\n\n{question.text}\n\n'
    tried = "; ".join(f"{axis}: {', '.join(map(_value, values))}" for axis, values in question.readings.items())
    more = f" The {SHOWN} with the highest p are shown." if len(fitting) > SHOWN else ""
    more += " The nearest are shown." if nearest else ""
    fit = len(fitting) + (documented["p"] >= LEVEL)
    yield f"Tried: {tried}. Of {len(lines)} readings, the documented one included, {fit} fit.{more}\n\n"
    letters = [chr(ord("A") + place) for place in range(len(shown))]
    yield "| table | row | value | paper | " + " | ".join(letters) + " |\n" + "|---" * (4 + len(shown)) + "|\n"
    values = [(row, statistic, value) for row in question.rows for statistic, value in row.values().items()]
    for place, (row, statistic, (paper, half_unit)) in enumerate(values):
        decimals = max(0, round(-np.log10(2 * half_unit)))
        cells = [f"{line['ours'][place]:.{decimals}f} ({_z(line['z'][place])})" for line in shown]
        label = " ".join(row.where.values())
        symbol = SYMBOLS.get(statistic, statistic)
        yield f"| `{row.table}` | {label} | {symbol} | {paper:.{decimals}f} | {' | '.join(cells)} |\n"
    yield "| | | p | | " + " | ".join(p_value(line["p"]) for line in shown) + " |\n\n"
    yield "Ours, and z in brackets. "
    yield "; ".join(
        f"**{letter}**: {reading_text(line['reading'])}" for letter, line in zip(letters, shown, strict=True)
    )
    yield "."
    if also := fitting[SHOWN:]:
        yield f" Also fit: {len(also)} more (`data/forensics/fits.jsonl`)."
    yield "\n\n"


def _sweep(sweep: Sweep, lines: pd.DataFrame) -> Iterator[str]:
    """Yield a sweep's part of the page: one line for each reading and iteration, the nearest to the paper first."""
    varied = [axis for axis in AXES if len(sweep.readings[axis]) > 1]
    keys = [*AXES, "iteration", "step", "distances"]
    wide = lines.pivot_table(index=keys, columns="rewards", values="ours", sort=False)[[*sweep.rewards]].reset_index()
    paper = lines.drop_duplicates("rewards").set_index("rewards")["paper"]
    if sweep.table:
        ratios = wide[[*sweep.rewards]].abs() / paper[[*sweep.rewards]]
        wide["off by"] = np.exp(np.log(ratios).abs().mean(axis=1))
    else:
        wide["off by"] = wide[[*sweep.rewards]].mean(axis=1)
    documented = (wide[[*AXES]] == [sweep.readings[axis][0] for axis in AXES]).all(axis=1)
    ranked = wide.sort_values("off by", kind="stable")
    last = wide[documented & (wide["iteration"] == wide["iteration"].max())]
    shown = pd.concat([last, ranked.drop(last.index).head(NEAREST_TRAINED)])
    yield f"### {sweep.title}\n\n{sweep.text}\n\nTried: "
    yield "; ".join(f"{axis}: {', '.join(map(_value, sweep.readings[axis]))}" for axis in varied)
    others = f"{len(shown) - len(last)} {'nearest' if sweep.table else 'lowest'} of the others"
    yield f"; iterations: {', '.join(map(str, sweep.iterations))}. "
    yield f"Of {len(wide)} models the first has the first values tried; below it are the {others}.\n\n"
    of_rewards = [f"{name} ({paper[name]:g})" if sweep.table else name for name in sweep.rewards]
    head = [*varied, "iterations", "c", "distances", *of_rewards, *(["off by"] if sweep.table else [])]
    yield "| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n"
    for line in shown.to_dict("records"):
        numbers = [line["step"], line["distances"], *(line[name] for name in sweep.rewards)]
        cells = [_value(line[axis]) for axis in varied] + [str(line["iteration"])] + [f"{x:.2g}" for x in numbers]
        yield "| " + " | ".join([*cells, *([f"{line['off by']:.2g} ×"] if sweep.table else [])]) + " |\n"
    yield "\n"


def reading_text(reading: Reading) -> str:
    """Return a reading in words."""
    return ", ".join(f"{axis} {_value(value)}" for axis, value in reading.items()) or "as documented"


def _value(value: object) -> str:
    if value is None:
        return "of the row"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _by_fit(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return lines with the best fit first; where p is 0 to all digits, with the smallest z."""
    return sorted(lines, key=lambda line: (-line["p"], np.abs(line["z"]).max()))


def _z(z: float) -> str:
    return f"{z:+.1f}" if abs(z) < 100 else f"{z:+.0e}".replace("e+0", "e")
