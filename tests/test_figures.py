"""Figures: the CSV is what is drawn, and the same data gives the same bytes."""

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import StepPatch

from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.replies import write_claims, write_replies
from rmft.artifacts.trajectories import write_selection, write_trajectories
from rmft.figures import DRAWN, draw
from rmft.figures.reasoning import error_over_instances
from rmft.params import Params, load
from rmft.params.outputs import OF_REPLIES, Form
from rmft.reasoning.accuracy import accuracies
from rmft.workflow.paths import inputs_of_figure
from rmft.workflow.plan import figure_job

PARAMS = load().at_scale()
LABELS = list(PARAMS.figures.drawn)
BARS = ("histogram", "rewards")  # what series of bars begin with
T = 8


def write_games(path: Path, players: list[str], bases: int = 1, n: int = 6, d: int = 3) -> Path:
    """Write a small evaluation with two training seeds of the trained model, and one or two of the base model."""
    rng = np.random.default_rng(0)
    runs = {"base": bases, "trained": 2}
    rows = [
        {
            "player": player, "training_seed": seed, "instance": i, "d": d, "regret": rng.random(T).cumsum(),
            "action": rng.integers(d, size=T), "best_action": np.full(T, i % d),
            "policy": rng.dirichlet(np.ones(d), T).ravel(), "invalid": 0,
        }
        for player in dict.fromkeys(["base", "trained", *players])
        for seed in range(runs.get(player, 1))
        for i in range(n)
    ]  # fmt: skip
    write_evaluation(path, pd.DataFrame(rows))
    return path


def write_parameters(path: Path, loop: tuple[int, int]) -> Path:
    """Write the training log of a numeric experiment."""
    seeds, iterations = loop
    columns = ("A_b", "C_minus_diagonal", "step", "d", "d_minus_mean")
    log = [(t, s, *[t + s] * 5) for t in range(1, iterations + 1) for s in range(seeds)]
    pd.DataFrame(log, columns=["iteration", "training_seed", *columns]).to_csv(path, index=False)
    return path


def write_losses(path: Path, losses: tuple[float, ...] = (3.0, 1.0, 2.0, 0.5)) -> Path:
    """Write the log of a fine-tuning of two epochs."""
    steps = np.arange(1, len(losses) + 1)
    pd.DataFrame({"step": steps, "epoch": 2 * steps / len(losses), "loss": losses}).to_csv(path, index=False)
    return path


def write_regrets(path: Path, regret: np.ndarray, rerolled: np.ndarray) -> Path:
    """Write a selection of the lowest of L regrets (M, L) in each scenario."""
    scenario, trajectory = np.indices(regret.shape)
    rank = regret.argsort(axis=1).argsort(axis=1)
    never = np.zeros(regret.size, dtype=bool)
    columns = {
        "scenario": scenario.ravel(), "trajectory": trajectory.ravel(), "regret": regret.ravel(),
        "rerolled": rerolled.ravel(), "rank": rank.ravel(), "duplicate": never, "selected": rank.ravel() == 0,
        "invalid": never.astype(int),
    }  # fmt: skip
    write_selection(path, columns)
    return path


def write_luck(path: Path) -> Path:
    regret, rerolled = np.random.default_rng(0).normal(10, 3, (2, 5, 4))
    return write_regrets(path, regret, rerolled)


def write_dialogue(folder: Path) -> list[Path]:
    """Write two games of two rounds, of which the second is selected."""
    table = {"d": [2, 2], "rewards": [[1.0] * 4] * 2, "means": [[1.0] * 4] * 2, "clipped_means": [[1.0] * 4] * 2}
    words = {"prompt": [["Choose.", "Again."]] * 2, "reply": [["A. 1", "A. 2"], ["It is 2.\nB", "It is $1."]]}
    done = {"policy": [[0.5] * 4] * 2, "action": [[0, 1]] * 2, "attempts": [[1, 1]] * 2, "fallback": [[False] * 2] * 2}
    games = {
        "scenario": [0, 0],
        "trajectory": [0, 1],
        **table,
        **words,
        **done,
        "ids": [[[]]] * 2,
        "replied": [[[]]] * 2,
    }
    write_trajectories(folder / "rollouts.parquet", games)
    regret = {"regret": [2.0, 1.0], "rerolled": [2.0, 1.0], "rank": [1, 0], "duplicate": [False] * 2}
    chosen = {"scenario": [0, 0], "trajectory": [0, 1], **regret, "selected": [False, True], "invalid": [0, 0]}
    write_selection(folder / "selection.parquet", chosen)
    return [folder / "rollouts.parquet", folder / "selection.parquet"]


