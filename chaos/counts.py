"""What came of harm: how often each outcome followed each kind of it."""

import os
import signal
import time
from collections import Counter
from threading import Event

BEGAN = time.monotonic()
MINUTES = float(os.environ.get("RMFT_CHAOS_MINUTES", "inf"))  # after which long checks begin nothing new
WRONG = "went wrong"
REPORT_SECONDS = 60.0  # between two lines about how many cases there are so far
TERMINATED = Event()  # set by SIGTERM


class Counts:
    """The outcomes of each kind of harm, and a line about each case that went wrong."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.failures: list[str] = []
        self.reported = time.monotonic()

    def add(self, harm: str, outcome: str, times: int = 1) -> None:
        """Count a case, and print now and then how many there are."""
        self.outcomes.setdefault(harm, Counter())[outcome] += times
        if time.monotonic() - self.reported > REPORT_SECONDS:
            self.reported = time.monotonic()
            print(f"{self.total():,} cases so far, {self.total(WRONG)} went wrong", flush=True)

    def fail(self, harm: str, what: str) -> None:
        """Count a case that went wrong."""
        self.add(harm, WRONG)
        self.say(f"{harm}: {what}")

    def say(self, failure: str) -> None:
        """Keep a line about cases that went wrong, and print it at once: a long check may end before its time."""
        self.failures.append(failure)
        print(failure, flush=True)

    def total(self, outcome: str | None = None) -> int:
        """Return the number of all cases, or of those with an outcome."""
        return sum(of.total() if outcome is None else of[outcome] for of in self.outcomes.values())


def end_on_sigterm() -> None:
    """Have SIGTERM end a long check after the case that it is at, as when its time is over."""
    signal.signal(signal.SIGTERM, lambda *_: TERMINATED.set())


def time_left() -> bool:
    """Return whether a long check may begin another case."""
    return not TERMINATED.is_set() and time.monotonic() - BEGAN < 60 * MINUTES
