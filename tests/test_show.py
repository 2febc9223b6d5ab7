"""Games in words, as `rmft show` prints them.

Symbols: n games, T rounds, d actions.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import games
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.trajectories import write_selection, write_trajectories
from rmft.errors import InputError
from rmft.params import load
from rmft.tools.show import GameFilter, Scoring, dialogues, rounds_named, scoring_of
from rmft.workflow.plan import selection_job

ROOT = Path(__file__).parents[1]
MAB = Scoring("mab", "realized")


def printed(played: dict[str, list], width: int = 100, scoring: Scoring = MAB, **chosen: object) -> str:
    """Return what is printed where the output is no terminal."""
    console = Console(width=width, highlight=False, force_terminal=False)
    with console.capture() as shown:
        console.print(*dialogues(played, scoring, GameFilter(**chosen)))
    return shown.get()


def panels(text: str) -> list[tuple[int, int]]:
    """Return the games that were printed, by scenario and trajectory."""
    return [(int(s), int(t)) for s, t in re.findall(r"scenario (\d+), trajectory (\d+)", text)]


def rounds_of(text: str) -> dict[int, str]:
    """Return what was printed of each round."""
    _, *parts = re.split(r"^round (\d+) .*$", text.partition("… rounds")[0] + text.partition(" …\n")[2], flags=re.M)
    return {int(t): part for t, part in zip(parts[::2], parts[1::2], strict=True)}


def regret_by_loops(game: dict[str, list], t: int) -> float:
    """Return the realized regret of a game of MAB after t rounds."""
    at = [slice(3 * s, 3 * s + 3) for s in range(t)]
    return sum(max(game["means"][s]) for s in at) - sum(game["rewards"][s][game["action"][i]] for i, s in enumerate(at))


def game_of(played: dict[str, list], row: int) -> dict[str, list]:
    return {name: column[row] for name, column in played.items()}


# --- Which games ---


def test_the_worst_are_those_of_highest_final_regret_and_the_best_of_lowest():
    played = games()
    final = [regret_by_loops(game_of(played, row), 20) for row in range(6)]
    order = [divmod(int(row), 2) for row in np.argsort(final)]
    assert panels(printed(played, best=2)) == order[:2]
    assert panels(printed(played, worst=3)) == order[:2:-1]


def test_games_can_be_chosen_by_scenario_and_trajectory_and_ranked_among_those():
    played = games()
    assert panels(printed(played, scenario=1)) == [(1, 0), (1, 1)]
    assert panels(printed(played, scenario=2, trajectory=1)) == [(2, 1)]
    final = {i: regret_by_loops(game_of(played, 2 * i + 1), 20) for i in range(3)}
    assert panels(printed(played, trajectory=1, worst=1)) == [(max(final, key=final.get), 1)]


@pytest.mark.parametrize("chosen", [{"scenario": 3}, {"scenario": 1, "trajectory": 2}], ids=str)
def test_games_that_are_not_there_are_refused_with_those_that_are(chosen):
    with pytest.raises(InputError, match=r"scenario: no 3 here; there are 0 to 2|trajectory: no 2 .* 0 to 1"):
        printed(games(), **chosen)


# --- What is shown of a game ---


def test_every_round_has_its_prompt_reply_action_rewards_and_the_regret_so_far():
    played = games(horizon=4)
    game = game_of(played, 3)
    text = printed(played, scenario=1, trajectory=1)
    assert list(rounds_of(text)) == [1, 2, 3, 4]
    for t, part in rounds_of(text).items():
        action, pays = game["action"][t - 1], game["rewards"][3 * t - 3 : 3 * t]
        assert f"prompt  prompt-3-{t}" in part
        assert f"        second-line-3-{t}" in part
        assert f"reply   reply-3-{t} [bold]so[/bold]" in part
        assert f"action  {action + 1} paid {pays[action]:.2f} (" in part
        for other in {0, 1, 2} - {action}:
            assert f"{other + 1}: {pays[other]:.2f}" in part
        assert f"policy [{', '.join(f'{share:.2f}' for share in game['policy'][3 * t - 3 : 3 * t])}]" in part
        assert f"regret  {regret_by_loops(game, t):.2f} realized, " in part
    assert f"regret {regret_by_loops(game, 4):.2f} realized, " in text.partition("round 1")[0]


def test_a_policy_that_is_its_action_is_not_shown_besides():
    played = games()
    played["policy"] = np.eye(3)[played["action"]].reshape(6, -1).tolist()
    assert "policy" not in printed(played)


def test_rounds_of_invalid_replies_are_marked_and_no_others():
    played = games(horizon=5)
    played["attempts"][0], played["fallback"][0] = [1, 3, 1, 3, 1], [False, False, False, True, True]
    text = printed(played, scenario=0, trajectory=0)
    assert "6 invalid replies, 2 rounds played uniformly" in text  # 2, 3 and 1
    marked = {t: re.findall(r"^invalid +(\d of \d)", part, flags=re.M) for t, part in rounds_of(text).items()}
    assert marked == {1: [], 2: ["2 of 3"], 3: [], 4: ["3 of 3"], 5: ["1 of 1"]}


def test_the_middle_of_a_long_game_is_left_out_unless_its_rounds_are_named():
    played = games()
    played["attempts"][0][8] = 2
    text = printed(played, scenario=0, trajectory=0)
    assert list(rounds_of(text)) == [1, 2, 3, 18, 19, 20]
    assert "rounds 4 to 17, invalid replies in 9: --rounds 4-17" in text
    assert list(rounds_of(printed(played, scenario=0, trajectory=0, rounds=(4, 17)))) == [*range(4, 18)]
    assert list(rounds_of(printed(played, scenario=0, trajectory=0, rounds=(19, 99)))) == [19, 20]
    assert list(rounds_of(printed(games(horizon=7), scenario=0, trajectory=0))) == [*range(1, 8)]


def test_the_middle_of_a_long_message_is_left_out_unless_its_round_is_named():
    played = games(horizon=2)
    played["prompt"][0][1] = "\n".join(f"line-{i}." for i in range(1, 101))
    short, whole = (printed(played, scenario=0, trajectory=0, rounds=rounds) for rounds in (None, (2, 2)))
    assert re.findall(r"line-\d+\.", whole) == [f"line-{i}." for i in range(1, 101)]
    shown = re.findall(r"line-\d+\.", short)
    assert shown[0] == "line-1."
    assert shown[-1] == "line-100."
    assert f"… {100 - len(shown)} lines …" in short
    assert len(shown) < 20


def test_a_round_that_no_game_has_is_refused():
    with pytest.raises(InputError, match="20"):
        printed(games(), worst=1, rounds=(21, 22))


@pytest.mark.parametrize(("text", "rounds"), [("4-9", (4, 9)), ("4", (4, 4)), ("10-10", (10, 10))])
def test_a_range_of_rounds_holds_both_of_its_ends(text, rounds):
    assert rounds_named(text) == rounds


@pytest.mark.parametrize("text", ["", "0-3", "9-4", "-4", "4-", "a", "4-9-12", "1.5"])
def test_what_is_no_range_of_rounds_is_refused(text):
    with pytest.raises(InputError, match="--rounds"):
        rounds_named(text)


# --- On which terminal ---


@given(
    reply=st.text(
        st.characters(codec="utf-8", categories=["Lu", "Cc", "Ps", "Pe", "Zs"], include_characters="\x1b[/]m1;\\"),
        max_size=40,
    )
)
def test_no_control_character_of_a_reply_reaches_a_pipe(reply):
    played = games(n=2, horizon=1)
    played["reply"] = [[reply]] * 2
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", printed(played)) is None


def test_a_colour_that_a_model_speaks_in_is_shown_as_what_it_is():
    played = games(n=2, horizon=1)
    played["reply"] = [["\x1b[31m[red]2"]] * 2
    assert "reply   ␛[31m[red]2" in printed(played)


@pytest.mark.parametrize("width", [24, 40, 80])
def test_on_a_narrow_terminal_everything_is_still_there_and_nothing_sticks_out(width):
    played = games(n=2, horizon=3)
    played["prompt"][0][1] = f"{'word ' * 30}{'x' * 70} the end"
    text = printed(played, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    letters = re.sub(r"[\s│]", "", text)
    for message in (*played["prompt"][0], *played["reply"][0]):
        assert re.sub(r"\s", "", message) in letters


def test_on_a_terminal_that_has_colours_they_are_used():
    console = Console(width=100, force_terminal=True, color_system="truecolor", legacy_windows=False)
    with console.capture() as shown:
        console.print(*dialogues(games(), MAB, GameFilter()))
    assert "\x1b[" in shown.get()


# --- How regret is counted ---


PARAMS = load(ROOT / "params.yaml")


@pytest.mark.parametrize("experiment", ["open_fol", "open_mab_gemma", "open_fol_distribution"])
def test_rollouts_are_ranked_by_the_regret_that_selects(experiment):
    scoring = scoring_of(Path(f"results/experiments/{experiment}/seed-0/iteration-1/rollouts.parquet"), PARAMS)
    job = selection_job(PARAMS, experiment, 0, 1)
    assert scoring == Scoring(job.problem.environment, job.problem.training_regret, job.mean)


def test_games_of_an_evaluation_are_ranked_by_expected_regret_wherever_one_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = Path("results/experiments/open_fol/evaluation/gaussian/base.parquet")
    assert scoring_of(path, PARAMS) == Scoring("fol", "expected", PARAMS.evaluation.mean)
    assert scoring_of(tmp_path / path, PARAMS) == scoring_of(path, PARAMS)


@pytest.mark.parametrize(
    "path",
    [
        "rollouts.parquet",
        "results/nobody/evaluation/gaussian/base.parquet",
        "results/experiments/numeric_mab/evaluation/gaussian/base.parquet",
    ],
)
def test_games_of_no_experiment_are_refused_with_what_to_say(path):
    with pytest.raises(InputError, match="--environment"):
        scoring_of(Path(path), PARAMS)


# --- The command ---


@pytest.fixture
def here(monkeypatch, tmp_path) -> Path:
    """Return where an experiment's rollouts are, below the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "extensions", tmp_path / "extensions")
    path = Path("results/experiments/open_mab_gemma/seed-0/iteration-0/rollouts.parquet")
    write_trajectories(path, games())
    return path


