"""Which trajectories become demonstrations, which of their tokens are learnt, and how much of their advantage is luck.

Symbols: M scenarios, L trajectories each, n = M · L, T rounds, d actions, k selected.
"""

from itertools import pairwise

import numpy as np
import pytest
from helpers import assert_mean, draw
from hypothesis import given
from hypothesis import strategies as st

from rmft.environments import RewardTable, draw_rewards
from rmft.environments.processes import TABULAR
from rmft.environments.tables import one_hot
from rmft.metrics.luck import lead_of_selected
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.selection import Scoring, demonstrations, final_regrets, rerolled_regrets, select, table_of


def selection(
    played: dict[str, list],
    *,
    environment: str = "mab",
    output: str = "action",
    mean: str = "nominal",
    selected: int = 1,
    score: str = "regret",
    pool: str = "scenario",
) -> dict[str, np.ndarray]:
    """Select as the stage does, by the notion of regret that a problem says."""
    settings = ProtocolSettings(
        interaction="dialogue", output=output, format="policy-only", prompts="", max_tokens=8, retries=0, tolerance=0.02
    )
    problem = LanguageProblem(kind="language", environment=environment, d=played["d"][0], protocol=settings)
    scoring = Scoring(environment, problem.training_regret, mean)
    return select([played], scoring, selected, score, pool, seed=0, words="test")


def trajectories(table: RewardTable, actions: np.ndarray, policies: np.ndarray | None = None) -> dict[str, list]:
    """Return the columns of trajectories that played actions (M, L, T) on the rewards (M, T, d) of a table."""
    scenarios, count, horizon = actions.shape
    n, d = scenarios * count, table.shape[2]
    own = table.rows(np.repeat(np.arange(scenarios), count))
    policies = one_hot(actions, d).astype(float) if policies is None else policies
    replies = [[f"Action: {a + 1}" for a in row] for row in actions.reshape(n, horizon)]
    return {
        "scenario": np.repeat(np.arange(scenarios), count).tolist(),
        "trajectory": list(range(count)) * scenarios,
        "d": [d] * n,
        **{name: getattr(own, name).reshape(n, -1).tolist() for name in ("rewards", "means", "clipped_means")},
        "prompt": [[f"Round {t + 1}." for t in range(horizon)]] * n,
        "reply": replies,
        "policy": policies.reshape(n, -1).tolist(),
        "action": actions.reshape(n, horizon).tolist(),
        "attempts": [[1] * horizon] * n,
        "fallback": [[False] * horizon] * n,
    }


