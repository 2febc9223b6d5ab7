"""Claims of replies, checked against the history by hand and by brute force; judges, accuracy, the stage."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from endpoint_games import connected
from hypothesis import given
from hypothesis import strategies as st
from upstream import Upstream

from rmft.artifacts.replies import read_claims, read_replies
from rmft.artifacts.trajectories import write_trajectories
from rmft.language.parsing import parse
from rmft.language.prompts import read_template
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.metrics.agreement import agreement
from rmft.params import load
from rmft.reasoning import ALL, DIFFERENCE
from rmft.reasoning.accuracy import accuracies
from rmft.reasoning.claims import claims_of
from rmft.reasoning.history import History
from rmft.reasoning.judges import PassingReply, lexical, read_words, yes_or_no, zero_shot
from rmft.tables.claims import claims_table
from rmft.workflow.plan import reasoning_job

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.02
BANDIT = Protocol("dialogue", "action", "bandit", "with-reasoning", 3)
STATED = Protocol("dialogue", "distribution", "bandit", "with-reasoning", 3)
SHOPS = Scenario("Shops.", ("market stall", "online shop", "Smith's & Sons"))
NAMED = Protocol("dialogue", "action", "bandit", "with-reasoning", 3, SHOPS)
PLAYED = [(0, 4.20), (1, 6.13), (1, 7.05), (2, 1.00)]  # action (0-based) and reward of rounds 1, 2, ...
WORDS = read_words(ROOT / "data/prompts/judge/unstable.txt")


def history_of(played: list[tuple[int, float]], d: int = 3) -> History:
    """Return what a player under bandit feedback has seen."""
    rounds = []
    for t, (action, reward) in enumerate(played, start=1):
        rewards = [float("nan")] * d
        rewards[action] = reward
        rounds.append(Round(t, action, None, tuple(rewards)))
    return History(d, rounds)


def found(words: str, decision: str = "Action: 2", protocol: Protocol = BANDIT, played=PLAYED) -> list[tuple]:
    """Return kind, text and truth of the claims of a reply."""
    text = f"{words}\n{decision}"
    claims = claims_of(text, protocol, history_of(played), parse(text, protocol, TOLERANCE), TOLERANCE)
    return [(claim.kind, text[slice(*claim.span)], claim.true) for claim in claims]


def kinds_and_truth(words: str, **more) -> list[tuple[str, bool]]:
    """Return kind and truth of the claims of a reply."""
    return [(kind, true) for kind, _, true in found(words, **more)]


# --- Claims, by hand ---


@pytest.mark.parametrize(
    ("words", "claims"),
    [
        ("Action 2 gave 6.1.", [("reward", True)]),
        ("Action 2 gave 6.2.", [("reward", False)]),
        ("Action 2 gave 6.", [("reward", True)]),
        ("**Action 2** paid **6.13** and 7.05.", [("reward", True), ("reward", True)]),
        ("Action 2 paid 6.13 in round 3.", [("reward", False)]),
        ("Action 2 paid 6.13 in round 2.", [("reward", True)]),
        ("Action 3 paid 1 last round.", [("reward", True)]),
        ("Action 2 paid 7.05 last round.", [("reward", False)]),
        ("In the last round, action 3 paid 1.", [("reward", True)]),
        ("In the last round, action 2 paid 7.05.", [("reward", False)]),
        ("In round 3, I chose action 2, which gave 7.05.", [("reward", True)]),
        ("Action 2 last paid 6.13.", [("reward", False)]),
        ("Action 2's most recent reward was 7.05.", [("reward", True)]),
        ("The last reward was 1.00.", [("reward", True)]),
        ("I received a reward of 6.13 from action 2.", [("reward", True)]),
        ("I received a reward of 6.13 from action 1.", [("reward", False)]),
        ("I chose action 1 and got 4.2.", [("reward", True)]),
        ("Action 2 has been tried twice.", [("times", True)]),
        ("Action 2 was chosen at least three times.", [("times", False)]),
        ("Action 2 was chosen more than 1 time.", [("times", True)]),
        ("I have tried option 1 only once.", [("times", True)]),
        ("I have never tried action 3.", [("times", False)]),
        ("Action 1 remains untested.", [("times", False)]),
        ("Action 2 averages 6.59.", [("average", True)]),
        ("Action 2 has an average reward of 6.6 so far.", [("average", True)]),
        ("The average reward of action 2 is about 7.", [("average", True)]),
        ("The average reward of action 2 is 7.05.", [("average", False)]),
        ("Action 2 has the highest average reward (6.59).", [("highest", True), ("average", True)]),
        ("Action 1 has the highest reward so far.", [("highest", False)]),
        ("The best so far is action 2.", [("highest", True)]),
        ("The lowest reward came from action 3.", [("highest", True)]),
        ("Action 1 was tried once, with an average of 4.2.", [("times", True), ("average", True)]),
        ("- **Action 1**: average 4.2\n- **Action 2**: average 5", [("average", True), ("average", False)]),
        ("So I will choose action 2.", [("choice", True)]),
        ("I could try action 2, but I'll stick with action 3.", [("choice", False)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_claim_in_prose_is_held_against_the_history(words, claims):
    assert kinds_and_truth(words) == claims


@pytest.mark.parametrize(
    "words",
    [
        "If action 1 paid 9, I would switch.",
        "Action 1 might have the highest reward so far.",
        "Did action 2 give 6.13?",
        "Action 1 is not the best so far.",
        "Action 2 did not give 9.",
        "Action 3 has not been tried enough.",
        "Action 3 has the second highest average reward.",
        "Action 2 is the best action.",
        "Action 2 pays 4 to 7.",
        "Action 1 paid 40% of the time.",
        "Action 7 paid 6.13.",
        "Rewards are between 0 and 10. There are 3 actions and 25 rounds.",
        "Action 1 and action 2 differ by 2.",
        "I should explore more.",
        "Action 2 earned 10.13 in total.",
        "Action 2 gave 10.13 points altogether.",
        "Action 2 has earned 10.13 over two rounds.",
        "Action 3 paid 3 points less than action 1.",
        "Action 3's reward was 3 points lower than action 1's.",
        "Action 2 received 2 pulls.",
        "Action 2 got 2 tries.",
        "In total, action 2 earned 10.13.",
        "Action 2 earned 10.13 overall.",
        "Action 2 earned 10.13 (total).",
        "Action 2 earned 10.13 across 2 rounds.",
        "Action 3 paid 1 point better than action 1.",
        "Action 3 paid 0.5 units more than action 1.",
    ],
)
def test_what_claims_nothing_outright_is_not_counted(words):
    assert kinds_and_truth(words) == []


def test_names_of_a_scenario_are_actions_and_dress_does_no_harm():
    words = "The online shop paid 6.13.  “Smith’s & Sons” has an average of **1.00**; the market stall paid 9."
    assert kinds_and_truth(words, protocol=NAMED) == [("reward", True), ("average", True), ("reward", False)]


def test_the_line_of_the_decision_is_no_claim_and_a_reply_that_is_all_decision_has_none():
    assert found("", "Action: 2") == []
    assert found("Action 2 paid 6.13.", "Final action: 2") == [("reward", "Action 2 paid 6.13", True)]


def test_a_stated_policy_chooses_what_it_gives_the_highest_probability():
    words = "I put most weight on action 2."
    assert kinds_and_truth(words, decision="Policy: [0.1, 0.8, 0.1]", protocol=STATED) == [("choice", True)]
    assert kinds_and_truth(words, decision="Policy: [0.8, 0.1, 0.1]", protocol=STATED) == [("choice", False)]


@pytest.mark.parametrize(
    "words",
    [
        "Action 1 was tried {} times.",
        "{} paid 5.00, good.",
        "Scores: 1={}.",
        "Highest score: {}.",
    ],
)
def test_a_reply_that_ends_in_endless_digits_claims_nothing(words):
    text = words.format("1" * 5000) + "\nAction: 1"
    assert claims_of(text, BANDIT, history_of(PLAYED), parse(text, BANDIT, TOLERANCE), TOLERANCE) == []


@pytest.mark.parametrize("words", ["Action 1 paid 6 in round {}.", "In round {}, action 1 paid 6."])
def test_a_round_of_endless_digits_is_none(words):
    text = words.format("1" * 5000) + "\nAction: 1"
    (claim,) = claims_of(text, BANDIT, history_of(PLAYED), parse(text, BANDIT, TOLERANCE), TOLERANCE)
    assert not claim.true


def test_under_full_feedback_every_reward_that_was_shown_can_be_quoted():
    full = Protocol("dialogue", "action", "full", "with-reasoning", 3)
    history = History(3, [Round(1, 0, None, (4.2, 9.0, 1.0))])
    text = "Action 2 paid 9.00. Action 2 has never been chosen.\nAction: 2"
    claims = claims_of(text, full, history, parse(text, full, TOLERANCE), TOLERANCE)
    assert [(claim.kind, claim.true) for claim in claims] == [("reward", True), ("times", True)]


RIGHT_TALLY = "3 paid 1.00, poor: 3 goes from 5 to 3=4. Scores: 1=4 2=7 3=4. Highest score: 2."


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("paid 1.00", "paid 1.10", "reward"),
        ("poor", "good", "grade"),
        ("from 5", "from 6", "score"),
        ("to 3=4", "to 3=6", "score"),
        ("1=4 2=7", "1=4 2=6", "score"),
        ("Highest score: 2.", "Highest score: 1.", "highest"),
        ("Highest score: 2.", "In turn: 2.", "reason"),
        ("Highest score: 2.", "Stable by the last reward: 2.", "reason"),
        ("Highest score: 2.", "Unstable by the last reward: 3.", "reason"),
        ("Highest score: 2.", "At random: 3.", "choice"),
    ],
)
def test_a_fault_in_a_tally_is_found_and_nothing_else(old, new, kind):
    assert [true for _, true in kinds_and_truth(RIGHT_TALLY)] == [True] * 9
    stated = (
        "2" if new.startswith("At random") or not new.endswith(".") else new[-2]
    )  # the decision follows the stated reason
    claims = kinds_and_truth(RIGHT_TALLY.replace(old, new), decision=f"Action: {stated}")
    assert [name for name, true in claims if not true] == [kind]


@pytest.mark.parametrize(("why", "action"), [("In turn", 1), ("Unstable by the last reward", 1), ("At random", 3)])
def test_a_reason_that_the_last_round_gives_is_right(why, action):
    claims = kinds_and_truth(
        RIGHT_TALLY.replace("Highest score: 2.", f"{why}: {action}."), decision=f"Action: {action}"
    )
    assert all(true for _, true in claims)


def test_what_the_corpus_writes_is_right_in_every_claim():
    from rmft.embedded_model.corpus import ScriptedPlayer

    rng = np.random.default_rng(0)
    for style in ("random", "turn", "recent", "tally"):
        player, history, last = ScriptedPlayer(BANDIT, style, np.full(3, 5), rng), History(3), None
        for t in range(30):
            text, action, _ = player.reply(last)
            claims = claims_of(text, BANDIT, history, parse(text, BANDIT, TOLERANCE), TOLERANCE)
            assert {claim.true for claim in claims} == {True}, text
            rewards = np.full(3, np.nan)
            rewards[action] = rng.uniform(0, 10)
            last = Round(t + 1, action, None, tuple(rewards))
            history = History(3, (*history.past, last))


# --- Claims, written at random and checked by brute force ---


@dataclass
class Writer:
    """Writes sentences about a game, true or false, and knows which by looking through all of its rounds."""

    rng: random.Random
    played: list[tuple[int, float]]

    def of(self, action: int) -> list[float]:
        """Return what an action has paid."""
        return [reward for a, reward in self.played if a == action]

    def number(self, truth: float) -> str:
        """Write a number: the true one, perhaps rounded, or another."""
        value = truth if self.rng.random() < 0.6 else self.rng.uniform(0, 10)
        return f"{value:.{self.rng.choice([0, 1, 2])}f}"

    @staticmethod
    def is_rounded(quoted: str, value: float) -> bool:
        """Return whether a number is a value, rounded to as many decimals."""
        unit = 10 ** -len(quoted.partition(".")[2])
        return abs(value - float(quoted)) <= unit / 2 + 1e-9

    def reward(self, a: int) -> tuple[str, str, bool]:
        """Quote a reward; return the sentence, its kind and whether it is true."""
        seen = self.of(a)
        quoted = self.number(self.rng.choice(seen) if seen else 5.0)
        form = self.rng.choice(
            ["Action {a} paid {n}", "Option {a} gave a reward of {n}", "I received {n} from action {a}",
             "I got a reward of {n} points from arm {a}", "Action {a} yielded **{n}**"]
        )  # fmt: skip
        return form.format(a=a + 1, n=quoted), "reward", any(self.is_rounded(quoted, reward) for reward in seen)

    def round(self, a: int) -> tuple[str, str, bool]:
        """Quote the reward of a round."""
        t = self.rng.randrange(len(self.played))
        quoted = self.number(self.played[t][1])
        form = self.rng.choice(["Action {a} returned {n} in round {t}", "In round {t}, I chose action {a} and got {n}",
                                "Round {t}: option {a} paid {n}"])  # fmt: skip
        text = form.format(a=a + 1, n=quoted, t=t + 1)
        return text, "reward", self.played[t][0] == a and self.is_rounded(quoted, self.played[t][1])

    def times(self, a: int) -> tuple[str, str, bool]:
        """Say how often an action was played."""
        count = self.rng.choice([len(self.of(a)), self.rng.randrange(1, 6)]) or 1
        word = self.rng.choice({1: ["once", "1 time"], 2: ["twice", "two times"]}.get(count, [f"{count} times"]))
        n = len(self.of(a))
        bounds = [("", n == count), ("only ", n == count), ("at least ", n >= count), ("more than ", n > count)]
        bound, holds = self.rng.choice(bounds)
        form = self.rng.choice(
            ["Action {a} has been tried {k}", "I have played option {a} {k}", "Arm {a} was chosen {k}"]
        )
        return form.format(a=a + 1, k=bound + word), "times", holds

    def never(self, a: int) -> tuple[str, str, bool]:
        """Say that an action was never played."""
        form = self.rng.choice(
            ["Action {a} has not been tried yet", "I have never chosen action {a}", "Option {a} is untested"]
        )
        return form.format(a=a + 1), "times", not self.of(a)

    def average(self, a: int) -> tuple[str, str, bool]:
        """State an average."""
        seen = self.of(a)
        mean = sum(seen) / len(seen) if seen else 5.0
        quoted = self.number(mean)
        form = self.rng.choice(
            ["Action {a} averages {n}", "The average reward of action {a} is {n}", "The mean for action {a} is {n}",
             "Option {a} has a mean reward of {n}"]
        )  # fmt: skip
        return form.format(a=a + 1, n=quoted), "average", bool(seen) and self.is_rounded(quoted, mean)

    def highest(self, a: int) -> tuple[str, str, bool]:
        """Compare actions."""
        means = {b: sum(self.of(b)) / len(self.of(b)) for b in range(3) if self.of(b)}
        top = {b: max(self.of(b)) for b in means}
        low = {b: min(self.of(b)) for b in means}
        most = [{b for b in of if of[b] >= max(of.values()) - 1e-9} for of in (means, top)]
        least = [{b for b in of if of[b] <= min(of.values()) + 1e-9} for of in (means, low)]
        form, holds = self.rng.choice(
            [("Action {a} has the highest average reward so far", a in most[0]),
             ("The highest reward so far came from action {a}", a in most[0] | most[1]),
             ("Option {a} is the best so far", a in most[0] | most[1]),
             ("Action {a} has the lowest average", a in least[0]),
             ("Action {a} gave the lowest reward so far", a in least[0] | least[1])]
        )  # fmt: skip
        return form.format(a=a + 1), "highest", holds

    def sentences(self, count: int) -> list[tuple[str, str, bool]]:
        """Return so many sentences."""
        kinds = [self.reward, self.round, self.times, self.never, self.average, self.highest]
        return [self.rng.choice(kinds)(self.rng.randrange(3)) for _ in range(count)]


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5))
def test_every_written_claim_is_found_and_labelled_as_brute_force_labels_it(seed, rounds, count):
    rng = random.Random(seed)
    writer = Writer(rng, [(rng.randrange(3), round(rng.uniform(0, 10), 2)) for _ in range(rounds)])
    written = writer.sentences(count)
    words = "".join(text + rng.choice([". ", "; ", ".\n- ", ", and ", ". Well, "]) for text, _, _ in written)
    words = words.replace(", and I", ". I")
    assert kinds_and_truth(words, played=writer.played) == [(kind, true) for _, kind, true in written], words


@given(st.text(max_size=300), st.integers(0, 5))
def test_any_text_can_be_read(text, rounds):
    claims = claims_of(text, NAMED, history_of(PLAYED[:rounds]), parse(text, NAMED, TOLERANCE), TOLERANCE)
    assert all(0 <= begin < end <= len(text) for begin, end in (claim.span for claim in claims))


@pytest.mark.parametrize(
    "piece", ["action 2 ", "action 1 paid 6.1, ", "highest average ", "(", "not ", "1=5 ", "a" * 50]
)
def test_time_is_about_linear_in_the_length_of_a_reply(piece):
    import time

    text = piece * (40_000 // len(piece)) + "\nAction: 1"
    begun = time.perf_counter()
    claims_of(text, BANDIT, history_of(PLAYED), None, TOLERANCE)
    assert time.perf_counter() - begun < 20


# --- Judges ---


def case(reply: str, best: int, preferred: int, last: int | None = None, protocol: Protocol = BANDIT) -> PassingReply:
    return PassingReply(reply, protocol, best - 1, frozenset({preferred - 1}), None if last is None else last - 1)


@pytest.mark.parametrize(
    ("reply", "best", "preferred", "last", "unstable"),
    [
        ("Action 2 has paid well, but its rewards are inconsistent, so I choose action 1.", 2, 1, 3, True),
        ("I avoid action 2 because its rewards fluctuate, and choose action 3.", 2, 3, 2, True),
        ("Action 2 averaged 6. However, its rewards show high variance. I go with action 1.", 2, 1, 1, True),
        ("Action 1 is more consistent than action 2.", 2, 1, 1, True),
        ("Action 2 is too risky.", 2, 1, 3, True),
        ("The last reward was volatile, so I switch to action 1.", 2, 1, 2, True),
        ("Unstable by the last reward: 1.", 2, 1, 2, True),
        ("Unstable by the last reward: 1.", 2, 1, 3, False),
        ("Action 3 has high variance, so I choose action 1.", 2, 1, 3, False),
        ("Action 2 has paid little, so I choose action 1.", 2, 1, 2, False),
        ("Action 2 shows low variance, but action 1 pays more.", 2, 1, 2, False),
        ("Action 2 is not risky. Action 1 is new.", 2, 1, 2, False),
        ("Low variance for action 2, but action 1 pays more.", 2, 1, 2, False),
        ("Action 1 is stable.", 2, 1, 2, False),
        ("I explore: action 1.", 2, 1, 2, False),
    ],
)
def test_the_lexical_judge_sees_which_action_is_called_unstable(reply, best, preferred, last, unstable):
    assert lexical(WORDS)([case(reply, best, preferred, last)]) == [unstable]


def test_the_lexical_judge_knows_actions_by_name():
    reply = "The online shop pays best, yet its income is erratic. The market stall it is."
    assert lexical(WORDS)([case(reply, 2, 1, protocol=NAMED), case(reply, 3, 1, protocol=NAMED)]) == [True, False]


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ("yes", True),
        ("**No.**", False),
        ("Yes, since it says so", True),
        ("Maybe", None),
        ("", None),
        ("nothing", None),
    ],
)
def test_an_answer_is_yes_no_or_not_understood(answer, meaning):
    assert yes_or_no(answer) is meaning


def test_a_model_gets_each_question_once_and_its_answers_are_replayed(tmp_path):
    def say(body: dict) -> str:
        question = body["messages"][-1]["content"]
        if "so what" in question:
            return "Hm."
        return "Yes." if "zigzag" in question and "action 2 is passed over" in question else "no"

    first = case("Its rewards zigzag.", 2, 1, 2)
    cases = [first, case("It pays little.", 2, 1, 2), case(first.reply, 3, 1, 2), case("so what", 2, 1), first]
    template = read_template(ROOT / "data/prompts/judge/instability.j2")
    with Upstream(say) as upstream:
        for _ in range(2):
            with connected(tmp_path / "journal", upstream.url) as connection:
                assert zero_shot(connection, template, 8, seed=1)(cases) == [True, False, False, None, True]
        assert upstream.paid.total() == 4
        (max_tokens,) = {body["max_completion_tokens"] for body in upstream.bodies.values()}
        assert max_tokens == 8


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_agreement_of_judges_is_cohens(pairs):
    ours, theirs = np.array(pairs).T
    found, n = agreement(ours, theirs), len(pairs)
    chance = sum((ours == value).sum() * (theirs == value).sum() for value in (True, False)) / n**2
    assert found.equal == sum(a == b for a, b in pairs) / n
    if chance < 1 - 1e-12:
        assert found.kappa == pytest.approx((found.equal - chance) / (1 - chance))
    else:
        assert np.isnan(found.kappa)


# --- Accuracy, and the stage ---


def rows(**right: list[list[bool]]) -> tuple[list[dict], list[dict]]:
    """Return replies and claims, one reply an instance: by player, the truth of the claims of each instance."""
    replies, claims = [], []
    for player, instances in right.items():
        for instance, truths in enumerate(instances):
            replies.append({"player": player, "training_seed": 0, "instance": instance, "t": 1})
            claims += [{**replies[-1], "kind": "reward", "right": truth} for truth in truths]
    return replies, claims


def test_accuracy_is_the_share_of_right_claims_with_its_error_over_instances():
    rng = np.random.default_rng(0)
    truths = {name: (rng.random((200, 4)) < share).tolist() for name, share in (("base", 0.6), ("trained", 0.9))}
    found = pd.DataFrame(accuracies(0, ("test",), 2000, *rows(**truths))).set_index(["player", "kind"])
    means = {name: np.mean(of, axis=1) for name, of in truths.items()}
    for player, of in {**means, DIFFERENCE: means["trained"] - means["base"]}.items():
        row = found.loc[player, "reward"]
        error = of.std(ddof=1) / np.sqrt(len(of))
        assert row.accuracy == pytest.approx(of.mean())
        assert row.standard_error == pytest.approx(error, rel=0.1)
        assert (row.low, row.high) == pytest.approx((of.mean() - 1.96 * error, of.mean() + 1.96 * error), abs=error / 3)
    assert found.loc["base", ALL].accuracy == found.loc["base", "reward"].accuracy
    assert np.isnan(found.loc["base", "times"].accuracy)


def test_accuracy_after_several_trainings_has_their_error_too():
    replies, claims = rows(base=[[True, False]] * 50)
    for training, right in enumerate([19, 11, 9]):  # of 20
        for instance in range(50):
            reply = {"player": "trained", "training_seed": training, "instance": instance, "t": 1}
            replies.append(reply)
            claims += [{**reply, "kind": "reward", "right": number < right} for number in range(20)]
    frame = pd.DataFrame(accuracies(0, ("test",), 100, replies, claims))
    found = frame.set_index(["player", "kind"])
    assert found.loc[DIFFERENCE, ALL].standard_error == pytest.approx(np.std([0.95, 0.55, 0.45], ddof=1) / np.sqrt(3))
    assert (found.loc["base", ALL]["sample"], found.loc[DIFFERENCE, ALL]["sample"]) == (50, 3)
    assert claims_table({("closed_mab", "gaussian-25"): frame}).shaped.verdict[0] == "inconclusive"


def test_the_share_of_replies_with_a_claim_counts_replies_and_not_claims():
    found = pd.DataFrame(accuracies(0, ("test",), 10, *rows(base=[[True, True], [], []], trained=[[], [], []])))
    shares = found[found.kind == ALL].set_index("player")
    assert shares.with_claims.tolist()[:2] == [pytest.approx(1 / 3), 0.0]
    assert shares.claims.tolist()[:2] == [2, 0]


def write_games(path: Path, replies: list[str], actions: list[int], valid: list[bool]) -> Path:
    """Write one game of three actions, of which the second is the best, and pays 7 in every round; others pay 3."""
    horizon = len(replies)
    table = [3.0, 7.0, 3.0] * horizon
    game = {
        "scenario": 0, "trajectory": 0, "d": 3, "rewards": table, "means": table, "clipped_means": table,
        "prompt": ["?"] * horizon, "reply": replies, "policy": np.eye(3)[actions].ravel().tolist(), "action": actions,
        "attempts": [1] * horizon, "fallback": [not of for of in valid], "ids": [[]], "sampled": [[]], "replied": [[]],
    }  # fmt: skip
    write_trajectories(path, {name: [value] for name, value in game.items()})
    return path


def test_the_stage_writes_every_reply_and_every_claim(tmp_path, rmft, monkeypatch):
    monkeypatch.chdir(ROOT)
    base = ["Action 1 is new.\nAction: 1", "Action 1 paid 4. I choose action 2.\nAction: 2",
            "Action 2 fluctuates, and paid 7.00.\nAction: 3", "Action 2 is risky. Hm."]  # fmt: skip
    trained = ["Action: 2", "Action 2 paid 7.00.\nAction: 2", "Action 2 averages 7.\nAction: 2", "Action: 2"]
    job = reasoning_job(load().at_scale(), "open_mab_qwen", "gaussian-25")
    files = [
        write_games(tmp_path / "base.parquet", base, [0, 1, 2, 0], [True, True, True, False]),
        write_games(tmp_path / "trained-0.parquet", trained, [1] * 4, [True] * 4),
    ]
    assert rmft("reasoning", "--settings", job.canonical(), "--folder", tmp_path / "out", *files)[0] == 0
    replies, claims = read_replies(tmp_path / "out/replies.parquet"), read_claims(tmp_path / "out/claims.parquet")
    assert claims[["player", "t", "kind", "text", "right"]].to_numpy().tolist() == [
        ["base", 2, "reward", "Action 1 paid 4", False],
        ["base", 2, "choice", "I choose action 2", True],
        ["trained", 2, "reward", "Action 2 paid 7.00", True],
        ["trained", 3, "average", "Action 2 averages 7", True],
    ]
    assert replies.passes_over.tolist() == [True, False, True, False] + [False] * 4
    assert replies.unstable.tolist() == [False, False, True] + [False] * 5  # what decides nothing passes nothing over
    assert replies.unstable_judged.isna().all()
    assert [list(of) for of in replies.times[:4]] == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    accuracy = pd.read_csv(tmp_path / "out/accuracy.csv").set_index(["player", "kind"])
    assert accuracy.loc["base", ALL].accuracy == 0.5
    assert accuracy.loc["trained", ALL].with_claims == 0.5


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.95, "direction only"), (0.3, "not reproduced"), (0.6, "inconclusive")]
)
def test_the_table_says_whether_accuracy_rises_as_in_the_paper(share, verdict):
    rng = np.random.default_rng(1)
    truths = {"base": (rng.random((300, 3)) < 0.6).tolist(), "trained": (rng.random((300, 3)) < share).tolist()}
    frame = pd.DataFrame(accuracies(0, ("test",), 200, *rows(**truths)))
    shaped = claims_table({("closed_mab", "gaussian-25"): frame}).shaped
    assert shaped.verdict[0] == verdict
    assert shaped.claims.tolist() == [ALL, "reward"]  # nobody makes claims of other kinds