def test_the_command_prints_the_chosen_games_and_one_game_by_default(rmft, here):
    code, out, _ = rmft("show", here, "--best", 3, "--rounds", "2-4")
    assert code == 0
    assert len(panels(out)) == 3
    assert out.count("\nround 2 ") == 3
    assert panels(rmft("show", here)[1]) == panels(rmft("show", here, "--worst", 1)[1])
    assert panels(rmft("show", here, "--scenario", 1)[1]) == [(1, 0), (1, 1)]


def test_a_file_from_elsewhere_can_be_shown_with_its_environment(rmft, here):
    there = here.rename("games.parquet")
    assert rmft("show", there)[0] == 2
    assert "fol: realized regret" in rmft("show", there, "--environment", "fol")[1]
    assert "mab: expected regret" in rmft("show", there, "--environment", "mab", "--regret", "expected")[1]


def test_of_a_selection_the_games_that_it_keeps_are_shown(rmft, here):
    kept = [False, True, True, False, False, True]
    columns = {name: games()[name] for name in ("scenario", "trajectory")} | {
        "selected": kept,
        "duplicate": [False] * 6,
    }
    numbers = {name: [0] * 6 for name in ("regret", "rerolled", "rank", "invalid")}
    selection = here.with_name("selection.parquet")
    write_selection(selection, columns | numbers)
    assert sorted(panels(rmft("show", selection, "--worst", 9)[1])) == [(0, 1), (1, 0), (2, 1)]
    here.unlink()
    assert f"selects games of {here}, which is not there" in rmft("show", selection)[2]
    code, _, error = rmft("show", selection.parent, "--worst", 9)
    assert (code, error) == (
        2,
        f"rmft: --worst: goes with a file of games; `rmft show {selection.parent}` lists those that are there\n",
    )


