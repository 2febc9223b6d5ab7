"""The command line as a user meets it: answers, refusals, exit codes."""

import errno
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import HEAR_CTRL_C

from rmft.agents.numeric import SYMBOLS, LinearAttention, write_model
from rmft.artifacts.rewards import write_rewards
from rmft.environments import draw_rewards
from rmft.errors import MANY, unknown
from rmft.params import load
from rmft.tools.simulate import named_values
from rmft.tools.terminal import empty_table, print_tables
from rmft.workflow.plan import evaluation_job, rewards_job

GAME = ["--environment", "mab", "--process", "gamma", "--actions", "4", "--horizon", "20", "--replicates", "50"]


def test_simulate_prints_the_figures_of_a_game_as_json(rmft):
    code, out, _ = rmft("simulate", *GAME, "--algorithm", "ucb", "--json")
    values = json.loads(out)
    assert code == 0
    assert set(values["final_regret"]) == {"mean", "se", "max"}
    assert set(values["growth"]) == {"exponent", "p", "dropped", "slope"}
    assert len(values["suff_fail_freq"]) == len(values["min_frac"]) == 20
    assert values["min_frac"][3] == 1  # UCB plays each of four actions once in four rounds
    assert np.all(np.diff(values["suff_fail_freq"]) >= 0)


def test_what_a_terminal_cannot_print_is_no_traceback():
    command = [sys.executable, "-m", "rmft", "simulate", "--no-such-option-…"]
    ended = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ended.returncode, ended.stderr.count(b"\n")) == (2, 1)
    assert b"--no-such-option-?" in ended.stderr


def test_of_many_names_the_nearest_is_offered_or_as_many_as_a_line_holds():
    names = [f"experiment_{number}" for number in range(MANY + 2)]
    assert unknown("experiment_7x", names) == "unknown 'experiment_7x'; did you mean experiment_7?"
    line = unknown("zzz", names)
    assert line.endswith(f"experiment_{MANY - 2}, experiment_{MANY - 1} or 2 more")
    assert unknown("b", ["a", "c"], "letter") == "unknown letter 'b'; one of a, c"
    continued = [f"ftrl-{number}" for number in range(MANY)]
    assert unknown("mine", ["ftl"], "algorithm", extensible=True) == (
        "unknown algorithm 'mine'; one of ftl, or list the file that defines it under `extensions` in params.yaml "
        "(in Python: rmft.extensions.load)"
    )
    assert unknown("ftrl", ["ftl", *continued]) == "unknown 'ftrl'; did you mean ftrl-0 or ftrl-1 or ftrl-2?"


def test_the_version_is_the_package_s(rmft):
    assert rmft("--version")[:2] == (0, f"rmft {version('rmft')}\n")


def test_simulate_depends_on_the_seed_alone(rmft):
    first, second, other = (rmft("simulate", *GAME, "--algorithm", "exp3", "--json", "--seed", s)[1] for s in (1, 1, 2))
    assert first == second != other


@pytest.mark.parametrize("horizon", ["1", "2"])
def test_simulate_plays_the_shortest_games(rmft, horizon):
    game = ["--environment", "fol", "--process", "sine-trend", "--algorithm", "ftl", "--horizon", horizon]
    for form in ([], ["--json"]):
        code, out, error = rmft("simulate", *game, *form)
        assert (code, error) == (0, "")
        assert out


def test_simulate_on_the_ball_has_no_exploration(rmft):
    game = ["--environment", "fol", "--process", "gaussian", "--horizon", "9", "--replicates", "5", "--json"]
    _, out, _ = rmft("simulate", *game, "--algorithm", "ftrl", "--policy-space", "ball", "--eta", "0.5")
    assert json.loads(out)["min_frac"] is None


def test_simulate_draws_a_plot_on_request(rmft, tmp_path):
    code, out, _ = rmft("simulate", *GAME, "--algorithm", "ucb", "--plot", tmp_path / "ucb")
    assert code == 0
    assert "final regret" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ucb.csv", "ucb.pdf", "ucb.png"]


