"""Scenarios: valid files, replies with names, fairness, near-duplicates, and generation."""

import json
import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmft.errors import InputError
from rmft.language.fairness import obviously_better
from rmft.language.generation import (
    ALIKE,
    GRAM,
    PATIENCE,
    TITLES,
    generate,
    near_duplicates,
    read_response,
)
from rmft.language.parsing import parse
from rmft.language.prompts import read_template
from rmft.language.protocol import Protocol, Scenario
from rmft.language.scenarios import DOMAINS, check_record, for_actions, read_records, read_scenarios, scenario_of

DATA = Path(__file__).parents[1] / "data"
SETS = {
    name: read_records(DATA / "scenarios" / f"{name}.jsonl") for name in ("plain-voice", "vivid-voice", "simple-prompt")
}
TOLD = SETS["plain-voice"] + SETS["vivid-voice"]
RICH = read_template(DATA / "prompts" / "scenarios" / "rich.j2")
SIMPLE = read_template(DATA / "prompts" / "scenarios" / "simple.j2")
every_set = pytest.mark.parametrize("records", SETS.values(), ids=SETS)
TEXT = "A ferry office must choose a pier for each crossing, and the wind at every one of them is hard to foretell."


def record(text=TEXT, actions=("north pier", "south pier", "old pier"), domain="logistics"):
    return {"scenario": text, "actions": list(actions), "domain": domain}


def of_actions(records, d):
    return [one for one in records if len(one["actions"]) == d]


# --- The bundled sets ---


def test_the_bundled_sets_are_as_large_as_the_paper_needs():
    sizes = {name: Counter(len(one["actions"]) for one in records) for name, records in SETS.items()}
    assert sizes["plain-voice"][3] >= 250  # 200 to train on, 50 others to be evaluated on
    assert min(sizes["plain-voice"][d] for d in (4, 5)) >= 50
    assert sizes["vivid-voice"][3] >= 60
    assert sizes["vivid-voice"].total() >= 120
    assert sizes["simple-prompt"] == {3: 200}


@pytest.mark.parametrize("name", ["plain-voice", "vivid-voice"])
@pytest.mark.parametrize("d", [3, 4, 5])
def test_any_stretch_of_a_bundled_set_has_its_domains_in_their_shares(name, d):
    domains = [one["domain"] for one in of_actions(SETS[name], d)]
    shares = Counter(domains)
    assert len(shares) >= 12
    for start in range(len(domains)):
        for stop in range(start + 1, len(domains) + 1):
            stretch = Counter(domains[start:stop])
            assert all(abs(stretch[one] - shares[one] * (stop - start) / len(domains)) < 2 for one in shares)


@every_set
def test_a_bundled_set_is_ordered_by_number_of_actions(records):
    assert all(len(one["actions"]) <= len(other["actions"]) for one, other in pairwise(records))


@every_set
def test_bundled_texts_are_whole_sentences_in_plain_letters(records):
    assert all(re.fullmatch(r"[A-Z\"][ -~]*[.!?]\"?", one["scenario"]) for one in records)


def test_told_scenarios_name_every_action_in_the_order_of_the_list():
    for one in TOLD:
        text = one["scenario"].casefold()
        places = [text.find(name.casefold()) for name in one["actions"]]
        assert places[0] >= 0, one
        assert places == sorted(places), one


@every_set
def test_every_name_of_a_bundled_set_is_understood_as_its_action(records):
    """In all forms of which a model may think, so that a reply is never lost or taken for another action."""
    for one in records:
        scenario = scenario_of(one)
        protocol = Protocol("dialogue", "action", "bandit", "with-reasoning", len(scenario.names), scenario)
        others = ", ".join(scenario.names)
        for action, name in enumerate(scenario.names):
            for reply in (
                f"Action: {name}",
                f"action: {name.upper()}.",
                f"**Action:** `{name.capitalize()}`",
                f"Any of {others} may pay.\nAction: {action + 1} ({name})",
                f"Action: {name} ({action + 1})",
                name,
            ):
                understood = parse(reply, protocol, 0.0)
                assert understood is not None, reply
                assert understood.action == action, reply


