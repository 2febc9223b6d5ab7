"""The whole workflow at smoke scale, with real Snakemake, in a copy of the repository."""

import fcntl
import os
import re
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.executors.local import Executor as LocalExecutor
from snakemake.executors.touch import Executor as TouchExecutor
from snakemake.scheduling.job_scheduler import JobScheduler
from trees import (
    ROOT,
    at_work_until,
    checkout,
    copy_of,
    digests,
    done,
    edit,
    jobs_in,
    read_yaml,
    run,
    set_value,
    snakemake,
    to_do,
    values_in,
)

from rmft.params import load
from rmft.workflow.failures import let_sigterm_in, why_ended
from rmft.workflow.runs import DVC_GUARD, DVC_LOCKS, drop_broken_dvc_locks, is_dry_run, let_wait, run_tool

pytestmark = pytest.mark.xdist_group("workflow")


def test_every_figure_and_table_of_the_parameters_is_built(built):
    tree = built / "rmft"
    params = values_in(tree)
    for kind, labels, endings in (
        ("figures", params["figures"]["drawn"], ("pdf", "png", "csv")),
        ("tables", params["tables"], ("csv", "md", "tex")),
    ):
        for label in labels:
            assert all((tree / f"results/{kind}/{label}.{ending}").stat().st_size for ending in endings)


FIGURES = (
    *("regret-dynamics-noisy", "tfbandit", "simplex-tf-all", "tfgamma"),
    *("open-MAB-gaussian-T50-gemma", "luck-in-hindsight", "sdm-example", "reasoning-comparison"),
)
BANDIT_FIGURES = {"figure tfbandit", "figure tfgamma"}
MAB_AND_ITS_VARIANT = ("numeric_mab", "numeric_mab_logits_normalised")  # which inherits what it does not say
DUE = {  # dotted key of params.yaml → another value, and the jobs that depend on it
    "experiments.numeric_mab.rmft.selected": (
        2,
        {"metrics", *BANDIT_FIGURES}
        | {f"training {name}" for name in MAB_AND_ITS_VARIANT}
        | {f"evaluation {name}/{rewards}" for name in MAB_AND_ITS_VARIANT for rewards in ("gaussian", "gamma")},
    ),
    "experiments.numeric_simplex.evaluations.gaussian.T": (
        50,
        {"figure simplex-tf-all", "table simplex-table", "metrics"}
        | {f"evaluation {name}/gaussian" for name in ("numeric_simplex", "numeric_simplex_logits")},
    ),
    "rewards.gamma.instances": (
        500,
        {
            "rewards gamma",
            "evaluation numeric_mab/gamma",
            "evaluation numeric_mab_logits_normalised/gamma",
            "figure tfgamma",
            "metrics",
        },
    ),
    "figures.style.dpi": (100, {f"figure {label}" for label in FIGURES}),
}
GROWTH = {"simplex-table", "theorem-1", "prompt-diversity-ablation", "claim-accuracy"}  # tables with fits of growth


def test_an_edit_makes_the_jobs_that_depend_on_it_due_and_no_other(tree):
    growth = tree / "src/rmft/metrics/growth.py"
    written = {file: file.read_bytes() for file in (*tree.glob("*.yaml"), growth)}

    def due() -> set[str]:
        """Return the jobs that an edit has made due, and take the edit back."""
        jobs = to_do(tree)
        for file, content in written.items():
            file.write_bytes(content)
        return jobs

    for key, (value, expected) in DUE.items():
        set_value(tree, key, value)
        assert due() == {*expected, "report"}, key
    edit(growth, "FEWEST = 3", "FEWEST = 4")
    assert due() == {*(f"table {label}" for label in GROWTH), "metrics", "report"}
    experiments = read_yaml(tree / "params.yaml")["experiments"]
    set_value(tree, "experiments.mine", experiments["numeric_mab"])
    assert due() == {"training mine", "evaluation mine/gaussian", "evaluation mine/gamma", "metrics", "report"}
    # A comment, a docstring, a value that the scale overrides, and the times of all files: nothing is due.
    edit(growth, "def _regress", "# a comment\ndef _regress")
    edit(growth, "Fit both regressions", "Fit the two regressions")
    set_value(tree, "theory.samples", 1)
    for folder in ("src", "workflow", "data", "results"):
        for path in (tree / folder).rglob("*"):
            path.touch()
    assert due() == set()


