"""Two games of one instance side by side, as `rmft compare` prints them."""

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import games

from rmft.algorithms import AlgorithmSettings
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.rewards import read_rewards, write_rewards
from rmft.artifacts.trajectories import write_trajectories
from rmft.evaluation import Instances, evaluate_in_words
from rmft.results import read_players
from rmft.selection import table_of

ROOT = Path(__file__).parents[1]
FOLDER = Path("results/experiments/open_mab_gemma/evaluation")


def game_of_two(reply: str, best_in: int) -> dict[str, list]:
    """Return the games of two instances: action 3, or in instance `best_in` the best one. The file begins with 1."""
    played = games(2, horizon=5)
    best = np.array(played["means"]).reshape(2, 5, 3).mean(axis=1).argmax(axis=1)
    actions = [[int(best[i]) if i == best_in else 2] * 5 for i in range(2)]
    policies = [np.eye(3)[of].ravel().tolist() for of in actions]
    replies = [[f"{reply}-{i}-{t} [bold]so[/bold]" for t in range(1, 6)] for i in range(2)]
    played |= {"scenario": [0, 1], "action": actions, "policy": policies, "reply": replies}
    played["reply"][1][0] = f"Action: {actions[1][0] + 1}"
    return {name: column[::-1] for name, column in played.items()}


@pytest.fixture
def here(monkeypatch, tmp_path) -> dict[str, dict[str, list]]:
    """Go to a folder with an evaluation of open_mab_gemma; return the games of its models by name."""
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "extensions", tmp_path / "extensions")
    played = {"base": game_of_two("at-first", best_in=-1), "trained-0": game_of_two("later", best_in=1)}
    rewards = table_of(played["base"]).rows(np.array([1, 0]))
    instances = Instances(rewards, "gaussian", 0, "mab", "nominal")
    models = [("base", 0, played["base"]), ("trained", 0, played["trained-0"])]
    write_rewards(Path("data/rewards/gaussian.npz"), rewards)
    columns = evaluate_in_words(instances, models, {"ucb": AlgorithmSettings("ucb")})
    write_evaluation(FOLDER / "gaussian-50.parquet", columns)
    for name, of in played.items():
        write_trajectories(FOLDER / f"gaussian-50/{name}.parquet", of)
    return played


def test_every_round_has_both_actions_and_what_they_paid_on_the_instance_that_differs_most(rmft, here):
    code, out, _ = rmft("compare", "open_mab_gemma")
    assert code == 0
    assert "instance 1 of 2, the one whose final regrets differ most" in " ".join(out.split())
    rows = [line.split() for line in out.splitlines() if re.match(r"\s+\d+ .*\d\.\d\d$", line)]
    assert len(rows) == 5
    rewards = np.array(here["base"]["rewards"][0]).reshape(5, 3)  # of instance 1, which is first in the files
    for t, (number, *cells) in enumerate(rows):
        first, second = (here[name]["action"][0][t] for name in ("base", "trained-0"))
        assert number == str(t + 1)
        assert cells[:2] == [str(first + 1), f"{rewards[t, first]:.2f}"]
        assert cells[3:5] == [str(second + 1), f"{rewards[t, second]:.2f}"]


@pytest.mark.usefixtures("here")
def test_replies_are_those_of_the_instance_and_left_out_where_they_are_the_bare_action(rmft):
    code, out, _ = rmft("compare", "open_mab_gemma", "--replies", "--instance", 1)
    assert code == 0
    assert [re.findall(rf"{name}-(\d)-(\d)", out) for name in ("at-first", "later")] == [
        [("1", str(t)) for t in range(2, 6)]
    ] * 2
    assert "Action:" not in out
    assert "[bold]" in out  # as the model wrote it
    beside_algorithm = rmft("compare", "open_mab_gemma", "--replies", "--instance", 1, "--players", "ucb", "trained-0")[
        1
    ]
    assert "later-1-2" in beside_algorithm
    assert "at-first" not in beside_algorithm


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["open_mab_gema"], "did you mean open_mab_gemma?"),
        (["open_mab_gemma", "--evaluation", "gaussian"], "compare: evaluation: unknown 'gaussian'; one of gaussian-50"),
        (["open_mab_gemma", "--evaluation", "gamma-50"], f"not built; `snakemake {FOLDER}/gamma-50.parquet`"),
        (["open_mab_gemma", "--players", "base", "trained"], "unknown 'trained'; one of base, trained-0, ucb"),
        (["open_mab_gemma", "--instance", "2"], "--instance: 2 must be 0 to 1"),
        (["numeric_mab"], "no evaluation of numeric_mab is built; `snakemake exp_numeric_mab`"),
    ],
)
def test_a_wrong_name_or_what_is_not_built_is_one_line(rmft, arguments, says):
    code, out, error = rmft("compare", *arguments)
    assert (code, out) == (2, "")
    assert len(error.splitlines()) == 1
    assert says in error


@pytest.mark.usefixtures("here")
def test_a_person_plays_an_instance_of_a_built_evaluation_beside_its_players(rmft, monkeypatch, tmp_path):
    for folder in ("prompts", "scenarios"):
        shutil.copytree(ROOT / "data" / folder, tmp_path / "data" / folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n3\n1\n1\n"))
    code, out, error = rmft("play", "open_mab_gemma", "--instance", "1")
    assert (code, error) == (0, "")
    rewards = read_rewards(Path("data/rewards/gaussian.npz")).rewards[1]
    assert f"Round 2: your action 2 paid **{rewards[1, 1]:.2f}**." in out
    regrets = dict(re.findall(r"^(\w+) +(\d+\.\d\d)$", out, re.MULTILINE))
    curves = read_players(FOLDER / "gaussian-50.parquet")
    assert {name: f"{of.by_instance[1, -1]:.2f}" for name, of in curves.items()} == {
        name: regret for name, regret in regrets.items() if name != "you"
    }
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n1\n1\n1\n1\n"))
    assert rmft("play", "open_mab_gemma")[0] == 0  # the instance that is left
    code, _, error = rmft("play", "open_mab_gemma")
    assert (code, "all 2 instances" in error, error.count("\n")) == (2, True, 1)
