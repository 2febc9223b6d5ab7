"""Experiments on request, and the results bundles that are made of them."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from trees import ROOT, checkout, commit, done, edit, run, set_value, snakemake, values_in, write_values

from rmft.artifacts.here import move_away
from rmft.artifacts.trajectories import read_trajectories
from rmft.environments import draw_rewards
from rmft.errors import InputError
from rmft.params import load
from rmft.recorded.bundle import altered, as_text, bundle_of, bundles, read_bundle
from rmft.recorded.page import BEGIN, END, counts, pages, verdict, with_other_weights
from rmft.recorded.recording import record
from rmft.report.recorded import read_recorded
from rmft.report.texts import read_texts
from rmft.results import read_players
from rmft.workflow.paths import REPORT_TEXTS

SMALL = {
    "kind": "language", "scale": "own", "model": "embedded", "environment": "mab", "process": ["gaussian"], "T": 3,
    "rmft": {"iterations": 1, "scenarios": 2, "trajectories": 2},
    "sft": {"method": "full", "epochs": 1, "gradient_checkpointing": False},
    "evaluations": {"short": {"rewards": "gaussian", "T": 3, "instances": 4, "algorithms": ["ucb"]}},
}  # fmt: skip
SMALL_GRPO = {
    "kind": "grpo", "varies": "small",
    "grpo": {
        "iterations": 1, "scenarios": 2, "trajectories": 2, "method": "full", "batch_size": 2, "accumulation": 1,
        "gradient_checkpointing": False, "reward": "step",
    },
}  # fmt: skip


def test_a_regret_says_nothing_where_most_replies_are_invalid():
    interval = (-3.0, -2.0, -1.0)
    assert verdict(interval) == verdict(interval, {"trained": 1.9, "most": 4}) == "fell"
    assert verdict(interval, {"trained": 2.1, "most": 4}).startswith("says nothing")
    assert verdict((-1.0, 0.0, 1.0)) == "did not change significantly"


def test_falls_are_corrected_for_all_evaluations_that_are_counted_and_rises_counted_too():
    fell = {"paired_difference": [-3.0, -2.0, -1.0], "paired_p": 0.012}  # of one side
    rose = {"paired_difference": [1.0, 2.0, 3.0], "paired_p": 0.99}
    unclear = {"paired_difference": [-1.0, 0.0, 1.0], "paired_p": 0.5}
    results = SimpleNamespace(metrics={"one": {"a": fell}, "other": {"a": rose, "b": unclear}})
    assert counts(results, ["one"]) == {"of": 1, "fell": 1, "rose": 0, "fell_by_holm": 1}
    assert counts(results, ["one", "other"]) == {"of": 3, "fell": 1, "rose": 1, "fell_by_holm": 0}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Return a checkout in which the experiment on request is built and recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "rmft"
    checkout(folder)
    values = values_in(folder)
    figure = {"form": "regret", "experiments": ["small"], "evaluations": ["short"], "players": ["base", "trained"]}
    values["on_request"], values["quick"] = {"small": SMALL, "small_grpo": SMALL_GRPO}, {}
    values["figures"]["drawn"] = {name: of for name, of in values["figures"]["drawn"].items() if "real" not in name}
    values["tables"] = {name: of for name, of in values["tables"].items() if "real" not in name}
    values["figures"]["drawn"]["small"] = figure
    write_values(folder, values)
    done(folder, "git", "init", "--quiet")
    commit(folder, "Start")
    snakemake(folder, "on_request")
    for name in ("small", "small_grpo"):
        done(folder, "rmft", "record", name)
    return folder


@pytest.mark.long
def test_a_bundle_says_what_was_played_and_trained_from_what_and_no_file_of_it_changes_unseen(recorded):
    folder = recorded / "data/recorded/small"
    bundle = read_bundle(folder)
    assert bundle.experiments["small"]["experiment"]["rmft"]["trajectories"] == 2
    assert len(bundle.commits) == 1
    assert {"metrics.json", "summary.json", "figures/small.png", "figures/small.csv"} <= bundle.files.keys()
    crate = json.loads((folder / "lineage/figures/small/ro-crate-metadata.json").read_text(encoding="utf-8"))
    made = {entity["@id"]: entity for entity in crate["@graph"]}["results/figures/small.csv"]
    assert made["sha256"] == bundle.files["figures/small.csv"]
    games = folder / "experiments/small/evaluation/short/trained-0.jsonl"
    worst, _, best = map(json.loads, games.read_text(encoding="utf-8").splitlines())
    final = read_players(recorded / "results/experiments/small/evaluation/short.parquet")["trained"].final
    assert (worst["regret"], best["regret"]) == pytest.approx((final.max(), final.min()))
    assert "recorded, not rebuilt" in done(recorded, "rmft", "lineage", "data/recorded/small/figures/small.png")
    edit(folder / "figures/small.csv", "base", "bass")
    altered = run(recorded, "rmft", "lineage", "data/recorded/small/figures/small.png")
    assert (altered.returncode, "altered: data/recorded/small/figures/small.csv" in altered.stdout) == (1, True)
    edit(folder / "figures/small.csv", "bass", "base")


@pytest.mark.long
def test_the_page_has_the_numbers_of_the_bundle(recorded):
    text = (recorded / "docs/real-models.md").read_text(encoding="utf-8")
    metrics = json.loads((recorded / "data/recorded/small/metrics.json").read_text(encoding="utf-8"))["small"]["short"]
    assert f"| short | 4 | {metrics['base']['mean']:.1f} ± " in text
    assert "1 training of 1 iteration, each of 2 scenarios with 2 games, of which the 1" in text
    assert "all of its 4 games, by GRPO (`reward: step`)" in text
    players = json.loads((recorded / "data/recorded/small/summary.json").read_text(encoding="utf-8"))["small"]
    of_ucb = players["exploration"]["short"]["ucb"]
    assert of_ucb["min_frac"] == of_ucb["all_tried"] == 1.0  # in three rounds UCB plays every action once


def test_the_pages_of_recorded_results_are_those_that_the_bundles_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `rmft record`"


@pytest.mark.parametrize("line", [BEGIN, END])
def test_a_readme_whose_results_have_no_end_is_refused_and_not_cut_off(monkeypatch, tmp_path, line):
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text(encoding="utf-8").replace(line, ""), encoding="utf-8")
    monkeypatch.setattr("rmft.recorded.page.README", readme)
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError, match=re.escape(f"README.md: has no line `{line}`")):
        pages()


def test_every_bundle_in_git_is_whole(monkeypatch):
    monkeypatch.chdir(ROOT)
    for folder in bundles():
        assert not list(altered(folder, read_bundle(folder)))
        assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 20e6


def test_a_file_that_was_not_recorded_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    bundle = bundles()[0]
    copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    (copy / "mine.csv").write_text("made by hand")
    assert list(altered(copy, read_bundle(copy))) == [
        f"unrecorded: {copy}/mine.csv is no file of this bundle; run `{move_away(copy / 'mine.csv')}`"
    ]


def test_a_bundle_takes_the_place_of_no_folder_that_holds_others(monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError, match="data/recorded/demo: holds other things than a bundle of closed_mab"):
        record(Path("data/recorded/demo"), load().at_scale(), "closed_mab")


@pytest.mark.long
def test_the_report_shows_what_is_recorded_with_instances_and_trainings(recorded, monkeypatch):
    monkeypatch.chdir(recorded)
    captions, _ = read_texts(*map(Path, REPORT_TEXTS))
    files = {path.as_posix(): path for path in Path("data/recorded/small").rglob("*") if path.is_file()}
    (results,) = [one for one in read_recorded(files, captions) if one.folder == "data/recorded/small"]
    (row,) = results.regrets
    assert (row["n"], row["trainings"], row["model"]) == (4, 1, "embedded")
    assert [figure.label for figure in results.figures] == ["small"]
    assert bundle_of(Path("data/recorded/small/figures/small.png").absolute()) == Path("data/recorded/small")


def test_all_that_is_built_is_recorded_and_nothing_while_a_file_is_gone(tree):
    done(tree, "rmft", "record", "--all")
    bundle = read_bundle(tree / "data/recorded/smoke/all")
    assert {Path(name).stem for name in bundle.files if name.endswith(".md")} == set(values_in(tree)["tables"])
    assert bundle.experiments.keys() == values_in(tree)["experiments"].keys()
    metrics = (tree / "data/recorded/smoke/all/metrics.json").read_bytes()
    assert metrics == (tree / "results/metrics.json").read_bytes()
    set_value(tree, "seed", 1)
    refused = run(tree, "rmft", "record", "--all")
    words = "was made with other parameters than params.yaml has now; run `snakemake all` first"
    assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr
    assert read_bundle(tree / "data/recorded/smoke/all") == bundle
    set_value(tree, "seed", 0)
    (tree / "results/theory/minimisers.csv").unlink()
    refused = run(tree, "rmft", "record", "--all")
    assert (refused.returncode, "minimisers.csv is not there yet; `snakemake all`" in refused.stderr) == (2, True)


def test_where_a_bundle_keeps_no_lineage_none_is_named():
    for name, kept in {"real_mab_gemma_more": True, "real_mab_gemma_ucb": False}.items():
        folder = ROOT / "data/recorded" / name
        assert ("root seed" in "\n".join(as_text(folder / "metrics.json", folder, read_bundle(folder)))) is kept


@pytest.mark.long
def test_an_experiment_that_is_not_built_is_not_recorded(recorded):
    figure = recorded / "results/figures/small.csv"
    text = figure.read_text(encoding="utf-8")
    figure.write_text(text.replace("base", "bass"), encoding="utf-8")
    refused = run(recorded, "rmft", "record", "small")
    assert refused.returncode == 2
    assert "results/figures/small.csv" in refused.stderr
    assert read_bundle(recorded / "data/recorded/small").files  # the bundle of before is still whole
    figure.write_text(text, encoding="utf-8")


@pytest.mark.long
def test_results_prints_the_regrets_of_what_is_built_and_prompt_the_message_that_the_model_got(recorded):
    bundle = json.loads((recorded / "data/recorded/small/metrics.json").read_text(encoding="utf-8"))
    on_request = json.loads((recorded / "results/on-request-metrics.json").read_text(encoding="utf-8"))
    assert bundle["small"] == on_request["small"]
    metrics = bundle["small"]["short"]
    printed = done(recorded, "rmft", "results", "small")
    done(recorded, "rmft", "results", "small", "--plot", "plots/small.png")
    drawn = pd.read_csv(recorded / "plots/small.csv").set_index("player")
    assert (recorded / "plots/small.png").stat().st_size > 10_000
    assert drawn.x["ucb"] == pytest.approx(metrics["algorithms"]["ucb"]["mean"] / metrics["base"]["mean"])
    low, difference, high = metrics["paired_difference"]
    assert drawn.low["trained"] == pytest.approx(1 + low / metrics["base"]["mean"])
    assert f"{metrics['base']['mean']:.2f}" in printed
    assert f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]" in printed
    games = recorded / "results/experiments/small/seed-0/iteration-0/rollouts.parquet"
    (first,) = {prompts[0] for prompts in read_trajectories(games, tokens=False)["prompt"]}
    assert first in done(recorded, "rmft", "prompt", "small", "--rounds", "1")


def test_what_is_not_built_or_not_played_in_words_is_refused_in_one_line(rmft, tmp_path, monkeypatch):
    for name in ("Snakefile", "params.yaml", "outputs.yaml", "extensions", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        (["results"], "no evaluation of any experiment is built; `make quick`"),
        (["results", "numeric_mabb"], "unknown 'numeric_mabb'; did you mean numeric_mab?"),
        (["prompt", "numeric_mab"], "prompt: numeric_mab: its games are not played in words"),
        (["prompt", "closed_mab", "--evaluation", "gaussian"], "--evaluation: unknown 'gaussian'; one of gaussian-25"),
        (["record", "closed_mab"], "is not there yet; `snakemake exp_closed_mab`"),
        (["record", "numeric_mab"], "record: numeric_mab: its games are not played in words; `rmft record --all`"),
    ):
        code, _, error = rmft(*arguments)
        assert (code, words in error, error.count("\n")) == (2, True, 1), error


def test_on_the_ball_a_fixed_direction_has_less_regret_than_the_trained_agent_where_findings_say_so():
    metrics = json.loads((ROOT / "data/recorded/demo/all/metrics.json").read_text(encoding="utf-8"))["numeric_ball"]
    params = load(ROOT / "params.yaml").at_scale()
    lower = set()
    for name in metrics.keys() - {"adaptive"}:  # whose rewards answer the player
        drawn = params.rewards[name]
        table = draw_rewards(params.seed, name, drawn.process, (drawn.instances, drawn.T, drawn.d))
        earned = table.rewards[: metrics[name]["n"]].sum(axis=1)
        regret = np.linalg.norm(earned, axis=1) - earned.sum(axis=1) / np.sqrt(drawn.d)
        assert regret.mean() == pytest.approx(metrics[name]["algorithms"]["uniform"]["mean"], abs=1e-6)
        if regret.mean() < metrics[name]["trained"]["mean"]:
            lower.add(name)
    assert lower == {"gaussian", "sine-trend", "alternating", "noisy-alternating"}


def test_bundles_of_other_weights_than_the_demo_are_named():
    hashes = {"all": {"m": "a"}, "same": {"m": "a"}, "earlier": {"m": "b"}, "unknown": {}}
    recorded = {f"demo/{name}": SimpleNamespace(about=SimpleNamespace(weights=of)) for name, of in hashes.items()}
    elsewhere = {"real": recorded["demo/earlier"]}
    assert with_other_weights(recorded | elsewhere) == ["demo/earlier", "demo/unknown"]
    assert with_other_weights(elsewhere) == []