def test_a_wrong_parameter_or_a_run_at_work_stops_every_command_in_one_line_before_anything_runs(tree):
    before = digests(tree)
    with (tree / ".snakemake/flock").open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        looked = run(tree, "snakemake", "--dry-run")
        assert "Nothing to be done" in looked.stdout + looked.stderr
        for command in (("snakemake", "--forcerun", "results/tables/theorem-1.md"), ("rmft", "prune")):
            assert refusal(tree, *command) == (
                "rmft: another snakemake is at work in this folder (`rmft status` shows it); "
                "wait until it ends, or stop it"
            )
    set_value(tree, "experiments.numeric_mab.rmft.selected", 99)
    assert refusal(tree, "snakemake") == (
        "rmft: params.yaml: experiments.numeric_mab.rmft: selected: 99 is more than trajectories: 10 (and 1 more)"
    )
    assert digests(tree) == before


def refusal(tree: Path, *command: str) -> str:
    """Run a command that must end with exit code 2 and no traceback; return the last line that it prints."""
    stopped = run(tree, *command)
    assert stopped.returncode == 2, stopped.stdout + stopped.stderr
    assert "Traceback" not in stopped.stderr
    return stopped.stderr.splitlines()[-1]


@pytest.mark.long
def test_a_failed_job_is_one_line_at_the_end_and_no_record_is_ever_printed(tmp_path):
    checkout(tmp_path)
    edit(tmp_path / "params.yaml", "scale: demo", "scale: smoke")
    (tmp_path / "data/models/embedded/config.json").write_text("{", encoding="utf-8")
    shard = "results/experiments/open_mab_gemma/seed-0/iteration-0/shards/1-of-2.parquet"
    failed = run(tmp_path, "snakemake", "--show-failed-logs", shard)
    assert failed.returncode == 1
    assert "--settings" not in failed.stdout + failed.stderr
    assert re.fullmatch(
        r"rmft: Roll out open_mab_gemma, seed 0, iteration 0, shard 1 of 2: failed after 0 of 1 jobs: "
        r"data/models/embedded: a file in it is damaged .*; restore the file \(log: logs/.*\.log\)",
        failed.stderr.splitlines()[-1],
    )
    for wrong, meant in {
        "exp_open_mab_gema": "exp_open_mab_gemma",
        "results/tabels/nsmab.md": "results/tables/nsmab.md",
    }.items():
        stopped = run(tmp_path, "snakemake", "--dry-run", wrong)
        assert f"rmft: {wrong}: no such target; did you mean {meant}" in stopped.stdout + stopped.stderr
    of_a_seed_too_many = "results/experiments/open_mab_gemma/seed-7/iteration-0"
    line = refusal(tmp_path, "snakemake", f"{of_a_seed_too_many}/rollouts.parquet")
    assert re.match(rf"rmft: {of_a_seed_too_many}/.*: no such target; did you mean", line)
    assert not (tmp_path / of_a_seed_too_many).exists()


OPTIONS = {
    "-n": True,
    "-np": True,
    "-nq": True,
    "--dryrun": True,
    "--dry-run": True,
    "-Rselection": False,
    "-sSnakefile": False,
}


@pytest.mark.parametrize(("option", "dry"), [*OPTIONS.items(), ("--nolock", False), ("exp_open_mab", False)])
def test_a_dry_run_is_told_from_options_with_an_n_in_their_value(option, dry):
    assert is_dry_run(["all", option]) is dry