SAID = "Action 1 paid 4.20. Action 2 paid $9.\nAction: 2"  # of which the first is right


def write_examined(folder: Path, *, judged: bool = False, wrong: int = 1) -> list[Path]:
    """Write replies of two players in two rounds of two games; `wrong` of the base model's are half wrong."""
    where = [(player, i, t) for player in ("base", "trained") for i in range(2) for t in (1, 2)]
    half = [player == "base" and 2 * i + t > 4 - wrong for player, i, t in where]
    keys = {"player": [row[0] for row in where], "training_seed": [0] * 8, "instance": [row[1] for row in where]}
    keys["t"] = [row[2] for row in where]
    unstable = [player == "base" and t == 2 for player, _, t in where]
    replies = keys | {
        "reply": [SAID] * 8, "claims": [2] * 8, "right": [1 if faulty else 2 for faulty in half], "valid": [True] * 8,
        "action": [1] * 8, "reward": [5.0] * 8, "best_action": [0] * 8, "means": [[6.0, 5.0]] * 8,
        "times": [[1, 0]] * 8, "averages": [[4.2, np.nan]] * 8, "passes_over": [True] * 8, "unstable": unstable,
    }  # fmt: skip
    if judged:
        replies["unstable_judged"] = [player == "base" for player, _, _ in where]
    spans = [(0, 18, True), (20, 36, False)]
    claims = {name: [value for value in values for _ in spans] for name, values in keys.items()}
    claims |= {
        "kind": ["reward"] * 16, "begin": [0, 20] * 8, "end": [18, 36] * 8, "text": [SAID[:18], SAID[20:36]] * 8,
        "right": [first or not faulty for faulty in half for _, _, first in spans],
    }  # fmt: skip
    write_replies(folder / "replies.parquet", replies)
    write_claims(folder / "claims.parquet", claims)
    write_csv(folder / "accuracy.csv", accuracies(0, ("test",), 50, replies, claims))
    return [folder / name for name in ("replies.parquet", "claims.parquet", "accuracy.csv")]


def inputs_of(params: Params, label: str, folder: Path) -> list[Path]:
    """Write small files for a figure, in its order."""
    figure, job = params.figures.drawn[label], figure_job(params, label, None)
    if figure.form in OF_REPLIES:
        read = len(inputs_of_figure(params, label)) // len(figure.sources)  # of what is examined, the first ones
        return [path for i, _ in enumerate(figure.sources) for path in write_examined(folder / str(i))[:read]]
    if figure.evaluations:
        return [write_games(folder / f"{i}.parquet", figure.players) for i, _ in enumerate(figure.sources)]
    if figure.form == "parameters":
        return [write_parameters(folder / f"{i}.csv", loop) for i, loop in enumerate(job.loops)]
    if figure.form == "dialogue":
        return write_dialogue(folder)
    write, ending = (write_losses, "csv") if figure.form == "losses" else (write_luck, "parquet")
    return [write(folder / f"{i}.{ending}") for i in range(sum(seeds * iterations for seeds, iterations in job.loops))]


def drawn_and_written(label: str, folder: Path, params: Params = PARAMS) -> tuple[list, list, list, list]:
    """Draw a figure; return its lines and bars, and those that its CSV has."""
    drawing = draw(figure_job(params, label, None), inputs_of(params, label, folder))
    drawing.save(folder / label)
    written = pd.read_csv(folder / f"{label}.csv")
    shown = written[~written.series.str.startswith(("band", "printed", "text"))]
    bars = shown.series.str.startswith(BARS)
    curves, heights = (
        [group.y.to_numpy() for _, group in part.groupby(["panel", "player", "series"])]
        for part in (shown[~bars], shown[bars])
    )
    axes = list(drawing.axes.flat)
    lines = [line.get_ydata() for ax in axes for line in ax.get_lines()]
    steps = [part.get_data().values for ax in axes for part in ax.get_children() if isinstance(part, StepPatch)]
    return lines, steps, curves, heights


