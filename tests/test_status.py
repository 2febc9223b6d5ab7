"""What runs in a folder and how long the rest takes, as `rmft status` prints it."""

import json
import os
import shutil
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from trees import at_work_until, done, snakemake

from rmft.artifacts.job import ON_CLUSTER, this_run
from rmft.artifacts.receipts import job_id
from rmft.errors import NOT_HERE, InputError
from rmft.lineage.records import METADATA, UNFINISHED, file_of
from rmft.tools.status import spoken, status_of
from rmft.workflow.job_list import JOB_LIST, JobList, ListedJob, Took, read_job_list, refuse_unplanned

NOW = time.time()
STARTED = NOW - 1000


def job(name: str, rule: str = "held_out", stage: str = "rollouts") -> ListedJob:
    return ListedJob(rule, stage, f"Play {name}", f"logs/{name}.log", (f"results/{name}.parquet",))


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at, at))


def finish(of: ListedJob, began: float, ended: float) -> None:
    """Write what Snakemake and the job write of a job that has finished."""
    for output in of.outputs:
        write(Path(output), "", ended)
        write(file_of(METADATA, output), json.dumps({"starttime": began, "endtime": ended}), ended)


def begin(of: ListedJob, at: float, log: str | None = None, logged: float = NOW) -> None:
    """Write what Snakemake writes of a job that has begun, and the job's log."""
    for output in of.outputs:
        write(file_of(UNFINISHED, output), "{}", at)
    if log is not None:
        write(Path(of.log), log, logged)


def run_of(*jobs: ListedJob, earlier: tuple[Took, ...] = ()) -> JobList:
    """Return a run of the process of this test, which is alive."""
    return JobList(this_run(), "snakemake all", STARTED, jobs, earlier)


def test_what_is_left_takes_as_long_as_jobs_of_the_same_rule_took_side_by_side_as_before():
    first, second, third, fourth = map(job, "abcd")
    finish(first, STARTED, STARTED + 800)
    finish(second, STARTED + 200, STARTED + 800)
    begin(third, NOW - 200)
    state = status_of(run_of(first, second, third, fourth), NOW)
    assert [of.job for of in state.running] == [third]
    assert state.waiting == [fourth]
    at_once = (800 + 600 + 200) / 1000
    assert state.left.seconds == pytest.approx((700 - 200 + 700) / at_once, abs=2)
    assert not state.left.unknown


def test_records_of_an_earlier_run_are_no_finished_jobs():
    before = job("a")
    finish(before, STARTED - 500, STARTED - 400)
    write(Path(before.log), "101/101 rounds, 0 s left", STARTED - 400)
    state = status_of(run_of(before, job("b", "figure", "figures")), NOW)
    assert not state.took
    assert state.waiting == [before, job("b", "figure", "figures")]
    assert state.left.unknown == {"rollouts": 1, "figures": 1}
    known = status_of(run_of(before, earlier=(Took("held_out", "rollouts", 100.0),)), NOW)
    assert known.left.seconds == 100


@pytest.mark.parametrize(
    ("log", "left"),
    [
        ("rollouts x: 50/200 rounds, 9 tokens/s, mean regret of games in play 1.20, 300 s left\n\n", 300 - 20),
        ("rmft: something\nsft x: 100/400 steps, loss 0.1234\n", 380 * 3 - 20),
        ("a bar: 5/10 steps\rsft x: 200/400 steps\n", 380 - 20),
        ("rollouts x: 1/2000 rounds, 900000 s left", None),  # too early to tell
        ("no number", None),
    ],
)
def test_a_job_that_says_how_far_it_is_is_believed(log, left):
    one = job("a")
    begin(one, NOW - 400, log, logged=NOW - 20)
    (running,) = status_of(run_of(one), NOW).running
    assert running.left == (None if left is None else pytest.approx(left, abs=2))


def test_a_failed_job_is_not_taken_for_one_that_runs():
    failed, running = job("a"), job("b")
    finish(failed, NOW - 20, NOW - 10)
    Path(failed.outputs[0]).unlink()  # Snakemake does this only after it has written the metadata
    write(Path(failed.log), "rmft: models/x: no such folder\n", NOW - 10)
    begin(running, NOW - 10)
    state = status_of(run_of(failed, running), NOW)
    assert [of.job for of in state.running] == [running]
    assert [(of.job, of.line) for of in state.failed] == [(failed, "models/x: no such folder")]


def test_where_no_run_is_on_record_status_says_what_to_type(rmft):
    code, _, error = rmft("status")
    assert (code, error) == (2, f"rmft: Snakefile: {NOT_HERE}\n")
    write(Path("Snakefile"), "", NOW)
    code, out, _ = rmft("status")
    assert code == 0
    assert "snakemake --dry-run" in out
    for damaged in ("{", json.dumps({"process": "7", "command": "", "started": 0, "jobs": [], "earlier": []})):
        write(JOB_LIST, damaged, NOW)
        assert rmft("status") == (0, out, "")


def test_durations_are_told_in_two_units_at_most():
    assert [spoken(of) for of in (0, 59.6, 61, 600, 3600, 7260)] == [
        "0 s",
        "1 min",
        "1 min 1 s",
        "10 min",
        "1 h",
        "2 h 1 min",
    ]


def test_on_a_cluster_a_job_that_its_run_did_not_plan_is_refused(monkeypatch):
    write(JOB_LIST, json.dumps(asdict(replace(run_of(job("a")), planned=(job_id("{}"),)))), NOW)
    refuse_unplanned('{"seed": 1}')  # on this machine a run has read params.yaml once
    monkeypatch.setenv(ON_CLUSTER, "1")
    refuse_unplanned("{}")
    with pytest.raises(InputError, match=r"^params\.yaml or code was edited"):
        refuse_unplanned('{"seed": 1}')


def test_a_job_list_is_read_as_it_was_written():
    run = replace(run_of(job("a"), earlier=(Took("held_out", "rollouts", 1.5),)), ended="stopped")
    write(JOB_LIST, json.dumps(asdict(run)), NOW)
    assert read_job_list() == run


@pytest.mark.xdist_group("workflow")
@pytest.mark.long
def test_a_real_run_is_seen_at_work_killed_and_finished(tree):
    """Only this test reads the files of a real Snakemake, whose names and times status relies on."""
    shutil.rmtree(tree / "results/experiments/numeric_mab")
    first = tree / "results/experiments/numeric_mab/iteration-0/model.safetensors"
    at_work = at_work_until(first, tree, "snakemake", "--cores", "1", "exp_numeric_mab")
    os.killpg(at_work.pid, signal.SIGSTOP)
    try:
        said = done(tree, "rmft", "status")
        assert "0 of 3 jobs" in said
        assert "2 evaluation" in said
        assert "Train numeric_mab" in said.partition("Running now")[2]
    finally:
        os.killpg(at_work.pid, signal.SIGKILL)
        at_work.wait()
    said = done(tree, "rmft", "status")
    assert "after 0 of 3 jobs" in said
    assert "type it again: snakemake --cores 1 exp_numeric_mab" in said
    snakemake(tree, "exp_numeric_mab")
    assert "all 3 jobs in" in done(tree, "rmft", "status")
