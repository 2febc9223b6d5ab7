"""Mutated parameters and command lines are valid, or refused in one line; `make chaos` tries more of them."""

from chaos import command_lines, parameters

MUTATIONS = 30


def test_mutated_parameters_are_valid_or_refused_in_one_line():
    counts = parameters.run(MUTATIONS, 0)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.total("valid")
    assert counts.total("refused") > MUTATIONS


def test_mutated_command_lines_are_valid_or_refused_in_one_line():
    counts = command_lines.run(MUTATIONS, 0)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.total("refused")