def test_policies_by_name_are_understood():
    for one in TOLD:
        scenario = scenario_of(one)
        d = len(scenario.names)
        weights = [2 * (action + 1) / (d * (d + 1)) for action in range(d)]
        shares = [f"{name}: {weight:.4f}" for name, weight in zip(scenario.names, weights, strict=True)]
        protocol = Protocol("dialogue", "distribution", "bandit", "policy-only", d, scenario)
        understood = parse("Policy: " + ", ".join(reversed(shares)), protocol, 0.01)
        assert understood is not None, one
        assert understood.policy == pytest.approx(weights, abs=1e-3)


def test_nothing_bundled_is_told_twice():
    every = [one for records in SETS.values() for one in records]
    assert near_duplicates([one["scenario"] for one in every]) == []
    assert Counter(frozenset(one["actions"]) for one in every).most_common(1)[0][1] == 1
    assert near_duplicates([one["scenario"] for one in TOLD], 0.15) == []


# --- Files ---


def write(path, records):
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")
    return path


def test_a_file_is_read_as_it_was_written(tmp_path):
    records = [
        record(),
        record(TEXT + " It recurs.", ["café & bar", "Mr Brown's", "10-day trip", "Q&A", "smiths' quay"]),
    ]
    assert read_records(write(tmp_path / "x.jsonl", records)) == records
    assert read_scenarios(tmp_path / "x.jsonl") == [Scenario(one["scenario"], tuple(one["actions"])) for one in records]


def test_a_file_needs_no_domains(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"scenario": TEXT, "actions": ["a b", "c"]}])
    assert read_records(path) == [record(actions=["a b", "c"], domain="other")]


def test_scenarios_of_so_many_actions_keep_their_order():
    scenarios = [Scenario(str(place), ("a", "b", "c")[: 2 + place % 2]) for place in range(9)]
    assert [scenario.text for scenario in for_actions(scenarios, 3)] == ["1", "3", "5", "7"]
    assert for_actions(scenarios, 4) == []


WRONG = {
    "no JSON": ("nonsense", "is no JSON"),
    "too deep": ("[" * 100_000, "is no JSON"),
    "no object": ("[1]", "is no object"),
    "empty": ("", "is no JSON"),
    "unknown key": (record() | {"title": "x"}, "title: unknown key"),
    "key of two lines": (record() | {"two\nlines\u202e\ud800": "x"}, r"two\nlines\u202e\ud800: unknown key"),
    "missing key": ({"scenario": TEXT}, "actions: missing key"),
    "no text": (record(7), "scenario: must be"),
    "short text": (record(TEXT[:79]), "scenario: must be"),
    "long text": (record("a" * 701), "scenario: must be"),
    "two lines": (record(TEXT + "\nIt recurs."), "scenario: must be"),
    "no list": (record() | {"actions": "north pier"}, "actions: must be"),
    "one action": (record(actions=["north"]), "actions: must be"),
    "eleven actions": (record(actions="abcdefghijk"), "actions: must be"),
    "no name": (record(actions=["north", 2]), "actions: 2 is not"),
    "blank name": (record(actions=["north", " "]), "actions: ' ' is not"),
    "spaced name": (record(actions=["north", " south"]), "actions: ' south' is not"),
    "marked name": (record(actions=["north", "south: quay"]), "actions: 'south: quay' is not"),
    "mere number": (record(actions=["north", "2"]), "actions: '2' is not"),
    "six words": (record(actions=["north", "a b c d e f"]), "more than 5 words"),
    "long name": (record(actions=["north", "x" * 41]), "more than 5 words or 40 characters"),
    "twice": (record(actions=["North", "north"]), "'north' is there twice"),
    "beginning": (record(actions=["pier", "Pier north"]), "'pier' is the beginning of 'pier north'"),
    "the same once it is read": (record(actions=["pier 2", "pier ２"]), "'pier 2' would not be understood"),
    "domain": (record(domain="zoology"), "domain: 'zoology' is none of healthcare"),
    "same text": (record(), "scenario: is that of line 1"),
}


