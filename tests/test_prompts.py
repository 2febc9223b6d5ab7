"""What prompts show a model, and what they must not: every protocol, every d from 2 to 10."""

import ast
import re
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rmft.errors import InputError
from rmft.language.parsing import parse
from rmft.language.prompts import TEMPLATES, Prompts, _example
from rmft.language.protocol import Protocol, Round, Scenario

FOLDER = Path(__file__).parents[1] / "data" / "prompts" / "plain"
NO_RANGE = FOLDER.with_name("no-range")
PROMPTS = Prompts.load(FOLDER)
PROTOCOLS = [
    Protocol(*choices, d)
    for *choices, d in product(
        ["dialogue", "summary"],
        ["action", "distribution"],
        ["full", "bandit"],
        ["policy-only", "with-reasoning"],
        range(2, 11),
    )
]
every_protocol = pytest.mark.parametrize(
    "protocol", PROTOCOLS, ids=lambda p: f"{p.interaction}-{p.output}-{p.feedback}-{p.format}-{p.d}"
)


def game(protocol, rounds=4):
    """Return past rounds in which no two rewards are the same."""
    d = protocol.d
    policy = (0.5, *[0.5 / (d - 1)] * (d - 1)) if protocol.output == "distribution" else None
    return [
        Round(t, t % d, policy, tuple((100 * t + 10 * a + 1) / 100 for a in range(d))) for t in range(1, rounds + 1)
    ]


def highlighted(message):
    """Return the numbers of a message that stand out."""
    return [float(number) for number in re.findall(r"\*\*(.*?)\*\*", message)]


def test_prompts_without_the_range_differ_in_the_opening_alone():
    same = {part: (FOLDER / f"{part}.j2").read_bytes() == (NO_RANGE / f"{part}.j2").read_bytes() for part in TEMPLATES}
    assert same == {"opening": False, "feedback": True, "summary": True, "request": True}


@pytest.mark.parametrize("words", ["no-range", "full"])
@every_protocol
def test_other_words_show_the_same_rewards_and_ask_for_the_same_form(protocol, words):
    other = Prompts.load(FOLDER.parent / words)
    for past in ([], game(protocol)):
        message = other.message(protocol, past)
        assert highlighted(message) == highlighted(PROMPTS.message(protocol, past))
        assert ("Action:" if protocol.output == "action" else "Policy:") in message
        assert words == "full" or "from 0 to 10" not in message


# --- The opening ---


@every_protocol
def test_the_opening_tells_actions_reply_pay_and_form(protocol):
    opening = PROMPTS.message(protocol, [])
    assert f"{protocol.d} actions, numbered 1 to {protocol.d}." in opening
    if protocol.output == "action":
        assert "choose one action" in opening
        assert f'"Action: " and a number from 1 to {protocol.d}' in opening
    else:
        assert f"{protocol.d} probabilities" in opening
        assert "none below 0, with sum 1" in opening
        assert f'"Policy: [...]" with {protocol.d} probabilities' in opening
    assert ("what every action paid" in opening) == (protocol.feedback == "full")
    assert ("nothing of the others" in opening) == (protocol.feedback == "bandit")
    assert ("single line and nothing else" in opening) == (protocol.format == "policy-only")
    assert ("last line" in opening) == (protocol.format == "with-reasoning")


@every_protocol
def test_a_policy_pays_the_inner_product_that_the_opening_shows(protocol):
    opening = PROMPTS.message(protocol, [])
    example = re.search(r"policy (\[.*?\]) with rewards (\[.*?\]) earns (\S+)\.\n", opening)
    assert (example is not None) == (protocol.output == "distribution" and protocol.feedback == "full")
    if example:
        policy, rewards, earned = map(ast.literal_eval, example.groups())
        assert len(policy) == len(rewards) == protocol.d
        assert sum(policy) == pytest.approx(1)
        assert sum(p * r for p, r in zip(policy, rewards, strict=True)) == pytest.approx(earned, abs=0.005)


@pytest.mark.parametrize("output", ["action", "distribution"])
def test_under_bandit_feedback_a_policy_is_said_to_be_drawn_from_and_an_action_is_not(output):
    opening = PROMPTS.message(Protocol("dialogue", output, "bandit", "policy-only", 3), [])
    assert ("drawn from your policy" in opening) == (output == "distribution")


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_a_scenario_is_told_with_the_number_and_name_of_every_action(interaction):
    scenario = Scenario("A hospital tries shift schedules.", ("8-hour shifts", "12-hour shifts"))
    opening = PROMPTS.message(Protocol(interaction, "action", "bandit", "policy-only", 2, scenario), [])
    assert "A hospital tries shift schedules. There are 2 actions: 1 is 8-hour shifts, 2 is 12-hour shifts." in opening


# --- Later rounds ---


@every_protocol
def test_a_message_shows_the_rewards_of_all_actions_or_of_the_one_played_and_no_others(protocol):
    past = game(protocol)
    opening = PROMPTS.message(protocol, [])
    for rounds in range(1, len(past) + 1):
        message = PROMPTS.message(protocol, past[:rounds])
        shown_rounds = past[:rounds] if protocol.interaction == "summary" else past[rounds - 1 : rounds]
        shown = [r.rewards if protocol.feedback == "full" else r.rewards[r.action : r.action + 1] for r in shown_rounds]
        assert highlighted(message) == [reward for rewards in shown for reward in rewards]
        if protocol.feedback == "bandit":  # nor does any other number with decimals appear
            assert list(map(float, re.findall(r"\d+\.\d+", message))) == highlighted(message)
        assert (opening.splitlines()[0] in message) == (protocol.interaction == "summary")


