"""The report: captions for all, verdicts by rule, and pages that a reader can use, in headless Chromium.

Symbols: n games, T rounds.
"""

import math
import re
import shutil
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from helpers import games
from matplotlib.figure import Figure as Canvas
from playwright.sync_api import Page, expect
from trees import ROOT, values_in

from rmft.algorithms import AlgorithmSettings
from rmft.artifacts.csv_files import write_csv
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.json_files import write_json
from rmft.artifacts.text import write_text
from rmft.artifacts.trajectories import write_selection, write_trajectories
from rmft.environments import draw_rewards
from rmft.environments.regret import regret
from rmft.errors import InputError
from rmft.evaluation import Instances, evaluate_in_words
from rmft.figures.style import Drawing
from rmft.metrics.exploration import scaled_min_frac
from rmft.metrics.growth import growth, growth_errors
from rmft.params import load
from rmft.params.figures import RegretFigure
from rmft.reasoning import SHARE, SHARE_ERROR
from rmft.report import page, viewer
from rmft.report.answer import Answer, Group
from rmft.report.claims import CHECKS, IN_WORDS, CheckedClaim, FigureData, PaperClaim, check_claims
from rmft.report.templates import difference, json_text, number, plain
from rmft.report.texts import Captions, KnownIssue, KnownIssues, read_texts
from rmft.report.verdicts import ILLUSTRATION, OURS, explain, figure_verdict, table_verdict
from rmft.selection import Scoring, select, table_of
from rmft.tables.layout import (
    DIRECTION_ONLY,
    INCONCLUSIVE,
    INCONSISTENT,
    NOT_REPRODUCED,
    REPRODUCED,
    VALUES,
)
from rmft.workflow import paths
from rmft.workflow.plan_outputs import report_job
from rmft.workflow.records_outputs import ReportJob

FULL_SIZE = load(ROOT / "params.yaml")
PARAMS = FULL_SIZE.at_scale()
MANY = 500  # games in the viewer
ROWS = 60  # of its list that may be drawn at once


@pytest.fixture(scope="module")
def texts() -> tuple[Captions, KnownIssues]:
    return read_texts(*(ROOT / path for path in paths.REPORT_TEXTS))


# --- Texts ---


@pytest.mark.parametrize(("kind", "labels"), [("figures", PARAMS.figures.drawn), ("tables", PARAMS.tables)])
def test_every_figure_and_table_has_a_caption_in_a_chapter_that_there_is(texts, kind, labels):
    captions = getattr(texts[0], kind)
    assert labels.keys() - captions.keys() == set()
    assert {caption.part for caption in captions.values()} <= texts[0].parts.keys()


def test_labels_of_the_paper_in_captions_exist(texts):
    known = set(pd.read_csv(ROOT / "data/paper/labels.csv")["label"])
    named = {of.paper for kind in (texts[0].figures, texts[0].tables) for of in kind.values() if of.paper}
    assert named - known == {"Theorem 1"}


def test_what_is_known_of_the_paper_is_about_labels_and_rows_that_there_are(texts):
    _, known = texts
    assert known.figures.keys() <= PARAMS.figures.drawn.keys()
    for label, reasons in known.tables.items():
        table = PARAMS.tables[label]
        played = [of for name in table.experiments for of in PARAMS.experiments[name].evaluations.items()]
        there = {
            "reward": {name for name, _ in played},
            "player": {"base", "trained", *(player for _, of in played for player in of.algorithms)},
        }
        for one in reasons:
            for column, names in one.rows.items():
                if column == "statistic":
                    there[column] = set(pd.read_csv(ROOT / f"data/paper/{label}.csv")["statistic"])
                assert set(names) <= there[column], label


def test_every_claim_is_of_a_figure_that_shows_what_it_is_about(texts):
    needs = {
        "failures": {"exploration", "sufficient-failure"},
        "exploration": {"exploration"},
        "distances": {"parameters"},
        "entropy": {"policies"},
        "loss": {"losses"},
    }
    for label, figure in PARAMS.figures.drawn.items():
        for claimed in texts[0].figures[label].claims:
            forms = needs.get(claimed.claim.split()[0])
            assert figure.form in forms if forms else figure.evaluations, (label, claimed)
            if claimed.of:
                assert claimed.of in figure.players
            if claimed.claim == "failures below greedy":
                assert "greedy" in figure.players


def test_a_label_of_ones_own_needs_no_caption(texts):
    own = texts[0].of("figures", "my-figure")
    assert (own.title, own.paper, own.claims) == ("my-figure", None, [])


def test_a_mistake_in_the_captions_is_one_line_with_its_key(tmp_path):
    captions = yaml.safe_load((ROOT / paths.REPORT_TEXTS[0]).read_text(encoding="utf-8"))
    captions["figures"]["tfbandit"]["claims"] = ["wins"]
    (tmp_path / "captions.yaml").write_text(yaml.safe_dump(captions), encoding="utf-8")
    with pytest.raises(InputError, match=r"captions\.yaml: figures\.tfbandit\.claims\.0") as wrong:
        read_texts(tmp_path / "captions.yaml", ROOT / paths.REPORT_TEXTS[1])
    assert len(str(wrong.value).splitlines()) == 1