@pytest.mark.parametrize("label", LABELS)
def test_the_csv_holds_every_line_and_bar_that_is_drawn(tmp_path, label):
    lines, steps, curves, heights = drawn_and_written(label, tmp_path)
    for drawn, written in ((lines, curves), (steps, heights)):
        assert len(drawn) == len(written)
        for one in drawn:
            assert any(len(one) == len(other) and np.allclose(one, other) for other in written)


@pytest.mark.parametrize("label", ["tfbandit", "parameter", "luck-in-hindsight", "reasoning-comparison"])
def test_the_same_data_gives_the_same_bytes(tmp_path, label):
    files, job = inputs_of(PARAMS, label, tmp_path), figure_job(PARAMS, label, None)
    for folder in ("one", "two"):
        draw(job, files).save(tmp_path / folder / label)
    for ending in ("pdf", "png", "csv"):
        assert (tmp_path / f"one/{label}.{ending}").read_bytes() == (tmp_path / f"two/{label}.{ending}").read_bytes()


def test_a_figure_of_a_smaller_scale_says_so_in_itself_and_in_its_metadata(tmp_path):
    job = figure_job(PARAMS, "tfbandit", "scale smoke: smaller than the paper's, not its result")
    drawing = draw(job, inputs_of(PARAMS, "tfbandit", tmp_path))
    drawing.save(tmp_path / "tfbandit")
    assert any("scale smoke" in text.get_text() for text in drawing.figure.texts)
    assert b"scale smoke" in (tmp_path / "tfbandit.png").read_bytes()


def test_every_form_of_the_parameters_can_be_drawn():
    assert set(DRAWN) == set(get_args(Form))


def test_one_evaluation_has_its_two_panels_side_by_side_and_several_have_theirs_below_each_other(tmp_path):
    for label, shape in (("open-FOL-alternating", (1, 2)), ("open-FOL-indist", (2, 3))):
        drawing = draw(figure_job(PARAMS, label, None), inputs_of(PARAMS, label, tmp_path))
        assert drawing.axes.shape == shape
        assert [ax.get_xlabel() for ax in drawing.axes.T.flat[:2]] == ["Round $t$", "Final regret"]


def test_losses_stand_one_iteration_after_another_with_the_mean_of_each_epoch(tmp_path):
    label = "phi-loss"
    job = figure_job(PARAMS, label, None)
    files = inputs_of(PARAMS, label, tmp_path)
    write_losses(files[1], (8.0, 6.0, 4.0, 4.0))  # the second iteration of the first experiment
    draw(job, files).save(tmp_path / label)
    written = pd.read_csv(tmp_path / f"{label}.csv")
    first = written[written.panel == job.figure.experiments[0]]
    steps = first[first.series == "training seed 0"]
    assert steps.x.tolist()[:8] == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
    assert steps.y.tolist()[:8] == [3.0, 1.0, 2.0, 0.5, 8.0, 6.0, 4.0, 4.0]
    epochs = first[first.series == "curve"]
    assert epochs.x.tolist()[:8] == [0, 0.5, 0.5, 1, 1, 1.5, 1.5, 2]
    assert epochs.y.tolist()[:8] == [2.0, 2.0, 1.25, 1.25, 7.0, 7.0, 4.0, 4.0]


def test_luck_in_hindsight_is_told_from_skill_for_each_experiment_and_iteration(tmp_path):
    label = "luck-in-hindsight"
    job = figure_job(PARAMS, label, None)
    files = inputs_of(PARAMS, label, tmp_path)
    regret = np.random.default_rng(1).normal(10, 3, (5, 4))
    write_regrets(files[0], regret, regret)  # all skill
    write_regrets(files[1], regret, np.full_like(regret, 7.0))  # all luck
    write_regrets(files[2], np.full_like(regret, 7.0), regret)  # nothing to select
    drawing = draw(job, files)
    titles = [ax.get_title() for ax in drawing.axes.flat[:3]]
    assert "100% ± 0% survives" in titles[0]
    assert "0% ± 0% survives" in titles[1]
    assert "all are alike" in titles[2]


