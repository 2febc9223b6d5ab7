"""Snakemake and DVC as one: edits, clones, branches and experiments, with real git, DVC and Snakemake."""

from pathlib import Path

import pytest
from trees import commit, digests, done, edit, jobs_in, run, set_value, snakemake, to_do

pytestmark = pytest.mark.xdist_group("versions")

FIGURES = ("parameter", "regret-dynamics-noisy", "tfbandit", "simplex-tf-all", "ball-tf-all", "tfgamma")
OF_BANDITS = {"figure tfbandit", "figure tfgamma"}
EDITS = {  # dotted key → another value, and the jobs that depend on it
    "experiments.numeric_mab.rmft.selected": (
        2,
        {"training numeric_mab", "evaluation numeric_mab/gaussian", "evaluation numeric_mab/gamma", "metrics"}
        | OF_BANDITS,
    ),
    "experiments.numeric_mab.rmft.variance": (  # the numeric agent's temperature
        0.04,
        {"training numeric_mab", "evaluation numeric_mab/gaussian", "evaluation numeric_mab/gamma", "metrics"}
        | OF_BANDITS,
    ),
    "experiments.numeric_mixture.sft.learning_rate": (
        0.02,
        {
            "training numeric_mixture",
            "evaluation numeric_mixture/noisy-alternating",
            "evaluation numeric_mixture/adaptive",
            "evaluation numeric_mixture/bernoulli",
            "figure regret-dynamics-noisy",
            "metrics",
        },
    ),
    "experiments.numeric_simplex.evaluations.gaussian.T": (
        50,
        {"evaluation numeric_simplex/gaussian", "figure simplex-tf-all", "table simplex-table", "metrics"},
    ),
    "rewards.gamma.instances": (
        200,
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


# The engine that meets the edit and the one that meets its reversal; each engine does both in turn.
TURNS = [(snakemake, repro) if number % 2 else (repro, snakemake) for number in range(len(EDITS))]


@pytest.mark.parametrize(("key", "engines"), zip(EDITS, TURNS, strict=True))
def test_an_edited_value_runs_the_jobs_that_depend_on_it_and_reverting_it_gives_the_same_bytes(tree, key, engines):
    value, expected = EDITS[key]
    before, params = digests(tree), (tree / "params.yaml").read_bytes()
    set_value(tree, key, value)
    assert jobs_in(engines[0](tree)) == expected
    assert digests(tree) != before
    (tree / "params.yaml").write_bytes(params)
    assert jobs_in(engines[1](tree)) == expected
    assert digests(tree) == before
    if engines[1] is repro:
        assert up_to_date(tree)


def test_what_snakemake_built_dvc_adopts_without_a_job(tree):
    set_value(tree, "figures.style.dpi", 100)
    snakemake(tree)
    assert jobs_in(repro(tree)) == set()
    assert up_to_date(tree)


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
    assert "missing: results/numeric_mab/evaluation/gaussian.parquet" in traced.stderr
    assert "altered" not in traced.stderr


def test_checking_out_an_older_commit_and_back_leaves_nothing_to_do_in_either(tree):
    first, before = done(tree, "git", "rev-parse", "HEAD").strip(), digests(tree)
    set_value(tree, "experiments.numeric_mixture.rmft.selected", 2)
    edit(tree / "src/rmft/figures/style.py", "RATIO = 0.72", "RATIO = 0.70")
    repro(tree)
    commit(tree, "Keep two")
    after = digests(tree)
    for revision, expected in ((first, before), ("-", after), ("-", before), ("-", after)):
        done(tree, "git", "checkout", "--quiet", revision)
        done(tree, "dvc", "checkout", "--quiet")
        assert digests(tree) == expected
        assert up_to_date(tree)