@pytest.mark.parametrize(("line", "reason"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_refused_by_file_and_number(tmp_path, line, reason):
    path = write(tmp_path / "x.jsonl", [record()])
    path.write_text(path.read_text() + (line if isinstance(line, str) else json.dumps(line)) + "\n")
    with pytest.raises(InputError, match=re.escape(reason)) as refused:
        read_scenarios(path)
    assert str(refused.value).startswith(f"{path}:2: ")
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_one_of_bytes_are_refused_by_name(tmp_path):
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff")
    for name in ("missing.jsonl", "bytes.jsonl"):
        with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
            read_scenarios(tmp_path / name)


# --- Fairness ---


@every_set
def test_bundled_scenarios_are_fair(records):
    unfair = [one for one in records if obviously_better(scenario_of(one))]
    assert len(unfair) <= 0.02 * len(records), unfair


UNFAIR = {
    "verdict": "The north pier is clearly the best choice, the south pier and the old pier are used too.",
    "verdict on the next line": "There are the south pier, the old pier and the north pier. It is by far the best.",
    "verdict with a but": "The old pier, the south pier and the north pier are open; the north pier is the best "
    "option, but it costs a little more.",
    "comparison": "The south pier and the old pier are long. The north pier is better than the others in every wind.",
    "experts": "The north pier, which experts recommend, lies beside the south pier and the old pier.",
    "no drawback": "The south pier is steep, the old pier is dark, and the north pier has no drawbacks.",
    "praise": "The south pier has two berths, the old pier has a crane, and the excellent north pier has a ramp.",
    "blame": "The south pier has two berths, the north pier has a ramp, and the old pier is useless.",
    "superlative": "The south pier has two berths, the most reliable is the north pier, the old pier has a crane.",
    "praise beside faults": "The north pier is quick and safe, the south pier is slow, and the old pier is dangerous.",
    "fault beside praise": "The north pier is quick, the south pier is safe, and the old pier is slow and dangerous.",
    "dwelt upon": "Crews use the south pier, the old pier or the north pier. The north pier was rebuilt last year with "
    "a wide ramp, a new crane, a heated waiting room and a light that ships see from very far off in any weather.",
}


@pytest.mark.parametrize("kind", UNFAIR)
def test_an_unfair_text_is_caught_with_the_action_it_favours_or_faults(kind):
    reason = obviously_better(Scenario(UNFAIR[kind], ("north pier", "south pier", "old pier")))
    assert reason is not None
    assert ("old pier" if kind in ("blame", "fault beside praise") else "north pier") in reason


def test_a_name_that_judges_is_caught():
    assert "best pier" in obviously_better(Scenario(TEXT, ("best pier", "south pier", "old pier")))
    assert "useless pier" in obviously_better(Scenario(TEXT, ("north pier", "useless pier", "old pier")))


FAIR = {
    "all praised": "The north pier, the south pier and the old pier: each is excellent. The north pier is excellent in "
    "wind, the south pier is excellent in rain, the old pier is excellent at night.",
    "trade-offs": "The north pier is quick but risky, the south pier is safe but slow, the old pier cheap but poor.",
    "one of each": "The north pier is quick, the south pier is slow, and the old pier is far.",
    "a question": "The north pier, the south pier or the old pier: nobody knows which is the best bet, or why.",
    "of something else": "The best captain of the town chooses among the north pier, the south pier and the old pier.",
    "a listing with a tail": "The crew takes the north pier, the south pier or the old pier on every day of the long "
    "season, whatever the wind, and the harbour master writes down for each crossing how many minutes it took them.",
    "a tail after a dash": "The crew takes the south pier, the old pier or the north pier - on every day of the long "
    "season it may take only one of them, and the harbour master writes down the minutes that the whole crossing took.",
    "praise with a but": "The north pier is excellent in rain but closes early, the south pier has two berths, the old "
    "pier is useless in rain although it has a crane.",
    "trade-offs where a but weighs": "The north pier is quick but shut at night, the south pier is slow in swell, and "
    "the old pier is weak in a gale.",
    "two at once": "An excellent contest sets the north pier against the south pier, and the old pier has a crane.",
    "a sentence about all": "The south pier is long and the old pier is low. The north pier is high. It is the same on "
    "every day of the long season: the crew may take only one, and the harbour master writes down how long it took.",
}


@pytest.mark.parametrize("text", FAIR.values(), ids=FAIR)
def test_a_fair_text_passes(text):
    assert obviously_better(Scenario(text, ("north pier", "south pier", "old pier"))) is None


def test_a_verdict_on_any_action_of_any_told_scenario_is_caught():
    for one in TOLD:
        for name in one["actions"]:
            praised = Scenario(f"{one['scenario']} The {name} is obviously the best choice.", tuple(one["actions"]))
            assert repr(name) in obviously_better(praised)


# --- Likeness ---


def similarity(one, other):
    """Return the Jaccard index of two texts' runs of characters, set by set."""
    one, other = (
        {plain[i : i + GRAM] for i in range(max(len(plain) - GRAM + 1, 1))}
        for plain in (" ".join(re.findall(r"[^\W_]+", text.casefold())) for text in (one, other))
    )
    return len(one & other) / len(one | other)


@given(st.lists(st.text("ab c.", max_size=12), max_size=6), st.sampled_from([0.1, 0.5, 1.0]))
def test_likeness_is_that_of_sets(texts, threshold):
    expected = [
        (i, j, pytest.approx(similarity(texts[i], texts[j])))
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if similarity(texts[i], texts[j]) >= threshold
    ]
    assert near_duplicates(texts, threshold) == expected


def test_the_same_words_are_alike_whatever_their_dress():
    shouted = TEXT.upper().replace(",", " --").replace(".", "!")
    assert near_duplicates(["Another text.", TEXT, shouted], 1.0) == [(1, 2, 1.0)]


def test_a_text_with_few_words_changed_is_alike_and_one_of_the_same_author_is_not():
    chance = random.Random(0)
    texts = [one["scenario"] for one in SETS["plain-voice"][:100]]
    changed = [" ".join(chance.choice(TEXT.split()) if chance.random() < 0.1 else w for w in t.split()) for t in texts]
    pairs = {(i, j) for i, j, _ in near_duplicates(texts + changed)}
    assert pairs <= {(i, 100 + i) for i in range(100)}
    assert len(pairs) >= 95


# --- Prompts ---


@pytest.mark.parametrize("template", [RICH, SIMPLE], ids=["rich", "simple"])
@pytest.mark.parametrize("d", range(2, 11))
def test_prompts_ask_for_so_many_scenarios_of_so_many_actions(template, d):
    prompt = template.render(batch=7, d=d, domains=["sports"], avoid=["tuba, horn"])
    assert re.search(rf"\b7\b.*\b{d} actions", prompt)
    examples = read_response(prompt)
    assert examples
    assert all(len(example["actions"]) == d for example in examples)


def test_the_rich_prompt_tells_where_to_go_and_what_is_there():
    prompt = RICH.render(batch=2, d=3, domains=["sports", "space"], avoid=["tuba, horn"])
    assert "sports, space" in prompt
    assert "- tuba, horn" in prompt
    assert "exist already" not in RICH.render(batch=2, d=3, domains=["sports"], avoid=[])


def test_the_example_of_the_rich_prompt_keeps_its_own_rules():
    (example,) = read_response(RICH.render(batch=2, d=3, domains=[], avoid=[]))
    check_record(example)
    assert obviously_better(scenario_of(example)) is None
    assert all(name in example["scenario"] for name in example["actions"])


@pytest.mark.parametrize("text", [None, "{% if %}", "{{ typo }}", "{{ 1 / 0 }}", b"\xff"])
def test_a_prompt_that_cannot_be_told_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "own.j2"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=re.escape(str(path))) as refused:
        generate(Author([]), read_template(path), 1, 3, 0)
    assert "\n" not in str(refused.value)


# --- Answers ---


PAIR = [record(), record(SETS["plain-voice"][0]["scenario"], SETS["plain-voice"][0]["actions"])]
LINES = [json.dumps(one) for one in PAIR]
ANSWERS = {
    "lines": "\n".join(LINES),
    "fenced": "Here you are:\n```json\n" + "\n".join(LINES) + "\n```\nDo you want more?",
    "numbered": "\n".join(f"{number}. {line}" for number, line in enumerate(LINES, start=1)),
    "array": json.dumps(PAIR, indent=2),
    "commas after lines": ",\n".join(LINES) + ",",
    "in an object": json.dumps({"scenarios": PAIR}),
    "trailing commas": "[" + ", ".join(line.replace('"]', '",]').replace("}", ",\n}") for line in LINES) + ",]",
    "cut off": "\n".join(LINES) + '\n{"scenario": "A mill on the',
    "cut off within": LINES[0] + '\n{"scenario": "A mill on\n' + LINES[1],
    "with braces": "{note} " + "\n{} {\n".join(LINES),
    "broken lines": "\n".join(line.replace(" the ", " the\\n ") for line in LINES).replace("\\n", "\n"),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_read_in_any_dress(answer):
    read = read_response(answer)
    assert [" ".join(one["scenario"].split()) for one in read] == [one["scenario"] for one in PAIR]
    assert [one["actions"] for one in read] == [one["actions"] for one in PAIR]


@pytest.mark.parametrize("answer", ["", "I cannot do that.", "{" * 5000, '{"a":' * 5000, "[1, 2]", '{"scenario"}'])
def test_an_answer_without_scenarios_has_none(answer):
    assert read_response(answer) == []


# --- Generation ---


class Author:
    """Returns the given responses, one a call, and remembers its prompts."""

    def __init__(self, answers):
        self.answers, self.prompts = iter(answers), []

    def __call__(self, prompt, seed):
        """Answer the next prompt."""
        self.prompts.append((prompt, seed))
        return next(self.answers)


def written(records):
    return "\n".join(json.dumps(one) for one in records)


def draws(pool):
    """Return an author who draws five scenarios of a pool by the seed alone, and so repeats itself."""
    return lambda _prompt, seed: written(random.Random(seed).sample(pool, 5))


POOL = of_actions(SETS["plain-voice"], 3)[:60]


@settings(max_examples=12)
@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 2**31))
def test_generation_ends_with_the_count_asked_for(count, batch, seed):
    found = generate(draws(POOL), RICH, count, 3, seed, batch=batch)
    assert len(found) == count
    assert len({one["scenario"] for one in found}) == count
    assert all(one in POOL for one in found)


