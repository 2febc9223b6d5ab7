"""`rmft forensics`: which readings of the paper's text fit the reference rows of its tables.

data/forensics holds the questions, the readings to train under, and the answers; docs/forensics.md shows the answers.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from rmft.artifacts.csv_files import read_csv, write_csv
from rmft.artifacts.json_files import read_jsonl, write_jsonl
from rmft.artifacts.text import read_text, write_text
from rmft.errors import InputError, unknown
from rmft.progress import progress
from rmft.tools.forensics.fits import answers
from rmft.tools.forensics.page import page
from rmft.tools.forensics.questions import read_questions
from rmft.tools.forensics.sweeps import COLUMNS, read_sweeps, sweep

PAGE, SEED = Path("docs/forensics.md"), 0
QUESTIONS, FITS = Path("data/forensics/questions.yaml"), Path("data/forensics/fits.jsonl")
SWEEPS, TRAINED = Path("data/forensics/sweeps.yaml"), Path("data/forensics/sweeps.csv")


def run(names: Sequence[str], only: Literal["check", "page", "sweeps"] | None) -> None:
    """Answer questions, all by default, and make the page, or do a part of that. Raise InputError for a stale page."""
    if names and only:
        raise InputError(f"forensics: --only {only} answers no question, so leave out {names[0]}")
    if only == "check":
        check_page()
        return
    if only == "sweeps":
        train()
    elif only is None:
        answer(names)
    write_text(PAGE, _rendered())


def answer(names: Sequence[str]) -> None:
    """Answer questions by name, or all of them. Raise InputError for an unknown name."""
    questions = read_questions(QUESTIONS)
    wrong = [name for name in names if name not in questions.questions]
    if wrong:
        raise InputError(f"forensics: {unknown(wrong[0], questions.questions)}")
    lines = {name: [] for name in questions.questions}
    for line in read_jsonl(FITS) if FITS.exists() else []:
        lines.setdefault(line["question"], []).append(line)
    for name in names or questions.questions:
        question = questions.questions[name]
        with progress(name, len(list(question.all_readings())), "readings") as advance:
            lines[name] = answers(name, question, questions.groups, SEED, advance)
        write_jsonl(FITS, [line for name in questions.questions for line in lines[name]])


def train() -> None:
    """Train the numeric agent under every reading of sweeps.yaml, and keep how near it comes to the paper's rows.

    Each sweep is written when it is done; the rows of the others stay.
    """
    sweeps = read_sweeps(SWEEPS)
    kept = read_csv(TRAINED, COLUMNS).to_dict("records") if TRAINED.exists() else []
    rows_of = {name: [row for row in kept if row["sweep"] == name] for name in sweeps.sweeps}
    for name in sweeps.sweeps:
        rows_of[name] = list(sweep(sweeps, name, SEED))
        rows = list(chain.from_iterable(rows_of.values()))
        write_csv(TRAINED, {column: [row[column] for row in rows] for column in COLUMNS})


def check_page() -> None:
    """Raise InputError where the page is not what the files of data/forensics make."""
    if not PAGE.exists() or read_text(PAGE) != _rendered():
        raise InputError(f"{PAGE}: is not up to date; make it again: rmft forensics --only page")


def _rendered() -> str:
    questions, fits = read_questions(QUESTIONS), list(read_jsonl(FITS))
    answered = {(line["question"], line.get("digest")) for line in fits}
    for name, question in questions.questions.items():
        if (name, question.digest(questions.groups)) not in answered:
            raise InputError(f"{FITS}: no answer to {name} as {QUESTIONS} asks it now; run rmft forensics {name}")
    sweeps, trained = read_sweeps(SWEEPS), read_csv(TRAINED, COLUMNS)
    for name in sweeps.sweeps:
        if name not in set(trained["sweep"]):
            raise InputError(f"{TRAINED}: no training of {name}; run rmft forensics --only sweeps")
    return page(questions, fits, sweeps, trained)
