"""`rmft play`: a person plays what models play, in the terminal and on a page in headless Chromium.

Symbols: T rounds, d actions.
"""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from oracle import Oracle
from playwright.sync_api import expect
from trees import ROOT

from rmft.params import load
from rmft.person.kept import keep, read_games
from rmft.person.sources import of_suite
from rmft.suite.parts import read_suite

PART = "bandit-gaussian"
expect.set_options(timeout=60_000)  # a page is slow where all tests run at once


@pytest.fixture
def play(rmft, monkeypatch, tmp_path):
    """Return a function that runs `rmft play` with lines typed, in the repository."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        where = ["--folder", str(tmp_path / "play"), "--evals", str(tmp_path / "evals")]
        return rmft("play", *arguments, *where)

    return run


def test_a_person_is_told_what_models_are_told_and_scored_beside_them(play, rmft, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rmft.suite.models.at_hand", lambda *_: Oracle("oracle", load(ROOT / "params.yaml").models["embedded"])
    )
    monkeypatch.chdir(ROOT)
    assert rmft("eval", "oracle", "--part", PART, "--output", str(tmp_path / "evals/oracle"))[0] == 0
    suite = read_suite()
    table = suite.rewards(PART, 3).rows(np.array([2]))
    actions = [0, 1, 2] * 8 + [1]
    typed = "\n".join(["none", *(f"Action: {action + 1}" if action else "1" for action in actions)])
    code, printed, error = play("--instance", "2", typed=typed)
    assert (code, error) == (0, "")
    assert printed.count("That says no action") == 1
    for t, action in enumerate(actions[:-1]):
        assert f"Round {t + 1}: your action {action + 1} paid **{table.rewards[0, t, action]:.2f}**." in printed
    means = table.means[0, 0]
    regret = sum(means.max() - means[action] for action in actions)
    rows = dict(re.findall(r"^([\w-]+) +(\d+\.\d\d)$", printed, re.MULTILINE))
    uniform = 25 * (means.max() - means.mean())
    assert (rows["you"], rows["uniform"], rows["oracle"]) == (f"{regret:.2f}", f"{uniform:.2f}", "0.00")
    assert {"ucb", "greedy"} <= rows.keys()
    assert ", ".join(f"Action {a + 1}: {mean:.2f}" for a, mean in enumerate(means)) in " ".join(printed.split())
    code, printed, _ = play("--table")
    assert (code, re.search(r"^oracle +1 +0\.00 +\+", printed, re.MULTILINE) is not None) == (0, True)


def test_an_unfinished_game_is_kept_in_one_line_and_not_counted_and_its_instance_does_not_come_again(
    play, tmp_path, monkeypatch
):
    lines = iter(["1", "2"])

    def typed(_: str) -> str:
        for line in lines:
            return line
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", typed)
    code, printed, error = play("--plain", "--rounds", "3")
    assert (code, error) == (0, "")
    assert "games.jsonl keeps the unfinished game, 2 of 3 rounds" in printed.splitlines()[-1]
    monkeypatch.undo()
    monkeypatch.chdir(ROOT)
    assert "nothing is kept" in play("--plain", "--rounds", "3")[1]  # no lines at all
    assert play("--plain", "--rounds", "3", typed="1\n1\n1\n")[0] == 0
    assert play("--plain", "--rounds", "3", "--instance", "0", typed="1\n1\n1\n")[0] == 0
    games = read_games(tmp_path / "play/games.jsonl")
    assert [(game.instance, game.finished) for game in games] == [(0, False), (1, True), (0, True)]
    printed = play("--table")[1]
    assert re.search(r"^you +1 ", printed, re.MULTILINE)
    assert "Not counted: 2" in printed


def test_a_policy_can_be_an_actions_number(play, tmp_path):
    code, _, _ = play("--part", "full-information", "--rounds", "2", typed="3\nPolicy: [0.5, 0.5, 0]\n")
    assert code == 0
    (game,) = read_games(tmp_path / "play/games.jsonl")
    assert game.replies == ["Policy: [0, 0, 1]", "Policy: [0.5, 0.5, 0]"]
    rewards = read_suite().rewards("full-information", 1).rewards[0, :2]
    earned = rewards[0, 2] + rewards[1, :2].mean()
    assert game.regret == pytest.approx(rewards.sum(axis=0).max() - earned)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--part", "x"], "play: --part: unknown 'x'; one of bandit-gaussian"),
        (["--instance", "480"], "play: --instance: 480 must be 0 to 479"),
        (["--rounds", "26"], "play: --rounds: 26 is more than the 25 of a game"),
        (["nobody"], "play: unknown 'nobody'"),
        (["numeric_mab", "--seed", "1"], "--seed: chooses a game of the suite, which goes with no"),
        (["--table", "--seed", "1"], "--seed: does not go with --table"),
        (["--seed", "-5"], "Invalid value for '--seed'"),
        (["--table"], "games.jsonl: has no games yet"),
    ],
)
def test_a_mistake_is_one_line(play, arguments, words):
    code, _, error = play(*arguments)
    assert (code, words in error, error.count("\n")) == (2, True, 1), error


def test_a_damaged_line_is_named(play, tmp_path):
    (tmp_path / "play").mkdir()
    (tmp_path / "play/games.jsonl").write_text('{"instance": 1}\n', encoding="utf-8")
    code, _, error = play()
    assert (code, "games.jsonl:1: at: is missing" in error, error.count("\n")) == (2, True, 1), error


def test_a_game_is_never_glued_to_a_line_without_an_end(play, tmp_path):
    file, game = tmp_path / "play/games.jsonl", ("--plain", "--rounds", "3", "--instance", "0")
    assert play(*game, typed="1\n2\n3\n")[0] == 0
    whole = file.read_text(encoding="utf-8").removesuffix("\n")
    file.write_text(whole, encoding="utf-8")  # as an editor leaves it
    assert play(*game, typed="3\n2\n1\n")[0] == 0
    assert [game.actions for game in read_games(file)] == [[0, 1, 2], [2, 1, 0]]
    file.write_text(whole[:-9], encoding="utf-8")  # as a cut write leaves it
    code, printed, error = play(*game, typed="1\n1\n1\n")
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert "games.jsonl:1: is not a whole game; mend this line, or delete it" in error
    assert file.read_text(encoding="utf-8") == whole[:-9]


@pytest.mark.parametrize("case", ["a file in place of the folder", "a read-only file of games"])
def test_no_round_is_played_where_the_game_could_not_be_kept(play, tmp_path, case):
    if case == "a read-only file of games":
        (tmp_path / "play").mkdir()
        (tmp_path / "play/games.jsonl").touch(mode=0o444)
    else:
        (tmp_path / "play").touch()
    code, printed, error = play("--plain", "--rounds", "3", typed="1\n1\n1\n")
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert "play/games.jsonl: cannot be written: " in error


@pytest.mark.parametrize("name", ["my[games]", "my[/games]", "my:smile:"])
def test_a_folder_and_a_model_are_printed_as_they_are_named(rmft, monkeypatch, tmp_path, name):
    monkeypatch.chdir(ROOT)
    source = replace(of_suite(read_suite(), PART, tmp_path), others=lambda *_: {name: np.zeros(1)})
    monkeypatch.setattr("rmft.tools.play_commands._source", lambda *_: source)
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    monkeypatch.setenv("COLUMNS", "500")
    code, printed, error = rmft("play", "--plain", "--rounds", "1", "--folder", str(tmp_path / name))
    assert (code, error) == (0, "")
    assert f"{tmp_path / name}/games.jsonl keeps the game." in printed
    table = rmft("play", "--table", "--folder", str(tmp_path / name))[1]
    for shown in (printed, table):
        assert re.search(rf"^{re.escape(name)} ", shown, re.MULTILINE)


def full_disk(monkeypatch, failures: int) -> None:
    """Let the first writes to a file of games fail for want of space."""
    write, left = os.pwrite, iter(range(failures))

    def pwrite(*arguments) -> int:
        if next(left, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*arguments)

    monkeypatch.setattr("os.pwrite", pwrite)


def test_a_game_that_finds_the_disk_full_is_kept_once_there_is_space(play, tmp_path, monkeypatch):
    full_disk(monkeypatch, 2)
    code, printed, error = play("--plain", "--rounds", "3", typed="1\n2\n3\n\n\n")
    assert (code, error) == (0, "")
    assert printed.count("games.jsonl: cannot be written: No space left on device\nPress Enter to try again") == 2
    (game,) = read_games(tmp_path / "play/games.jsonl")
    assert (game.finished, game.actions) == (True, [0, 1, 2])


def test_a_game_that_is_interrupted_as_it_is_being_kept_is_kept(play, tmp_path, monkeypatch):
    interruptions = iter([KeyboardInterrupt])

    def interrupted(*arguments: object) -> None:
        if error := next(interruptions, None):
            raise error
        keep(*arguments)

    monkeypatch.setattr("rmft.person.session.keep", interrupted)
    code, printed, error = play("--plain", "--rounds", "3", typed="1\n2\n3\n")
    assert (code, error, "every game is kept" in printed) == (0, "", True)
    (game,) = read_games(tmp_path / "play/games.jsonl")
    assert (game.finished, game.actions) == (True, [0, 1, 2])


def test_a_character_of_another_encoding_says_no_action(play, tmp_path, monkeypatch):
    typed = io.TextIOWrapper(io.BytesIO(b"1\n\xff\n2\n3\n"), encoding="utf-8", errors="strict")
    monkeypatch.setattr(io, "StringIO", lambda _: typed)
    code, printed, error = play("--plain", "--rounds", "3")
    assert (code, error, printed.count("That says no action")) == (0, "", 1)
    (game,) = read_games(tmp_path / "play/games.jsonl")
    assert game.actions == [0, 1, 2]


def test_a_game_that_is_given_up_on_a_full_disk_ends_in_one_line(play, tmp_path, monkeypatch):
    full_disk(monkeypatch, 9)
    code, printed, error = play("--plain", "--rounds", "3", typed="1\n2\n3\n")  # no more lines
    assert (code, printed.count("Press Enter to try again"), error.count("\n")) == (2, 1, 1), error
    assert "games.jsonl: cannot be written: No space left on device" in error
    assert read_games(tmp_path / "play/games.jsonl") == []


@pytest.fixture
def page(tmp_path):
    """Return the process of `rmft play --page` on games of 3 rounds, and its address."""
    command = [sys.executable, "-m", "rmft", "play", "--page", "--rounds", "3", "--folder", str(tmp_path / "play")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", process.stdout.readline())[0]
        finally:
            process.kill()


def test_the_page_is_played_by_keyboard_alone_at_phone_width_and_never_knows_a_later_reward(page, browser, tmp_path):
    process, url = page
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    tab, wrong, answers = context.new_page(), [], []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    tab.on(
        "response",
        lambda response: answers.append(response) if "/game" in response.url or "/choice" in response.url else None,
    )
    tab.goto(url)
    said = tab.locator("#said")
    assert said.get_attribute("aria-live") == "polite"
    expect(tab.locator("#told")).to_contain_text("There are 3 actions")
    expect(tab.locator(":focus-visible")).to_have_text("1")  # the first button
    rewards = read_suite().rewards(PART, 1).rewards[0]
    tab.keyboard.press("2")
    expect(said).to_have_text(f"Round 1: action 2 paid {rewards[0, 1]:.2f}.")
    tab.keyboard.press("9")  # no action
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    expect(said).to_have_text(f"Round 2: action 2 paid {rewards[1, 1]:.2f}.")
    states = [answer.json() for answer in answers]
    answers.clear()
    tab.reload()  # the game goes on
    expect(tab.locator("#round")).to_have_text("Round 3 of 3")
    audit_page(tab)
    tab.keyboard.press("1")
    expect(tab.locator("#over")).to_be_focused()
    audit_page(tab)
    assert tab.locator("#regrets th").all_text_contents().count("you") == 1
    states += [answer.json() for answer in answers]
    assert [(state["played"], len(state["said"])) for state in states] == [(0, 0), (1, 1), (2, 2), (2, 2), (3, 3)]
    assert [state["means"] is None and state["regrets"] is None for state in states] == [True] * 4 + [False]
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    expect(tab.locator("#of")).to_contain_text("instance 1")
    tab.keyboard.press("3")
    expect(said).to_contain_text("Round 1: action 3 paid")
    assert context.request.get(re.sub(r"[^/]+/$", "", url)).status == 404
    assert context.request.get(url.replace(url[-6:], "xxxxx/")).status == 404
    context.close()
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate(timeout=60)
    assert (process.returncode, error, wrong) == (0, "", [])
    assert "keeps the unfinished game, 1 of 3 rounds" in printed
    games = [json.loads(line) for line in (tmp_path / "play/games.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [game["actions"] for game in games] == [[1, 1, 0], [2]]


def audit_page(tab) -> None:
    """Assert that a page is accessible, as far as a program can tell, and fits its window."""
    audit = Axe().run(tab).response
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in audit["violations"]] == []
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