# --- Claims and verdicts ---


def played(
    difference: tuple[float, float, float],
    *,
    exponent: float = 0.8,
    exponent_se: float = 0.05,
    se: float = 0.1,
    beside: float = 10.0,
    above_beside: tuple[float, float, float] = (-1.0, 0.0, 1.0),
) -> dict:
    """Return the metrics of an evaluation in which the base model's regret is 20."""
    return {
        "base": {"mean": 20.0, "exponent": 1.0, "exponent_se": exponent_se},
        "trained": {"mean": 20.0 + difference[1], "se": se, "exponent": exponent, "exponent_se": exponent_se},
        "algorithms": {"ucb": {"mean": beside, "se": se, "paired_difference": list(above_beside)}},
        "paired_difference": list(difference),
        "paired_p": p_of(difference),
        "by_training_seed": [{}],
        "n": 50,
    }


def p_of(difference: tuple[float | None, float, float | None]) -> float | None:
    """Return the one-sided p-value of a difference with this 95% interval; None where it has none."""
    low, mean, high = difference
    return None if low in (None, high) else NormalDist(0, (high - low) / 3.92).cdf(mean)


def checked(claim: str, *evaluations: dict, of: str | None = None) -> bool | None:
    """Check one claim on a figure that draws these evaluations."""
    names = [f"e{i}" for i in range(len(evaluations))]
    figure = RegretFigure(form="regret", experiments=["x", "variant"], evaluations=names, players=["trained"])
    metrics = {"x": dict(zip(names, evaluations, strict=True))}
    (found,) = check_claims([PaperClaim(claim=claim, of=of)], FigureData(figure, metrics, pd.DataFrame(), "m"))
    assert len(found.numbers) == len(evaluations)
    return found.holds


FELL, ROSE, UNSURE = (-9.0, -6.0, -3.0), (3.0, 6.0, 9.0), (-4.0, -1.0, 2.0)


def test_regret_is_below_the_base_models_where_the_whole_interval_is():
    assert checked("regret below base", played(FELL)) is True
    assert checked("regret below base", played(UNSURE)) is None
    assert checked("regret below base", played(ROSE)) is False
    assert checked("regret below base", played((None, -6.0, None))) is None
    assert checked("regret below base", played((-2e-8, -1e-8, -1e-8))) is None  # alike, but for rounding


def test_regret_is_above_the_base_models_where_the_whole_interval_is():
    assert checked("regret above base", played(ROSE)) is True
    assert checked("regret above base", played(UNSURE)) is None
    assert checked("regret above base", played(FELL)) is False


def test_that_regret_is_no_lower_takes_more_than_that_a_fall_is_not_sure():
    assert checked("regret not below base", played(FELL)) is False
    assert checked("regret not below base", played(UNSURE)) is None  # it may have fallen by a fifth
    assert checked("regret not below base", played((-1.9, 0.0, 1.9))) is True  # at most by a tenth
    assert checked("regret not below base", played((-1.9, -1.0, -0.1))) is False
    assert checked("regret not below base", played(ROSE)) is True
    assert checked("regret not below base", played((0.0, 0.0, 0.0))) is None  # the same games


def test_regret_is_below_an_algorithms_by_the_paired_difference():
    for above, holds in ((FELL, True), (UNSURE, None), (ROSE, False)):
        assert checked("regret below", played(UNSURE, above_beside=above), of="ucb") is holds


def test_a_claim_holds_if_it_holds_everywhere_and_fails_if_it_fails_anywhere():
    assert checked("regret below base", played(FELL), played(FELL)) is True
    assert checked("regret below base", played(FELL), played(UNSURE)) is None
    assert checked("regret below base", played(FELL), played(UNSURE), played(ROSE)) is False


def test_growth_is_sublinear_where_the_exponent_is_significantly_below_one():
    assert checked("growth sublinear", played(FELL, exponent=0.84)) is True
    assert checked("growth sublinear", played(FELL, exponent=0.86)) is None
    nearly_linear = played(FELL, exponent=0.99, exponent_se=0.001)  # uniform play, nearly, over many rounds
    assert checked("growth sublinear", nearly_linear) is None
    assert checked("growth sublinear", played(FELL, exponent=1.11)) is False
    assert checked("growth sublinear", played(FELL, exponent=None, exponent_se=None)) is None


def test_growth_is_below_the_base_models_by_the_errors_of_both():
    for exponent, holds in ((0.85, True), (0.87, None), (1.15, False), (None, None)):
        metrics = played(FELL, exponent=exponent, exponent_se=None if exponent is None else 0.05)
        assert checked("growth below base", metrics) is holds


