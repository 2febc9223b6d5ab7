"""`rmft luck`: how much of the selected trajectories' advantage is left where rewards are drawn again."""

import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import games
from trees import ROOT

from rmft.artifacts.trajectories import write_trajectories
from rmft.errors import InputError
from rmft.metrics.luck import lead_of_selected, survival
from rmft.tools.luck import NO_REDRAW, Keep, selection_in

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


def test_our_rollouts_meet_the_true_means_of_their_rewards(tmp_path, monkeypatch):
    played = games(n=6, horizon=5, d=3)
    write_trajectories(tmp_path / "rollouts.parquet", played)
    with pytest.raises(InputError, match="of no experiment here; say what selects: --regret"):
        selection_in(tmp_path / "rollouts.parquet", Keep.parse("best:1"), None)
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "outputs.yaml", "extensions", "data"):
        Path(name).symlink_to(ROOT / name)
    gone = Path("results/experiments/gone/rollouts.parquet")  # of an experiment that params.yaml no longer has
    write_trajectories(gone, played)
    assert selection_in(gone, Keep.parse("best:1"), "realized")["selected"].any()
    selection = selection_in(tmp_path / "rollouts.parquet", Keep.parse("best:1"), "realized")
    for column, name in (("regret", "rewards"), ("rerolled", "clipped_means")):
        table = np.reshape(played[name], (6, 5, 3))
        earned = [sum(table[i, t, a] for t, a in enumerate(played["action"][i])) for i in range(6)]
        best = np.reshape(played["rewards"], (6, 5, 3)).sum(axis=1).max(axis=1)  # each game has rewards of its own
        np.testing.assert_allclose(selection[column], best - earned)


def groups_of_many_sizes(seed: int) -> dict[str, np.ndarray]:
    """Return a selection of groups of 2 to 40 trajectories, in no order, of which some have none selected."""
    random = np.random.default_rng(seed)
    scenario = random.permutation(np.repeat(np.arange(60), random.integers(2, 41, 60)))
    regret, rerolled = random.normal(10, 3, (2, len(scenario)))
    selected = (regret < random.normal(8, 2, len(scenario))) & (scenario % 7 > 0)
    return {"scenario": scenario, "regret": regret, "rerolled": rerolled + 0.3 * regret, "selected": selected}


@pytest.mark.parametrize("seed", range(5))
def test_the_jackknife_is_to_the_last_bit_the_one_that_leaves_each_group_out_of_the_selection(seed):
    selection = groups_of_many_sizes(seed)
    shares = []
    for group in range(60):
        in_hindsight, again = lead_of_selected(
            {name: of[selection["scenario"] != group] for name, of in selection.items()}
        )
        shares.append(again / in_hindsight)
    in_hindsight, again = lead_of_selected(selection)
    assert survival(selection) == (again / in_hindsight, math.sqrt(59 * np.var(shares)))


def test_an_error_is_unknown_where_one_group_has_all_that_is_selected():
    selection = {
        "scenario": np.array([0, 0, 1, 1]),
        "regret": np.array([1.0, 3.0, 2.0, 2.0]),
        "rerolled": np.array([1.5, 2.5, 2.0, 2.0]),
        "selected": np.array([True, False, False, False]),
    }
    share, error = survival(selection)
    assert (share, np.isnan(error)) == (0.5, True)


def test_the_best_of_each_of_many_groups_are_audited_in_seconds():
    random, scenario = np.random.default_rng(0), np.repeat(np.arange(20_000), 8).astype(str)
    regret, rerolled = random.normal(size=(2, len(scenario)))
    began = time.process_time()
    selected = Keep.parse("best:1").mask(scenario, regret)
    survival({"scenario": scenario, "regret": regret, "rerolled": rerolled, "selected": selected})
    assert time.process_time() - began < 20  # minutes, where each group looks at all rows
    assert (selected.reshape(-1, 8).argmax(axis=1) == regret.reshape(-1, 8).argmin(axis=1)).all()
    assert selected.sum() == 20_000


def test_the_best_of_each_part_of_a_group_are_kept_wherever_its_lines_stand():
    scenario = np.array(["b", "a", "b", "a", "b", "b"])
    regret = np.array([5.0, 1, 4, 0, 2, 3])
    assert Keep.parse("best:1/2").mask(scenario, regret).nonzero()[0].tolist() == [2, 3, 4]
    with pytest.raises(InputError, match="group b has 4 trajectories, too few to keep the best 1 of 9"):
        Keep.parse("best:1/9").mask(scenario, regret)  # the first group of the file
    with pytest.raises(InputError, match="group b has 4 trajectories, which do not divide into parts of 3"):
        Keep.parse("best:1/3").mask(scenario, regret)


def test_what_is_wrong_with_a_line_is_said_once_and_to_its_end(rmft, tmp_path):
    path = lines(tmp_path / "games.jsonl", {"group": 1, "actions": [0], "rewards": [1]})
    _, _, error = rmft("luck", path, "--keep", "best:1")
    assert error == f"rmft: {path}: line 1: {NO_REDRAW}\n"


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
