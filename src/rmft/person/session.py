"""A person at play: one game after another from a source, each kept in a file when it ends.

Symbols: d actions.
"""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

from rmft.endpoint.journal_file import open_file, unwritable
from rmft.errors import InputError
from rmft.person.game import PERSON, Position
from rmft.person.kept import FILE, KeptGame, keep, read_games
from rmft.person.sources import Source


class Session:
    """The game that is played, and the replies so far."""

    def __init__(self, source: Source, folder: Path, rounds: int | None, *, plain: bool) -> None:
        """Take games to play. Raise InputError where they cannot be played without the text."""
        self.source, self.path, self.plain = source, folder / FILE, plain
        self.rounds = rounds or source.shape[1]
        if plain and source.games.settings.protocol.features:
            raise InputError(
                f"play: --plain: {source.title} shows contexts, which are in the text that models are given"
            )

    def begin(self, instance: int | None = None) -> None:
        """Begin a game; without a number, of the first instance not yet played.

        Raise InputError after the last instance, and where the file of games cannot be read or written.
        """
        known = {game.instance for game in read_games(self.path) if game.games == self.source.named}
        if instance is None:
            n = self.source.shape[0]
            instance = next((i for i in range(n) if i not in known), None)
            if instance is None:
                raise InputError(f"play: all {n} instances of {self.source.title} are played; name one: --instance")
        game = self.source.game(instance, self.rounds)
        self._check_writable()
        self.instance, self.replies, self.game, self.kept = instance, [], game, False
        self.position: Position = self.game.after([])

    def _check_writable(self) -> None:
        """Make the file of games if there is none. Raise InputError where it cannot be written."""
        file, writable = open_file(self.path)
        os.close(file)
        if not writable:
            raise unwritable(self.path, PermissionError(errno.EACCES, "is read-only"))

    @property
    def over(self) -> bool:
        """Return whether the last round was played."""
        return self.position.message is None

    @property
    def title(self) -> str:
        """Return what is played."""
        return f"{self.source.title}, instance {self.instance}"

    def reply(self, text: str) -> bool:
        """Play a round, and after the last one keep the game; return False where a text decides nothing.

        Raise InputError where the game cannot be kept; the last round can then be played again.
        """
        reply = self.game.understood(text)
        if reply is None or self.over:
            return False
        before = self.position
        self.replies.append(reply)
        self.position = self.game.after(self.replies)
        try:
            if self.over:
                self.keep()
        except InputError:
            self.replies.pop()
            self.position = before
            raise
        return True

    def keep(self) -> None:
        """Write the game to the file as far as it was played."""
        game = KeptGame(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            games=self.source.named,
            instance=self.instance,
            digest=self.source.digest(self.instance),
            plain=self.plain,
            rounds=self.rounds,
            replies=self.replies,
            actions=self.position.actions.tolist(),
            regret=self.game.regret(self.replies),
        )
        keep(self.path, game)
        self.kept = True

    def leave(self) -> str:
        """Keep an unfinished game, so that its instance does not come again; return in words what became of it."""
        if not self.replies:
            return "play: the game had not begun, and nothing is kept of it"
        if not self.kept:  # perhaps interrupted while the game was being kept
            self.keep()
        if self.over:
            return "play: good-bye; every game is kept"
        rounds = f"{len(self.replies)} of {self.rounds} rounds"
        return f"play: {self.path} keeps the unfinished game, {rounds}, which no table counts"

    def payments(self) -> list[str]:
        """Return what each round paid, in words."""
        return [f"Round {t + 1}: {self.game.paid(t, int(a))}." for t, a in enumerate(self.position.actions)]

    def regrets(self) -> dict[str, float]:
        """Return the regret of the person and of other players in the game, which is over; the least first."""
        others = self.source.others(self.rounds, self.instance + 1)
        found = {name: float(of[self.instance]) for name, of in others.items() if len(of) > self.instance}
        found[PERSON] = self.game.regret(self.replies)
        return dict(sorted(found.items(), key=lambda one: one[1]))

    def means(self) -> list[float]:
        """Return the mean reward (d,) of each action over the rounds of the game."""
        return self.game.table.means[0].mean(axis=0).tolist()
