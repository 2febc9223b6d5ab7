"""Files appear whole or not at all, and a damaged one is refused in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import HEAR_CTRL_C
from trees import done

from chaos.pickles import payloads
from rmft.agents.numeric import SYMBOLS, LinearAttention, read_model, write_model
from rmft.artifacts.csv_files import read_csv, write_rows
from rmft.artifacts.evaluations import EVALUATION, read_evaluation, write_evaluation
from rmft.artifacts.files import atomic, reading
from rmft.artifacts.folders import files_below
from rmft.artifacts.here import from_here
from rmft.artifacts.json_files import read_json, read_jsonl, write_json, write_jsonl
from rmft.artifacts.parquet import schema_of
from rmft.artifacts.receipts import commit
from rmft.artifacts.replies import CLAIM, read_claims
from rmft.artifacts.rewards import read_rewards, write_rewards
from rmft.artifacts.trajectories import TRAJECTORY, read_selection, read_trajectories, write_trajectories
from rmft.environments import AdaptiveRewards, draw_rewards
from rmft.errors import InputError
from rmft.report.evidence import picture


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    return LinearAttention(*(rng.normal(size=(2, *[3] * (1 + s.isupper()))).astype(np.float32) for s in SYMBOLS))


def an_evaluation() -> pd.DataFrame:
    curve, actions = np.array([0.5, 1.5]), np.array([0, 2])
    row = {"player": "ucb", "training_seed": 0, "instance": 0, "d": 3, "policy": None, "invalid": 0}
    return pd.DataFrame([{**row, "regret": curve, "action": actions, "best_action": actions}])


def test_what_is_written_is_read_back(tmp_path, model):
    write_model(tmp_path / "model.safetensors", model)
    rewards = draw_rewards(0, "test", ["gamma"], (5, 4, 3))
    write_rewards(tmp_path / "gamma.npz", rewards)
    write_rewards(tmp_path / "adaptive.npz", AdaptiveRewards((5, 4, 3)))
    write_evaluation(tmp_path / "ucb.parquet", an_evaluation())
    for symbol in SYMBOLS:
        np.testing.assert_array_equal(
            getattr(read_model(tmp_path / "model.safetensors"), symbol), getattr(model, symbol)
        )
    np.testing.assert_array_equal(read_rewards(tmp_path / "gamma.npz").rewards, rewards.rewards)
    np.testing.assert_array_equal(read_rewards(tmp_path / "gamma.npz").clipped_means, rewards.clipped_means)
    assert read_rewards(tmp_path / "adaptive.npz") == AdaptiveRewards((5, 4, 3))
    np.testing.assert_array_equal(read_evaluation(tmp_path / "ucb.parquet")["regret"][0], [0.5, 1.5])


def test_the_same_content_gives_the_same_bytes(tmp_path, model):
    rewards = draw_rewards(0, "test", ["gamma"], (5, 4, 3))
    for folder in ("one", "two"):
        write_model(tmp_path / folder / "model.safetensors", model)
        write_rewards(tmp_path / folder / "gamma.npz", rewards)
        write_evaluation(tmp_path / folder / "ucb.parquet", an_evaluation())
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_a_truncated_or_foreign_file_is_refused_in_one_line(tmp_path, model, keep):
    paths = [tmp_path / name for name in ("model.safetensors", "gamma.npz", "ucb.parquet")]
    write_model(paths[0], model)
    write_rewards(paths[1], draw_rewards(0, "test", ["gamma"], (5, 4, 3)))
    write_evaluation(paths[2], an_evaluation())
    for path, read in zip(paths, (read_model, read_rewards, read_evaluation), strict=True):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(keep * len(whole))])
        with pytest.raises(InputError, match="unreadable or truncated") as refusal:
            read(path)
        assert str(path) in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("types", "column", "read"), [(CLAIM, "text", read_claims), (TRAJECTORY, "reply", read_trajectories)]
)
def test_text_that_is_no_utf8_is_refused(tmp_path, types, column, read):
    schema, damaged = schema_of(types), pa.array([b"\xff"]).view(pa.string())  # as a flipped bit leaves it
    if pa.types.is_list(schema.field(column).type):
        damaged = pa.ListArray.from_arrays([0, 1], damaged)
    columns = {field.name: pa.nulls(1, field.type) for field in schema} | {column: damaged}
    pq.write_table(pa.table(columns, schema=schema), tmp_path / "damaged.parquet")
    with pytest.raises(InputError, match=r"damaged.parquet: unreadable .*UTF8"):
        read(tmp_path / "damaged.parquet")


def test_a_parquet_file_of_other_columns_is_refused(tmp_path):
    pq.write_table(pa.table({"scenario": [1, 2]}), tmp_path / "selection.parquet")
    with pytest.raises(InputError, match=r"selection\.parquet: has no column"):
        read_selection(tmp_path / "selection.parquet")


def test_a_refusal_of_what_a_file_says_is_neither_cut_nor_repeated(tmp_path):
    line = f"{tmp_path / 'x'}: line 1: {'word ' * 60}and the end"
    (tmp_path / "x").touch()
    with pytest.raises(InputError) as refused, reading(tmp_path / "x"):
        raise InputError(line)
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("read", "damaged"),
    [(read_json, b"[" * 100_000), (picture, b"\x89PNG"), (lambda path: list(read_jsonl(path)), b"\xff\n")],
)
def test_a_file_that_random_damage_found_to_be_a_traceback_is_refused_in_one_line(tmp_path, read, damaged):
    (tmp_path / "file").write_bytes(damaged)
    with pytest.raises(InputError, match="file: unreadable or truncated"):
        read(tmp_path / "file")


def test_no_array_of_objects_is_unpickled(tmp_path):
    path, canary = tmp_path / "gamma.npz", tmp_path / "canary"
    for _, payload in payloads(canary):
        path.write_bytes(payload)
        with pytest.raises(InputError, match="unreadable or truncated"):
            read_rewards(path)
    assert not canary.exists()


def test_a_missing_file_is_named_with_what_makes_it(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv: no such file$"):
        read_csv(tmp_path / "nowhere.csv", [])
    with pytest.raises(InputError, match=r"no such file; `snakemake results/nowhere.csv` makes it"):
        read_csv(Path("results/nowhere.csv"), [])


@pytest.mark.parametrize("text", ["c,d\n1,2\n3", "c,d\n1,2\n", "c\n1\n2\n", ""])
def test_a_csv_that_lost_rows_columns_or_its_end_is_refused(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="unreadable or truncated"):
        read_csv(path, ["c", "d"], rows=2)


def test_artifacts_are_named_from_here_however_their_path_is_written(tmp_path, monkeypatch):
    disk, clone, link = tmp_path / "disk", tmp_path / "clone", tmp_path / "link"
    (disk / "experiments").mkdir(parents=True)
    clone.mkdir()
    (clone / "results").symlink_to(disk)
    link.symlink_to(clone)
    monkeypatch.chdir(clone)
    name = Path("results/experiments")
    for written in (name, clone / name):
        assert from_here(written) == name
    (clone / "results").unlink()
    (clone / name).mkdir(parents=True)
    for written in (name, clone / name, link / name, Path("../clone") / name, Path("results/../results/experiments")):
        assert from_here(written) == name
    assert from_here(disk) == disk


def test_what_a_killed_writer_left_behind_is_swept_by_the_next(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    of_dead, of_living = (tmp_path / f".out.txt.{process}.txt" for process in (dead.pid, os.getppid()))
    for left in (of_dead, of_living):
        left.write_text("half", encoding="utf-8")
    with atomic(tmp_path / "out.txt") as temporary:
        temporary.write_text("whole", encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", of_living.name}


def test_a_target_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="taken: cannot be written"):
        write_json(tmp_path / "taken", {})
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "metrics.json"
    write_json(path, {"a": 1})
    before = path.read_bytes()

    def fail_half_way() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_job_killed_while_writing_leaves_no_file_that_counts(tmp_path, kill):
    path = tmp_path / "out.txt"
    script = (
        f"{HEAR_CTRL_C}; import sys, time, pathlib; from rmft.artifacts.files import atomic\n"
        "with atomic(pathlib.Path(sys.argv[1])) as t:\n"
        "    t.write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert job.stdout.readline() == b"writing\n"
    job.send_signal(kill)
    assert job.wait(timeout=30) != 0
    assert not path.exists()


def test_rows_with_other_columns_than_the_first_are_refused(tmp_path):
    for rows in ([{"a": 1}, {"a": 1, "b": 2}], [{"a": 1, "b": 2}, {"a": 1}]):
        with pytest.raises(InputError, match=r"log\.csv: not every row has the column b; "):
            write_rows(tmp_path / "log.csv", rows)
    assert not list(tmp_path.iterdir())


def test_json_has_null_for_what_is_not_finite(tmp_path):
    write_json(tmp_path / "m.json", {"p": float("nan"), "curve": np.array([1.0, np.inf])})
    assert Path(tmp_path / "m.json").read_text(encoding="utf-8").split() == [
        "{",
        '"curve":',
        "[",
        "1.0,",
        "null",
        "],",
        '"p":',
        "null",
        "}",
    ]


def test_a_line_of_json_may_hold_any_character_that_a_model_says(tmp_path):
    lines = [{"said": "a\u2028b\x85c\x1dd\ne"}, {"said": "f"}]
    write_jsonl(tmp_path / "lines.jsonl", lines)
    assert list(read_jsonl(tmp_path / "lines.jsonl")) == lines


def test_a_commit_is_dirty_where_tracked_files_differ_but_for_those_that_may(tmp_path):
    def revision(*besides: str) -> str | None:
        commit.cache_clear()
        return commit(tmp_path, besides)

    assert revision() is None
    for name in ("code", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("a", encoding="utf-8")
    done(tmp_path, "git", "init", "--quiet")
    done(tmp_path, "git", "add", ".")
    done(tmp_path, "git", "commit", "--quiet", "--message", "Start")
    head = done(tmp_path, "git", "rev-parse", "HEAD").strip()
    (tmp_path / "results/file").write_text("b", encoding="utf-8")
    (tmp_path / "new").touch()
    assert (revision(), revision("results")) == (f"{head}-dirty", head)
    (tmp_path / "code/file").write_text("b", encoding="utf-8")
    assert revision("results") == f"{head}-dirty"


def test_files_in_a_folder_that_lies_on_another_disk_are_found_and_a_circle_of_links_ends(tmp_path):
    inside, elsewhere = tmp_path / "results", tmp_path / "disk"
    for folder in (inside, elsewhere):
        folder.mkdir()
        (folder / "file").touch()
    (inside / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(inside)
    (inside / "there").mkdir()
    (inside / "there/file").touch()
    (inside / "alias").symlink_to(inside / "there")
    (inside / "twice").symlink_to(elsewhere)
    assert files_below(inside) == [inside / name for name in ("file", "linked/file", "there/file")]


def test_a_file_without_a_trajectory_is_refused_in_a_line(tmp_path):
    write_trajectories(tmp_path / "none.parquet", {name: [] for name in TRAJECTORY})
    write_evaluation(tmp_path / "empty.parquet", {name: [] for name in EVALUATION})
    for path, read in ((tmp_path / "none.parquet", read_trajectories), (tmp_path / "empty.parquet", read_evaluation)):
        with pytest.raises(InputError, match=f"{path}: has no trajectories"):
            read(path)
