"""What a path given to `rmft show` holds: games, a selection of games, an evaluation, or a folder of such files."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rmft.artifacts.folders import files_below
from rmft.artifacts.parquet import read_names
from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.errors import InputError
from rmft.results import read_players
from rmft.selection import TrajectoryColumns

Kind = Literal["folder", "games", "selection", "evaluation"]
COLUMNS: dict[Kind, set[str]] = {  # by which a file is recognised
    "games": {"prompt", "reply"},
    "selection": {"rerolled", "selected"},
    "evaluation": {"player", "regret"},
}
GAMES = "rollouts.parquet"  # the file that a selection is of, beside it
MOST = 40  # files that a list of a folder names


def kind_of(path: Path) -> Kind:
    """Return what a path holds. Raise InputError for another file."""
    if path.is_dir():
        return "folder"
    if path.suffix != ".parquet":
        wrong = "holds no games" if path.exists() else "no such file or folder"
        above = next(folder for folder in path.parents if folder.is_dir())
        raise InputError(f"{path}: {wrong}; `rmft show {above}` lists what it can show")
    names = set(read_names(path))
    for kind, columns in COLUMNS.items():
        if columns <= names:
            return kind
    raise InputError(f"{path}: holds no games, no selection and no evaluation; `rmft show {path.parent}` lists those")


def selected_games(path: Path) -> TrajectoryColumns:
    """Return the games that a selection keeps. Raise InputError where the file of all games is not beside it."""
    games = path.with_name(GAMES)
    if not games.exists():
        raise InputError(f"{path}: selects games of {games}, which is not there; `snakemake {games}` makes it")
    selection, played = read_selection(path), read_trajectories(games)
    columns = (selection[name][selection["selected"]].tolist() for name in ("scenario", "trajectory"))
    kept = set(zip(*columns, strict=True))
    rows = [row for row, game in enumerate(zip(played["scenario"], played["trajectory"], strict=True)) if game in kept]
    return {name: [column[row] for row in rows] for name, column in played.items()}


def evaluation_lines(path: Path) -> Iterator[str]:
    """Yield the mean final regret of every player of an evaluation, and the files with games in words, if any."""
    for player, of in read_players(path).items():
        yield f"{player}: mean final regret {of.final.mean():.2f} over {of.final.size} games"
    if games := _with_games(path.with_suffix("")):
        yield "games in words:"
        yield from _commands(games)


def folder_lines(folder: Path) -> list[str]:
    """Return the commands that show what a folder holds: its files, or its folders where the files are many.

    Raise InputError where it holds nothing to show.
    """
    files = _with_games(folder)
    if not files:
        built = "games of a model are in words where `snakemake` has played them, below results/experiments"
        raise InputError(f"{folder}: holds nothing to show; {built}")
    if len(files) <= MOST:
        return list(_commands(files))
    level = len(Path(os.path.commonpath(files)).parts) + 1
    return [
        f"rmft show {part}  ({count} files)"
        for part, count in Counter(Path(*file.parts[:level]) for file in files).items()
    ]


def _with_games(folder: Path) -> list[Path]:
    """Return the files below a folder that `rmft show` takes; shards only where their games are not joined yet.

    A file that is being written has a name that begins with a dot.
    """
    found = []
    for path in files_below(folder):
        if path.suffix != ".parquet" or path.name.startswith("."):
            continue
        joined = path.parent.name == "shards" and path.parent.with_name(GAMES).exists()
        if not joined and any(columns <= set(read_names(path)) for columns in COLUMNS.values()):
            found.append(path)
    return found


def _commands(files: Sequence[Path]) -> Iterator[str]:
    yield from (f"rmft show {path}" for path in files[:MOST])
    if len(files) > MOST:
        yield f"… and {len(files) - MOST} more files"
