"""Diversity of texts: against values by hand, a second implementation, and what the paper says of the two prompts."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmft.artifacts.csv_files import read_csv
from rmft.errors import InputError
from rmft.language.diversity import diversity, jargon_terms, read_jargon, words
from rmft.language.scenarios import read_scenarios

DATA = Path(__file__).parents[1] / "data"
JARGON = read_jargon(DATA / "scenarios" / "jargon.txt")
TEXTS = {
    name: [scenario.text for scenario in read_scenarios(DATA / "scenarios" / f"{name}.jsonl")]
    for name in ("plain-voice", "vivid-voice", "simple-prompt")
}


def second_opinion(text_words, segment):
    """Return vocabulary, Yule's K as 10⁴ times the chance that two words are the same, and MSTTR, from counts alone."""
    _, numbers, times = np.unique(text_words, return_inverse=True, return_counts=True)
    n = len(text_words)
    same = np.sum(times * (times - 1)) / n**2
    rows = np.sort(numbers[: n // segment * segment].reshape(-1, segment), axis=1)
    return len(times), 1e4 * same, np.mean((1 + np.sum(np.diff(rows, axis=1) > 0, axis=1)) / segment)


def measured(texts, segment):
    """Return the same three as the code has them."""
    found = diversity(texts, [], segment)
    return found["vocabulary"], found["yule_k"], found["msttr"]


# --- Words ---


def test_words_are_letters_in_lower_case():
    assert words("Don't mix 12-hour SHIFTS; Zoë’s (two!)") == ["don't", "mix", "hour", "shifts", "zoë's", "two"]
    assert words("1,000 -- '' 8-8 3rd") == ["rd"]


# --- Measures ---


def test_the_measures_by_hand():
    # Segments (a a b) and (c a a): two of three words differ in each. a is there four times, b and c once.
    found = diversity(["A a b.", "C, a a!"], ["b", "c a", "a a"], segment=3)
    yule_k = 1e4 * (16 + 1 + 1 - 6) / 36
    assert found == {"vocabulary": 3, "yule_k": pytest.approx(yule_k), "msttr": pytest.approx(2 / 3), "jargon": 2}


def test_every_whole_segment_counts_and_no_other():
    assert measured(["a b", "c c"], 2)[2] == 0.75  # the last is whole
    assert measured(["a b c c d"], 2)[2] == 0.75
    assert measured(["a b c c d d"], 2)[2] == pytest.approx(2 / 3)


def test_words_that_never_come_again_are_as_varied_as_can_be_and_one_word_as_little():
    different = [f"{one}{other}" for one in "abcdefgh" for other in "abcdefgh"]
    assert measured([" ".join(different)], 10) == (64, pytest.approx(0.0), 1.0)
    assert measured(["word " * 64], 10) == (1, pytest.approx(1e4 * 63 / 64), pytest.approx(0.1))


@given(st.lists(st.sampled_from("abcdefghij"), min_size=12, max_size=80), st.integers(1, 6))
def test_two_implementations_agree(text_words, segment):
    assert measured(text_words, segment) == pytest.approx(second_opinion(text_words, segment))


@pytest.mark.parametrize("name", TEXTS)
def test_two_implementations_agree_on_the_bundled_sets(name):
    text_words = [word for text in TEXTS[name] for word in words(text)]
    assert measured(TEXTS[name], 100) == pytest.approx(second_opinion(text_words, 100))


@given(st.permutations(TEXTS["vivid-voice"][:8]))
def test_the_order_of_texts_changes_neither_vocabulary_nor_repetition(texts):
    assert measured(texts, 50)[:2] == pytest.approx(measured(TEXTS["vivid-voice"][:8], 50)[:2])


@pytest.mark.parametrize("texts", [[], [""], ["one two three"], ["one", "two", "three"]])
def test_too_few_words_are_refused_in_a_line(texts):
    with pytest.raises(InputError, match="at least two segments of 2 words"):
        diversity(texts, [], segment=2)


# --- Jargon ---


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Click-through rates rose.", {"click-through rate"}),
        ("A CACHE was warm", {"cache"}),
        ("Two caches, one crisis", {"cache"}),
        ("He saw a cachet.", set()),
        ("The rate of click-through", set()),
        ("They click; through rate is meant", set()),
        ("O'Neil's law holds", {"O'Neil's law"}),
        ("", set()),
    ],
)
def test_jargon_is_found_as_whole_words_within_a_passage(text, found):
    assert jargon_terms([text], ["click-through rate", "cache", "O'Neil's law"]) == found


def test_jargon_is_not_put_together_from_two_texts():
    assert jargon_terms(["They click", "through rate"], ["click-through rate"]) == set()


def test_every_term_of_the_list_can_be_found():
    assert jargon_terms([f"They spoke of {term}, and of nothing else." for term in JARGON], JARGON) == set(JARGON)


def test_the_list_of_terms_spans_the_domains():
    assert len(JARGON) >= 300
    assert len(set(JARGON.values())) >= 12


@pytest.mark.parametrize(
    ("line", "reason"),
    [("one, two", "is not of the form"), ("sea: knot, knot", "'knot' is no term"), ("sea: knot,", "'' is no term")],
)
def test_a_wrong_line_of_terms_is_refused_by_file_and_number(tmp_path, line, reason):
    path = tmp_path / "terms.txt"
    path.write_text(f"# Terms\n{line}\n")
    with pytest.raises(InputError, match=re.escape(f"{path}:2: {reason}")):
        read_jargon(path)


# --- The paper's ablation ---


def test_the_bundled_sets_stand_in_for_the_papers_in_every_statistic():
    paper = read_csv(DATA / "paper" / "prompt-diversity-ablation.csv", ["prompt", "texts", "statistic", "value"])
    values = {prompt: dict(zip(of["statistic"], of["value"], strict=True)) for prompt, of in paper.groupby("prompt")}
    rich, simple = (diversity(TEXTS[name][:200], JARGON) for name in ("plain-voice", "simple-prompt"))
    assert rich.keys() == simple.keys() == values["rich"].keys()
    for statistic in rich:
        assert (rich[statistic] > simple[statistic]) == (values["rich"][statistic] > values["simple"][statistic])
