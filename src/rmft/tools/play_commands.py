"""The sub-command `rmft play`: a person plays what models play. It alone prints."""

import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from rmft.errors import InputError, refuse_options
from rmft.suite import DEFAULT_PART

if TYPE_CHECKING:
    from rich.console import Console

    from rmft.person.session import Session
    from rmft.person.sources import Named, Source

app = typer.Typer()


@app.command(rich_help_panel="Measure a model")
def play(
    experiment: Annotated[str | None, Argument(help="An experiment of params.yaml, in place of the suite.")] = None,
    evaluation: Annotated[
        str | None, Argument(help="One of its evaluations. Default: the first that is built.")
    ] = None,
    part: Annotated[str | None, Option(help=f"A part of the suite of `rmft eval`. Default: {DEFAULT_PART}.")] = None,
    seed: Annotated[int | None, Option(min=0, help="A private root of the rewards, as in `rmft eval`.")] = None,
    instance: Annotated[int | None, Option(help="An instance, from 0. Default: the first you have not played.")] = None,
    rounds: Annotated[int | None, Option(min=1, help="Only the first rounds of the game.")] = None,
    plain: Annotated[bool, Option("--plain", help="Without the text that models are given.")] = False,
    page: Annotated[
        bool, Option("--page", help="Play on a page of this machine: open the address that is printed.")
    ] = False,
    port: Annotated[int, Option(min=0, max=65535, help="The port of the page. Default: any that is free.")] = 0,
    table: Annotated[bool, Option("--table", help="Print your games beside algorithms and models.")] = False,
    folder: Annotated[Path, Option(help="Where your games are kept. They never leave this machine.")] = Path("play"),
    evals: Annotated[Path, Option(help="Where results of `rmft eval` are, to compare with.")] = Path("evals"),
) -> None:
    """Play a game that models play, and see your regret beside that of algorithms and models.

    Examples: `rmft play` · `rmft play --page` · `rmft play open_mab_gemma` · `rmft play --table`
    """
    from rmft.person.session import Session

    chosen = {"EXPERIMENT": experiment, "--part": part, "--seed": seed, "--instance": instance, "--rounds": rounds}
    if table:
        refuse_options(chosen | {"--page": page or None, "--plain": plain or None}, "does not go with --table")
        return _print_table(folder, evals)
    if experiment is not None:
        refuse_options({"--part": part, "--seed": seed}, "chooses a game of the suite, which goes with no EXPERIMENT")
    if sys.stdin is None and not page:
        raise InputError("play: there is no standard input to answer on; play on a page: --page")
    session = Session(_source(experiment, evaluation, part or DEFAULT_PART, seed, evals), folder, rounds, plain=plain)
    session.begin(instance)
    for name in ("SIGTERM", "SIGHUP"):  # a closed terminal keeps the game, as Ctrl-C does
        signal.signal(getattr(signal, name), signal.default_int_handler)
    if page:
        from rmft.person.page import serve

        with suppress(KeyboardInterrupt):  # of SIGHUP, which the server leaves alone
            serve(
                session, port, lambda url: print(f"play: open {url} in your browser; Ctrl-C ends the game", flush=True)
            )
        print(session.leave())
        return None
    return _in_terminal(session)


def _source(experiment: str | None, evaluation: str | None, part: str, seed: int | None, evals: Path) -> "Source":
    """Return the games to play. Raise InputError for wrong names, and where an evaluation is not built."""
    from rmft.params import load
    from rmft.person.sources import of_evaluation, of_suite
    from rmft.suite.parts import read_suite
    from rmft.tools.compare import built_evaluation

    if experiment is None:
        suite = read_suite()
        return of_suite(suite if seed is None else suite.model_copy(update={"seed": seed}), part, evals)
    params = load().at_scale()
    return of_evaluation(params, experiment, built_evaluation("play", params, experiment, evaluation))


def _in_terminal(session: "Session") -> None:
    """Play one game line by line; end without a traceback where there are no more lines, or at Ctrl-C."""
    d = session.game.protocol.d
    how = f"{d} actions; earn as much as you can." if session.plain else "told in words."
    rounds = "1 round" if session.rounds == 1 else f"{session.rounds} rounds"
    print(f"{session.title}: {rounds}, {how}\n")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a character of another encoding says no action, and ends no game
    try:
        while not session.over:
            if not session.plain:
                print(session.position.message)
            prompt = f"Round {len(session.replies) + 1} of {session.rounds}, action 1 to {d}: "
            while not _play_round(session, input(prompt if session.plain else "> ")):
                print(f"That says no action. Type a number from 1 to {d}, or answer as it was asked.")
            if session.plain or session.over:
                print(session.payments()[-1])
            print()
    except (KeyboardInterrupt, EOFError):
        print(f"\n{session.leave()}")
        return
    _print_result(session)


def _play_round(session: "Session", text: str) -> bool:
    """Play a round as `Session.reply` does; where the game cannot be kept, ask whether to try again."""
    while True:
        try:
            return session.reply(text)
        except InputError as error:
            input(f"{error}\nPress Enter to try again, Ctrl-C to give the game up: ")


def _console() -> "Console":
    """Return a console that prints paths and names of models as they are: a bracket in them is no markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def _print_result(session: "Session") -> None:
    """Print the regret of all players in a game that is over, and what the means were."""
    from rmft.tools.terminal import empty_table

    table = empty_table("")
    table.add_column("")
    table.add_column("regret", justify="right")
    for name, regret in session.regrets().items():
        table.add_row(name, f"{regret:.2f}", style="bold" if name == "you" else "")
    means = ", ".join(f"{name}: {mean:.2f}" for name, mean in zip(session.game.names, session.means(), strict=True))
    about = f"Regret after {session.rounds} rounds; 0 is as good as always playing the best action, less is better."
    _console().print(table, about, f"Mean rewards were {means}.", f"{session.path} keeps the game.", sep="\n")


def _print_table(folder: Path, evals: Path) -> None:
    """Print a person's games beside algorithms and models, a table for each kind of games."""
    from rmft.person.kept import FEWEST, FILE, first_games, read_games, tables
    from rmft.tools.terminal import empty_table, interval

    def source_of(named: "Named") -> "Source":
        return _source(named.get("experiment"), named.get("evaluation"), named.get("part"), named.get("seed"), evals)

    console, path = _console(), folder / FILE
    games = read_games(path)
    if not games:
        raise InputError(f"{path}: has no games yet; `rmft play` is one")
    counted = first_games(games)
    for title, rounds, rows, why in tables(counted, source_of):
        table = empty_table("")
        for header in ("", "games", "regret", "difference", "95%"):
            table.add_column(header, justify="right" if header else "left")
        for row in rows:
            low, mean, high = row.difference or (None, None, None)
            table.add_row(
                row.player,
                str(row.games),
                f"{row.regret:.2f}",
                "" if mean is None else f"{mean:+.2f}",
                interval(low, high),
            )
        console.print(
            f"{title}: {rounds} rounds", table, *([f"without other players: {why}"] if why else []), "", sep="\n"
        )
    left = len(games) - len(counted)
    console.print(
        f"Mean final regret. Difference: your regret minus the player's; an interval needs {FEWEST} games."
        + (f" Not counted: {left}, unfinished or played again." if left else "")
    )