def test_growth_is_sublinear_only_below_the_exponent_of_uniform_play():
    linear = played(FELL, exponent=0.85)
    linear["algorithms"]["uniform"] = {"exponent": 0.9}
    assert checked("growth sublinear", linear) is None
    lower = played(FELL, exponent=0.74)
    lower["algorithms"]["uniform"] = {"exponent": 0.9}
    assert checked("growth sublinear", lower) is True
    for exponent, holds in ((0.79, None), (1.2, False)):  # where rewards alternate, uniform play has hardly any regret
        bounded = played(FELL, exponent=exponent)
        bounded["algorithms"]["uniform"] = {"exponent": 0.1}
        assert checked("growth sublinear", bounded) is holds


def test_the_error_of_an_exponent_over_few_trainings_is_wider():
    few = played(FELL, exponent=0.83)
    assert checked("growth sublinear", few) is True
    assert checked("growth sublinear", few | {"by_training_seed": [{}] * 5}) is None


def test_rounding_is_no_regret_in_the_growth_of_uniform_play_under_rewards_that_alternate():
    table = draw_rewards(0, "alternating", ["alternating"], (10, 100, 3))
    curve = regret("expected", "hindsight", table, np.full((10, 100, 3), 1 / 3), None).mean(axis=0)
    assert 0 < np.abs(curve[np.abs(curve) < 1]).max() < 1e-9
    exact = np.where(np.abs(curve) < 1, 0, curve)
    assert growth(curve).exponent == growth(exact).exponent
    assert abs(growth(curve).exponent) < 0.1


def test_uniform_play_with_full_information_is_not_called_sublinear():
    table = draw_rewards(0, "uniform", ["gaussian"], (50, 50, 3))
    policies = np.full((50, 50, 3), 1 / 3)
    regrets = regret("expected", "hindsight", table, policies, None)[None]
    uniform = growth(regrets.mean(axis=(0, 1))).exponent
    error = growth_errors(regrets, 50, None, np.random.default_rng(0)).exponent
    assert uniform + 2 * error < 1  # so that 1 is no bound for it
    metrics = played(FELL, exponent=uniform, exponent_se=error)
    metrics["algorithms"]["uniform"] = {"exponent": uniform}
    assert checked("growth sublinear", metrics) is None


def test_a_regret_is_near_another_if_it_is_significantly_at_most_a_quarter_above_it():
    assert checked("regret near", played(FELL, beside=14 / 1.2), of="ucb") is True
    assert checked("regret near", played(FELL, beside=14 / 1.3), of="ucb") is False
    assert checked("regret near", played(FELL, beside=14 / 1.24, se=1.0), of="ucb") is None


def drawn(panel: str, series: str = "curve", **curves: list[float]) -> pd.DataFrame:
    """Return what a figure draws: curves by player."""
    rows = [(panel, player, series, x, y) for player, curve in curves.items() for x, y in enumerate(curve)]
    return pd.DataFrame(rows, columns=["panel", "player", "series", "x", "y"])


def seen(claim: str, frame: pd.DataFrame, n: int = 50, **claimed) -> bool | None:
    """Check one claim on what is drawn of n games."""
    figure = RegretFigure(form="regret", experiments=["x"], evaluations=["e"], players=["trained"])
    metrics = {"x": {"e": played(FELL) | {"n": n}}}
    (found,) = check_claims([PaperClaim(claim=claim, **claimed)], FigureData(figure, metrics, frame, "m"))
    return found.holds


def test_failures_are_compared_where_the_papers_tables_take_them():
    low, high = [0.5] * 97 + [0.1] * 3, [0.0] * 97 + [0.5] * 3  # the order turns at round 98 of 100
    assert seen("failures below base", drawn("suff fail freq", trained=low, base=high)) is True
    assert seen("failures below greedy", drawn("suff fail freq", trained=high, greedy=low)) is False
    assert seen("failures below base", drawn("suff fail freq", trained=low, base=low)) is None
    assert seen("failures below base", drawn("suff fail freq", trained=low, base=high), n=8) is None


def test_early_failures_are_compared_over_the_first_half():
    low, high = [0.1] * 50 + [0.5] * 50, [0.4] * 50 + [0.0] * 50
    assert seen("failures below base early", drawn("suff fail freq", trained=low, base=high)) is True
    assert seen("failures below base early", drawn("suff fail freq", trained=high, base=low)) is False
    assert seen("failures below base early", drawn("suff fail freq", trained=low, base=low)) is None


def test_a_model_whose_games_are_no_evidence_leaves_a_claim_open():
    curves = drawn("suff fail freq", trained=[0.1] * 100, base=[0.6] * 100)
    assert seen("failures below base", curves, without=["other"]) is True
    assert seen("failures below base", curves, without=["m"]) is None


def test_avoidance_is_compared_in_the_first_experiment_where_it_is_because_of_unstable_rewards():
    def shares(panel: str, base: float, trained: float, error: float = 0.01) -> pd.DataFrame:
        share = drawn(panel, f"printed: {SHARE}", base=[base], trained=[trained])
        return pd.concat([share, drawn(panel, f"printed: {SHARE_ERROR}", base=[error], trained=[error])])

    whatever, other = (
        shares("x, a: whatever the reason", 0.1, 0.2),
        shares("y, a: unstable rewards, by words", 0.1, 0.2),
    )
    for trained, error, holds in ((0.1, 0.01, True), (0.3, 0.01, False), (0.2, 0.01, None), (0.1, 0.05, None)):
        rows = [shares("x, a: unstable rewards, by words", 0.2, trained, error), whatever, other]
        assert seen("avoidance below base", pd.concat(rows)) is holds