def test_selections_of_several_training_seeds_are_drawn_together(tmp_path):
    several = PARAMS.model_copy(deep=True)
    several.experiments["open_mab_gemma"].rmft.__dict__["training_seeds"] = 2
    label = "luck-in-hindsight"
    files = inputs_of(several, label, tmp_path)
    assert len(files) == len(inputs_of(PARAMS, label, tmp_path)) + 3
    assert len(draw(figure_job(several, label, None), files).axes) == 3


def test_an_example_of_a_game_shows_what_was_told_and_said_and_its_csv_holds_every_line(tmp_path):
    drawing = draw(figure_job(PARAMS, "sdm-example", None), inputs_of(PARAMS, "sdm-example", tmp_path))
    drawing.save(tmp_path / "sdm-example")
    written = pd.read_csv(tmp_path / "sdm-example.csv")
    shown = [line for text in drawing.axes[0, 0].texts for line in text.get_text().split("\n")]
    assert shown == list(written.y) == ["Choose.", "It is 2.", "B", "Again.", "It is $1."]
    assert list(written.player) == ["told", "said", "said", "told", "said"]


def test_claims_stand_side_by_side_with_what_is_right_in_blue_and_what_is_wrong_in_red(tmp_path):
    job = figure_job(PARAMS, "reasoning-comparison", None)
    drawing = draw(job, inputs_of(PARAMS, "reasoning-comparison", tmp_path))
    drawing.save(tmp_path / "reasoning-comparison")
    texts = [(text.get_text(), text.get_color()) for text in drawing.axes[0, 0].texts]
    assert [how for text, how in texts if text == "Action 1 paid 4.20"] == ["#0072B2"] * 4
    assert [how for text, how in texts if text == "Action 2 paid $9"] == ["#C00000", "#0072B2"] * 2
    assert ("closed_mab, gaussian-25: instance 1, round 2", "#222222") in texts  # where the base model is wrong
    assert sum(text.startswith("All rounds: 87.50% of 8 claims are right") for text, _ in texts) == 2
    written = pd.read_csv(tmp_path / "reasoning-comparison.csv")
    assert written[written.series == "text: wrong"].y.tolist() == ["Action 2 paid $9"] * 2
    assert set(written[written.series == "text"].y) >= set(SAID.split("\n"))


def test_no_text_of_a_comparison_leaves_its_box():
    from rmft.figures.reasoning import COLUMN, MARGIN, _wrapped

    text = "x" * 200 + " " + "word " * 60 + "\n\nlast"
    lines = [text[begin:end] for begin, end in _wrapped(text, COLUMN - 2 * MARGIN)]
    assert max(map(len, lines)) <= COLUMN - 2 * MARGIN
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert lines[-2:] == ["", "last"]


def test_the_error_of_a_share_of_replies_is_that_over_instances():
    rng = np.random.default_rng(0)
    sizes, shares = rng.integers(3, 9, 60), rng.uniform(0, 1, 60)
    said = [
        pd.DataFrame({"instance": i, "yes": rng.random(n) < p})
        for i, (n, p) in enumerate(zip(sizes, shares, strict=True))
    ]
    again = []
    for _ in range(2000):
        drawn = [said[i]["yes"] for i in rng.integers(60, size=60)]
        again.append(sum(map(sum, drawn)) / sum(map(len, drawn)))
    assert error_over_instances(pd.concat(said), "yes") == pytest.approx(np.std(again), rel=0.1)
    assert math.isnan(error_over_instances(said[0], "yes"))


def test_avoidance_has_a_panel_for_each_judge_and_says_how_they_agree(tmp_path):
    job = figure_job(PARAMS, "reasoning-variance", None)
    assert draw(job, write_examined(tmp_path / "one")[:1]).axes.shape == (1, 2)
    drawing = draw(job, write_examined(tmp_path / "two", judged=True)[:1])
    lexical, model, whatever = drawing.axes[0]
    assert "Base model 50.0% ± 0.0%\nTrained: no reply" in lexical.get_title()  # half of the replies in each instance
    assert "Base model 100.0% ± 0.0%" in model.get_title()
    assert "Base model 100.0% ± 0.0%\nTrained 100.0% ± 0.0%" in whatever.get_title()
    # Of 8 replies they differ on 2: κ = (6/8 - (2/8 · 4/8 + 6/8 · 4/8)) / (1 - 1/2) = 0.5
    assert "agree on 75.0%\nof 8 replies ($\\kappa$ = 0.50)" in model.texts[0].get_text()