def test_a_stopped_run_says_by_what_and_how_far_it_came(tmp_path):
    scheduler = SimpleNamespace(failed=set(), finished_jobs=212, _user_kill=None, _executor_error=None)
    assert why_ended(scheduler, 545) == "rmft: stopped by Ctrl-C after 212 of 545 jobs; run it again to go on"
    job = SimpleNamespace(message="Draw parameter", log=[tmp_path / "parameter.log"])
    job.log[0].write_text("12/50 steps, loss 0.1\n", encoding="utf-8")  # and then it was killed
    killed = SimpleNamespace(failed=[job], finished_jobs=3, _executor_error=None)
    assert f"failed after 3 of 9 jobs: its last words are '12/50 steps, loss 0.1' (log: {job.log[0]})" in why_ended(
        killed, 9
    )
    job.log[0].write_text("", encoding="utf-8")
    assert why_ended(killed, 9).endswith(
        "of 9 jobs: its log is empty, as after a kill from outside (did the machine run out of memory?)"
        f" (log: {job.log[0]})"
    )
    job.log[0].write_text("rmft: interrupted; no file was left half-written\n", encoding="utf-8")
    scheduler.failed = [job]  # Ctrl-C reached the job before Snakemake had noticed it
    assert why_ended(scheduler, 545) == "rmft: stopped by Ctrl-C after 212 of 545 jobs; run it again to go on"
    scheduler.failed, scheduler._user_kill = [], "graceful"
    assert why_ended(scheduler, 545) == "rmft: stopped by SIGTERM after 212 of 545 jobs; run it again to go on"


def test_a_run_can_be_stopped_while_it_chooses_jobs():
    scheduler = object.__new__(JobScheduler)
    scheduler._lock, scheduler._open_jobs = threading.Lock(), threading.Semaphore(0)
    let_sigterm_in(scheduler)

    def stop() -> None:
        with scheduler._lock:  # as while it chooses
            scheduler.exit_gracefully(signal.SIGTERM, None)

    main = threading.Thread(target=stop, daemon=True)
    main.start()
    main.join(10)
    assert not main.is_alive()
    assert scheduler._user_kill == "graceful"


def test_more_jobs_wait_side_by_side_than_snakemake_would_start():
    executor = object.__new__(LocalExecutor)
    executor.workers = 7
    executor.pool = ThreadPoolExecutor(executor.workers)
    let_wait(SimpleNamespace(_executor=executor), 5)
    together = threading.Barrier(12)
    assert sorted(executor.pool.map(lambda _: together.wait(timeout=20), range(12))) == list(range(12))
    let_wait(SimpleNamespace(_executor=object.__new__(TouchExecutor)), 5)  # which has no pool


