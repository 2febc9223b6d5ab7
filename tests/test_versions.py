"""Snakemake and DVC as one: edits, commits, clones and experiments, as docs/workflow.md says to make them."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from test_docs import bash, what_to_type
from test_workflow import FIGURES, GROWTH
from trees import commit, digests, done, edit, jobs_in, metrics, run, set_value, snakemake

from rmft.artifacts.receipts import receipt_path

FIT_JOBS = {*(f"table {label}" for label in GROWTH), "metrics", "report"}
MIXTURE_JOBS = {
    "training numeric_mixture",
    "evaluation numeric_mixture/noisy-alternating",
    "evaluation numeric_mixture/adaptive",
    "evaluation numeric_mixture/bernoulli",
    "figure regret-dynamics-noisy",
    "metrics",
    "report",
}


def repro(folder: Path, *arguments: str) -> str:
    """Run `dvc repro`; return all that it printed."""
    return done(folder, "dvc", "repro", *arguments)


def up_to_date(folder: Path) -> bool:
    """Return whether DVC and the audit find nothing to do; they must agree. The audit asks Snakemake."""
    verdicts = {
        "dvc": "up to date" in done(folder, "dvc", "status"),
        "audit": run(folder, "rmft", "lineage", "--all").returncode == 0,
    }
    assert len(set(verdicts.values())) == 1, verdicts
    return verdicts["dvc"]


@pytest.mark.xdist_group("history")
@pytest.mark.long
def test_a_value_is_changed_committed_compared_checked_out_and_reverted(tree):
    """Only this test follows an edit through `dvc repro`, git and back, with both engines agreeing at each step."""
    before = digests(tree)
    assert not jobs_in(bash(tree, what_to_type("snakemake --dry-run")))
    log = bash(tree, what_to_type("sed -i 's/floor: null/floor: 0.01/' params.yaml"))
    assert jobs_in(log) == FIT_JOBS
    assert "evaluation.floor" in log  # what rmft diff prints
    after = digests(tree)
    assert up_to_date(tree)
    assert "evaluation.floor" in bash(tree, what_to_type("rmft diff HEAD~1 HEAD"))
    back, forth = what_to_type("git checkout --quiet HEAD~1").split("git checkout --quiet -\n")
    for commands, expected in ((back, before), (f"git checkout --quiet -\n{forth}", after)):
        bash(tree, commands)
        assert digests(tree) == expected
        assert up_to_date(tree)
    # A killed job may leave the bytes that DVC knows.
    done(tree, "python", "-c", "from rmft.lineage.records import mark_unfinished as mark; mark('results/report.html')")
    assert "was never finished" in run(tree, "rmft", "lineage", "--all").stderr
    assert jobs_in(repro(tree, "--single-item", "--force", "provenance")) == {"report"}
    assert up_to_date(tree)
    edit(tree / "params.yaml", "floor: 0.01", "floor: null")
    assert jobs_in(snakemake(tree)) == FIT_JOBS
    assert digests(tree) == before != after
    # What is built can be looked at, and its storage can be another one.
    assert "The last run finished" in bash(tree, what_to_type("rmft status"))
    assert "trained-0" in bash(tree, what_to_type("rmft results\nrmft compare"))
    bash(tree, what_to_type("rmft lineage results/figures/tfbandit.pdf"))
    bash(tree, what_to_type("rmft selection"))
    selection = "results/experiments/open_mab_gemma/seed-0/iteration-0/selection.parquet"
    assert (tree / "scratch" / selection).read_bytes() == (tree / selection).read_bytes()
    graph = bash(tree, what_to_type("dvc metrics show"))
    assert all(stage in graph for stage in ("rewards", "exp@numeric_mab", "figures", "tables", "provenance"))
    check_plots(tree)
    assert (tree / "report.html").stat().st_size > 100_000  # Snakemake's own
    bash(tree, what_to_type("dvc remote modify storage url s3"))
    (tree / ".dvc/config.local").unlink()  # the profile of S3, which other storages refuse
    bash(tree, what_to_type("dvc remote modify storage url gs"))
    bash(tree, what_to_type("dvc remote modify storage url azure"))
    bash(tree, what_to_type("dvc remote modify storage url ssh"))


def check_plots(tree: Path) -> None:
    """Check the page of `rmft plots`, which needs no network; and what it says of a plot that there is not."""
    (page,) = (tree / "plots").rglob("*.html")
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href) *= *.https?:", text)
    assert text.count("vegaEmbed(") >= 6
    assert set(re.findall(r"<img src=\"static/\w+_figures_([\w-]+)\.png", text)) == set(FIGURES)
    refused = run(tree, "rmft", "plots", "nothing")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("rmft: dvc plots: ")


@pytest.mark.xdist_group("clones")
@pytest.mark.long
def test_a_clone_pulls_what_was_pushed_elsewhere_and_builds_on_it(tree, tmp_path):
    """Only this test sees a clone start from a storage: nothing is due, and a new experiment runs alone."""
    clone = tree.parent / "clone"
    done(tree, "dvc", "remote", "modify", "storage", "url", str(tmp_path / "else" / "where"))  # made when absent
    commit(tree, "Use another storage")
    done(tree, "dvc", "push", "--quiet")
    bash(tree, what_to_type("git clone --quiet . ../clone\ncd ../clone\ndvc pull results"))
    everything = digests(tree)
    wanted = [f"results/figures/tfbandit.{ending}" for ending in ("csv", "pdf")]
    assert digests(clone) == {path: everything[path] for path in wanted}
    traced = run(clone, "rmft", "lineage", wanted[0])
    assert traced.returncode == 1
    assert "missing: results/experiments/numeric_mab/evaluation/gaussian.parquet" in traced.stderr
    assert "altered" not in traced.stderr
    done(tree, "rm", "-r", str(clone))
    assert not jobs_in(bash(tree, what_to_type("git clone --quiet . ../clone\ncd ../clone\ndvc pull\n")))
    assert digests(clone) == everything
    assert up_to_date(clone)
    # An experiment that no stage has built yet is built for the stage that needs it.
    experiments = yaml.safe_load((clone / "params.yaml").read_text(encoding="utf-8"))["experiments"]
    set_value(clone, "experiments.mine", {**experiments["numeric_mixture"], "checkpoints": [5]})
    # A checkpoint that it no longer keeps, of a former run, is pruned.
    former = Path("results/experiments/mine/iteration-10/model.safetensors")
    for file in (former, receipt_path(former)):
        (clone / file).parent.mkdir(parents=True)
        shutil.copy(str(clone / file).replace("/mine/", "/numeric_mixture/"), clone / file)
    own = {job.replace("numeric_mixture", "mine") for job in MIXTURE_JOBS if " numeric_mixture" in job}
    assert jobs_in(repro(clone, "tables")) == {*own, "metrics"}
    assert "mine" in metrics(clone)
    assert not (clone / former).exists()
    assert jobs_in(repro(clone)) == {"report"}
    assert up_to_date(clone)


@pytest.mark.xdist_group("experiments")
@pytest.mark.long
def test_experiments_run_in_the_workspace_and_beside_it(tree):
    """Only this test runs `dvc exp run`, in the workspace and in a copy, and takes an experiment over."""
    run_here, compare_and_restore = what_to_type("dvc exp run --name two").split("\n", maxsplit=1)
    before = digests(tree)
    assert jobs_in(bash(tree, run_here)) == MIXTURE_JOBS
    assert digests(tree) != before
    printed = bash(tree, compare_and_restore)
    assert "experiments.numeric_mixture.rmft.selected" in printed
    moved = re.findall(r"results/summary\.json +(\S+)", printed)
    assert {tuple(key.split(".")[:2]) for key in moved} == {
        ("numeric_mixture", evaluation) for evaluation in ("noisy-alternating", "adaptive", "bernoulli")
    }
    assert {key.split(".")[-1] for key in moved} <= {"regret", "exponent", "ks_p", "paired_p", "instances_needed"}
    assert digests(tree) == before

    run_beside, compare = what_to_type("dvc exp run --temp").split("\n", maxsplit=1)
    assert jobs_in(bash(tree, run_beside)) == MIXTURE_JOBS
    assert digests(tree) == before
    difference = bash(tree, compare)
    assert "experiments.numeric_mixture.rmft.selected" in difference
    assert "numeric_mixture/adaptive" in difference
    done(tree, "dvc", "exp", "apply", "three")
    done(tree, "dvc", "checkout", "--quiet", "--force")
    assert digests(tree) != before
    assert up_to_date(tree)
    assert "rmft.selected=3" in done(tree, "rmft", "lineage", "--full", "results/figures/regret-dynamics-noisy.pdf")


def test_nothing_that_a_job_wrote_is_in_git(built):
    kept = done(built / "rmft", "git", "ls-files", "results", "data", ".snakemake", "logs").split()
    ours = (
        "data/forensics/",
        "data/models/",
        "data/paper/",
        "data/recorded/",
        "data/prompts/",
        "data/report/",
        "data/scenarios/",
        "data/suite/",
    )
    assert all(path.startswith(ours) for path in kept)