@settings(max_examples=12)
@given(st.integers(0, 20), st.integers(0, 2**31))
def test_generation_goes_on_from_where_it_was_interrupted(after, seed):
    other = of_actions(SETS["plain-voice"], 4)[:3]  # there before, and of no concern
    whole, progress = [], []
    whole = generate(draws(POOL), RICH, 30, 3, seed, other, 4, progress.append)
    done = progress[min(after, len(progress) - 1)]
    assert done + generate(draws(POOL), RICH, 30 - len(done), 3, seed, other + done, 4) == whole


def test_what_is_wrong_unfair_or_there_already_is_asked_for_again():
    good, better, known = POOL[:3]
    answers = [
        [record(actions=["one", "two"]), record("Too short."), good],
        [
            record(f"{TEXT} The north pier is the best choice."),
            known,
            good,
            better | {"actions": good["actions"]},
            good | {"scenario": good["scenario"].replace(" the ", " a "), "actions": ["x", "y", "z"]},
        ],
        [better],
    ]
    author = Author(map(written, answers))
    assert generate(author, RICH, 2, 3, 0, [known]) == [good, better]
    assert len(author.prompts) == 3


def test_two_of_a_batch_that_are_alike_count_once():
    twin = POOL[0] | {"actions": ["x", "y", "z"]}
    assert generate(Author([written([POOL[0], twin, POOL[1]])]), RICH, 2, 3, 0) == POOL[:2]