def test_programs_of_the_environment_are_found_where_it_is_not_activated(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert run_tool(["snakemake", "--version"]).returncode == 0


@pytest.mark.long
def test_after_a_kill_in_the_middle_of_a_job_and_a_lost_shard_a_run_makes_the_same_bytes(tree):
    before = digests(tree)
    shutil.rmtree(tree / "results/experiments/numeric_mab")
    first = tree / "results/experiments/numeric_mab/iteration-0/model.safetensors"
    job = at_work_until(first, tree, "snakemake", "--cores", "2")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not (tree / "results/experiments/numeric_mab/training-log.csv").exists()
    shards = tree / "results/experiments/open_mab_gemma/seed-0/iteration-0/shards"
    (shards / "2-of-2.parquet").unlink()
    for name in (DVC_LOCKS, DVC_GUARD):
        (tree / name).write_text("", encoding="utf-8")
    log = snakemake(tree, "--verbose")
    assert not (tree / DVC_LOCKS).exists()  # as a DVC that was killed may leave it
    again = jobs_in(log)
    assert {"training numeric_mab", "rollouts open_mab_gemma/0/0/2"} <= again
    assert not {"training numeric_mixture", "rollouts open_mab_gemma/0/0/1"} & again
    assert digests(tree) == before
    # It looks for jobs at the start and when a job has ended, and not by the clock as well; it starts two at most.
    looked_for_jobs, ended = log.count("Resources before job selection"), log.count("Finished jobid: ")
    assert ended > len(again)  # with the target
    assert ended / 2 <= looked_for_jobs <= ended  # nothing is left to start after the last one


CONDA = """#!/bin/sh
# All that Snakemake asks of conda before it makes an environment.
case "$*" in
    "info --json") echo '{"root_prefix": "/", "conda_prefix": "/", "platform": "linux-64"}' ;;
    "--version") echo "conda 24.9.0" ;;
    *) echo '{"get": {"channel_priority": "strict"}}' ;;
esac
"""


def test_an_environment_of_condas_is_no_reason_to_run_jobs_again(tree, tmp_path, monkeypatch):
    conda = tmp_path / "bin/conda"
    conda.parent.mkdir()
    conda.write_text(CONDA, encoding="utf-8")
    conda.chmod(0o755)
    monkeypatch.setenv("PATH", f"{conda.parent}{os.pathsep}{os.environ['PATH']}")
    assert "Nothing to be done" in snakemake(tree, "--dry-run", "--software-deployment-method", "conda")


@pytest.mark.long
def test_after_a_failed_job_no_target_takes_stale_files_for_built(tree, tmp_path):
    """Only this test catches a target that is built from files which a failed job was to renew, but did not."""
    figure = "results/figures/regret-dynamics-noisy.csv"
    before = digests(tree)[figure]
    set_value(tree, "experiments.numeric_mixture.rmft.selected", 2)
    folder = tree / "results/experiments/numeric_mixture/iteration-20"
    shutil.rmtree(folder)
    folder.touch()  # where the job has to write
    assert run(tree, "snakemake").returncode == 1
    folder.unlink()
    failed = copy_of(tree.parent, tmp_path / "failed")
    snakemake(failed, "figures")  # which asks for every artifact of what it draws
    expected = digests(failed)[figure]
    assert expected != before
    snakemake(tree, figure)
    snakemake(tree)
    assert digests(tree)[figure] == expected


def test_dvc_plots_every_training_and_figures_that_there_are():
    dvc = read_yaml(ROOT / "dvc.yaml")
    params = load(ROOT / "params.yaml")
    training, *others = dvc["plots"]
    (curves,) = (plot["y"] for plot in training.values())
    numeric = {name for name, of in params.experiments.items() if not of.in_words}
    assert curves.keys() == {f"results/experiments/{name}/training-log.csv" for name in numeric}
    images = {plot for plot in others if isinstance(plot, str)}
    assert images <= {f"results/figures/{label}.png" for label in params.figures.drawn}


def test_a_list_of_locks_that_a_killed_dvc_left_half_written_is_deleted_but_not_under_a_dvc_at_work(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    drop_broken_dvc_locks()  # no DVC was ever here
    Path("data").write_text("x", encoding="utf-8")
    done(tmp_path, "dvc", "init", "--no-scm", "--quiet")
    done(tmp_path, "dvc", "add", "--quiet", "data")
    DVC_GUARD.unlink()
    drop_broken_dvc_locks()
    assert (DVC_LOCKS.exists(), DVC_GUARD.exists()) == (True, False)  # DVC's other kind of lock is a file that exists
    done(tmp_path, "dvc", "add", "--quiet", "data")
    DVC_LOCKS.write_text("", encoding="utf-8")
    assert "Unable to read RWLock-file" in run(tmp_path, "dvc", "add", "data").stderr
    with DVC_GUARD.open("a", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        drop_broken_dvc_locks()
    assert DVC_LOCKS.exists()
    drop_broken_dvc_locks()
    done(tmp_path, "dvc", "add", "--quiet", "data")
