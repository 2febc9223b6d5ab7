"""`rmft luck`: how much of the selected trajectories' advantage is left where rewards are drawn again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import games

from rmft.artifacts.trajectories import write_trajectories
from rmft.errors import InputError
from rmft.tools.luck import Keep, selection_in

GOOD = {"group": "a", "actions": [0, 1], "rewards": [[1, 2], [3, 4]], "means": [1, 2]}


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_every_form_of_a_line_says_the_same(tmp_path):
    forms = (
        GOOD,
        GOOD | {"rewards": [1, 4]},
        GOOD | {"means": [[1, 0], [0, 2]]},
        {"group": "a", "reward": 5, "redrawn": 3},
        {"group": "a", "reward": 5, "redrawn": [2, 4]},
    )
    selection = selection_in(lines(tmp_path / "games.jsonl", *forms), Keep.parse("best:1"), None)
    np.testing.assert_array_equal(selection["regret"], [-5] * 5)
    np.testing.assert_array_equal(selection["rerolled"], [-3] * 5)


def test_the_audit_finds_luck_and_skill_in_the_share_in_which_they_were_mixed(rmft, tmp_path):
    random, rows = np.random.default_rng(0), []
    for group in range(400):
        for _ in range(20):
            skill, chance = random.normal(size=2)
            rows.append({"group": group, "reward": skill + 3 * chance, "redrawn": skill + 3 * random.normal()})
    code, out, _ = rmft("luck", lines(tmp_path / "games.jsonl", *rows), "--keep", "best:1/10")
    share, error = map(int, re.search(r"(\d+)% of that is left, with a standard error of (\d+)%", out).groups())
    assert code == 0
    assert "800 of 8000 trajectories are selected" in out
    assert abs(share - 10) <= 3 * error < 15  # 1 of the 1 + 9 parts of the variance is skill


def test_our_rollouts_meet_the_true_means_of_their_rewards(tmp_path):
    played = games(n=6, horizon=5, d=3)
    write_trajectories(tmp_path / "rollouts.parquet", played)
    with pytest.raises(InputError, match="of no experiment here; say what selects: --regret"):
        selection_in(tmp_path / "rollouts.parquet", Keep.parse("best:1"), None)
    selection = selection_in(tmp_path / "rollouts.parquet", Keep.parse("best:1"), "realized")
    for column, name in (("regret", "rewards"), ("rerolled", "clipped_means")):
        table = np.reshape(played[name], (6, 5, 3))
        earned = [sum(table[i, t, a] for t, a in enumerate(played["action"][i])) for i in range(6)]
        # Regret is a constant of the group less what was earned; here each game has rewards of its own.
        np.testing.assert_allclose(selection[column], table.sum(axis=1).max(axis=1) - earned)


@pytest.mark.parametrize(
    ("rows", "keep", "words"),
    [
        ([GOOD, "{"], "best:1", "line 2: Expecting"),
        ([GOOD, [1]], "best:1", "line 2: "),
        ([GOOD, {**GOOD, "means": None}], "best:1", "line 2: "),
        ([{"group": 1, "actions": [0], "rewards": [1]}], "best:1", "line 1: has neither `means`"),
        ([{"actions": [0], "rewards": [1], "means": [1]}], "best:1", "line 1: has no 'group'"),
        ([GOOD, {**GOOD, "actions": [0, 2]}], "best:1", "line 2: `rewards` has 2 actions, 0 to 1"),
        ([{**GOOD, "actions": [0, 1.5]}], "best:1", "line 1: `actions` must be whole numbers"),
        ([{**GOOD, "rewards": [1, 2, 3]}], "best:1", "line 1: `rewards` must have a row for each of the 2 rounds"),
        ([{"group": 1, "reward": 1, "redrawn": []}], "best:1", "line 1: `reward` must be a number"),
        ([GOOD, GOOD], None, "does not say which trajectories were selected"),
        ([GOOD, GOOD], "best:1/3", "group a has 2 trajectories, too few to keep the best 1 of 3"),
        ([GOOD, GOOD], "best:2/2", "--keep: 'best:2/2': must be best:K/L"),
        ([], "best:1", "has no lines"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_line(rmft, tmp_path, rows, keep, words):
    code, out, error = rmft("luck", lines(tmp_path / "games.jsonl", *rows), *(["--keep", keep] if keep else []))
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert words in error
