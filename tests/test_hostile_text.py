"""Hostile text in every place that reads text of others; `make chaos` tries more of it."""

import signal

import pytest

from chaos import hostile_text

CASES = 400


@pytest.mark.timeout(method="thread")  # the other method needs the signal that this check uses
def test_hostile_text_is_data_or_refused_in_one_line():
    counts = hostile_text.run(CASES, 0)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.outcomes.keys() == {place.__name__.replace("_", " ") for place in hostile_text.PLACES}
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
