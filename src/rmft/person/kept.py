"""A person's games, kept as lines of a file on this machine, and the table of them beside other players.

Symbols: m games.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from rmft.artifacts.files import reading
from rmft.endpoint.journal_file import append, open_file, unwritable
from rmft.errors import InputError
from rmft.params.section import Section
from rmft.person.game import PERSON
from rmft.person.sources import Named, Source
from rmft.suite.measuring import difference

FILE = "games.jsonl"
FEWEST = 5  # games that an interval needs


class KeptGame(Section):
    """A game of a person's, finished or not."""

    schema_version: Literal[1] = 1
    at: str = Field(description="When it ended.")
    games: Named = Field(description="Which games it is one of.")
    instance: int = Field(description="The instance of the suite, from 0.")
    digest: str = Field(description="The digest of the instance's rewards.")
    plain: bool = Field(description="Whether the person saw numbers alone, and not what models are told.")
    rounds: int = Field(description="Rounds of the game.")
    replies: list[str] = Field(description="What the person replied in each round; fewer where the game is unfinished.")
    actions: list[int] = Field(description="The actions played, from 0.")
    regret: float = Field(description="After the last reply.")

    @property
    def finished(self) -> bool:
        """Return whether all rounds were played."""
        return len(self.replies) == self.rounds


def read_games(path: Path) -> list[KeptGame]:
    """Return all games in a file, none where there is no file. Raise InputError naming a malformed line.

    The last line need not have an end, which some editors leave out.
    """
    if not path.exists():
        return []
    with reading(path):
        lines = path.read_text(encoding="utf-8").removesuffix("\n")
        return [_game_of(line, f"{path}:{number}") for number, line in enumerate(lines.split("\n"), start=1) if lines]


def _game_of(line: str, place: str) -> KeptGame:
    """Return the game in a line. Raise InputError naming its place where it is none."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        raise InputError(f"{place}: is not a whole game; mend this line, or delete it") from None
    return KeptGame.checked(value, place)


def keep(path: Path, game: KeptGame) -> None:
    """Append a game to a file, wholly or not at all. Raise InputError where that fails."""
    file, writable = open_file(path)
    try:
        if not writable:
            raise unwritable(path, PermissionError(13, "is read-only"))
        size = os.fstat(file).st_size
        ended = size == 0 or os.pread(file, 1, size - 1) == b"\n"
        line = f"{json.dumps(game.model_dump(mode='json'))}\n"
        append(file, size, (line if ended else f"\n{line}").encode())
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        os.close(file)


@dataclass(frozen=True)
class PlayerRow:
    """A player on the instances of a person's games: how many, its mean regret, and the person's less the player's.

    difference: low, mean, high; low and high are None with fewer than FEWEST games.
    """

    player: str
    games: int
    regret: float
    difference: tuple[float | None, float, float | None] | None


def first_games(games: Sequence[KeptGame]) -> list[KeptGame]:
    """Return the first game of each instance, where it is finished: whoever plays again knows the rewards."""
    first: dict[tuple[str, int], KeptGame] = {}
    for game in games:
        first.setdefault((json.dumps(game.games, sort_keys=True), game.instance), game)
    return [game for game in first.values() if game.finished]


def tables(
    games: Sequence[KeptGame], source_of: Callable[[Named], Source]
) -> Iterator[tuple[str, int, list[PlayerRow], str | None]]:
    """Yield for games of each kind their name, their rounds, a row for each player, and why others are left out, if so.

    source_of: returns the source of games, or raises InputError where it is not there.
    """
    kinds: dict[tuple[str, int], list[KeptGame]] = {}
    for game in games:
        kinds.setdefault((json.dumps(game.games, sort_keys=True), game.rounds), []).append(game)
    for (_, rounds), alike in kinds.items():
        others, why = {}, None
        try:
            source = source_of(alike[0].games)
            if any(game.instance >= source.shape[0] or source.digest(game.instance) != game.digest for game in alike):
                raise InputError("the games of this name are others now")
            others = source.others(rounds, 1 + max(game.instance for game in alike))
        except InputError as error:
            why = str(error)
        title = ", ".join(f"{key} {value}" for key, value in alike[0].games.items())
        yield title, rounds, list(_rows(alike, others)), why


def _rows(games: Sequence[KeptGame], others: dict[str, np.ndarray]) -> Iterator[PlayerRow]:
    """Yield the person and then the other players, the least mean regret first."""
    regret = {game.instance: game.regret for game in games}
    yield PlayerRow(PERSON, len(regret), float(np.mean(list(regret.values()))), None)
    found = []
    for name, theirs in others.items():
        if common := [instance for instance in regret if instance < len(theirs)]:
            ours = np.array([regret[instance] for instance in common])
            low, mean, high = difference(ours, theirs[common])
            enough = len(common) >= FEWEST
            margin = (low if enough else None, mean, high if enough else None)
            found.append(PlayerRow(name, len(common), float(theirs[common].mean()), margin))
    yield from sorted(found, key=lambda row: row.regret)