def test_exploration_rises_and_falls_if_it_ends_well_below_a_peak_inside_the_game():
    assert seen("exploration rises and falls", drawn("min frac", trained=[0, 0.5, 0.9, 0.4])) is True
    assert seen("exploration rises and falls", drawn("min frac", trained=[0, 0.5, 0.9])) is False
    assert seen("exploration rises and falls", drawn("regret", trained=[0, 1, 0])) is None


@pytest.mark.parametrize("n", [16, 50, 200])
def test_endless_uniform_play_does_not_rise_and_fall(n):
    for seed in range(20):
        actions = np.random.default_rng(seed).integers(3, size=(n, 100))
        curve = scaled_min_frac(actions, 3).mean(axis=0)
        assert seen("exploration rises and falls", drawn("min frac", trained=list(curve))) is False


@pytest.mark.parametrize(("last", "exploits"), [(0.3, True), (0.9, False)])
def test_the_base_model_exploits_where_it_plays_its_least_played_action_little(last, exploits):
    frame = drawn("gaussian: min frac", base=[0.0, 0.6, last], trained=[0.0, 0.9, 0.9])
    assert seen("base exploits", frame) is exploits


def test_a_distance_has_vanished_at_a_tenth_of_its_first_value():
    assert seen("distances vanish", drawn("simplex", a=[1.0, 0.09], b=[2.0, 0.2])) is True
    assert seen("distances vanish", drawn("simplex", a=[1.0, 0.09], b=[2.0, 0.21])) is False
    for left, is_ftrl in (
        (0.5, True),
        (0.05, False),
    ):  # of the step, which is no distance: without one there is no FTRL
        step = drawn("simplex", **{"a": [1.0, 0.09], "$|c|$, the step size": [1.0, left]})
        assert seen("distances vanish", step) is is_ftrl


@pytest.mark.parametrize(("entropy", "high"), [(0.85, True), (0.5, False)])
def test_entropy_is_high_or_low_of_every_panel(entropy, high):
    trained = drawn("gaussian", "printed: mean entropy over log d", trained=[entropy], base=[0.9])
    assert seen("entropy stays", trained) is high
    base = drawn("gaussian", "printed: mean entropy over log d", trained=[0.9], base=[entropy])
    assert seen("base entropy low", base) is not high


def test_a_loss_rises_again_if_it_ends_above_the_first_iterations():
    def losses(*values: float) -> pd.DataFrame:
        frame = drawn("x", Loss=list(values))
        return frame.assign(x=frame["x"] + 1)

    assert seen("loss rises again", losses(1.0, 0.8, 1.2)) is True
    assert seen("loss rises again", losses(1.0, 0.8, 0.7)) is False
    assert seen("loss rises again", losses(1.0)) is None


@pytest.mark.parametrize(
    ("holds", "note", "verdict"),
    [
        ([True, True], None, REPRODUCED),
        ([True, True], "scale demo", DIRECTION_ONLY),
        ([True, None], None, INCONCLUSIVE),
        ([True, None, False], None, NOT_REPRODUCED),
        ([], None, ILLUSTRATION),
    ],
)
def test_a_figure_is_as_good_as_its_weakest_claim(holds, note, verdict):
    claims = [CheckedClaim("claim", of, []) for of in holds]
    assert figure_verdict(claims, note, in_paper=True) == verdict
    assert figure_verdict(claims, note, in_paper=False) == OURS


def tidy(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """Return a table of (reward, player, verdict)."""
    frame = pd.DataFrame(rows, columns=["reward", "player", "verdict"])
    return frame.assign(statistic="slope", ours=1.0, standard_error=0.1, paper=2.0)


def test_a_table_is_as_good_as_the_weakest_value_of_its_trained_model():
    rows = ("a", "trained", REPRODUCED), ("b", "trained", DIRECTION_ONLY), ("a", "ftl", NOT_REPRODUCED)
    assert table_verdict(tidy(*rows), in_paper=True) == DIRECTION_ONLY
    assert table_verdict(tidy(*rows[2:]), in_paper=True) == NOT_REPRODUCED
    assert table_verdict(tidy(*rows), in_paper=False) == OURS
    assert table_verdict(tidy(("a", "trained", "")), in_paper=True) == INCONCLUSIVE


def test_a_known_contradiction_explains_the_rows_it_names_where_they_are_not_reproduced_and_no_others():
    table = tidy(("a", "ftl", NOT_REPRODUCED), ("a", "ftl", REPRODUCED), ("b", "ftl", NOT_REPRODUCED))
    found = explain(table, [KnownIssue(reason="why", rows={"reward": ["a"]}), KnownIssue(reason="shown, and no more")])
    assert list(found["verdict"]) == [INCONSISTENT, REPRODUCED, NOT_REPRODUCED]
    assert list(found["reason"]) == ["why", "", ""]


def test_no_known_issue_excuses_a_value_of_a_model(texts):
    issues = [issue for of_table in texts[1].tables.values() for issue in of_table if issue.rows]
    players = [set(issue.rows.get("player", ["trained"])) for issue in issues]
    assert not [named for named in players if named & {"trained", "base"}]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), ("<0.001", "<0.001"), (12.345, "12.35"), (-0.5, "−0.500"), (1481, "1,481")],
)
def test_numbers_have_as_many_decimals_as_a_reader_can_use(value, text):
    assert number(value) == text


