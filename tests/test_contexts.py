"""Parameters are refused whose models or templates are missing or wrong, or whose conversations are too long."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from trees import ROOT, set_value, values_in, write_values

from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol
from rmft.params import load
from rmft.workflow import checks
from rmft.workflow.checks import (
    PLACES,
    check_folder,
    check_messages,
    check_places,
    check_sources,
    check_weights,
    try_messages,
)
from rmft.workflow.contexts import TURN, EstimatedTokenizer

LENGTHS = Path(__file__).parent / "data" / "message-lengths.csv"  # tokens of our messages, by two models' tokenizers


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("scale", ["paper", "demo"])
def test_every_experiment_fits_what_its_model_can_read(scale):
    check_messages(load(Path("params.yaml"), scale).at_scale())


def test_a_folder_with_braces_is_refused():
    check_folder(Path("/home/me/my [rmft] 模型"))
    with pytest.raises(InputError, match=r"^/home/\{me\}: Snakemake cannot run in a folder with braces"):
        check_folder(Path("/home/{me}"))


def test_replies_that_are_too_long_are_refused_by_name():
    whole = load(Path("params.yaml"), "paper").at_scale()
    longer = whole.models["gemma-2-9b-it"].model_copy(update={"max_tokens": None})
    params = whole.model_copy(update={"models": whole.models | {"gemma-2-9b-it": longer}})
    with pytest.raises(InputError, match=r"experiments\.open_fol: .*gemma-2-9b-it: .* \(128 \+ 1\) .* reads 8192"):
        check_messages(params)


def test_messages_that_were_found_right_are_checked_again_after_any_change(tmp_path, monkeypatch):
    for place in checks.PLACES:
        shutil.copytree(place, tmp_path / place)
    params = load(Path("params.yaml")).at_scale()
    monkeypatch.chdir(tmp_path)
    found = {checks.what_messages_come_of(params)}
    with Path("data/prompts/plain/opening.j2").open("a", encoding="utf-8") as template:
        template.write("{{ rond }}")
    found.add(checks.what_messages_come_of(params))
    found.add(checks.what_messages_come_of(params.model_copy(update={"seed": params.seed + 1})))
    written = Path(checks.GENERATED, "mine.jsonl")
    written.parent.mkdir(parents=True)
    written.write_text("{}\n", encoding="utf-8")
    found.add(checks.what_messages_come_of(params))
    assert len(found) == 4
    assert checks.what_messages_come_of(params) in found


def test_a_misspelt_variable_is_found_in_whichever_template_it_is(tmp_path):
    """The feedback is first rendered in the second message, the summary of two rounds in the third."""
    dialogue = Protocol("dialogue", "action", "full", "with-reasoning", 3)
    summary = replace(dialogue, interaction="summary")
    for name, protocol in {"opening": dialogue, "request": dialogue, "feedback": dialogue, "summary": summary}.items():
        folder = tmp_path / name
        shutil.copytree("data/prompts/plain", folder)
        try_messages(Prompts.load(folder), protocol)
        with (folder / f"{name}.j2").open("a", encoding="utf-8") as template:
            template.write("{{ rond }}")
        with pytest.raises(InputError, match=rf"{name}\.j2: 'rond' is undefined; a template can use .*past, last, t"):
            try_messages(Prompts.load(folder), protocol)


def test_prompts_and_weights_that_are_not_there_are_refused_before_anything_runs(tmp_path):
    whole = load(Path("params.yaml"), "paper").at_scale()
    protocol = whole.experiments["open_mab_qwen"].protocol.model_copy(update={"prompts": "data/prompts/plian"})
    astray = whole.experiments["open_mab_qwen"].model_copy(update={"protocol": protocol})
    with pytest.raises(InputError, match=r"experiments\.open_mab_qwen: training: data/prompts/plian: no such folder"):
        check_messages(whole.model_copy(update={"experiments": {"open_mab_qwen": astray}}))
    with pytest.raises(InputError, match=r"models\.mine\.weights: Qwen/Qwen3-8B: no such folder; .* `revision`"):
        check_weights("models.mine.weights", "Qwen/Qwen3-8B", None)
    check_weights("models.mine.weights", "Qwen/Qwen3-8B", "b" * 40)
    check_weights("models.mine.weights", "data/models/embedded", None)
    (tmp_path / "config.json").touch()
    with pytest.raises(InputError, match=r"models\.mine\.weights: .*: holds no \*\.safetensors; put all files"):
        check_weights("models.mine.weights", str(tmp_path), None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("experiments.open_mab_gemma.protocol", {"prompts": "mine"}),
        ("experiments.open_mab_gemma.protocol", {"prompts": "data/prompts/../mine"}),
        ("experiments.mab_distil_greedy_rationale.distillation.rationale", "mine.j2"),
        ("scenarios.plain-voice.file", "mine.jsonl"),
        ("reasoning.words", "mine.txt"),
    ],
)
def test_texts_outside_of_the_folders_that_dvc_compares_are_refused(key, value, tmp_path):
    write_values(tmp_path, values_in(Path()))
    (tmp_path / "extensions").symlink_to(Path("extensions").absolute())
    check_places(load(tmp_path / "params.yaml"))
    set_value(tmp_path, key, value)
    with pytest.raises(InputError, match=rf"{re.escape(key)}.*: move it into data/prompts or data/scenarios: DVC"):
        check_places(load(tmp_path / "params.yaml"))


def test_a_source_that_is_gone_is_named_since_snakemake_would_keep_what_was_made_from_it(tmp_path, monkeypatch):
    write_values(tmp_path, values_in(ROOT))
    (tmp_path / "data").mkdir()
    for name in ("docs", "extensions", *(f"data/{part.name}" for part in (ROOT / "data").iterdir())):
        if name != "data/paper":
            (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "data/paper", tmp_path / "data/paper")
    monkeypatch.chdir(tmp_path)
    params = load(Path("params.yaml"))
    check_sources(params)
    Path("data/paper/simplex-table.csv").unlink()
    with pytest.raises(
        InputError,
        match=r"tables\.simplex-table: .* is not there, .*`git checkout data/paper/simplex-table\.csv` restores it",
    ):
        check_sources(params)
    set_value(tmp_path, "reasoning.words", "data/prompts/judge/none.txt")
    with pytest.raises(InputError, match=r"reasoning\.words: data/prompts/judge/none\.txt: no such file or folder"):
        check_sources(load(Path("params.yaml")))


def test_dvc_compares_the_folders_that_texts_must_be_in():
    compared = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]["exp"]["do"]["deps"]
    assert {*PLACES, "extensions"} <= {*compared}


def test_estimated_lengths_are_hardly_below_those_of_real_tokenizers():
    lengths = pd.read_csv(LENGTHS).set_index("message")
    estimated = [len(EstimatedTokenizer(limit=0).first(message)) - TURN for message in lengths.index]
    ratios = lengths.div(estimated, axis=0)
    assert ratios.max().max() < 1.04
    assert ratios.min().min() > 0.75
    assert (lengths.sum() / sum(estimated)).max() < 1
