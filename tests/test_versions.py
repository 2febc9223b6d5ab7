"""Snakemake and DVC as one: edits, clones, branches and experiments, with real git, DVC and Snakemake."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from test_docs import blocks
from trees import commit, digests, done, edit, jobs_in, metrics, run, set_value, snakemake, to_do

pytestmark = pytest.mark.xdist_group("versions")

FIGURES = (
    *("regret-dynamics-noisy", "tfbandit", "simplex-tf-all", "tfgamma"),
    *("open-MAB-gaussian-T50-gemma", "luck-in-hindsight", "sdm-example", "reasoning-comparison"),
)
OF_BANDITS = {"figure tfbandit", "figure tfgamma"}
OF_MIXTURE = {
    "training numeric_mixture",
    "evaluation numeric_mixture/noisy-alternating",
    "evaluation numeric_mixture/adaptive",
    "evaluation numeric_mixture/bernoulli",
    "figure regret-dynamics-noisy",
    "metrics",
    "report",
}
EDITS = {  # dotted key → another value, and the jobs that depend on it
    "experiments.numeric_mab.rmft.selected": (
        2,
        {"training numeric_mab", "evaluation numeric_mab/gaussian", "evaluation numeric_mab/gamma", "metrics"}
        | OF_BANDITS,
    ),
    "experiments.numeric_mixture.rmft.variance": (0.5, OF_MIXTURE),  # the numeric agent's temperature
    "experiments.numeric_mixture.sft.learning_rate": (0.02, OF_MIXTURE),
    "experiments.numeric_simplex.evaluations.gaussian.T": (
        50,
        {"evaluation numeric_simplex/gaussian", "figure simplex-tf-all", "table simplex-table", "metrics"},
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


def repro(folder: Path, *arguments: str) -> str:
    """Run `dvc repro`; return all that it printed."""
    return done(folder, "dvc", "repro", *arguments)


def up_to_date(folder: Path) -> bool:
    """Return whether Snakemake, DVC and the audit each find nothing to do; they must agree."""
    verdicts = {
        "snakemake": not to_do(folder),
        "dvc": "up to date" in done(folder, "dvc", "status"),
        "audit": run(folder, "rmft", "lineage", "--all").returncode == 0,
    }
    assert len(set(verdicts.values())) == 1, verdicts
    return verdicts["dvc"]


EDITS = {key: (value, {*jobs, "report"}) for key, (value, jobs) in EDITS.items()}  # which shows everything

# More instances than an evaluation plays change none of its bytes. One run of Snakemake runs what follows a job that
# ran; DVC has one run a stage, and what an earlier one left as it was makes nothing out of date.
SPARED_BY_DVC = {"rewards.gamma.instances": {"figure tfgamma", "metrics", "report"}}

# The engine that meets the edit and the one that meets its reversal, for two of the edits: a run takes a minute.
TURNS = {"experiments.numeric_mab.rmft.selected": (snakemake, repro), "rewards.gamma.instances": (repro, snakemake)}


@pytest.mark.xdist_group("edits")
def test_an_edited_value_makes_the_jobs_that_depend_on_it_due_and_no_other(tree):
    params = (tree / "params.yaml").read_bytes()
    for key, (value, expected) in EDITS.items():
        set_value(tree, key, value)
        assert to_do(tree) == expected, key
        (tree / "params.yaml").write_bytes(params)
    assert up_to_date(tree)


@pytest.mark.xdist_group("edits")
@pytest.mark.long
@pytest.mark.parametrize("key", TURNS)
def test_both_engines_run_them_and_reverting_the_edit_gives_the_same_bytes(tree, key):
    (value, expected), engines = EDITS[key], TURNS[key]
    before, params = digests(tree), (tree / "params.yaml").read_bytes()
    of_engine = {snakemake: expected, repro: expected - SPARED_BY_DVC.get(key, set())}
    set_value(tree, key, value)
    assert jobs_in(engines[0](tree)) == of_engine[engines[0]]
    assert digests(tree) != before
    (tree / "params.yaml").write_bytes(params)
    assert jobs_in(engines[1](tree)) == of_engine[engines[1]]
    assert digests(tree) == before
    if engines[1] is repro:
        assert up_to_date(tree)


@pytest.mark.long
def test_a_fresh_clone_pulls_everything_and_both_engines_have_nothing_to_do_until_an_edit(tree, tmp_path):
    clone = tmp_path / "home" / "clone"
    done(tree.parent, "git", "clone", "--quiet", str(tree), str(clone))
    done(clone, "dvc", "pull", "--quiet")
    assert digests(clone) == digests(tree)
    assert up_to_date(clone)
    key = "experiments.numeric_simplex.evaluations.gaussian.T"
    value, expected = EDITS[key]
    set_value(clone, key, value)
    assert to_do(clone) == expected
    assert jobs_in(repro(clone)) == expected
    assert up_to_date(clone)


def test_one_experiments_figures_can_be_pulled_alone(tree, tmp_path):
    clone = tmp_path / "home" / "clone"
    done(tree.parent, "git", "clone", "--quiet", str(tree), str(clone))
    wanted = [f"results/figures/tfbandit.{ending}" for ending in ("pdf", "png", "csv")]
    done(clone, "dvc", "pull", "--quiet", *wanted)
    now = digests(tree)
    assert digests(clone) == {path: now[path] for path in sorted(wanted)}
    done(clone, "dvc", "pull", "--quiet", "provenance")
    traced = run(clone, "rmft", "lineage", wanted[0])
    assert traced.returncode == 1
    assert "missing: results/experiments/numeric_mab/evaluation/gaussian.parquet" in traced.stderr
    assert "altered" not in traced.stderr


@pytest.mark.long
def test_checking_out_an_older_commit_and_back_leaves_nothing_to_do_in_either(tree):
    first, before = done(tree, "git", "rev-parse", "HEAD").strip(), digests(tree)
    set_value(tree, "experiments.numeric_mixture.rmft.selected", 2)
    edit(tree / "src/rmft/figures/style.py", "RATIO = 0.72", "RATIO = 0.70")
    repro(tree)
    commit(tree, "Keep two")
    after = digests(tree)
    for revision, expected in ((first, before), ("-", after)):
        done(tree, "git", "checkout", "--quiet", revision)
        done(tree, "dvc", "checkout", "--quiet")
        assert digests(tree) == expected
        assert up_to_date(tree)


IN_THE_WORKSPACE, BESIDE_IT = (block for block in blocks() if block.startswith("dvc exp run"))


@pytest.mark.xdist_group("experiments")
@pytest.mark.long
def test_an_experiment_runs_in_the_workspace_and_says_what_it_changed(tree):
    begin, rest = IN_THE_WORKSPACE.split("\n", maxsplit=1)
    before = digests(tree)
    assert jobs_in(done(tree, "bash", "-c", begin)) == OF_MIXTURE
    assert digests(tree) != before
    changed = json.loads(done(tree, "dvc", "params", "diff", "--json"))["params.yaml"]
    assert changed == {"experiments.numeric_mixture.rmft.selected": {"old": 1, "new": 2, "diff": 1}}
    moved = json.loads(done(tree, "dvc", "metrics", "diff", "--json"))["results/summary.json"]
    assert {tuple(key.split(".")[:2]) for key in moved} == {
        ("numeric_mixture", evaluation) for evaluation in ("noisy-alternating", "adaptive", "bernoulli")
    }
    assert {key.split(".")[-1] for key in moved} <= {"regret", "exponent", "ks_p", "paired_p", "instances_needed"}
    shown = done(tree, "dvc", "exp", "show", "--only-changed", "--csv")
    assert "two" in shown
    assert "experiments.numeric_mixture.rmft.selected" in shown.splitlines()[0]
    said = done(tree, "rmft", "diff")
    assert "experiments.numeric_mixture.rmft.selected" in said
    assert "numeric_mixture/adaptive" in said
    done(tree, "bash", "-euc", rest)
    assert digests(tree) == before
    assert up_to_date(tree)


@pytest.mark.xdist_group("experiments")
@pytest.mark.long
def test_experiments_run_beside_the_workspace_and_one_can_be_taken_over(tree):
    before = digests(tree)
    begin, rest = BESIDE_IT.split("\n", maxsplit=1)
    assert jobs_in(done(tree, "bash", "-c", begin)) == OF_MIXTURE
    assert "experiments.numeric_mixture.rmft" in done(tree, "bash", "-euc", rest)
    assert digests(tree) == before
    done(tree, "dvc", "exp", "apply", "three")
    done(tree, "dvc", "checkout", "--quiet", "--force")
    assert digests(tree) != before
    assert up_to_date(tree)
    assert "no difference" in done(tree, "rmft", "diff", "three", "workspace")
    assert "rmft.selected=3" in done(tree, "rmft", "lineage", "--full", "results/figures/regret-dynamics-noisy.pdf")


def test_a_checkpoint_that_is_no_longer_kept_is_pruned_and_no_other_file(tree):
    (tree / "results/experiments/numeric_mixture/mine.txt").write_text("mine", encoding="utf-8")
    set_value(tree, "experiments.numeric_mixture.checkpoints", [5])
    failed = run(tree, "dvc", "repro", "exp@numeric_mixture")
    assert failed.returncode == 0, failed.stdout + failed.stderr
    assert not (tree / "results/experiments/numeric_mixture/iteration-10").exists()
    assert (tree / "results/experiments/numeric_mixture/iteration-5/model.safetensors").exists()
    assert (tree / "results/experiments/numeric_mixture/mine.txt").exists()
    assert "orphan: results/experiments/numeric_mixture/mine.txt" in run(tree, "rmft", "lineage", "--all").stderr


@pytest.mark.long
def test_a_stage_that_lacks_a_dependency_builds_it_all_the_same(tree):
    params = yaml.safe_load((tree / "params.yaml").read_text(encoding="utf-8"))
    set_value(tree, "experiments.mine", params["experiments"]["numeric_mixture"])
    assert {"training mine", "metrics"} <= jobs_in(repro(tree, "tables"))
    assert "mine" in metrics(tree)
    assert jobs_in(repro(tree)) == {"report"}
    assert up_to_date(tree)


def test_plots_are_drawn_in_a_page_that_needs_no_network(tree):
    page = (tree / done(tree, "rmft", "plots").strip().splitlines()[-1]).read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href) *= *.https?:", page)
    assert page.count("vegaEmbed(") >= 6
    assert set(re.findall(r"<img src=\"static/\w+_figures_([\w-]+)\.png", page)) == set(FIGURES)
    refused = run(tree, "rmft", "plots", "nothing")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("rmft: dvc plots: ")


def test_the_graph_of_stages_is_drawn(tree):
    graph = done(tree, "dvc", "dag", "--md")
    assert all(stage in graph for stage in ("rewards", "exp@numeric_mab", "figures", "tables", "provenance"))


def test_another_storage_is_one_command_and_is_made_when_absent(tree, tmp_path):
    elsewhere = tmp_path / "else" / "where"
    done(tree, "dvc", "remote", "modify", "storage", "url", str(elsewhere))
    done(tree, "dvc", "push", "--quiet")
    before = digests(tree)
    shutil.rmtree(tree / ".dvc/cache")
    shutil.rmtree(tree / "results")
    done(tree, "dvc", "pull", "--quiet")
    assert digests(tree) == before


def test_nothing_that_a_job_wrote_is_in_git(tree):
    kept = done(tree, "git", "ls-files", "results", "data", ".snakemake", "logs").split()
    ours = ("data/models/", "data/paper/", "data/prompts/", "data/report/", "data/scenarios/")
    assert all(path.startswith(ours) for path in kept)