@every_protocol
def test_every_message_says_which_round_it_is_and_how_to_reply(protocol):
    request = PROMPTS.message(protocol, []).splitlines()[-1].removeprefix("Round 1.")
    past = game(protocol)
    for rounds in range(1, len(past) + 1):
        assert PROMPTS.message(protocol, past[:rounds]).splitlines()[-1] == f"Round {rounds + 1}.{request}"


@every_protocol
def test_actions_are_counted_from_one_in_every_round_that_is_told(protocol):
    message = PROMPTS.message(protocol, game(protocol))
    shown_rounds = range(1, 5) if protocol.interaction == "summary" else [4]
    numbers = re.findall(r"action (\d+)", message.partition("Round")[2])
    if (protocol.output, protocol.feedback) == ("distribution", "full"):
        assert numbers == []
    else:
        assert [int(number) for number in numbers] == [t % protocol.d + 1 for t in shown_rounds]


def test_a_summary_shows_past_policies_under_full_feedback():
    protocol = Protocol("summary", "distribution", "full", "policy-only", 2)
    past = [Round(1, 0, (0.25, 0.75), (1.0, 2.0)), Round(2, 1, (1.0, 0.0), (3.0, 4.0))]
    message = PROMPTS.message(protocol, past)
    assert "Round 1: policy [0.25, 0.75]. Paid: 1: **1.00**, 2: **2.00**.\n" in message
    assert "Round 2: policy [1.00, 0.00]. Paid: 1: **3.00**, 2: **4.00**.\n" in message


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
@pytest.mark.parametrize("output", ["action", "distribution"])
def test_bandit_feedback_names_the_action_that_was_played(interaction, output):
    protocol = Protocol(interaction, output, "bandit", "policy-only", 2, Scenario("Shops.", ("Bakery", "Cafe")))
    assert re.search(r"action 2 \(Cafe\).* paid \*\*2\.00\*\*", PROMPTS.message(protocol, [Round(1, 1, None, (1, 2))]))


@every_protocol
def test_a_reply_that_repeats_the_prompt_decides_nothing(protocol):
    for past in ([], game(protocol)):
        assert parse(PROMPTS.message(protocol, past), protocol, 0.05) is None


# --- A user's own templates ---

PLAYED = Protocol("dialogue", "action", "bandit", "policy-only", 2), [Round(1, 0, None, (1.0, 2.0))]


@pytest.fixture
def own(tmp_path):
    """Return a folder of templates of the user's own."""
    return shutil.copytree(FOLDER, tmp_path / "own")


def test_a_folder_of_ones_own_templates_takes_the_place_of_ours(own):
    (own / "feedback.j2").write_text("You got {{ last.rewards[last.action] | number }} of {{ d }} — schön.\n")
    (own / "request.j2").write_text("Now round {{ t }}.")
    assert Prompts.load(own).message(*PLAYED) == "You got **1.00** of 2 — schön.\nNow round 2."


def assert_refused_in_one_line(folder, name):
    with pytest.raises(InputError, match=re.escape(str(folder / name))) as refused:
        Prompts.load(folder).message(*PLAYED)
    assert "\n" not in str(refused.value)


def test_the_example_of_a_policy_is_one_whatever_the_number_of_actions():
    for d in range(2, 128):
        policy = np.array(_example(d)["policy"])
        assert (len(policy), round(policy.sum(), 9)) == (d, 1)
        assert not np.signbit(policy).any()


@pytest.mark.parametrize("name", ["opening.j2", "feedback.j2", "summary.j2", "request.j2"])
def test_a_missing_template_is_refused_by_its_name(own, name):
    (own / name).unlink()
    assert_refused_in_one_line(own, name)


def test_a_missing_folder_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no such folder; it must hold opening\.j2, "):
        Prompts.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    [
        "{{ typo }}",
        "{{ typo | number }}",
        "{{ last.typo }}",
        "{{ names[7] }}",
        "{{ scenario.text }}",
        "{{ d | typo }}",
        "{% if %}",
        "{% for reward in last.rewards %}\n",
        "{{ 'a' + d }}",
        "{{ 1 / (d - 2) }}",
        "{{ cycler.__init__.__globals__.os.system('touch canary') }}",  # no template runs other programs
        "{{ past.append(1) }}",
        "{{ " + "(" * 3000,
        "{{ '{best}'.format(b=1) }}",
        "{{ 'x' * 10**14 }}",
        "{{ 9**(9**9) }}",
        "{{ '\\ud800' }}",
        b"\xff",
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused_by_its_name(own, text):
    (own / "feedback.j2").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_refused_in_one_line(own, "feedback.j2")


@pytest.mark.parametrize(
    "text",
    ['{% include "intro.txt" %}', '{% from "intro.txt" import x %}', '{% extends "intro.txt" %}', "{% include d %}"],
)
def test_a_template_that_takes_text_from_another_file_is_refused(own, text):
    """No job has that file as an input, so that an edit of it would make nothing again."""
    (own / "intro.txt").write_text("You run a bakery.")
    (own / "feedback.j2").write_text(text)
    with pytest.raises(InputError, match=r"feedback\.j2: takes text from .*; write that text into the template itself"):
        Prompts.load(own)


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "marked")
    for path in folder.glob("*.j2"):
        path.write_text("\N{BYTE ORDER MARK}" + path.read_text(encoding="utf-8"), encoding="utf-8")
    protocol = PROTOCOLS[0]
    assert Prompts.load(folder).message(protocol, ()) == PROMPTS.message(protocol, ())
