"""The whole workflow at smoke scale, with real Snakemake, in a copy of the repository."""

import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest
import yaml
from trees import ROOT, copy_of, digests, edit, environment, jobs_in, run, set_value, snakemake, to_do

pytestmark = pytest.mark.xdist_group("workflow")


def test_every_figure_and_table_of_the_parameters_is_built(tree):
    params = yaml.safe_load((tree / "params.yaml").read_text(encoding="utf-8"))
    for kind, labels, endings in (
        ("figures", params["figures"]["drawn"], ("pdf", "png", "csv")),
        ("tables", params["tables"], ("csv", "md", "tex")),
    ):
        for label in labels:
            assert all((tree / f"results/{kind}/{label}.{ending}").stat().st_size for ending in endings)


@pytest.mark.parametrize(
    ("module", "old", "new", "jobs"),
    [
        (
            "metrics/growth.py",
            "len(x) < 3",
            "len(x) < 4",
            {
                "table simplex-table",
                "table theorem-1",
                "table prompt-diversity-ablation",
                "table claim-accuracy",
                "metrics",
                "report",
            },
        ),
        (
            "figures/style.py",
            "RATIO = 0.72",
            "RATIO = 0.70",
            {
                "report",
                *(
                    f"figure {label}"
                    for label in (
                        "regret-dynamics-noisy",
                        "tfbandit",
                        "simplex-tf-all",
                        "tfgamma",
                        "open-MAB-gaussian-T50-gemma",
                        "luck-in-hindsight",
                        "sdm-example",
                        "reasoning-comparison",
                    )
                ),
            },
        ),
        ("metrics/growth.py", "def _regress", "# a comment\ndef _regress", set()),
        ("metrics/growth.py", "Fit both regressions", "Fit the two regressions", set()),
    ],
)
def test_edited_code_reruns_what_runs_it_and_a_comment_nothing(tree, module, old, new, jobs):
    edit(tree / "src/rmft" / module, old, new)
    assert to_do(tree) == jobs


def test_touching_every_file_reruns_nothing(tree):
    for folder in ("src", "workflow", "data", "results"):
        for path in (tree / folder).rglob("*"):
            path.touch()
    (tree / "params.yaml").touch()
    assert to_do(tree) == set()


def test_a_value_that_the_scale_overrides_reruns_nothing(tree):
    set_value(tree, "theory.samples", 1)
    assert to_do(tree) == set()


def test_a_new_experiment_reruns_no_job_of_an_old_one(tree):
    params = yaml.safe_load((tree / "params.yaml").read_text(encoding="utf-8"))
    set_value(tree, "experiments.mine", params["experiments"]["numeric_mab"])
    assert to_do(tree) == {"training mine", "evaluation mine/gaussian", "evaluation mine/gamma", "metrics", "report"}


def test_a_wrong_parameter_stops_snakemake_in_one_line_before_anything_runs(tree):
    before = digests(tree)
    set_value(tree, "experiments.numeric_mab.rmft.selected", 99)
    stopped = run(tree, "snakemake")
    assert stopped.returncode == 2
    assert (
        stopped.stderr.splitlines()[-1]
        == "rmft: params.yaml: experiments.numeric_mab.rmft: selected: 99 is more than trajectories: 10"
    )
    assert "Traceback" not in stopped.stderr
    assert digests(tree) == before


def test_work_killed_in_the_middle_of_a_job_is_done_again_to_the_same_bytes(tree):
    before = digests(tree)
    shutil.rmtree(tree / "results/experiments/numeric_mab")
    job = subprocess.Popen(
        ["snakemake", "--cores", "2"], cwd=tree, env=environment(tree), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base = tree / "results/experiments/numeric_mab/iteration-0/model.safetensors"
    while not base.exists():  # until the job has written its first file
        with suppress(subprocess.TimeoutExpired):
            assert job.wait(timeout=0.05) == "still running"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not (tree / "results/experiments/numeric_mab/training-log.csv").exists()
    snakemake(tree)
    assert digests(tree) == before


def test_a_lost_shard_of_rollouts_is_played_again_alone_and_to_the_same_bytes(tree):
    before = digests(tree)
    shards = tree / "results/experiments/open_mab_gemma/seed-0/iteration-0/shards"
    (shards / "2-of-2.parquet").unlink()
    said = snakemake(tree, "--verbose")
    again = jobs_in(said)
    assert "rollouts open_mab_gemma/0/0/2" in again
    assert "rollouts open_mab_gemma/0/0/1" not in again
    assert digests(tree) == before
    looked_for_jobs = said.count("Resources before job selection")
    assert len(again) <= looked_for_jobs + 1  # so the words are still Snakemake's
    assert looked_for_jobs <= 2 * len(again) + 2  # when a job starts or ends, and not by the clock as well


@pytest.mark.parametrize("command", [("snakemake",), ("snakemake", "--dry-run"), ("rmft", "prune")])
def test_a_second_run_in_the_same_folder_is_refused_while_the_first_is_at_work(tree, command):
    with (tree / ".snakemake/flock").open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = run(tree, *command)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        2,
        "rmft: another snakemake is at work in this folder; wait until it ends, or stop it",
    )
    assert run(tree, *command).returncode == 0


@pytest.mark.long
def test_after_a_failed_job_no_target_takes_what_it_was_to_renew_for_done(tree, tmp_path):
    figure = "results/figures/regret-dynamics-noisy.csv"
    set_value(tree, "experiments.numeric_mixture.rmft.selected", 2)
    fresh = copy_of(tree.parent, tmp_path / "fresh")
    shutil.rmtree(fresh / "results")
    snakemake(fresh, figure)
    expected = digests(fresh)[figure]
    folder = tree / "results/experiments/numeric_mixture/iteration-20"
    shutil.rmtree(folder)
    folder.touch()  # where the job has to write
    assert run(tree, "snakemake").returncode == 1
    folder.unlink()
    for number, target in enumerate(("figures", "exp_numeric_mixture", figure)):
        failed = copy_of(tree.parent, tmp_path / f"failed-{number}")
        snakemake(failed, target)
        snakemake(failed, figure)
        assert digests(failed)[figure] == expected
    snakemake(failed)
    assert digests(failed)[figure] == expected


def test_dvc_knows_every_experiment_and_plots_every_training_and_figure():
    dvc = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for stage in ("figures", "tables"):
        assert {f"results/{name}" for name in params["experiments"]} <= set(dvc["stages"][stage]["deps"])
    selecting = {
        f"results/{name}" for name, of in params["experiments"].items() if of["kind"] in ("language", "endpoint")
    }
    assert selecting <= set(dvc["stages"]["report"]["deps"])  # whose games the report shows
    training, *others = dvc["plots"]
    (curves,) = (plot["y"] for plot in training.values())
    numeric = {name for name, of in params["experiments"].items() if of["kind"] == "numeric"}
    assert curves.keys() == {f"results/{name}/training-log.csv" for name in numeric}
    images = {plot for plot in others if isinstance(plot, str)}
    assert images == {f"results/figures/{label}.png" for label in params["figures"]["drawn"]}