def test_options_are_what_params_yaml_would_have_of_them():
    values = named_values(["k=3", "uniform=false", "share=1e-3", "name=a=b"])
    assert values == {"k": 3, "uniform": False, "share": 0.001, "name": "a=b"}
    assert [type(value) for value in values.values()] == [int, bool, float, str]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*GAME, "--algorithm", "ucb", "--horizon", "0"], "horizon must be 1 or more, not 0"),
        ([*GAME, "--algorithm", "ucb", "--actions", "1"], "actions must be 2 or more, not 1"),
        (
            [*GAME, "--algorithm", "ucb", "--horizon", "99999999999"],
            "99999999999 rounds with 4 actions do not fit into",
        ),
        ([*GAME, "--algorithm", "ucb", "--replicates", "0"], "replicates must be 1 or more"),
        ([*GAME, "--algorithm", "ucb", "--process", "adaptive"], "'adaptive' does not belong in mab"),
        ([*GAME, "--algorithm", "ucb", "--process", "gama"], "unknown process 'gama'"),
        ([*GAME, "--algorithm", "ftl"], "algorithm 'ftl' cannot play mab"),
        ([*GAME, "--algorithm", "ubc"], "unknown algorithm 'ubc'"),
        ([*GAME, "--algorithm", "exp3", "--eta", "-1"], "eta must be in (0, 1], not -1"),
        ([*GAME, "--algorithm", "exp3", "--eta", "soon"], "eta must be"),
        ([*GAME, "--algorithm", "exp3", "--gamma", "2"], "gamma"),
        ([*GAME, "--algorithm", "ucb", "--variation", "3"], "variation belongs to rexp3"),
        ([*GAME, "--algorithm", "ucb", "--policy-space", "ball"], "goes with environment fol only"),
        ([*GAME, "--algorithm", "ucb", "--seed", "-1"], "seed must be 0 or more"),
        (
            [*GAME, "--algorithm", "ucb", "--environment", "cmab"],
            "Invalid value for '--environment': Value error, 'cmab' is not one of 'fol', 'mab', 'ns-mab'",
        ),
        ([*GAME, "--algorithm", "ucb", "--horizon", "ten"], "Invalid value for '--horizon'"),
        ([*GAME, "--algorithm", "ucb", "--radius", "2"], "--radius belongs to --policy-space ball"),
        ([*GAME, "--algorithm", "ucb", "--plot", "/dev/null/plot"], "/dev/null/plot.pdf: cannot be written"),
        ([*GAME, "--algorithm", "ucb", "--plot", ""], "--plot needs a file name"),
        ([*GAME, "--algorithm", "rexp3"], "rexp3 in mab needs a variation"),
        (["--environment", "mab"], "Missing option"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(rmft, arguments, says):
    code, out, error = rmft("simulate", *arguments)
    assert code == 2
    assert out == ""
    assert says in error
    assert error.count("\n") == 1


def test_a_step_size_beyond_all_numbers_is_refused(rmft):
    game = ["--environment", "fol", "--process", "gaussian", "--algorithm", "ftrl", "--eta", "1e308"]
    with np.errstate(all="ignore"):
        code, out, error = rmft("simulate", *game)
    assert (code, out) == (2, "")
    assert "eta or radius is too large" in error


def test_ctrl_c_is_answered_in_one_line():
    command = [
        sys.executable,
        "-c",
        f"{HEAR_CTRL_C}; from rmft.cli import main; main()",
        "simulate",
        *GAME,
        "--algorithm",
        "ucb",
    ]
    game = subprocess.Popen([*command, "--replicates", "10000000"], stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        game.wait(timeout=5)  # until it plays
    game.send_signal(signal.SIGINT)
    _, error = game.communicate(timeout=30)
    assert game.returncode == 130
    assert error == "rmft: interrupted; no file was left half-written\n"


def test_a_folder_that_may_not_be_read_is_one_line(rmft, monkeypatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(
            errno.EACCES, "Permission denied", str(path)
        )  # the tests may run as root, who may read all

    monkeypatch.setattr(Path, "exists", refuse)
    code, printed, error = rmft("results")
    assert (code, printed) == (2, "")
    assert error.startswith("rmft: ")
    assert error.endswith(": Permission denied\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["simulate", *GAME, "--algorithm", "ucb", "--json"], ["--help"]])
def test_a_full_disk_behind_the_output_is_one_line_and_exit_code_2(arguments, unbuffered):
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "rmft", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == 2
    assert ended.stderr == "rmft: standard output cannot be written: No space left on device\n"


def test_a_stage_refuses_damaged_inputs_and_writes_nothing(rmft, tmp_path):
    broken = tmp_path / "model.safetensors"
    broken.write_bytes(b"half a model")
    job = evaluation_job(load().at_scale(), "numeric_mab", "gamma")
    files = [broken, broken, "--rewards", tmp_path / "gamma.npz"]
    output = tmp_path / "gamma.parquet"
    code, _, error = rmft("evaluation", "--settings", job.canonical(), *files, "--output", output)
    assert code == 2
    assert f"{broken}: unreadable or truncated" in error
    assert error.count("\n") == 1
    assert not output.exists()


def test_an_evaluation_refuses_a_reward_set_that_holds_less_than_is_asked_for(rmft, tmp_path):
    job = evaluation_job(load(), "numeric_mab", "gamma")
    model = LinearAttention(*(np.zeros((1, *[3] * (1 + symbol.isupper()))) for symbol in SYMBOLS))
    write_model(tmp_path / "model", model)
    write_rewards(tmp_path / "gamma.npz", draw_rewards(0, "gamma", ["gamma"], (20, 30, 3)))
    files = [tmp_path / "model", tmp_path / "model", "--rewards", tmp_path / "gamma.npz"]
    code, _, error = rmft("evaluation", "--settings", job.canonical(), *files, "--output", tmp_path / "out.parquet")
    assert code == 2
    assert "reward set gamma: has 20 instances of 30 rounds with 3 actions, and the evaluation needs 100" in error
    assert not (tmp_path / "out.parquet").exists()


def test_the_rewards_stage_writes_what_the_environment_draws(rmft, tmp_path):
    job = rewards_job(load(), "gamma")
    rmft("rewards", "--settings", job.canonical(), "--output", tmp_path / "gamma.npz")
    with np.load(tmp_path / "gamma.npz") as stored:
        np.testing.assert_array_equal(stored["rewards"], draw_rewards(0, "gamma", ["gamma"], (400, 100, 3)).rewards)


def test_params_says_that_the_files_are_valid_and_prints_what_holds_at_its_scale(rmft):
    code, out, _ = rmft("params")
    assert (code, len(out.splitlines())) == (0, 1)
    assert out.startswith("params.yaml and outputs.yaml are valid, at scale demo: ")
    code, out, _ = rmft("params", "--all")
    assert (code, yaml.safe_load(out)["experiments"]["numeric_mab"]["environment"]) == (0, "mab")


def test_a_table_that_is_wider_than_the_terminal_keeps_its_digits(capsys):
    table = empty_table("wide")
    for number in range(20):
        table.add_column(str(number), no_wrap=True)
    table.add_row(*["12345.67"] * 20)
    print_tables(table, "below")
    assert capsys.readouterr().out.count("12345.67") == 20
