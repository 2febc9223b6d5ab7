"""Progress of long work on stderr: a line every few seconds in jobs, a bar on a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def progress(name: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
    """Print a line every few seconds; yield the function that counts one unit as done."""
    begun, report, done = time.monotonic(), now_and_then(), 0

    def advance() -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - begun) / done * (total - done)
        report(f"{name}: {done}/{total} {unit}, {left:.0f} s left")

    yield advance


@contextmanager
def speed(name: str, total: int) -> Iterator[Callable[[int, int, float], None]]:
    """Print the progress of games in words; yield the function to call after each round.

    The function takes the number of games in the round, the tokens since the last round and the mean regret of games.
    """
    begun, report, rounds, tokens = time.monotonic(), now_and_then(), 0, 0

    def advance(games: int, more_tokens: int, regret: float) -> None:
        nonlocal rounds, tokens
        rounds, tokens = rounds + games, tokens + more_tokens
        passed = time.monotonic() - begun
        left = passed / rounds * (total - rounds)
        pace, unit = (tokens / passed, "tokens") if tokens else (rounds / passed, "rounds")
        rate = f"{pace:,.{pace < 10:d}f} {unit}/s"
        report(f"{name}: {rounds}/{total} rounds, {rate}, mean regret of games in play {regret:.2f}, {left:.0f} s left")

    yield advance


def now_and_then(every_seconds: float = 5.0) -> Callable[[str], None]:
    """Return a function that prints a line on stderr, unless it printed one in the last few seconds."""
    shown = time.monotonic()

    def report(line: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= every_seconds:
            shown = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return report


def training_steps(name: str) -> Callable[[int, int, float], None]:
    """Return a function that prints a step of training now and then: it takes the step, of how many, and the loss."""
    say = now_and_then()
    return lambda step, steps, loss: say(f"{name}: {step}/{steps} steps, loss {loss:.4f}")