def test_what_a_model_writes_is_put_in_plain_form():
    dressed = {"scenario": f"  {TEXT}\n It recurs. ", "action": ["1. north  pier", "B) mill–race.", "smiths’ quay"]}
    dressed["domain"] = "Public Policy"
    (found,) = generate(Author([json.dumps(dressed)]), SIMPLE, 1, 3, 0)
    assert found == record(f"{TEXT} It recurs.", ["north pier", "mill-race", "smiths' quay"], "public-policy")


@pytest.mark.parametrize("domain", [None, "zoology", 7, ["sports", "space"]])
def test_a_domain_that_is_not_on_the_list_is_another(domain):
    (found,) = generate(Author([written([record(domain=domain)])]), SIMPLE, 1, 3, 0)
    assert found["domain"] == "other"


def test_a_model_that_repeats_the_example_of_the_prompt_brings_nothing():
    with pytest.raises(InputError, match="is there already"):
        generate(lambda prompt, _: prompt, RICH, 1, 3, 0)


def test_a_model_that_brings_nothing_is_asked_a_few_times_with_other_seeds():
    author = Author(["Sorry."] * 9)
    with pytest.raises(
        InputError, match=r"no new scenario of 3 actions \(0 of 4 are there\).*no JSON object"
    ) as refused:
        generate(author, RICH, 4, 3, 0)
    assert "\n" not in str(refused.value)
    assert len(author.prompts) == PATIENCE
    assert len({seed for _, seed in author.prompts}) == PATIENCE
    assert len({prompt for prompt, _ in author.prompts}) == 1