def test_a_folder_is_a_list_of_what_can_be_shown_and_an_evaluation_names_its_games(rmft, here):
    evaluation = Path("results/experiments/open_mab_gemma/evaluation/gaussian-50.parquet")
    numbers = {name: [0, 0] for name in ("training_seed", "instance", "invalid")}
    actions = {name: [[0, 1]] * 2 for name in ("action", "best_action")}
    rows = {"player": ["base", "trained"], "d": [2, 2], "regret": [[1.0, 2.0], [1.0, 1.5]], "policy": [None, None]}
    write_evaluation(evaluation, rows | numbers | actions)
    played = evaluation.with_suffix("") / "base.parquet"
    write_trajectories(played, games())
    (played.parent / ".trained.parquet.1.parquet").write_bytes(b"PAR1")  # a file that is being written
    _, out, _ = rmft("show", "results")
    assert out.splitlines() == [f"rmft show {path}" for path in (played, evaluation, here)]
    _, out, _ = rmft("show", evaluation)
    assert out.splitlines() == [
        "base: mean final regret 2.00 over 1 games", "trained: mean final regret 1.50 over 1 games",
        "games in words:", f"rmft show {played}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("params.yaml", "holds no games; `rmft show .` lists"),
        ("results/experiments/nobody", "no such file or folder; `rmft show results/experiments` lists"),
        ("extensions", "holds nothing to show"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_shown_is_refused_with_what_can_be(rmft, path, says):
    code, out, error = rmft("show", path)
    assert (code, out) == (2, "")
    assert f"rmft: {path}: {says}" in error
    assert "delete" not in error


@pytest.mark.parametrize(
    "wrong",
    [["--worst", 1, "--best", 1], ["--worst", 0], ["--rounds", "9-4"], ["--environment", "x"], ["--regret", "x"]],
    ids=str,
)
def test_a_mistake_on_the_command_line_is_one_line_about_it(rmft, here, wrong):
    code, out, error = rmft("show", here, *wrong)
    assert (code, out) == (2, "")
    assert len(error.splitlines()) == 1
    assert wrong[0] in error
