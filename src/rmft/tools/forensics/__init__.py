"""`rmft forensics`: which readings of the paper's text fit the reference rows of its tables.

data/forensics holds the questions, the readings to train under, and the answers; docs/forensics.md shows the answers.
"""

from collections.abc import Sequence
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
    """Train the numeric agent under every reading of sweeps.yaml, and keep how near it comes to the paper's rows."""
    sweeps, rows = read_sweeps(SWEEPS), []
    for name in sweeps.sweeps:
        rows += sweep(sweeps, name, SEED)
        write_csv(TRAINED, {column: [row[column] for row in rows] for column in COLUMNS})


def check_page() -> None:
    """Raise InputError where the page is not what the files of data/forensics make."""
    if not PAGE.exists() or read_text(PAGE) != _rendered():
        raise InputError(f"{PAGE}: is not up to date; make it again: rmft forensics --only page")


def _rendered() -> str:
    questions, fits = read_questions(QUESTIONS), list(read_jsonl(FITS))
    missing = set(questions.questions) - {line["question"] for line in fits}
    if missing:
        raise InputError(f"{FITS}: no answer to {', '.join(sorted(missing))}; run rmft forensics")
    return page(questions, fits, read_sweeps(SWEEPS), read_csv(TRAINED, COLUMNS))
