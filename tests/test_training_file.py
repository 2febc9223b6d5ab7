"""Training files for fine-tuning jobs: how demonstrations are written, and what an endpoint would refuse."""

import pytest

from rmft.endpoint.training_file import as_text, estimated_tokens, validate
from rmft.errors import InputError

CONTEXT, CHARACTERS_PER_TOKEN = 1000, 4.0


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def dialogue(*messages):
    return {"messages": [message("user", "Choose."), message("assistant", "Action: 1"), *messages]}


DIALOGUES = [dialogue(message("user", f"Reward: {i}."), message("assistant", "Action: 2")) for i in range(10)]


def test_nine_dialogues_are_too_few():
    with pytest.raises(InputError, match="9 conversations, at least 10"):
        validate(DIALOGUES[:9], CONTEXT, CHARACTERS_PER_TOKEN)


def test_a_dialogue_may_be_as_long_as_the_context_and_no_longer():
    tokens = estimated_tokens(DIALOGUES[:1], CHARACTERS_PER_TOKEN)
    validate(DIALOGUES, tokens, CHARACTERS_PER_TOKEN)
    with pytest.raises(InputError, match="line 1: about"):
        validate(DIALOGUES, tokens - 1, CHARACTERS_PER_TOKEN)


def test_tokens_are_counted_by_four_characters_and_four_a_message():
    line = {"messages": [message("user", "12345678"), message("assistant", "123456789")]}
    assert estimated_tokens([line], CHARACTERS_PER_TOKEN) == (2 + 4) + (3 + 4)


def test_a_file_has_a_line_for_every_dialogue_and_no_line_end_within_one():
    text = as_text([dialogue(message("user", "one\ntwo\u2028three"), message("assistant", "Ümlaut")), *DIALOGUES])
    assert text.count("\n") == 11
    assert "Ümlaut" in text
