"""Policies from the likeliest tokens of a reply are what the model would have done: by hand, and by enumeration.

The oracle is a model that writes actions token by token with known probabilities, in a tokenization of our choice.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmft.agents.policy_from_logprobs import Token, policy, tokens_of
from rmft.errors import InputError


def reply(*places: str | tuple[str, dict[str, float]]) -> tuple[str, list[Token]]:
    """Return a text and its tokens: each with the likeliest ones in its place, or alone."""
    pairs = [(place, {place: 1.0}) if isinstance(place, str) else place for place in places]
    tokens = [Token(w.encode(), {token.encode(): p for token, p in tops.items()}) for w, tops in pairs]
    return "".join(written for written, _ in pairs), tokens


def policy_of(completion: tuple[str, list[Token]], written: str, names: Sequence[str]) -> np.ndarray:
    """Return the policy where an action is written, at its last place in the reply."""
    text, tokens = completion
    begin = text.rindex(written)
    lowered = [name.lower() for name in names]
    return policy(text, tokens, (begin, begin + len(written)), lowered.index(written.lower()), names)


NUMBERS = ("1", "2", "3")


def test_the_probabilities_of_feasible_actions_are_normalised_and_other_tokens_left_out():
    completion = reply("Action", ":", " ", ("2", {"2": 0.4, "3": 0.2, "7": 0.2, " the": 0.1, "1": 0.1}), "\n")
    assert policy_of(completion, "2", NUMBERS) == pytest.approx(np.array([1, 4, 2]) / 7)


def test_an_action_that_is_not_among_the_likeliest_has_none():
    completion = reply("Action: ", ("2", {"1": 0.6, "3": 0.3}))
    assert policy_of(completion, "2", NUMBERS) == pytest.approx([2 / 3, 0, 1 / 3])


def test_where_no_action_is_among_the_likeliest_the_policy_is_the_action_taken():
    completion = reply("Action: ", ("2", {"7": 0.6, " I": 0.3}))
    assert policy_of(completion, "2", NUMBERS).tolist() == [0, 1, 0]


def test_the_place_is_that_of_the_decision_and_not_an_earlier_number():
    completion = reply("Round ", ("2", {"2": 1.0}), ": why not.\nAction: ", ("2", {"2": 0.5, "1": 0.5}))
    assert policy_of(completion, "2", NUMBERS) == pytest.approx([0.5, 0.5, 0])


def test_what_else_a_token_has_in_front_or_behind_belongs_to_its_place():
    completion = reply("Action:", (" 2.", {" 2.": 0.5, " 1.": 0.2, " 1": 0.1, "1": 0.1, " 2nd": 0.05, " ": 0.05}))
    assert policy_of(completion, "2", NUMBERS) == pytest.approx([3 / 8, 5 / 8, 0])


def test_tokens_that_are_no_characters_do_not_shift_the_place():
    euro = "☂".encode()
    tokens = [
        Token(euro[:2], {euro[:2]: 1.0}),
        Token(euro[2:], {euro[2:]: 1.0}),
        *reply("1", ("2", {"2": 0.7, "1": 0.3}))[1],
    ]
    assert policy("☂12", tokens, (2, 3), 1, NUMBERS) == pytest.approx([0.3, 0.7, 0])


def test_likeliest_tokens_of_the_same_bytes_count_as_one():
    tops = [{"token": token, "logprob": float(np.log(p))} for token, p in (("A", 0.80), ("B", 0.15), ("A", 0.02))]
    tokens = tokens_of({"logprobs": {"content": [{"token": "A", "top_logprobs": tops}]}})
    assert policy("A", tokens, (0, 1), 0, ("A", "B")) == pytest.approx(np.array([0.82, 0.15]) / 0.97)


def test_names_that_differ_in_their_first_token_are_told_apart_by_it():
    first = ("Sch", {"Sch": 0.6, "M": 0.3, "Mark": 0.05, "The": 0.05})
    completion = reply("Action: ", first, ("ool", {"ool": 0.5, "loss": 0.5}))
    assert policy_of(completion, "School", ("Market", "School")) == pytest.approx(np.array([0.35, 0.6]) / 0.95)


def test_names_that_begin_alike_are_told_apart_by_what_is_on_record_of_the_reply():
    completion = reply("Action: ", ("Option", {"Option": 0.9, "Wait": 0.1}), (" B", {" B": 0.6, " A": 0.3, " D": 0.1}))
    assert policy_of(completion, "Option B", ("Option A", "Option B", "Wait")) == pytest.approx(
        np.array([27, 54, 10]) / 91
    )


def test_one_number_that_begins_another_is_told_apart_by_the_next_token():
    names = [str(1 + a) for a in range(12)]
    completion = reply("Action: ", ("1", {"1": 0.9, "3": 0.1}), ("\n", {"\n": 0.5, "0": 0.2, ".": 0.1, "2": 0.1}))
    expected = np.zeros(12)
    expected[[0, 9, 11, 2]] = 0.9 * 0.6, 0.9 * 0.2, 0.9 * 0.1, 0.1
    assert policy_of(completion, "1", names) == pytest.approx(expected / expected.sum())


@pytest.mark.parametrize(
    "completion",
    [
        reply("Action: ", ("Wait", {"Wait": 0.7, "Option": 0.3})),
        reply("Action: ", ("Option", {"Option": 0.9, "Wait": 0.1})),
    ],
)
def test_names_that_begin_alike_where_nothing_is_on_record_are_refused_with_what_to_do(completion):
    text, tokens = completion
    action = 2 if text.endswith("Wait") else 1
    with pytest.raises(InputError, match=r"Option A, Option B, Wait cannot be told apart.*use output: distribution"):
        policy(text, tokens, (8, len(text)), action, ("Option A", "Option B", "Wait"))


def test_next_to_nothing_that_could_be_either_does_no_harm():
    completion = reply("Action: ", ("Wait", {"Wait": 0.99, "option a": 0.009, "Opt": 1e-7}))
    assert policy_of(completion, "Wait", ("Option A", "Option B", "Wait")) == pytest.approx(np.array([9, 0, 990]) / 999)


def test_a_reply_without_the_probabilities_of_its_tokens_is_refused_with_what_to_do():
    for tokens in ((), reply("Something else")[1]):
        with pytest.raises(InputError, match=r"\(logprobs\): use output: distribution"):
            policy("Action: 2", tokens, (8, 9), 1, NUMBERS)


def test_tokens_are_read_as_the_protocol_has_them_with_or_without_their_bytes():
    place = {"token": "2", "logprob": np.log(0.5), "bytes": [50], "top_logprobs": [{"token": "1", "logprob": -9999.0}]}
    split = {"token": "\\xe2", "logprob": 0.0, "bytes": [0xE2], "top_logprobs": []}
    bare = {"token": "2", "logprob": 0.0, "bytes": None, "top_logprobs": [{"token": "2", "logprob": np.log(0.25)}]}
    found = tokens_of({"logprobs": {"content": [place, split, bare]}})
    assert found == (Token(b"2", {b"1": 0.0}), Token(b"\xe2", {}), Token(b"2", {b"2": pytest.approx(0.25)}))
    assert tokens_of({"logprobs": None}) == tokens_of({}) == tokens_of({"logprobs": {"content": None}}) == ()


@given(data=st.data())
def test_the_policy_is_that_of_a_model_which_writes_actions_token_by_token(data):
    """Names are cut into tokens so that at any place those that go on differently begin with different tokens."""
    d = data.draw(st.integers(2, 5))
    prefixes = ["Go ", "Stay ", ""]
    names = [f"{data.draw(st.sampled_from(prefixes))}{'abcde'[a] * 3}" for a in range(d)]
    paths = [([name[:-3]] if name[:-3] else []) + [name[-3:], "\n"] for name in names]
    weights = np.array([data.draw(st.floats(0.01, 1)) for _ in range(d)])
    taken = data.draw(st.integers(0, d - 1))
    shares = weights / weights.sum()

    def after(written: list[str]) -> dict[str, float]:
        going = [a for a in range(d) if paths[a][: len(written)] == written and len(paths[a]) > len(written)]
        total = sum(shares[a] for a in going)
        nexts = {paths[a][len(written)] for a in going}
        return {token: sum(shares[a] for a in going if paths[a][len(written)] == token) / total for token in nexts}

    places = [(token, after(paths[taken][:i])) for i, token in enumerate(paths[taken])]
    text, tokens = reply("Action: ", *places)
    span = (8, 8 + len(names[taken]))
    beginnings = [path[0] for a, path in enumerate(paths) if path[0] != paths[taken][0]]
    if len(beginnings) > len(set(beginnings)):  # a beginning of two other actions, of which nothing is on record
        with pytest.raises(InputError, match="cannot be told apart"):
            policy(text, tokens, span, taken, names)
    else:
        assert policy(text, tokens, span, taken, names) == pytest.approx(shares)
