"""What Python programs call: `rmft.play`, `rmft.regret`, the examples of docs/python.md, and the notebooks."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.wrappers import TransformReward
from transformers.utils import logging
from trees import ROOT

import rmft
from rmft.algorithms import AlgorithmSettings
from rmft.artifacts.files import sha256
from rmft.environments.regret import regret
from rmft.package_data import find_file

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXAMPLES = re.findall(r"```python\n(.+?)```", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_in_an_empty_folder_and_has_ten_lines(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(example, {})  # the page's own code
    assert capsys.readouterr().out
    assert len([line for line in example.splitlines() if line]) <= 10


def test_a_player_plays_the_games_that_the_environment_draws():
    env = rmft.make_vec("mab", "gaussian", num_envs=5, T=7)
    games = rmft.play("ucb", env, seed=3, trajectories=2)
    env.reset(seed=3)
    for t in range(7):
        _, paid, _, _, info = env.step(games.actions[::2, t])
        assert np.array_equal(paid, games.table.rewards[np.arange(0, 10, 2), t, games.actions[::2, t]])
    assert info["regret"] == pytest.approx(games.regret[::2, -1])
    assert np.array_equal(info["best_action"], games.best_actions[::2, -1])


def test_regret_of_arrays_is_that_of_the_paper():
    games = rmft.play("hedge", rmft.make_vec("fol", "gaussian", num_envs=6, T=9))
    table, policies, actions = games.table, games.policies, games.actions
    for notion, values, choices in [
        ("expected", table.rewards, policies),
        ("realized", table.rewards, actions),
        ("pseudo", table.means, actions),
    ]:
        ours = rmft.regret(values, choices)
        assert ours == pytest.approx(regret(notion, "hindsight", table, policies, actions))
    best_each = rmft.regret(table.means, actions, "best mean")
    assert best_each == pytest.approx(regret("dynamic", "best mean", table, policies, actions))


def test_a_function_is_asked_with_the_whole_conversation_and_again_after_an_invalid_reply():
    asked = []

    def reply(messages: list[dict[str, str]]) -> str:
        asked.append([message["role"] for message in messages])
        return "well" if len(asked) == 2 else "Action: 2"

    games = rmft.play(reply, rmft.make("mab", T=3))
    assert games.actions.tolist() == [[1, 1, 1]]
    assert [len(roles) for roles in asked] == [1, 3, 3, 5]  # the second round twice
    assert np.array_equal(games.columns["attempts"][0], [1, 2, 1])


def test_the_embedded_model_plays_the_same_games_again_with_the_same_seed():
    env = rmft.make_vec("mab", num_envs=2, T=2)
    games = rmft.play("embedded", env, trajectories=2)
    again = rmft.play("embedded", env, trajectories=2)
    assert games.columns["reply"] == again.columns["reply"]
    assert np.array_equal(games.table.rewards[0], games.table.rewards[1])


@dataclass
class Sure:
    """A player with the same policies in each round."""

    policies: np.ndarray
    deterministic: bool = False

    def policy(self) -> np.ndarray:
        """Return them."""
        return self.policies

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("player", "words"),
    [
        ("hedge", "algorithm 'hedge' cannot play mab"),
        ("ucbb", "play: ucbb: no algorithm and no model is called so; did you mean ucb"),
        ("nobody", "play: no algorithm is called so .*; as a model: nobody: no folder, no GGUF file"),
        ("gpt-4o-mini", "pass a function from messages to the reply"),
        (3, "must be a name, an algorithm, a function"),
        (Sure(np.full((1, 3), 1.0)), "policies must be probabilities"),
        (
            Sure(np.full((1, 3), 1 / 3), deterministic=True),
            "several actions a chance, so `deterministic` must be False",
        ),
        (Sure([[0.5, 0.5], [1.0]]), "its policies are no array"),
        (Sure, "Sure is a class; pass an object of it"),
        (AlgorithmSettings(["ucb"]), "unknown algorithm"),
        (Sure(np.full(3, 1 / 3)), r"its policies have the shape \(3,\), not \(1, 3\)"),
    ],
)
def test_what_cannot_play_is_refused_in_a_line(player, words):
    with pytest.raises(rmft.InputError, match=words):
        rmft.play(player, rmft.make("mab"))


@pytest.mark.parametrize(
    ("player", "options", "words"),
    [
        ("embedded", {"revision": "main"}, "^play: revision: embedded is no hub repository"),
        ("an/owner", {"revision": "main"}, "^play: revision: 'main': "),
        ("embedded", {"device": "cuda:99"}, "^play: device: cuda:99: torch finds no such device"),
        ("embedded", {"device": "gpu"}, "^play: device: 'gpu': must be cpu, cuda or mps"),
        ("embedded", {"device": 0}, "^play: device: 0: must be cpu, cuda or mps"),
        ("ucb", {"device": "cpu"}, "^play: device: goes with a model, not with an algorithm"),
        (print, {"device": "cpu"}, "weights, revision and device go with a model's name"),
    ],
)
def test_where_a_model_comes_from_and_computes_is_checked(player, options, words):
    with pytest.raises(rmft.InputError, match=words):
        rmft.play(player, rmft.make("mab"), **options)


def test_a_deterministic_player_plays_its_action_although_rounding_gives_another_one_a_chance():
    nearly = np.array([[1e-9, 1 - 1e-9, 0.0]])
    assert (rmft.play(Sure(nearly, deterministic=True), rmft.make("mab")).actions == 1).all()


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([[3]], "from 0 to 2"),
        ([[0.5]], "whole numbers"),
        ([[0, 1]], "must be"),
        ([[[0.5, 0.5, 0.5]]], "must be probabilities"),
    ],
)
def test_arrays_that_do_not_fit_have_no_regret(choices, words):
    with pytest.raises(rmft.InputError, match=words):
        rmft.regret(np.zeros((1, 1, 3)), choices)


@pytest.mark.parametrize(
    ("values", "choices", "words"),
    [
        ([[[1.0, 2.0], [1.0]]], [[0, 0]], "rows of one length"),
        ([[[1.0, 2.0]]], [[[1.0], 0]], "rows of one length"),
        ([[["a", 2.0]]], [[0]], "arrays of numbers"),
        ([[[float("nan"), 2.0]]], [[0]], "values must be finite numbers"),
        ([[[1.0, 2.0]]], [[["a", "b"]]], "policies must be numbers"),
        (np.zeros((0, 2, 2)), np.zeros((0, 2, 2)), r"values \(0, 2, 2\) must have a game, a round and an action"),
        (np.zeros((1, 1, 0)), np.zeros((1, 1), dtype=int), "must have a game, a round and an action"),
    ],
)
def test_arrays_that_are_ragged_empty_or_no_numbers_have_no_regret(values, choices, words):
    with pytest.raises(rmft.InputError, match=words):
        rmft.regret(values, choices)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("trajectories", 0),
        ("trajectories", 1.5),
        ("seed", -1),
        ("max_tokens", 0),
        ("temperature", -1.0),
        ("temperature", "1"),
    ],
)
def test_nonsense_is_refused_by_its_name(argument, value):
    with pytest.raises(rmft.InputError, match=rf"play: {argument}: .*must be"):
        rmft.play("ucb", rmft.make("mab"), **{argument: value})


@pytest.mark.parametrize("option", [{"reasoning": True}, {"temperature": 0.5}, {"max_tokens": 9}, {"weights": "x"}])
def test_what_only_a_model_can_heed_is_refused_for_an_algorithm(option):
    with pytest.raises(rmft.InputError, match=rf"play: {next(iter(option))}: goes with a model"):
        rmft.play("ucb", rmft.make("mab"), **option)


def test_a_wrapper_that_play_would_not_see_is_refused():
    with pytest.raises(rmft.InputError, match="without a wrapper"):
        rmft.play("ucb", TransformReward(rmft.make("mab"), lambda reward: -reward))


def test_a_model_leaves_torch_and_transformers_as_they_were():
    torch.set_num_threads(2)
    logging.enable_progress_bar()
    rmft.play("embedded", rmft.make("mab", T=1))
    assert (torch.get_num_threads(), logging.is_progress_bar_enabled()) == (2, True)
    torch.set_num_threads(1)


def cells_of(notebook: Path) -> list[dict]:
    """Return the code cells of a notebook."""
    return [of for of in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if of["cell_type"] == "code"]


def lines_of(outputs: list[dict]) -> list[str]:
    """Return what a cell printed."""
    return "".join(text for output in outputs for text in output.get("text", [])).splitlines()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_what_the_model_that_rmft_brings_has_played(notebook):
    of = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["embedded_model"]
    assert of == sha256(find_file("data/models/embedded/model.safetensors")), "run `python notebooks/run.py`"


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_it_printed(notebook, tmp_path, monkeypatch):
    import matplotlib as mpl

    from notebooks.run import outputs_of

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    values: dict[str, object] = {}
    for cell in cells_of(notebook):
        printed, shown = map(lines_of, (outputs_of("".join(cell["source"]), values), cell["outputs"]))
        assert len(printed) == len(shown)  # numbers may round otherwise
    outputs = [output for cell in cells_of(notebook) for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
