"""Training files for fine-tuning jobs: how demonstrations are written, and what an endpoint would refuse."""

import pytest

from rmft.endpoint.training_file import as_text, estimated_tokens, training_lines, validate
from rmft.errors import InputError

CONTEXT, CHARACTERS_PER_TOKEN = 1000, 4.0


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def dialogue(*messages):
    return {"messages": [message("user", "Choose."), message("assistant", "Action: 1"), *messages]}


DIALOGUES = [dialogue(message("user", f"Reward: {i}."), message("assistant", "Action: 2")) for i in range(10)]


def with_line(line, *, place=3):
    return [*DIALOGUES[:place], line, *DIALOGUES[place:]]


def test_nine_dialogues_are_too_few():
    with pytest.raises(InputError, match="9 conversations, at least 10"):
        validate(DIALOGUES[:9], CONTEXT, CHARACTERS_PER_TOKEN)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({}, "no messages"),
        ({"messages": []}, "no messages"),
        (["user", "Hi"], "no messages"),
        (dialogue(message("user", "Reward: 3.")), "take turns, and here are user, assistant, user"),
        (dialogue(message("assistant", "Action: 2")), "take turns, and here are user, assistant, assistant"),
        ({"messages": [message("system", "Play.")]}, "take turns"),
        (dialogue(message("system", "Play on."), message("assistant", "Yes.")), "take turns"),
        (dialogue(message("user", "Next."), message("tool", "Action: 2")), "take turns"),
        (dialogue("Next."), "message 3: it must have role and content"),
        (
            dialogue(message("user", "Next.", name="Anna"), message("assistant", "2")),
            "message 3: it must have role and content",
        ),
        (dialogue(message("user", None), message("assistant", "2")), "message 3: its content is no text"),
        (dialogue(message("user", ""), message("assistant", "2")), "message 3: its content is empty"),
        (dialogue(message("user", "Next."), message("assistant", "")), "message 4: its content is empty"),
        (dialogue(message("user", "Next."), message("assistant", "2", weight=0.5)), "message 4: weight is 0 or 1"),
        (dialogue(message("user", "Next.", weight=0), message("assistant", "2")), "message 3: weight is 0 or 1"),
        (
            {"messages": [message("user", "Choose."), message("assistant", "Hm?", weight=0)]},
            "no assistant message is to be",
        ),
        (
            dialogue(message("user", "x" * 4 * CONTEXT), message("assistant", "2")),
            "tokens, more than the model's context of",
        ),
    ],
)
def test_a_line_that_an_endpoint_would_refuse_is_named_with_what_is_wrong(line, fault):
    with pytest.raises(InputError, match=f"line 4: .*{fault}"):
        validate(with_line(line), CONTEXT, CHARACTERS_PER_TOKEN)


def test_a_system_message_may_open_a_dialogue_and_an_empty_reply_may_stand_where_it_is_not_learnt():
    opened = {"messages": [message("system", "Play."), *dialogue()["messages"]]}
    spoilt = dialogue(message("user", "Next."), message("assistant", "", weight=0))
    for line in (opened, spoilt):
        assert validate(with_line(line), CONTEXT, CHARACTERS_PER_TOKEN) is None  # it raises InputError otherwise


def test_a_dialogue_may_be_as_long_as_the_context_and_no_longer():
    tokens = estimated_tokens(DIALOGUES[:1], CHARACTERS_PER_TOKEN)
    validate(DIALOGUES, tokens, CHARACTERS_PER_TOKEN)
    with pytest.raises(InputError, match="line 1: about"):
        validate(DIALOGUES, tokens - 1, CHARACTERS_PER_TOKEN)


def test_tokens_are_counted_by_four_characters_and_four_a_message():
    line = {"messages": [message("user", "12345678"), message("assistant", "123456789")]}
    assert estimated_tokens([line], CHARACTERS_PER_TOKEN) == (2 + 4) + (3 + 4)


def test_replies_that_say_nothing_valid_have_weight_0_and_what_they_leave_empty_is_left_out():
    lost = {
        "messages": [message("user", "Choose."), message("assistant", "Hm?", weight=0)],
        "scenario": 1,
        "ids": [1, 2],
    }
    mixed = {"messages": [*lost["messages"], message("user", "Next."), message("assistant", "Action: 2", weight=1)]}
    assert training_lines([lost, mixed]) == [
        {
            "messages": [
                message("user", "Choose."),
                message("assistant", "Hm?", weight=0),
                message("user", "Next."),
                message("assistant", "Action: 2"),
            ]
        }
    ]


def test_a_file_has_a_line_for_every_dialogue_and_no_line_end_within_one():
    text = as_text([dialogue(message("user", "one\ntwo\u2028three"), message("assistant", "Ümlaut")), *DIALOGUES])
    assert text.count("\n") == 11
    assert "Ümlaut" in text