def at_random(table: RewardTable, count: int, root: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return actions (M, L, T) and policies (M, L, T, d) that have nothing to do with each other."""
    random, (scenarios, horizon, d) = np.random.default_rng(root), table.shape
    actions = random.integers(d, size=(scenarios, count, horizon))
    return actions, random.dirichlet(np.ones(d), size=actions.shape)


def paying(*totals: float) -> tuple[RewardTable, np.ndarray]:
    """Return one scenario of one round, and a trajectory (1, L, 1) for each action, which pay so much."""
    rewards = np.array([[totals]], dtype=float)
    return RewardTable(rewards, rewards, rewards), np.arange(len(totals))[None, :, None]


# --- What selects ---


@pytest.mark.parametrize("mean", ["nominal", "clipped"])
@pytest.mark.parametrize("output", ["action", "distribution"])
@pytest.mark.parametrize("environment", ["fol", "mab"])
def test_what_selects_is_realized_regret_of_actions_in_bandits_and_expected_regret_of_policies(
    environment, output, mean
):
    table = draw("gamma", 3, 4, 3)
    actions, policies = at_random(table, 2)
    ranked = selection(trajectories(table, actions, policies), environment=environment, output=output, mean=mean)
    means = table.means if mean == "nominal" else table.clipped_means
    for row, (i, j) in enumerate(np.ndindex(3, 2)):
        draws = table.rewards[i]
        pays = means[i] if (environment, output) == ("mab", "distribution") else draws
        best = (
            means[i].max(axis=1).sum()
            if environment == "mab"
            else max(sum(draws[t, a] for t in range(4)) for a in range(3))
        )
        if (environment, output) == ("mab", "action"):
            earned = sum(pays[t, actions[i, j, t]] for t in range(4))
        else:
            earned = sum(policies[i, j, t, a] * pays[t, a] for t in range(4) for a in range(3))
        assert ranked["regret"][row] == pytest.approx(best - earned)


# --- Who is selected ---


@given(data=st.data(), k=st.integers(1, 4))
def test_selected_are_the_k_lowest_regrets_with_different_replies(data, k):
    scenarios, count, horizon = 2, 5, 2
    table = RewardTable(*[np.tile([[10.0, 0.0], [0.0, 10.0]], (scenarios, 1, 1))] * 3)  # pays alike in many ways
    actions = np.array(data.draw(st.lists(st.integers(0, 1), min_size=20, max_size=20)))
    played = trajectories(table, actions.reshape(scenarios, count, horizon))
    words = st.sampled_from(["one", "two", "three"])
    played["reply"] = data.draw(st.lists(st.lists(words, min_size=2, max_size=2), min_size=10, max_size=10))
    order = data.draw(st.permutations(range(10)))
    played = {name: [column[row] for row in order] for name, column in played.items()}
    ranked = selection(played, environment="fol", selected=k)
    for scenario in range(scenarios):
        rows = [row for row in range(10) if played["scenario"][row] == scenario]
        best_first = sorted(rows, key=lambda row: (ranked["regret"][row], played["trajectory"][row]))
        better, taken = [], []
        for place, row in enumerate(best_first):
            assert ranked["rank"][row] == place
            assert ranked["duplicate"][row] == (played["reply"][row] in better)
            if played["reply"][row] not in better and len(taken) < k:
                taken.append(row)
            better.append(played["reply"][row])
        assert [row for row in rows if ranked["selected"][row]] == sorted(taken)


def selected(table: RewardTable, actions: np.ndarray, k: int, replies: list[list[str]] | None = None) -> list[bool]:
    played = trajectories(table, actions)
    return selection(played | ({"reply": replies} if replies else {}), selected=k)["selected"].tolist()


def test_of_equal_regrets_the_one_that_was_sampled_first_is_selected():
    assert selected(*paying(3, 7, 7, 7), k=2) == [False, True, True, False]


def test_a_trajectory_with_the_replies_of_a_better_one_makes_room_for_the_next():
    replies = [["a"], ["a"], ["b"], ["b"]]
    assert selected(*paying(9, 8, 7, 6), k=2, replies=replies) == [True, False, True, False]


def test_where_fewer_than_k_have_different_replies_all_of_these_are_selected():
    assert selected(*paying(6, 7, 8), k=3, replies=[["a"], ["b"], ["a"]]) == [False, True, True]


# --- What else may select ---


@pytest.mark.parametrize("mean", ["nominal", "clipped"])
@pytest.mark.parametrize("output", ["action", "distribution"])
@pytest.mark.parametrize("environment", ["fol", "mab"])
def test_within_a_scenario_reward_selects_what_regret_selects(environment, output, mean):
    table = draw("gamma", 40, 6, 3)
    played = trajectories(table, *at_random(table, 8))
    by_regret, by_reward = (
        selection(played, environment=environment, output=output, selected=3, mean=mean, score=score)
        for score in ("regret", "reward")
    )
    assert by_regret["rank"].tolist() == by_reward["rank"].tolist()
    assert by_regret["selected"].tolist() == by_reward["selected"].tolist()


def test_across_scenarios_reward_selects_those_that_pay_and_regret_those_that_are_played_well():
    pays = np.array([[[9.0, 9.5]], [[0.0, 1.0]]])  # a scenario that pays, and one that does not
    table = RewardTable(pays, pays, pays)
    played = trajectories(table, np.array([[[0], [0], [1]], [[1], [1], [0]]]))
    played["reply"] = [[str(row)] for row in range(6)]
    chosen = {
        score: np.flatnonzero(selection(played, environment="fol", score=score, pool="iteration")["selected"]).tolist()
        for score in ("regret", "reward")
    }
    assert chosen == {"regret": [2, 3], "reward": [0, 2]}


@given(k=st.integers(1, 3), root=st.integers(0, 100), score=st.sampled_from(["regret", "reward", "rerolled"]))
def test_of_an_iteration_as_many_are_selected_as_of_its_scenarios_and_none_left_out_is_better(k, root, score):
    table = draw("gaussian", 4, 5, 3)
    played = trajectories(table, *at_random(table, 5, root))
    ranked = selection(played, selected=k, score=score, pool="iteration")
    assert ranked["selected"].sum() == 4 * k
    assert ranked["rank"][ranked["selected"]].max() == 4 * k - 1 + ranked["duplicate"][ranked["rank"] < 4 * k].sum()
    if score != "reward":
        assert (
            ranked[score][ranked["selected"]].max() <= ranked[score][~ranked["selected"] & ~ranked["duplicate"]].min()
        )


def test_rerolled_regret_selects_good_play_over_luck():
    table = draw("gaussian", 60, 3, 3)
    played = trajectories(table, *at_random(table, 8))
    means = {
        score: [ranked[column][ranked["selected"]].mean() for column in ("regret", "rerolled")]
        for score in ("regret", "rerolled")
        for ranked in [selection(played, score=score)]
    }
    assert means["rerolled"][1] < means["regret"][1]
    assert means["rerolled"][0] > means["regret"][0]


def test_a_random_score_selects_whatever_was_earned_and_the_same_however_trajectories_come_in_batches():
    count, scoring = 8, Scoring("mab", "realized", "nominal")
    played = trajectories(table := draw("gaussian", 400, 3, 3), at_random(table, count)[0])
    halves = [{name: column[part] for name, column in played.items()} for part in (slice(0, 1204), slice(1204, None))]
    whole, parts, other = (
        select(batches, scoring, 1, "random", seed=0, words=words)
        for batches, words in (([played], "test"), (halves, "test"), ([played], "another iteration"))
    )
    np.testing.assert_array_equal(whole["selected"], parts["selected"])
    assert 0.05 < (whole["selected"] & other["selected"]).sum() / 400 < 0.25  # one of eight by chance
    regret = whole["regret"].reshape(400, count)
    of_selected = (regret - regret.mean(axis=1, keepdims=True))[whole["selected"].reshape(400, count)]
    assert_mean(of_selected, 0.0)


def test_invalid_replies_are_all_that_were_retried_or_replaced_by_a_uniform_action():
    played = trajectories(draw("gaussian", 1, 3, 3), np.zeros((1, 2, 3), dtype=int))
    played["attempts"] = [[1, 3, 1], [3, 3, 2]]
    played["fallback"] = [[False, False, False], [True, False, True]]
    assert selection(played)["invalid"].tolist() == [2, 3 + 2 + 2]


# --- Demonstrations ---


def two_games(*, conversations: int) -> dict[str, list]:
    """Return two trajectories of four rounds, in so many conversations each."""
    played = trajectories(draw("gaussian", 2, 4, 3), np.arange(8).reshape(2, 1, 4) % 3)
    random = np.random.default_rng(0)
    shape = (2, conversations, 12 // conversations)
    return played | {"ids": random.integers(50, size=shape).tolist(), "replied": (random.random(shape) < 0.5).tolist()}


@pytest.mark.parametrize("conversations", [1, 4])
def test_a_dialogue_is_one_conversation_to_learn_from_and_a_summary_one_a_round(conversations):
    played = two_games(conversations=conversations)
    lines = demonstrations(played, [False, True])
    assert len(lines) == conversations
    assert [line["ids"] for line in lines] == played["ids"][1]
    assert {(line["scenario"], line["trajectory"]) for line in lines} == {(1, 0)}


@pytest.mark.parametrize("conversations", [1, 4])
def test_labels_are_the_tokens_that_the_model_chose_and_minus_100_elsewhere(conversations):
    played = two_games(conversations=conversations)
    for line, replied in zip(demonstrations(played, [True, False]), played["replied"][0], strict=True):
        assert line["labels"] == [token if chosen else -100 for token, chosen in zip(line["ids"], replied, strict=True)]


@pytest.mark.parametrize("conversations", [1, 4])
def test_messages_are_prompts_and_replies_in_turn(conversations):
    played = two_games(conversations=conversations)
    lines = demonstrations(played, [True, True])
    for line in lines:
        assert [message["role"] for message in line["messages"]] == ["user", "assistant"] * (4 // conversations)
    whole = [message["content"] for line in lines for message in line["messages"]]
    assert whole == [
        text for i in range(2) for pair in zip(played["prompt"][i], played["reply"][i], strict=True) for text in pair
    ]


@pytest.mark.parametrize(("conversations", "left"), [(1, 0), (4, 1)])
def test_a_conversation_without_a_valid_reply_is_left_out(conversations, left):
    played = two_games(conversations=conversations)
    played["fallback"] = [[True] * 4 if conversations == 1 else [True, True, False, True], [False, True, False, False]]
    lines = demonstrations(played, [True, True])
    assert [line["scenario"] for line in lines].count(0) == left
    assert [line["ids"] for line in lines if line["scenario"] == 0] == played["ids"][0][2 : 2 + left]
    assert [line["scenario"] for line in lines].count(1) == (1 if conversations == 1 else 3)


# --- Luck in hindsight ---


@pytest.mark.parametrize("mean", ["nominal", "clipped"])
def test_rerolled_regret_is_what_the_same_actions_have_on_average_where_rewards_are_drawn_again(mean):
    table = draw("gamma", 500, 4, 3)
    actions, _ = at_random(table, 1)
    scoring = Scoring("mab", "realized", mean)
    played = trajectories(table, actions)
    rerolled = rerolled_regrets(played, table, scoring)
    best = (table.means if mean == "nominal" else table.clipped_means).max(axis=2).sum(axis=1)
    earned = (table.clipped_means * one_hot(actions[:, 0], 3)).sum(axis=(1, 2))
    np.testing.assert_allclose(rerolled, best - earned, atol=1e-12)
    assert_mean(final_regrets(played, table, scoring) - rerolled, 0.0)  # no action was chosen for its reward


def test_rerolled_regret_with_full_information_keeps_the_best_action_in_hindsight():
    table = draw("gaussian", 30, 4, 3)
    played = trajectories(table, *at_random(table, 2))
    best = np.repeat(table.rewards.sum(axis=1).max(axis=1), 2)
    policies = np.array(played["policy"]).reshape(60, 4, 3)
    earned = (policies * np.repeat(table.clipped_means, 2, axis=0)).sum(axis=(1, 2))
    np.testing.assert_allclose(rerolled_regrets(played, table_of(played), Scoring("fol", "expected")), best - earned)


@pytest.mark.parametrize("output", ["action", "distribution"])
@pytest.mark.parametrize("process", ["sine-trend", "alternating"])
def test_where_rewards_are_not_random_all_of_the_advantage_survives(process, output):
    table = draw(process, 8, 6, 3)
    ranked = selection(trajectories(table, *at_random(table, 4)), environment="fol", output=output)
    np.testing.assert_allclose(ranked["rerolled"], ranked["regret"])
    in_hindsight, again = lead_of_selected(ranked)
    assert again == pytest.approx(in_hindsight)
    assert in_hindsight > 0


def advantages(ranked: dict[str, np.ndarray], column: str) -> np.ndarray:
    """Return by how much the selected trajectory of each scenario (M,) is better than the average there."""
    return np.array(
        [
            ranked[column][ranked["scenario"] == scenario].mean()
            - ranked[column][(ranked["scenario"] == scenario) & ranked["selected"]].mean()
            for scenario in np.unique(ranked["scenario"])
        ]
    )


def each_plays_one_action(process: str, scenarios: int, horizon: int, d: int) -> dict[str, np.ndarray]:
    """Return the selection among d trajectories, each of which always plays an action of its own."""
    table = draw_rewards(0, "test", [process], (scenarios, horizon, d))
    constant = np.broadcast_to(np.arange(d)[None, :, None], (scenarios, d, horizon))
    return selection(trajectories(table, constant))


def fair(streams, n, horizon, d):
    """Pay every action alike on average."""
    rewards = np.stack([10 * streams("draw", t).random((n, d)) for t in range(horizon)], axis=1)
    means = np.full_like(rewards, 5.0)
    return RewardTable(rewards, means, means)


def test_of_an_advantage_that_is_all_luck_nothing_survives(monkeypatch):
    monkeypatch.setitem(TABULAR, "fair", fair)
    ranked = each_plays_one_action("fair", 400, 8, 4)
    in_hindsight, again = advantages(ranked, "regret"), advantages(ranked, "rerolled")
    assert in_hindsight.min() > 0
    assert in_hindsight.mean() > 5
    assert_mean(again, 0.0)
    assert lead_of_selected(ranked) == pytest.approx((in_hindsight.mean(), again.mean()))


def test_the_longer_the_game_the_more_of_the_advantage_of_a_better_action_survives():
    shares = []
    for horizon in (1, 5, 40):
        in_hindsight, again = lead_of_selected(each_plays_one_action("gaussian", 200, horizon, 3))
        shares.append(again / in_hindsight)
    assert all(shorter < longer for shorter, longer in pairwise([0.05, *shares, 1.0]))