def test_a_difference_has_its_sign():
    assert (difference(0.25), difference(-0.25), difference(0)) == ("+0.250", "−0.250", "0")


@pytest.mark.parametrize(
    ("label", "text"), [(r"FTRL $\eta_{25}$", "FTRL η_25"), (r"$\|\mathbf{A}\|_F\,\|\mathbf{b}\|_2$", "‖A‖_F ‖b‖_2")]
)
def test_a_legends_label_can_be_read_aloud(label, text):
    assert plain(label) == text


def test_no_text_of_a_model_closes_the_element_that_holds_it():
    assert "<" not in json_text({"reply": "</script><script>alert(1)</script>"})


def answered(*differences: tuple[float, float, float]) -> str:
    """Return the headline of evaluations with these differences."""
    rows = [{"base": 20.0, "trained": 20.0 + of[1], "interval": [*of], "p": p_of(of)} for of in differences]
    return Answer(numeric=False, groups=[Group("Bandits", "m", rows, [], set())]).headline


def test_the_answer_claims_no_more_than_the_evaluations_carry():
    assert answered(FELL, FELL) == "yes, in every evaluation"
    assert answered(*[FELL] * 6, *[UNSURE] * 4) == "yes in most evaluations"
    assert answered(*[FELL] * 6, ROSE, *[UNSURE] * 3) == "yes in most evaluations; in 1 it raises regret"
    barely = (-6.0, -3.0, -0.1)
    assert answered(*[barely] * 2, *[UNSURE] * 8) == "one cannot tell from this build"  # chance may give one of ten
    assert answered(barely) == "yes, in every evaluation"
    assert answered(FELL, ROSE, ROSE) == "no, it more often raises regret"
    assert answered(UNSURE) == "one cannot tell from this build"


def test_every_claim_has_words():
    assert IN_WORDS.keys() == CHECKS.keys()


# --- The pages ---


