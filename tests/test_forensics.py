"""`rmft forensics`: the joint test, the correction, the readings of processes, and the committed answers."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from trees import ROOT

from rmft.artifacts.json_files import read_jsonl
from rmft.errors import InputError
from rmft.tools import forensics
from rmft.tools.forensics.fits import LEVEL, Region, answers, chance
from rmft.tools.forensics.questions import Question, paper_values, read_questions
from rmft.tools.forensics.readings import MEANS, READINGS, SAME, VARIANCES, draw, gaussian, processes_named, sine
from rmft.tools.forensics.sweeps import AXES, COLUMNS, Sweep, Sweeps, read_sweeps, sweep

ALTERNATING = {
    "table": "FOL-ood-reward",
    "where": {"reward": "alternating", "player": "ftrl"},
    "process": "alternating",
    "d": 3,
    "T": 15,
    "instances": 50,
    "algorithm": "ftrl",
    "statistics": ["max", "mean"],
}


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    """Work in the repository, whose data the tool reads."""
    monkeypatch.chdir(ROOT)


# --- The statistics ---


def test_p_is_uniform_for_one_more_group_of_the_same_reading():
    random = np.random.default_rng(0)
    mix = random.normal(size=(3, 3))
    p = [
        float(Region(mix @ random.normal(size=(3, 12)), np.zeros(3)).p(mix @ random.normal(size=3)))
        for _ in range(4000)
    ]
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_values_that_never_vary_fit_up_to_half_a_unit_of_the_last_digit():
    region = Region(np.full((1, 200), 6.19), np.array([0.005]))
    assert region.p(np.array([6.194])) > LEVEL > region.p(np.array([6.21]))


def test_chance_is_the_share_of_the_box_that_some_region_covers():
    random = np.random.default_rng(1)
    centres = [np.array([0.0, 0.0]), np.array([10.0, 10.0]), np.array([10.0, 0.0])]
    regions = [Region(centre[:, None] + random.normal(size=(2, 4000)), np.zeros(2)) for centre in centres]
    quarter_of_a_disc = np.pi * stats.chi2.ppf(1 - LEVEL, 2) / 4  # each centre is a corner of the box of side 10
    assert chance(regions, 0) == pytest.approx(3 * quarter_of_a_disc / 100, rel=0.08)


def test_the_documented_reading_of_a_row_that_follows_fits_and_other_steps_do_not():
    question = Question(title="", text="", rows=[ALTERNATING], readings={"eta": [None, "T=50", "anytime"]})
    documented, *others = answers("a", question, 20, 0, lambda: None)
    assert documented["reading"] == {}
    assert documented["p"] > LEVEL
    assert documented["ours"] == pytest.approx([6.19, 6.19], abs=0.005)
    assert [line["reading"] for line in others] == [{"eta": "T=50"}, {"eta": "anytime"}]
    assert max(line["p"] for line in others) < 1e-6


# --- Readings of processes ---


@pytest.mark.parametrize("name", sorted(SAME))
def test_a_reading_that_is_left_out_is_a_process_of_rmft(name):
    """Each has the distribution of some documented or named process, so that it need not be tried twice."""
    processes = {
        "gaussian: means N(5, 1), variances 1, 3, 10 for each round": "gaussian",
        "gaussian: means N(5, 1), variance 1": "gaussian-unit",
        "gaussian: means U(0, 10), variance 1": "gaussian-wide-unit",
        "gaussian: means U(0, 10), variances 1, 9, 100 for each round": "gaussian-wide-mixed",
        "sine-trend: frequencies to 10, t from 1": "sine-trend",
        "noisy-alternating: turn fading, others U[9, 10], cyclic, t from 1": "noisy-alternating",
    }
    from rmft.tools.forensics import readings

    every = readings._gaussians() | readings._sines() | readings._noisy_alternating()
    ours = every[name](lambda *words: np.random.default_rng([1, *map(ord, "".join(map(str, words)))]), 6000, 4, 3)
    theirs = draw(0, "same", processes[name], (6000, 4, 3))
    for aspect in (lambda r: r[:, 1, 0], lambda r: r[:, 1, 0] - r[:, 2, 0], lambda r: r[:, 1, 0] - r[:, 1, 2]):
        sample, expected = (aspect(table.rewards).round(9) for table in (ours, theirs))
        assert stats.ks_2samp(sample, expected).pvalue > 1e-4


@pytest.mark.parametrize("name", sorted(READINGS))
def test_every_reading_draws_rewards_that_are_the_same_for_the_same_streams(name):
    one, other = (draw(0, "again", name, (5, 6, 3)).rewards for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (5, 6, 3)
    assert np.isfinite(one).all()


@pytest.mark.parametrize(
    ("drawn", "equal"), [("round", (True, False)), ("action", (False, False)), ("game", (True, True))]
)
def test_a_variance_is_drawn_for_each_round_or_action_or_game(drawn, equal):
    """Of |noise|, the rank correlation between two actions of a round, and two rounds of an action."""
    streams = lambda *words: np.random.default_rng(len(words[0]))  # noqa: E731
    mixed = gaussian(streams, 4000, 2, 2, means="N(5, 1)", variances="1, 9, 100", drawn=drawn, clipped=False).rewards
    noise = np.abs(mixed - 5)
    together = (noise[:, 0, 0], noise[:, 0, 1]), (noise[:, 0, 0], noise[:, 1, 0])
    assert tuple(stats.spearmanr(*pair).statistic > 0.15 for pair in together) == equal


def test_actions_can_share_the_frequency_or_the_phase_of_their_sines():
    streams = lambda *words: np.random.default_rng(len(words[0]))  # noqa: E731
    wave = sine(streams, 50, 9, 3, highest=0.3, rounds="from 0", common="phase").rewards
    np.testing.assert_allclose(wave[:, 0], wave[:, 0, :1].repeat(3, axis=1))  # at t = 0 only the phase counts
    assert (wave[:, 5].std(axis=1) > 0).all()


def test_a_pattern_names_every_reading_of_a_process_once():
    found = processes_named(["gaussian", "gaussian*"])
    assert found[0] == "gaussian"
    assert len(found) == len(set(found))
    singles = sum(len(of) == 1 for of in VARIANCES.values())
    mixtures = len(VARIANCES) - singles
    assert len([name for name in found if name.startswith("gaussian")]) == len(MEANS) * 2 * (singles + 3 * mixtures)


# --- The committed answers ---


def test_the_page_is_up_to_date():
    forensics.check_page()


@pytest.mark.parametrize("name", ["beta-hat-of-section-4", "ball-interchanged"])
def test_an_answer_is_what_the_code_finds_today(name):
    asked = read_questions(ROOT / forensics.QUESTIONS)
    kept = [line for line in read_jsonl(ROOT / forensics.FITS) if line["question"] == name]
    found = answers(name, asked.questions[name], asked.groups, 0, lambda: None)
    assert [line["reading"] for line in found] == [line["reading"] for line in kept]
    for ours, theirs in zip(found, kept, strict=True):
        np.testing.assert_allclose(ours["ours"], theirs["ours"], rtol=1e-3)


def test_a_page_that_does_not_match_its_data_is_refused(monkeypatch, tmp_path):
    stale = tmp_path / "forensics.md"
    stale.write_text((ROOT / "docs/forensics.md").read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    monkeypatch.setattr(forensics, "PAGE", stale)
    with pytest.raises(InputError, match="is not up to date"):
        forensics.check_page()


def test_a_question_that_was_edited_has_no_answer_until_it_is_asked_again(monkeypatch, tmp_path):
    text = (ROOT / forensics.QUESTIONS).read_text(encoding="utf-8")
    edited = tmp_path / "questions.yaml"
    edited.write_text(text.replace("instances: 100", "instances: 101", 1), encoding="utf-8")
    monkeypatch.setattr(forensics, "QUESTIONS", edited)
    with pytest.raises(InputError, match=r"as .*questions\.yaml asks it now; run rmft forensics"):
        forensics.check_page()


def test_a_sweep_is_trained_again_without_losing_the_others(monkeypatch, tmp_path):
    rows = forensics.read_csv(ROOT / forensics.TRAINED, COLUMNS).to_dict("records")
    kept = tmp_path / "sweeps.csv"
    kept.write_bytes((ROOT / forensics.TRAINED).read_bytes())
    monkeypatch.setattr(forensics, "TRAINED", kept)

    def interrupted(_sweeps: object, name: str, _seed: int) -> list[dict[str, object]]:
        if name != rows[0]["sweep"]:
            raise KeyboardInterrupt
        return [row for row in rows if row["sweep"] == name]

    monkeypatch.setattr(forensics, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forensics.train()
    assert kept.read_bytes() == (ROOT / forensics.TRAINED).read_bytes()


def test_every_committed_sweep_is_complete():
    sweeps = read_sweeps(ROOT / forensics.SWEEPS)
    frame = forensics.read_csv(ROOT / forensics.TRAINED, COLUMNS)
    for name, of in sweeps.sweeps.items():
        expected = len(of.iterations) * len(of.rewards) * np.prod([len(of.readings[axis]) for axis in AXES])
        assert len(frame[frame["sweep"] == name]) == expected


def test_a_sweep_trains_under_each_reading_and_tells_the_step_on_rewards_in_0_to_1():
    readings = {
        "process": ["gaussian"],
        "perturb": ["logits"],
        "variance": [1.0],
        "normalise": [False, True],
        "initialisation": [1.0],
        "trajectories": [2],
    }
    one = Sweep(
        title="",
        text="",
        experiment="numeric_simplex",
        rewards={"uniform": "uniform"},
        readings=readings,
        iterations=[1],
    )
    raw, normalised = sweep(Sweeps(training_seeds=1, instances=20, T=10, sweeps={"a": one}), "a", 0)
    assert list(raw) == [*COLUMNS]
    assert raw["distances"] == 1
    # One Adam step moves a parameter by no more than the learning rate, .01, so both models still are near the base.
    assert 5 < raw["step"] / normalised["step"] < 20


# --- Mistakes ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"readings": {"speed": [1]}}, "readings: a row has no speed"),
        ({"rows": []}, "rows"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_its_key(tmp_path, changes, message):
    question = {"title": "", "text": "", "rows": [ALTERNATING], "readings": {}} | changes
    path = tmp_path / "questions.yaml"
    forensics.write_text(path, str({"groups": 2, "questions": {"one": question}}))
    with pytest.raises(InputError, match=message):
        read_questions(path)


def test_names_of_nothing_are_refused():
    with pytest.raises(InputError, match="forensics: unknown 'nosuch'; one of gaussian-section-4"):
        forensics.answer(["nosuch"])
    with pytest.raises(InputError, match="'nosuch' names no process"):
        processes_named(["nosuch"])
    with pytest.raises(InputError, match="no such table"):
        paper_values("nosuch", {})
    with pytest.raises(InputError, match="no row has"):
        paper_values("simplex-table", {"player": "nosuch"})
    with pytest.raises(InputError, match="no column speed"):
        paper_values("simplex-table", {"speed": "1"})
    assert Path(forensics.FITS).exists()
