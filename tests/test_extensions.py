"""Files of a user's own: what they may register, and that whatever is wrong in one is a line that names it."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import uniforms

from rmft import extensions
from rmft.algorithms import ALGORITHMS, AlgorithmSettings, check_algorithm, check_settings, start_on
from rmft.environments import check_processes, draw_rewards
from rmft.environments.processes import CONTEXTUAL, TABULAR
from rmft.environments.tables import ContextualTable
from rmft.errors import InputError
from rmft.extensions.methods import METHODS
from rmft.game import play
from rmft.lineage.code import fingerprint
from rmft.params import load
from rmft.stages.method import check_tuned
from rmft.training.learner import FineTuned
from rmft.workflow import records
from rmft.workflow.plan import evaluation_job, rewards_job
from rmft.workflow.records import RewardsJob

ROOT = Path(__file__).parents[1]
IMPORTS = """
import numpy as np
from rmft.environments.tables import ContextualTable, RewardTable
from rmft.extensions import algorithm, process
"""
STEADY = """
@process("steady", environments=["mab", "fol"])
def steady(streams, n, horizon, d):
    means = np.repeat(streams("parameters").uniform(0, 10, (n, 1, d)), horizon, axis=1)
    return RewardTable(means, means, means)
"""
LAST = """
@algorithm("last", environments=["mab"])
class Last:
    deterministic = True
    def __init__(self, n, horizon, d, streams, skip=1):
        self.choice = np.zeros((n, d))
        self.choice[:, -skip] = 1
    def policy(self):
        return self.choice
    def observe(self, revealed, rewards):
        pass
"""
SHOWN = """
@process("shown", environments=["cb"])
def shown(streams, n, horizon, d, p):
    contexts = np.stack([streams("context", t).random((n, p)) for t in range(horizon)], axis=1)
    means = np.repeat(10 * contexts[:, :, :1], d, axis=2) / np.arange(1, d + 1)
    return ContextualTable(means, means, means, contexts)

@algorithm("looks", environments=["cb"])
class Looks:
    deterministic = True
    def __init__(self, n, horizon, d, streams):
        self.d = d
    def see(self, contexts):
        self.contexts = contexts
    def policy(self):
        return np.eye(self.d)[(self.contexts[:, 0] > 0.5).astype(int)]
    def observe(self, revealed, rewards):
        pass
"""

BOUNDED = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Annotated
from pydantic import Field
from rmft.extensions import method

Beta = Annotated[float, Field(ge={least})]

@dataclass(frozen=True)
class Settings:
    beta: Beta

@method("{name}", Settings)
def train(job, trajectories, selection, start, report):
    pass
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes an extension and loads it; forget it in the end."""
    monkeypatch.chdir(tmp_path)

    def write(*parts: str) -> str:
        Path("mine.py").write_text("".join(parts), encoding="utf-8")
        extensions.load(["mine.py"])
        return "mine.py"

    yield write
    extensions.forget("mine.py")