def test_patience_begins_anew_with_every_new_scenario():
    rare = [answer for one in POOL[:3] for answer in [*["Sorry."] * (PATIENCE - 1), written([one])]]
    assert generate(Author(rare), RICH, 3, 3, 0) == POOL[:3]


def test_the_reason_for_refusing_is_told():
    with pytest.raises(InputError, match=r"actions: 2 names \(5\)"):
        generate(Author([written([record(actions=["one", "two"])])] * 9), RICH, 1, 3, 0)


def test_prompts_lead_to_rare_domains_and_away_from_their_scenarios():
    known = [one for one in SETS["plain-voice"] if one["domain"] not in ("sports", "space")] + [
        record(actions=["tuba", "horn", "drum"], domain="space")
    ]
    new = of_actions(SETS["vivid-voice"], 3)[:2]
    author = Author([written(new)])
    template = "{{ batch }} {{ d }} {{ domains | join(',') }} {{ avoid | join(';') }}"
    generate(author, RICH.environment.from_string(template), 1, 3, 0, known, batch=2)
    assert author.prompts[0][0] == "1 3 sports"  # one is wanted, in the rarest domain, where nothing is to be avoided
    author = Author([written(new)])
    generate(author, RICH.environment.from_string(template), 2, 3, 0, known, batch=2)
    assert author.prompts[0][0] == "2 3 sports,space tuba, horn, drum"


def test_no_more_titles_are_told_than_a_prompt_can_bear():
    author = Author([written([POOL[0]])])
    template = RICH.environment.from_string("{{ avoid | length }}")
    generate(author, template, 1, 3, 0, [one | {"domain": "other"} for one in TOLD[60:]])
    assert author.prompts[0][0] == "0"
    author = Author([written([POOL[0]])])
    generate(author, template, 1, 3, 0, [one | {"domain": domain} for domain in DOMAINS for one in TOLD[60:92]])
    assert author.prompts[0][0] == str(TITLES)


def test_likeness_is_judged_at_the_stated_threshold():
    assert 0.15 < ALIKE < 0.75  # between one author's texts and a text with a tenth of its words changed


# --- CSV files of a user's own ---


@pytest.mark.parametrize(
    ("begin", "separator", "end"), [("", ",", "\n"), ("\N{BYTE ORDER MARK}", ";", "\r\n")], ids=["plain", "spreadsheet"]
)
def test_a_csv_file_holds_the_scenarios_of_its_rows(tmp_path, begin, separator, end):
    rows = [
        ["Scenario", "Action 1", "Action 2", "Action 3", "Domain"],
        [f'"{TEXT}"', "north pier", "south pier", "old pier", "logistics"],
        ["", "", "", "", ""],
        [f'"Again: {TEXT}"', " north pier ", "south pier", "", ""],
    ]
    text = "".join(separator.join(row) + end for row in rows)
    (tmp_path / "mine.csv").write_bytes((begin + text).encode())
    assert read_records(tmp_path / "mine.csv") == [
        record(),
        record(f"Again: {TEXT}", ["north pier", "south pier"], "other"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: columns must be scenario, action 1, action 2"),
        ("text,action 1\n", "they are text, action 1"),
        ("scenario,action,action\n", "each once"),
        ("scenario,action 1,action 2,colour\n", "they are scenario, action 1, action 2, colour"),
        (f'scenario,action 1,action 2\n"{TEXT}",north\n', ":2: has 2 cells where there are 3 columns"),
        (f'scenario,action 1,action 2\n"{TEXT}",north,\n', ":2: actions: must be a list of 2 to 10 names"),
        (f'scenario,action 1,action 2,action 3\n"{TEXT}",north,,south\n', ":2: actions: '' is not of letters"),
        ("scenario,action 1,action 2\nShort.,north,south\n", ":2: scenario: must be one line of 80"),
        (
            f'scenario,action 1,action 2\n"{TEXT}",north,south\n"{TEXT}",north,south\n',
            ":3: scenario: is that of line 2",
        ),
        (f'scenario,action 1,action 2,domain\n"{TEXT}",north,south,piers\n', ":2: domain: 'piers' is none of"),
        (f'scenario,action 1,action 2\n"{TEXT},north,south\n', ": is no CSV"),
        (b"scenario,\xff\n", "utf-8"),
    ],
)
def test_a_csv_file_that_is_not_as_it_must_be_is_refused_with_the_line(tmp_path, text, says):
    path = tmp_path / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        read_records(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)
