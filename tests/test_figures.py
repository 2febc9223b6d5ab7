"""Figures: the CSV is what is drawn, and the same data gives the same bytes."""

import math
import re
from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Polygon
from scipy import stats
from trees import ROOT

from rmft.artifacts.csv_files import write_csv, write_rows
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.replies import write_claims, write_replies
from rmft.artifacts.trajectories import write_selection, write_trajectories
from rmft.errors import InputError
from rmft.figures import DRAWN, draw, frames
from rmft.figures.avoidance import error_over_instances
from rmft.figures.frames import CURVE, GAMES, SEED, joined, mean_over_games
from rmft.figures.page import height_of, runs_of
from rmft.figures.policies import EDGES, PROBABILITY
from rmft.figures.style import Drawing, dashes, draw_curves, enlarge_low_curves, palette, panels, share_limits
from rmft.params import Params, load
from rmft.params.outputs import FORMS as ALL_FORMS
from rmft.reasoning.accuracy import accuracies
from rmft.workflow.plan_outputs import figure_job

PARAMS = load().at_scale()
for experiment in ("numeric_ball", "numeric_simplex"):
    PARAMS.experiments[experiment].rmft.__dict__["iterations"] = 20
FORMS = {figure.form: label for label, figure in reversed(PARAMS.figures.drawn.items())}  # a figure of each form
REFERENCE = ":"  # the style of lines that mark a value
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
    words = {"prompt": [["Choose.", "Again **now**."]] * 2, "reply": [["A. 1", "A. 2"], ["It is 2.\nB", "It is $1."]]}
    done = {"policy": [[0.5] * 4] * 2, "action": [[0, 1]] * 2, "attempts": [[1, 1]] * 2, "fallback": [[False] * 2] * 2}
    games = {
        "scenario": [0, 0],
        "trajectory": [0, 1],
        **table,
        **words,
        **done,
        "ids": [[[]]] * 2,
        "sampled": [[[]]] * 2,
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
    replies, claims = (pd.DataFrame(columns).to_dict("records") for columns in (replies, claims))
    write_replies(folder / "replies.parquet", replies)
    write_claims(folder / "claims.parquet", claims)
    write_rows(folder / "accuracy.csv", accuracies(0, ("test",), 50, replies, claims))
    return [folder / name for name in ("replies.parquet", "claims.parquet", "accuracy.csv")]


def inputs_of(params: Params, label: str, folder: Path) -> list[Path]:
    """Write small files for a figure, in its order."""
    figure, job = params.figures.drawn[label], figure_job(params, label, None)
    if figure.form in ("claims", "avoidance"):
        read = len(figure.inputs(params)) // len(figure.sources)  # of what is examined, the first ones
        return [path for i, _ in enumerate(figure.sources) for path in write_examined(folder / str(i))[:read]]
    if figure.evaluations:
        return [write_games(folder / f"{i}.parquet", figure.players) for i, _ in enumerate(figure.sources)]
    if figure.form == "parameters":
        return [write_parameters(folder / f"{i}.csv", loop) for i, loop in enumerate(job.loops)]
    if figure.form == "dialogue":
        return write_dialogue(folder)
    write, ending = (write_losses, "csv") if figure.form == "losses" else (write_luck, "parquet")
    return [write(folder / f"{i}.{ending}") for i in range(sum(seeds * iterations for seeds, iterations in job.loops))]


def drawn_from_small_files(label: str, folder: Path, params: Params = PARAMS) -> Drawing:
    return draw(figure_job(params, label, None), inputs_of(params, label, folder))


def groups(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [rows for _, rows in frame.groupby(["panel", "player", "series"], sort=False)]


def one_of(drawn: list[np.ndarray], written: list[float]) -> bool:
    return any(len(one) == len(written) and np.allclose(one, written) for one in drawn)


@pytest.mark.parametrize("label", FORMS.values())
def test_the_csv_is_the_frame_whose_lines_bands_and_samples_are_drawn(tmp_path, label):
    drawing = drawn_from_small_files(label, tmp_path)
    write_csv(tmp_path / f"{label}.csv", drawing.frame)
    written = pd.read_csv(tmp_path / f"{label}.csv")
    assert written[["panel", "player", "series"]].notna().all(axis=None)
    axes = drawing.figure.axes
    lines = [line for ax in axes for line in ax.lines if len(line.get_xdata()) and line.get_linestyle() != REFERENCE]
    polygons = [patch.get_xy()[:, 1] for ax in axes for patch in ax.patches if isinstance(patch, Polygon)]
    bands = [{*np.round(heights, 9)} for heights in polygons]
    curves = groups(written[written.series.str.startswith((CURVE, SEED))])
    samples = groups(written[written.series == GAMES])
    assert len(lines) == len(curves) + len(samples)
    for rows in curves:
        assert one_of([line.get_ydata() for line in lines], rows.y)
    for rows in samples:  # a line that begins at minus infinity
        assert one_of([line.get_xdata()[1:] for line in lines], sorted(rows.x))
    for rows in curves:
        if rows.high.notna().any():
            assert {*np.round(rows.low, 9), *np.round(rows.high, 9)} in bands
    if "line" in written:  # of a page
        assert [text.get_text() for text in axes[0].texts] == list(written.y)


def test_policies_are_drawn_as_shares_of_the_probabilities_that_the_csv_holds(tmp_path):
    drawing = drawn_from_small_files("open-FOL-indist-appendix-dist", tmp_path)
    samples = {
        tuple(rows[["player", "panel"]].iloc[0]): rows.x.astype(float)
        for rows in groups(drawing.frame[drawing.frame.series == PROBABILITY])
    }
    players = PARAMS.figures.drawn["open-FOL-indist-appendix-dist"].players
    titles = list(drawing.frame.panel.unique())
    for ax, (player, panel) in zip(drawing.figure.axes, product(players, titles), strict=True):
        shares = np.histogram(samples[player, panel], EDGES)[0] / len(samples[player, panel])
        assert np.allclose([bar.get_height() for bar in ax.patches], shares)
    assert len({ax.get_ylim() for ax in drawing.figure.axes}) == 1


def test_the_histograms_of_selected_and_of_all_trajectories_have_the_same_area_up_and_down(tmp_path):
    drawing = drawn_from_small_files("luck-in-hindsight", tmp_path)
    for ax in filter(lambda ax: ax.patches, drawing.figure.axes):
        bars = np.array([bar.get_height() for bar in ax.patches])
        assert [bars[bars > 0].sum(), bars[bars < 0].sum()] == pytest.approx([2, -2])


@pytest.mark.parametrize("label", ["open-MAB-minfrac", "reasoning-comparison"])
def test_the_same_data_gives_the_same_bytes(tmp_path, label):
    files, job = inputs_of(PARAMS, label, tmp_path), figure_job(PARAMS, label, None)
    for folder in ("one", "two"):
        draw(job, files).save(tmp_path / folder / label)
    for ending in ("pdf", "png", "csv"):
        assert (tmp_path / f"one/{label}.{ending}").read_bytes() == (tmp_path / f"two/{label}.{ending}").read_bytes()


def test_the_text_of_both_files_has_the_width_that_its_characters_need(tmp_path, monkeypatch):
    drawing = drawn_from_small_files("reasoning-comparison", tmp_path)
    figure, bounds = drawing.figure, []

    def note_bounds(path: Path, **_: object) -> None:
        path.touch()
        figure.draw_without_rendering()
        bounds.append(figure.axes[0].get_position().bounds)

    monkeypatch.setattr(figure, "savefig", note_bounds)
    drawing.save(tmp_path / "figure")
    figure.set_layout_engine("constrained")
    for _ in range(3):
        figure.draw_without_rendering()
    assert bounds == [figure.axes[0].get_position().bounds] * 2


def test_a_matplotlibrc_of_the_users_changes_no_figure(tmp_path, monkeypatch):
    label = "open-MAB-minfrac"
    files, job = inputs_of(PARAMS, label, tmp_path), figure_job(PARAMS, label, None)
    for folder, width in (("one", 1.0), ("two", 9.0)):
        monkeypatch.setitem(mpl.rcParams, "patch.linewidth", width)
        monkeypatch.setitem(mpl.rcParams, "savefig.facecolor", "white" if folder == "one" else "black")
        draw(job, files).save(tmp_path / folder / label)
    assert (tmp_path / f"one/{label}.png").read_bytes() == (tmp_path / f"two/{label}.png").read_bytes()


def test_a_figure_of_a_smaller_scale_says_so_in_itself_and_in_its_metadata(tmp_path):
    job = figure_job(PARAMS, "open-MAB-minfrac", "scale smoke: smaller than the paper's, not its result")
    drawing = draw(job, inputs_of(PARAMS, "open-MAB-minfrac", tmp_path))
    drawing.save(tmp_path / "figure")
    assert any("scale smoke" in text.get_text() for text in drawing.figure.texts)
    assert b"scale smoke" in (tmp_path / "figure.png").read_bytes()


def test_a_file_that_is_no_training_log_is_refused_in_one_line(tmp_path):
    files = inputs_of(PARAMS, "phi-loss", tmp_path)
    files[0].write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column step, epoch, loss"):
        draw(figure_job(PARAMS, "phi-loss", None), files)


@pytest.mark.parametrize("label", [name for name, figure in PARAMS.figures.drawn.items() if figure.players])
def test_at_most_six_players_are_shown_and_each_looks_different(label):
    players = PARAMS.figures.drawn[label].players
    colours = palette(PARAMS.figures.style, players)
    assert len(players) <= 6
    assert len({(colours[player], dashes(player)) for player in players}) == len(players)


def test_a_band_is_the_interval_of_the_mean_over_games():
    values = np.random.default_rng(0).normal(5, 2, (3, 400, 2))  # three seeds on the same games
    rows = mean_over_games("panel", "player", values)
    curve = rows[rows.series == CURVE]
    low, high = stats.t.interval(0.95, 399, values.mean(axis=(0, 1)), stats.sem(values.mean(axis=0)))
    assert np.allclose(curve.low.astype(float), low, atol=1e-4)
    assert np.allclose(curve.high.astype(float), high, atol=1e-4)
    assert rows.series.unique().tolist() == [CURVE, *(f"{SEED} {seed}" for seed in range(3))]
    assert mean_over_games("panel", "player", values[:, :1]).low.isna().all()  # of one game there is no interval


def test_titles_are_words_and_axes_of_a_row_are_shared_and_begin_at_0(tmp_path):
    drawing = drawn_from_small_files("simplex-tf-all", tmp_path)
    axes = [ax for ax in drawing.figure.axes if ax.lines]
    assert axes[0].get_title() == "Gaussian rewards,\nT\u00a0=\u00a0100"
    assert len({ax.get_ylim() for ax in axes[:4]}) == 1
    assert {ax.get_ylim()[0] for ax in axes} == {0}


def test_a_panel_whose_curves_would_be_pressed_flat_keeps_an_axis_of_its_own():
    _, (axes,) = panels(PARAMS.figures.style, 1, 3)
    for ax, top in zip(axes, (1, 2, 3), strict=True):
        ax.plot([0, 1], [0, top])
    share_limits(axes)
    assert len({ax.get_ylim() for ax in axes}) == 1
    axes[2].plot([0, 1], [0, 100])
    share_limits(axes)
    assert [round(ax.get_ylim()[1]) for ax in axes] == [1, 2, 104]


def test_low_curves_are_drawn_again_where_higher_ones_set_the_scale():
    rounds = np.arange(1, 101)
    slopes = {"trained": 0.1, "ftrl-25": 0.2, "ftl": 4.0}
    curves = joined(frames.rows("panel", name, CURVE, rounds, slope * rounds) for name, slope in slopes.items())
    _, axes = panels(PARAMS.figures.style, 1, 2)
    for ax, frame in zip(axes[0], (curves, curves[curves["player"] != "ftl"]), strict=True):
        draw_curves(ax, frame, PARAMS.figures.style)
        share_limits([ax])
        inset = enlarge_low_curves(ax, frame, PARAMS.figures.style)
        assert inset == (len(frame) == 300)
    (inset,) = axes[0][0].child_axes
    assert sorted(line.get_ydata()[-1] for line in inset.lines if len(line.get_ydata())) == [10.0, 20.0]
    assert inset.get_ylim() == pytest.approx((0, 20.8))


def test_a_ks_test_says_against_what_and_on_how_many_games(tmp_path):
    drawing = drawn_from_small_files("open-FOL-alternating", tmp_path)
    heading, test = drawing.figure.axes[1].get_title().split("\n")
    assert heading == "KS test against base (median of 2 seeds)"
    assert re.fullmatch(r"Trained: \$p\$ = [\d.]+ \(6 games\)", test)


def test_every_form_of_the_parameters_can_be_drawn():
    assert set(DRAWN) == set(ALL_FORMS)


def test_one_evaluation_has_its_two_panels_side_by_side_and_several_have_theirs_below_each_other(tmp_path):
    for label, rows, columns in (("open-FOL-alternating", 1, 2), ("open-FOL-indist", 2, 3)):
        axes = drawn_from_small_files(label, tmp_path / label).figure.axes
        assert axes[0].get_gridspec().get_geometry() == (rows, columns)
        assert [ax.get_xlabel() for ax in (axes[0], axes[-1])] == ["Round $t$", "Final regret"]


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
    assert epochs.x.tolist()[:4] == [0.25, 0.75, 1.25, 1.75]
    assert epochs.y.tolist()[:4] == [2.0, 1.25, 7.0, 4.0]


def test_luck_in_hindsight_is_told_from_skill_for_each_experiment_and_iteration(tmp_path):
    label = "luck-in-hindsight"
    job = figure_job(PARAMS, label, None)
    files = inputs_of(PARAMS, label, tmp_path)
    regret = np.random.default_rng(1).normal(10, 3, (5, 4))
    write_regrets(files[0], regret, regret)  # all skill
    write_regrets(files[1], regret, np.full_like(regret, 7.0))  # all luck
    write_regrets(files[2], np.full_like(regret, 7.0), regret)  # nothing to select
    drawing = draw(job, files)
    titles = [ax.get_title() for ax in drawing.figure.axes[:3]]
    assert "100% ± 0% survives" in titles[0]
    assert "0% ± 0% survives" in titles[1]
    assert "no advantage" in titles[2]


def test_selections_of_several_training_seeds_are_drawn_together(tmp_path):
    several = PARAMS.model_copy(deep=True)
    several.experiments["open_mab_gemma"].rmft.__dict__["training_seeds"] = 2
    label = "luck-in-hindsight"
    files = inputs_of(several, label, tmp_path)
    assert len(files) == len(inputs_of(PARAMS, label, tmp_path)) + 3
    assert len(draw(figure_job(several, label, None), files).frame.panel.unique()) == 9


def test_an_example_of_a_game_names_prompts_and_responses_and_shows_what_is_bold_without_asterisks(tmp_path):
    drawing = drawn_from_small_files("sdm-example", tmp_path)
    shown = [text.get_text() for text in drawing.figure.axes[0].texts]
    first = ["Prompt, round 1", "Choose.", "Response of the model, round 1", "It is 2.", "B"]
    assert shown == list(drawing.frame.y) == [*first, "Prompt, round 2", "Again ", "now", ".", *shown[9:]]
    assert shown[9:] == ["Response of the model, round 2", "It is $1."]
    assert [text.get_weight() for text in drawing.figure.axes[0].texts[6:9]] == ["normal", "bold", "normal"]


def test_claims_stand_side_by_side_with_what_is_right_in_blue_and_what_is_wrong_in_red(tmp_path):
    drawing = drawn_from_small_files("reasoning-comparison", tmp_path)
    texts = [(text.get_text(), text.get_color()) for text in drawing.figure.axes[0].texts]
    assert [how for text, how in texts if text == "Action 1 paid 4.20"] == ["#0072B2"] * 4
    assert [how for text, how in texts if text == "Action 2 paid $9"] == ["#C00000", "#0072B2"] * 2
    title = "Bandits, embedded-endpoint, dialogue, stated policies: Gaussian rewards, T = 25; instance 1, round 2"
    assert (title, "#222222") in texts  # where the base model is wrong
    assert sum(text.startswith("All rounds: 87.50% of 8 claims are right") for text, _ in texts) == 2
    assert drawing.frame[drawing.frame.series == "wrong"].y.tolist()[:2] == ["Action 2 paid $9"] * 2


def test_no_line_of_a_page_is_too_long_and_no_word_is_lost():
    text = "x" * 200 + " " + "word " * 60 + "\n\nlast"
    lines = runs_of(text, ["plain"] * len(text), 56)
    assert max(run.x + len(run.text) for run in lines) <= 56
    assert "".join(run.text for run in lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert height_of(lines) == 4 + 6 + 2


def test_the_error_of_a_share_of_replies_is_that_over_instances():
    rng = np.random.default_rng(0)
    sizes, shares = rng.integers(3, 9, 60), rng.uniform(0, 1, 60)
    replies = [
        pd.DataFrame({"instance": i, "yes": rng.random(n) < p})
        for i, (n, p) in enumerate(zip(sizes, shares, strict=True))
    ]
    yes, n = np.array([[games["yes"].sum(), len(games)] for games in replies]).T
    again = rng.integers(60, size=(2000, 60))
    resampled = yes[again].sum(axis=1) / n[again].sum(axis=1)
    assert error_over_instances(pd.concat(replies), "yes") == pytest.approx(np.std(resampled), rel=0.1)
    assert math.isnan(error_over_instances(replies[0], "yes"))


def test_avoidance_has_a_panel_for_each_judge_and_says_how_they_agree(tmp_path):
    job = figure_job(PARAMS, "reasoning-variance", None)
    assert len(draw(job, write_examined(tmp_path / "one")[:1]).figure.axes) == 2
    drawing = draw(job, write_examined(tmp_path / "two", judged=True)[:1])
    lexical, model, whatever = drawing.figure.axes
    assert "Base model 50.0% ± 0.0%\nTrained 0.0% ± 0.0%" in lexical.get_title()  # half of the replies in each instance
    assert "Base model 100.0% ± 0.0%" in model.get_title()
    assert "Base model 100.0% ± 0.0%\nTrained 100.0% ± 0.0%" in whatever.get_title()
    # Of 8 replies they differ on 2: κ = (6/8 - (2/8 · 4/8 + 6/8 · 4/8)) / (1 - 1/2) = 0.5
    assert "agree on 75.0%\nof 8 replies ($\\kappa$ = 0.50)" in model.texts[0].get_text()


def test_dvc_plots_have_the_colours_of_the_figures():
    template = (ROOT / ".dvc/plots/panels.json").read_text(encoding="utf-8")
    assert dict(re.findall(r"'([\w-]+)': '(#\w{6})'", template)) == PARAMS.figures.style.colours