def test_what_a_method_returns_is_a_model_that_can_play():
    for tuned, says in (
        (None, "m.py: method 'm' must return a FineTuned of rmft.training.learner, not NoneType"),
        (
            FineTuned({"bias": torch.tensor([1.0, math.nan])}, {}, [{"loss": 1.0}]),
            "m.py: method 'm': bias is not finite",
        ),
        *(
            (FineTuned({"bias": torch.ones(2)}, {}, log), "m.py: method 'm': the log of its FineTuned must be a list")
            for log in ([], [1.0], iter([{"loss": 1.0}]), [{"loss": torch.ones(2)}])
        ),
        *(
            (FineTuned(tensors, {}, [{"loss": 1.0}]), "m.py: method 'm': the tensors of its FineTuned must be")
            for tensors in ({}, None, {"bias": np.ones(2)}, {1: torch.ones(2)})
        ),
        (FineTuned({"bias": torch.ones(2)}, {"k": 1}, [{"loss": 1.0}]), "the metadata of its FineTuned must be"),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            check_tuned("m.py: method 'm'", tuned)
    assert check_tuned("m.py: method 'm'", FineTuned({"bias": torch.ones(2)}, {}, [{"loss": 1.0}])) is None


def test_a_process_belongs_where_it_says_and_draws_what_it_draws(written):
    written(IMPORTS, STEADY)
    check_processes("mab", ["steady", "gaussian"])
    with pytest.raises(InputError, match="does not belong in ns-mab"):
        check_processes("ns-mab", ["steady"])
    table = draw_rewards(0, "test", ["steady"], (6, 4, 3))
    np.testing.assert_array_equal(table.rewards[:, 0], table.rewards[:, 3])
    mixed = draw_rewards(0, "test", ["steady", "alternating"], (6, 4, 3))
    assert (mixed.rewards[:, 0] == mixed.rewards[:, 3]).all(axis=1).sum() in range(3, 7)


def test_rmft_eval_plays_a_process_that_params_yaml_lists(rmft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("extensions").mkdir()
    Path("extensions/mine.py").write_text(IMPORTS + STEADY, encoding="utf-8")
    Path("params.yaml").write_text("extensions: [extensions/mine.py]\n", encoding="utf-8")
    own = ["--environment", "mab", "--process", "steady", "--instances", "4", "--horizon", "2", "--output", "own"]
    try:
        code, out, error = rmft("eval", str(ROOT / "data/models/embedded"), *own)
    finally:
        extensions.forget("extensions/mine.py")
    assert (code, "uniform" in out) == (0, True), error


def test_an_algorithm_plays_with_its_options_where_it_says(written):
    written(IMPORTS, LAST)
    check_algorithm(AlgorithmSettings("last", options={"skip": 2}), "mab")
    with pytest.raises(InputError, match="'last' cannot play fol"):
        check_algorithm(AlgorithmSettings("last"), "fol")
    with pytest.raises(InputError, match="options of last: got an unexpected keyword argument 'skp'; it takes: skip"):
        check_settings(AlgorithmSettings("last", options={"skp": 2}))
    table = draw_rewards(0, "test", ["gaussian"], (5, 4, 3))
    player = start_on(0, "test", AlgorithmSettings("last", options={"skip": 2}), table, None)
    assert (play(player, table, full_feedback=False, uniforms=uniforms(5, "last")).actions == 1).all()


def test_contexts_of_ones_own_process_are_shown_to_ones_own_algorithm(written):
    written(IMPORTS, SHOWN)
    table = draw_rewards(0, "test", ["shown"], (5, 4, 3), features=2)
    assert type(table) is ContextualTable
    player = start_on(0, "test", AlgorithmSettings("looks"), table, None)
    played = play(player, table, full_feedback=False, uniforms=uniforms(5, "looks"))
    np.testing.assert_array_equal(played.actions, table.contexts[:, :, 0] > 0.5)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([IMPORTS], "mine.py: registers nothing"),
        (["import np_that_is_not_there\n"], "mine.py:1: ModuleNotFoundError: No module named 'np_that_is_not_there'"),
        (["x = (\n"], "mine.py:1: SyntaxError: '(' was never closed"),
        ([IMPORTS, STEADY.replace("steady", "gaussian")], "mine.py: 'gaussian' is a name of rmft's own"),
        ([IMPORTS, STEADY.replace("steady", "My Process", 1)], "mine.py: 'My Process' is no name"),
        ([IMPORTS, STEADY, STEADY], "mine.py: 'steady' is registered already, by mine.py"),
        ([IMPORTS, STEADY.replace('"fol"', '"flo"')], "mine.py: unknown environment 'flo'; one of fol, mab"),
        ([IMPORTS, STEADY.replace('"fol"', '"cb"')], "all with contexts or all without"),
        ([IMPORTS, STEADY.replace("(n, 1, d)", "(1, n, d)")], "rewards have shape (1,"),
        ([IMPORTS, STEADY.replace("0, 10, (", "0, 30, (")], "rewards must lie in [0, 10]"),
        ([IMPORTS, STEADY.replace("means, means)", "means * np.nan, means)")], "means are not all finite"),
        ([IMPORTS, STEADY.replace("return RewardTable(", "return (")], "must return a RewardTable, not tuple"),
        ([IMPORTS, STEADY.replace("means, means)", "means, means + 9)")], "clipped_means must lie in [0, 10]"),
        *(([IMPORTS, STEADY.replace("(means, ", f"(means.astype({of}), ")], "process 'steady': rewards must be real")
          for of in ("complex", "str")),
        ([IMPORTS, STEADY.replace("(n, 1, d)), horizon", "(n, 1, d)) / horizon, horizon")], "first ones have other"),
        ([IMPORTS, STEADY.replace('streams("parameters")', "np.random")], "mine.py:8: uses numpy.random.uniform"),
        (["import random\n", IMPORTS, STEADY], "mine.py:1: uses random"),
        (["from numpy.random import default_rng\n", IMPORTS, STEADY], "mine.py:1: uses numpy.random.default_rng"),
        ([IMPORTS, STEADY.replace("uniform(", "unifrom(")], "mine.py:8: AttributeError: "),
        ([IMPORTS, LAST.replace("last", "ucb")], "mine.py: 'ucb' is a name of rmft's own"),
        ([IMPORTS, LAST.replace("def policy", "def policies")], "must have deterministic, policy() and observe()"),
        ([IMPORTS, LAST.replace("= 1\n", "= 0.5\n")], "policies must be probabilities"),
        ([IMPORTS, LAST.replace("= 1\n", "= 0.5\n        self.choice[:, 0] += 0.5\n")],
         "a chance, so `deterministic` must be False"),
        ([IMPORTS, LAST.replace("zeros((n, d))", "zeros((n, d + 1))")], "policies have the shape (4, 4), not (4, 3)"),
        ([IMPORTS, LAST.replace("return self.choice", "return [[1.0], [0.5, 0.5]]")], "its policies are no array"),
        ([IMPORTS, LAST.replace("self.choice = np.zeros((n, d))", "self.choice = np.eye(9)[:n, :d] * 0").replace(
            "self.choice[:, -skip]", "self.choice[:, n % d]")], "policies in one game change with how many games"),
        ([IMPORTS, LAST.replace("pass", "raise KeyError(3)")], "mine.py:15: KeyError: 3"),
        ([IMPORTS, LAST.replace("pass", "raise SystemExit(3)")], "mine.py:15: SystemExit: 3"),
        ([IMPORTS, LAST, "exit(0)\n"], "SystemExit: 0"),
        ([IMPORTS, LAST.replace('["mab"]', '"mab"')], "environments must be a list with at least one"),
        ([IMPORTS, LAST.replace('["mab"]', "[]")], "environments must be a list with at least one"),
        ([IMPORTS, LAST.replace("skip=1", "skip")], "must take (n, horizon, d, streams), but: missing a required"),
        ([IMPORTS, STEADY.replace("horizon, d):", "horizon):")], "must take (streams, n, horizon, d), but: too many"),
        ([IMPORTS, "import ast\nast.literal_eval('1 +')\n"], "mine.py:6: SyntaxError: "),  # of what it reads
        ([BOUNDED.format(least=0, name="mine").replace("@dataclass(frozen=True)\n", "")], "must be a class that is"),
        ([BOUNDED.format(least=0, name="mine").replace("start, report", "start")], "(job, trajectories, selec"),
        ([BOUNDED.format(least=0, name="mine").replace("beta: Beta", "beta: Beat")], "method 'mine': settings: "),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_one_line_that_names_it_and_leaves_nothing_behind(written, parts, says):
    before = dict(TABULAR), dict(CONTEXTUAL), dict(ALGORITHMS)
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        written(*parts)
    assert str(refused.value).startswith("mine.py")
    assert "\n" not in str(refused.value)
    assert before == (TABULAR, CONTEXTUAL, ALGORITHMS)


def test_what_goes_wrong_later_in_the_game_is_a_line_too(written):
    late = LAST.replace("pass", "self.rounds = getattr(self, 'rounds', 0) + 1; assert self.rounds < 8, 'too late'")
    written(IMPORTS, late)
    table = draw_rewards(0, "test", ["gaussian"], (5, 9, 3))
    player = start_on(0, "test", AlgorithmSettings("last"), table, None)
    with pytest.raises(InputError, match=r"^mine\.py:15: AssertionError: too late$"):
        play(player, table, full_feedback=False, uniforms=uniforms(5, "last"))


def test_files_of_one_name_in_two_folders_check_their_settings_by_their_own_types(tmp_path):
    """An annotation that is a text is looked up in the module of its name."""
    for folder, least in (("a", 0), ("b", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "method.py").write_text(BOUNDED.format(name=folder, least=least), encoding="utf-8")
    files = ["a/method.py", "b/method.py"]
    try:
        extensions.load(files, tmp_path)
        assert METHODS["a"].complete({"beta": 1.0}) == {"beta": 1.0}
        with pytest.raises(ValueError, match="greater than or equal to 5"):
            METHODS["b"].complete({"beta": 1.0})
    finally:
        for file in files:
            extensions.forget(file)


def test_a_table_of_short_numbers_is_summed_in_long_ones(written):
    written(IMPORTS, STEADY.replace("(means, means, means)", "(*[means.astype(np.float16)] * 3)"))
    assert draw_rewards(0, "test", ["steady"], (5, 4, 3)).rewards.dtype == np.float64


def test_a_file_is_the_same_however_its_path_is_written_and_may_begin_with_a_mark(written):
    written("\ufeff", IMPORTS, STEADY)
    other = str(Path("mine.py").resolve())
    extensions.load(other)
    assert "steady" in TABULAR
    extensions.load("mine.py")
    assert "steady" in TABULAR
    assert extensions.files_of(["steady"]) == ["mine.py"]


def test_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"^nowhere\.py: cannot be read: No such file"):
        extensions.load(["nowhere.py"])


def test_an_edited_file_takes_the_place_of_what_it_was(written):
    written(IMPORTS, STEADY)
    written(IMPORTS, LAST)
    assert "steady" not in TABULAR
    assert "last" in ALGORITHMS


def test_only_a_job_that_uses_an_extension_carries_it_and_changes_with_it(written):
    params = load(ROOT / "params.yaml")
    plain = evaluation_job(params, "numeric_mab", "gamma"), rewards_job(params, "gamma")
    written(IMPORTS, STEADY, LAST)
    rewards = params.rewards["gamma"].model_copy(update={"process": ["steady"]})
    params = params.model_copy(update={"rewards": {**params.rewards, "mine": rewards}})
    assert (evaluation_job(params, "numeric_mab", "gamma"), rewards_job(params, "gamma")) == plain
    job = rewards_job(params, "mine")
    assert job.code.extensions == ["mine.py"]
    assert job.code.digest != plain[1].code.digest
    assert RewardsJob.parse(job.canonical()) == job
    fingerprint.cache_clear()
    written(IMPORTS, "# a comment\n", STEADY, LAST)
    assert rewards_job(params, "mine").code.digest == job.code.digest
    fingerprint.cache_clear()
    written(IMPORTS, STEADY.replace("0, 10", "1, 9"), LAST)
    assert rewards_job(params, "mine").code.digest != job.code.digest


def test_data_that_an_extension_names_are_among_what_its_jobs_read(written, monkeypatch):
    for name in ("base.csv", "other.csv"):
        Path(name).write_text("1.0\n", encoding="utf-8")
    file = written(IMPORTS, STEADY, 'BASE = np.loadtxt("base.csv")\n')
    assert extensions.data_of([file]) == ["base.csv"]
    noted = []
    monkeypatch.setattr(records, "note_reading", noted.extend)
    with pytest.raises(InputError, match="seed"):
        RewardsJob.parse('{"code": {"digest": "", "libraries": {}, "extensions": ["mine.py"]}}')
    assert noted == [Path("mine.py"), Path("base.csv")]


def test_a_job_can_be_read_where_nothing_is_loaded_yet(written):
    file = written(IMPORTS, STEADY)
    params = load(ROOT / "params.yaml")
    rewards = params.rewards["gamma"].model_copy(update={"process": ["steady"]})
    params = params.model_copy(update={"rewards": {**params.rewards, "mine": rewards}})
    text = rewards_job(params, "mine").canonical()
    extensions.forget(file)
    assert RewardsJob.parse(text).rewards.process == ["steady"]