def put_figure(label: str, frame: pd.DataFrame) -> None:
    """Write a figure of nothing, with these numbers."""
    Drawing(Canvas(), frame, None, dpi=50).save(Path(f"results/figures/{label}"))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return the folder of both pages: three figures, two tables, and many games, one of them with hostile text."""
    home, experiment = tmp_path_factory.mktemp("site"), "open_mab_gemma"
    with pytest.MonkeyPatch.context() as here:
        here.chdir(home)
        shutil.copytree(ROOT / "data/report", "data/report")
        Path("docs").mkdir()
        shutil.copy(ROOT / paths.GLOSSARY, "docs")
        whole = report_job(PARAMS, FULL_SIZE)
        held_out = {whole.story[1]: whole.in_words[experiment].held_out[whole.story[1]]}
        shorter = {"iterations": 1, "T": 20, "held_out": held_out}
        job = whole.model_copy(
            update={
                "figures": {
                    **{label: whole.figures[label] for label in ("tfbandit", "sdm-example", "luck-in-hindsight")},
                    "my-figure": whole.figures["sdm-example"],
                },
                "figure_notes": {**whole.figure_notes, "my-figure": None},
                "tables": {label: whole.tables[label] for label in ("simplex-table", "rivals-at-25")},
                "in_words": {experiment: whole.in_words[experiment].model_copy(update=shorter)},
                "trajectories": MANY,
            }
        )
        write_games(job, experiment)
        curves = drawn("suff fail freq", trained=[0.1] * 9, base=[0.2] * 9, greedy=[0.3] * 9)
        for label in job.figures:
            put_figure(label, curves)
        metrics = played(FELL)
        metrics["algorithms"] = {name: {"mean": 30.0} for name in ("ucb", "exp3", "greedy", "uniform")}
        variant = "numeric_mab_logits_normalised"
        write_json(Path("results/metrics.json"), {name: {"gaussian": metrics} for name in ("numeric_mab", variant)})
        rows = [("gaussian", player, "slope", 0.2, 0.01, 0.3, NOT_REPRODUCED) for player in ("trained", "ftl")]
        table = pd.DataFrame(rows, columns=["reward", "player", *VALUES])
        write_csv(Path("results/tables/simplex-table.csv"), table)
        write_text(Path("results/tables/simplex-table.md"), "# Title\n\n- a note <b>below</b>\n")
        write_csv(Path("results/tables/rivals-at-25.csv"), table.assign(paper=None, verdict=None))
        write_text(
            Path("results/tables/rivals-at-25.md"), "# Title\n\n| method | regret |\n|:--|:--|\n| GRPO | 21 ± 1 |\n"
        )
        files = {path.as_posix(): path for path in Path().rglob("*") if path.is_file()}
        write_text(Path("results/report.html"), page(job, files))
        write_text(Path("results/smoke.html"), page(job.model_copy(update={"scale": "smoke"}), files))
        write_text(Path("results/trajectories.html"), viewer(job, files))
    return home / "results"


def write_games(job: ReportJob, experiment: str) -> None:
    """Write many games of one iteration, the selection among them, and the evaluation that the story shows."""
    folder = Path(paths.iteration_of(experiment, 0, 0))
    played = games(MANY)
    played["reply"][0][0] = "</script><img src=https://example.org/x onerror=alert(1)>"
    write_trajectories(folder / "rollouts.parquet", played)
    scoring = Scoring(PARAMS.experiments[experiment].environment, "realized")
    ranked = select([played], scoring, selected=1, seed=0, words="test")
    write_selection(folder / "selection.parquet", ranked)
    held_out = {name: held_out_games(name) for name in job.in_words[experiment].held_out[job.story[1]]}
    for name, path in job.in_words[experiment].held_out[job.story[1]].items():
        write_trajectories(Path(path), held_out[name])
    rewards = table_of(held_out["base"])
    models = [("base", 0, held_out["base"]), ("trained", 0, held_out["trained-0"])]
    columns = evaluate_in_words(
        Instances(rewards, "gaussian", 0, "mab", "nominal"), models, {"ucb": AlgorithmSettings("ucb")}
    )
    write_evaluation(Path(paths.evaluation_of(*job.story)), columns)


def held_out_games(player: str) -> dict[str, list]:
    """Return the games of seven instances of five rounds; the trained model plays well in the last one alone."""
    played = games(7, horizon=5)
    best = np.array(played["means"]).reshape(7, 5, 3).mean(axis=1).argmax(axis=1)
    actions = [[int(best[i]) if (player, i) == ("trained-0", 6) else int((best[i] + 1) % 3)] * 5 for i in range(7)]
    replies = [[f"{player}-{i}-{t}" for t in range(1, 6)] for i in range(7)]
    policies = [np.eye(3)[of].ravel().tolist() for of in actions]
    return played | {"scenario": [*range(7)], "action": actions, "policy": policies, "reply": replies}


@pytest.fixture
def opened(browser, site):
    """Return a function that opens a page where nothing but its own file can be reached, and nothing may go wrong."""
    wrong, contexts = [], []

    def open_page(name: str, *, anchor: str = "", width: int = 1280, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        tab = context.new_page()
        own = (site / f"{name}.html").as_uri()
        tab.on("request", lambda request: request.url.startswith((own, "data:")) or wrong.append(request.url))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        tab.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
        tab.goto(own + anchor)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


PAGES = ("report", "trajectories")


def test_a_table_of_which_the_paper_has_no_values_shows_its_own(opened):
    table = opened("report").locator("#table-rivals-at-25 table")
    assert table.locator("th, td").all_text_contents() == ["method", "regret", "GRPO", "21 ± 1"]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_are_accessible_and_fit_their_window(opened, name, width, scheme):
    tab = opened(name, width=width, scheme=scheme)
    if name == "trajectories":
        tab.wait_for_selector(".turn")
    for details in tab.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    audit = Axe().run(tab).response
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in audit["violations"]] == []
    assert len(audit["passes"]) > 10  # the audit did run
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", PAGES)
def test_the_theme_is_the_readers_until_the_button_is_pressed(opened, name):
    tab = opened(name, scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(colour)
    tab.click("#theme")
    assert tab.evaluate(colour) != dark
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    tab.click("#theme")
    assert tab.evaluate(colour) == dark


def test_every_figure_and_table_is_there_with_its_verdict_scale_data_and_alternative_text(opened):
    tab = opened("report")
    verdicts = {
        article.get_attribute("id"): article.get_attribute("data-verdict") for article in tab.locator("article").all()
    }
    assert verdicts == {
        "figure-tfbandit": INCONCLUSIVE,  # d · MinFrac is not among what was drawn
        "figure-sdm-example": ILLUSTRATION,
        "figure-luck-in-hindsight": OURS,
        "figure-my-figure": OURS,
        "table-simplex-table": NOT_REPRODUCED,
        "table-rivals-at-25": OURS,
    }
    values = tab.locator("#table-simplex-table tbody .verdict").all_text_contents()
    assert values == [NOT_REPRODUCED, INCONSISTENT]  # FTL's under Gaussian rewards is explained
    bandit = tab.locator("#figure-tfbandit")
    assert "2014−6 [−9, −3]" in bandit.locator("tbody tr").first.text_content()
    assert "suff fail freq" in bandit.locator("img").get_attribute("alt")
    assert "The paper's size" in bandit.text_content()
    luck = tab.locator("#figure-luck-in-hindsight")
    assert "embedded in place of" in luck.text_content()
    assert luck.locator('a[href="trajectories.html#open_mab_gemma/0"]').count() == 1
    links = [link.get_attribute("href") for link in bandit.locator(".files a").all()]
    assert links == ["figures/tfbandit.pdf", "figures/tfbandit.png", "figures/tfbandit.csv", "#figure-tfbandit"]


def test_a_reader_finds_a_figure_by_keyboard_alone(opened):
    tab = opened("report")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.type("luck hindsight")
    assert tab.locator("article:visible").count() == 1
    assert tab.locator("#found").text_content() == "1 of 6"
    assert tab.locator(".contents h3:visible").count() == 1
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "figure-luck-in-hindsight"
    tab.keyboard.press("/")
    tab.keyboard.type("no such thing")
    assert tab.locator("#nothing").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("article:visible").count() == 6


def test_a_verdict_can_be_shown_alone(opened):
    tab = opened("report")
    chip = tab.locator(f'[data-filter="{NOT_REPRODUCED}"]')
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert [of.get_attribute("id") for of in tab.locator("article:visible").all()] == ["table-simplex-table"]
    chip.click()
    assert tab.locator("article:visible").count() == 6


def test_what_a_link_names_is_open_and_a_printed_page_has_everything(opened):
    tab = opened("report")
    shown = tab.locator("#table-simplex-table tbody")
    assert not shown.is_visible()
    tab.evaluate("location.hash = '#table-simplex-table'")
    expect(shown).to_be_visible()
    assert not tab.locator("#figure-tfbandit img").is_visible()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("article img:not([alt=''])").evaluate_all("all => all.every((one) => one.offsetHeight > 0)")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not tab.locator("#figure-tfbandit img").is_visible()


def test_every_link_within_the_page_leads_to_something(opened):
    tab = opened("report")
    anchors = tab.locator("a[href^='#']").evaluate_all("all => all.map((one) => one.getAttribute('href').slice(1))")
    assert {"term-minfrac", "term-sufffailfreq", "term-regret"} <= {*anchors}
    assert [anchor for anchor in anchors if tab.locator(f"[id='{anchor}']").count() != 1] == []
    rows = tab.locator("#figure-tfbandit tbody a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert rows[0] == "experiments/numeric_mab/evaluation/gaussian.parquet"


def test_on_a_phone_a_figure_opens_at_full_size_and_a_wide_table_says_that_it_scrolls(opened):
    tab = opened("report", anchor="#figure-tfbandit", width=390)
    expect(tab.locator("#figure-tfbandit .scroll.wide")).to_have_count(1)
    image = tab.locator("#zoom img")
    assert not image.is_visible()
    tab.locator("#figure-tfbandit .zoom").press("Enter")
    expect(image).to_be_visible()
    assert image.evaluate("one => one.offsetWidth === one.naturalWidth")
    assert image.get_attribute("alt") == tab.locator("#figure-tfbandit img").get_attribute("alt")
    tab.keyboard.press("Escape")
    assert not image.is_visible()


def test_the_page_opens_with_the_answer_and_what_it_rests_on(opened):
    answer = opened("report").locator("#answer").inner_text()
    for part in (
        "yes, in every evaluation",
        "lower in 2 of 2 evaluations",
        "over 50 instances",
        "trained once",
        "−30%",
    ):
        assert part in answer


def test_at_smoke_scale_nothing_is_judged(opened):
    tab = opened("smoke")
    assert tab.locator(".verdict, .sign, [data-filter], .share, .answer").count() == 0
    text = tab.locator("main").text_content()
    assert "No answer and no verdicts at scale smoke" in text
    assert not re.search("reproduced|inconclusive|does not hold|significantly", text)


def test_the_lineage_of_a_figure_opens_where_it_is(opened):
    tab = opened("report", anchor="#figure-tfbandit")
    tab.locator("#figure-tfbandit .lineage > summary").click()
    assert "no record" in tab.locator("#figure-tfbandit .lineage .leaf").text_content()


def test_of_many_games_few_rows_exist_at_a_time_wherever_the_list_is(opened):
    tab = opened("trajectories")
    tab.wait_for_selector(".turn")
    assert f"{MANY} games" in tab.locator("#count").text_content()
    for scrolled, row in ((0, 0), (10_000, 230), (10**9, MANY - 1)):
        tab.evaluate("top => { document.querySelector('#list').scrollTop = top; }", scrolled)
        tab.wait_for_selector(f"#game-{row}")
        assert 0 < tab.locator(".game").count() <= ROWS
    assert len(tab.locator("script[type='text/plain']").all()) == MANY // 2 + 5  # unpacked one by one


def test_games_are_chosen_by_arrow_keys_and_rounds_too(opened):
    tab = opened("trajectories")
    tab.wait_for_selector(".turn")
    tab.locator("#list").focus()
    for key, title in (
        ("ArrowDown", "Scenario 0, game 1"),
        ("End", f"Scenario {MANY // 2 - 1}, game 1"),
        ("Home", "Scenario 0, game 0"),
    ):
        tab.keyboard.press(key)
        expect(tab.locator("#title")).to_have_text(title)
        chosen = tab.locator(f"#{tab.locator('#list').get_attribute('aria-activedescendant')}")
        assert chosen.get_attribute("aria-selected") == "true"
        assert chosen.is_visible()
    tab.locator("#round").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".turn.now h3").text_content() == "round 2"


def test_a_game_is_shown_with_its_rewards_and_the_reason_for_its_selection(opened):
    tab = opened("trajectories")
    tab.wait_for_selector(".turn")
    game = {name: column[1] for name, column in games(MANY).items()}
    tab.locator("#game-1").click()
    expect(tab.locator("#title")).to_have_text("Scenario 0, game 1")
    turns = tab.locator(".turn")
    assert turns.count() == 20
    for t in (0, 19):
        text = turns.nth(t).text_content()
        assert game["prompt"][t] in text
        assert game["reply"][t] in text
        assert f"action {game['action'][t] + 1} paid {game['rewards'][3 * t + game['action'][t]]:.2f}" in text
    final = sum(
        max(game["means"][3 * t : 3 * t + 3]) - game["rewards"][3 * t + a] for t, a in enumerate(game["action"])
    )
    why = tab.locator("#why").text_content()
    assert f"regret of {final:.2f}".replace("-", "−") in why
    selected = tab.locator("#game-1 .kept").count() == 1
    assert why.startswith("Selected" if selected else "Not selected")


def test_replies_are_shown_and_never_run(opened):
    tab = opened("trajectories")
    tab.wait_for_selector(".turn")
    assert tab.locator(".reply").first.text_content().startswith("</script><img src=https://")
    assert tab.locator("img").count() == 0


def test_selected_games_can_come_first_and_a_scenario_can_be_seen_alone(opened):
    tab = opened("trajectories")
    tab.select_option("#order", "selected")
    tab.wait_for_selector("#game-0 .kept")
    assert tab.locator("#game-1 .kept").count() == 1
    tab.select_option("#scenario", "7")
    expect(tab.locator("#title")).to_have_text(re.compile("Scenario 7,"))
    assert tab.locator(".game").count() == 2


def test_an_address_with_a_game_in_it_opens_that_game(opened, site):
    tab = opened("trajectories")
    tab.wait_for_selector(".turn")
    tab.goto(f"{(site / 'trajectories.html').as_uri()}#open_mab_gemma/0/3/1")
    tab.reload()
    expect(tab.locator("#title")).to_have_text("Scenario 3, game 1")


def test_two_held_out_games_stand_side_by_side_on_an_instance_that_a_link_names(opened):
    tab = opened("trajectories", anchor="#open_mab_gemma/gaussian-50/2")
    expect(tab.locator("#title")).to_have_text("Instance 2, base beside trained-0")
    assert tab.locator(".game").count() == 5  # the first four of seven, and the one that differs most
    rows = tab.locator(".rounds tbody tr")
    assert rows.count() == 5
    for t in range(5):
        cells = rows.nth(t).locator("td").all_text_contents()
        for name, cell in zip(("base", "trained-0"), cells, strict=False):
            game = {key: column[2] for key, column in held_out_games(name).items()}
            action = game["action"][t]
            assert f"action {action + 1} paid {game['rewards'][3 * t + action]:.2f}" in cell
            assert f"{name}-2-{t + 1}" in cell
    tab.select_option("#right", "ucb")
    expect(tab.locator("#title")).to_have_text("Instance 2, base beside ucb")
    tab.locator(".game", has_text="differs most").click()
    tab.select_option("#right", "trained-0")
    expect(tab.locator("#title")).to_have_text("Instance 6, base beside trained-0")
    assert "trained-0 has less regret" in tab.locator("#why").text_content()


# --- In the workflow ---


@pytest.mark.xdist_group("workflow")
def test_the_built_report_has_every_output_with_lineage_to_the_sources(built):
    params = values_in(built / "rmft")
    text = (built / "rmft/results/report.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'<article id="([^"]+)"', text))
    assert ids == {
        *(f"figure-{label}" for label in params["figures"]["drawn"]),
        *(f"table-{label}" for label in params["tables"]),
        *(f"recorded-{figure.stem}" for figure in (ROOT / "data/recorded").glob("*/figures/*.png")),
    }
    links = set(re.findall(r'href="((?:figures|tables)/[^"]+|trajectories\.html)"', text))
    assert all((built / "rmft/results" / link).is_file() for link in links)
    assert "no record" not in text
    assert '"data/rewards/gaussian.npz":["reward_set"' in text


@pytest.mark.xdist_group("workflow")
def test_a_readers_clicks_lead_from_a_figure_to_the_rewards_it_rests_on(built, browser):
    tab = browser.new_page()
    tab.goto((built / "rmft/results/report.html").as_uri() + "#figure-tfbandit")
    tree = tab.locator("#figure-tfbandit .lineage")
    tree.locator("> summary").click()
    for file in ("results/experiments/numeric_mab/evaluation/gaussian.parquet", "data/rewards/gaussian.npz"):
        step = tree.locator("summary, .leaf").filter(has_text=file).first
        step.wait_for()
        if step.evaluate("element => element.tagName") == "SUMMARY":
            step.click()
    assert "by reward_set" in step.text_content()
    tab.close()
