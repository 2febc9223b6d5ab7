"""Inheritance by name in params.yaml, and edits of it as `dvc exp run --set-param` makes them."""

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml
from trees import ROOT, read_yaml, set_value, values_in, write_values, write_yaml

from rmft import extensions
from rmft.errors import InputError
from rmft.params import load
from rmft.params.inheritance import with_origins
from rmft.tools.parameter_docs import documents
from rmft.tools.parameters import explained, without_difference
from rmft.workflow import targets
from rmft.workflow.parameters import parameters_of
from rmft.workflow.plan import method_job, rollouts_job
from rmft.workflow.plan_outputs import table_job

dvc_hydra = pytest.importorskip("dvc.utils.hydra")


def leaves(value: object, key: str = "") -> dict[str, object]:
    """Return all values that are no maps, by dotted key."""
    if not isinstance(value, dict):
        return {key: value}
    paths = (leaves(part, f"{key}.{name}") for name, part in value.items())
    return {path: leaf for of in paths for path, leaf in of.items()}


def another(value: object) -> str:
    """Return another value than this one, as one types it."""
    if isinstance(value, bool) or value is None:
        return str(not value).lower()
    if isinstance(value, int | float):
        return str(value + 1)
    return f"[{', '.join([*map(str, value), 'more'])}]" if isinstance(value, list) else f"{value}-more"


def experiments_in(path: Path) -> dict[str, object]:
    """Return all experiments with what they inherit."""
    return with_origins(read_yaml(path))[0]["experiments"]


def changed(before: dict[str, object], after: dict[str, object]) -> set[str]:
    """Return the names of experiments that differ."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def copy_parameters(folder: Path) -> None:
    """Copy params.yaml and outputs.yaml, and the extensions that they use."""
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, folder)
    (folder / "extensions").symlink_to(ROOT / "extensions")


VALUES = values_in(ROOT)
WRITTEN = VALUES["experiments"]


def variants_of(name: str) -> set[str]:
    """Return the experiments that vary an experiment, those on request too."""
    return {other for other, of in (WRITTEN | VALUES["on_request"]).items() if of.get("varies") == name}


def test_an_experiment_is_in_one_section(tmp_path):
    copy_parameters(tmp_path)
    values = values_in(tmp_path)
    values["on_request"]["numeric_mab"] = {"varies": "open_mab_qwen"}
    write_values(tmp_path, values)
    with pytest.raises(InputError, match=r"on_request\.numeric_mab: experiments has an experiment of this name"):
        load(tmp_path / "params.yaml")


OF_EACH_FORM = {(values.get("kind"), bool(variants_of(name)), *values): name for name, values in WRITTEN.items()}


@pytest.mark.parametrize("name", OF_EACH_FORM.values())
def test_setting_every_leaf_of_an_experiment_changes_that_one_and_its_variants_alone(name, tmp_path):
    path = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    new = {key: another(value) for key, value in leaves(WRITTEN[name]).items()}
    dvc_hydra.apply_overrides(path, [f"experiments.{name}{key}={value}" for key, value in new.items()])
    after = read_yaml(path)
    assert leaves(after["experiments"][name]) == {key: yaml.load(value, yaml.CSafeLoader) for key, value in new.items()}
    variants = variants_of(name)
    differ = changed(experiments_in(ROOT / "params.yaml"), experiments_in(path))
    assert name in differ
    assert differ <= {name, *variants}


@pytest.mark.parametrize("name", ["open_mab_qwen", "numeric_mixture", "mab_replicates"])
def test_setting_what_an_experiment_inherits_is_refused_with_what_to_type_which_then_changes_it(name, tmp_path):
    path = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    before = experiments_in(path)
    key = f"experiments.{name}.sft.learning_rate"
    with pytest.raises(Exception, match="Invalid `--set-param` value") as refusal:
        dvc_hydra.apply_overrides(path, [f"{key}=0.5"])
    assert f"use +{key}=0.5" in str(refusal.value.__cause__)
    assert experiments_in(path) == before
    dvc_hydra.apply_overrides(path, [f"+{key}=0.5"])
    variants = variants_of(name)
    assert name in (differ := changed(before, experiments_in(path)))
    assert differ <= {name, *variants}


def test_a_default_changes_every_experiment_that_inherits_it_and_no_other(tmp_path):
    copy_parameters(tmp_path)
    set_value(tmp_path, "scale", "paper")
    first = load(tmp_path / "params.yaml").at_scale()
    kinds = ("language", "distillation", "method")
    set_value(tmp_path, "defaults.language.sft.epochs", 9)
    second = load(tmp_path / "params.yaml").at_scale()
    assert changed(
        {name: parameters_of(first, name) for name in first.experiments},
        {name: parameters_of(second, name) for name in second.experiments},
    ) == {name for name, of in first.experiments.items() if of.kind in kinds} - {"narrow_mab"}  # which sets its own


def test_the_models_that_write_scenarios_and_judge_replies_belong_to_the_experiments_that_use_them(tmp_path):
    copy_parameters(tmp_path)
    told = {"source": "generated", "model": "gpt-4o-mini", "prompt": "data/prompts/scenarios/rich.j2", "count": 9}
    set_value(tmp_path, "scenarios.told", told | {"d": [3], "batch": 3, "temperature": 1.0, "max_tokens": 99})
    set_value(tmp_path, "experiments.open_mab_gemma.protocol", {"scenarios": "told"})
    set_value(tmp_path, "reasoning.judge", "gpt-4o-mini")
    set_value(tmp_path, "scale", "smoke")  # at which no experiment plays this model
    of = []
    for model in ("gpt-4o-mini-2024-07-18", "another"):
        set_value(tmp_path, "models.gpt-4o-mini.model", model)
        params = load(tmp_path / "params.yaml").at_scale()
        of.append({name: parameters_of(params, name) for name in params.experiments})
    assert changed(*of) == {*VALUES["reasoning"]["of"], "open_mab_gemma", *variants_of("open_mab_gemma")}


@pytest.mark.parametrize(
    ("key", "value", "models"),
    [
        (
            "conversion.scenarios",
            ["plain-voice"],
            {"gemma-3-270m", "gemma-3-270m-float32", "qwen2-5-coder-1-5b-instruct"},
        ),
        ("pretraining.steps", 9, {"embedded-narrow"}),
    ],
)
def test_how_a_model_is_made_belongs_to_the_experiments_that_play_it(tmp_path, key, value, models):
    copy_parameters(tmp_path)
    of = []
    for _ in range(2):
        params = load(tmp_path / "params.yaml").at_scale()
        of.append({name: parameters_of(params, name) for name in params.experiments})
        set_value(tmp_path, key, value)
    assert changed(*of) == {name for name, chosen in params.experiments.items() if chosen.model in models}


def test_an_experiment_at_its_own_size_keeps_its_model_at_every_scale(tmp_path):
    copy_parameters(tmp_path)
    mine = {**WRITTEN["open_mab_gemma"], "scale": "own", "rmft": {"scenarios": 7}}
    set_value(tmp_path, "experiments.mine", mine)
    for scale in ("paper", "demo", "smoke"):
        of = load(tmp_path / "params.yaml", scale).at_scale().experiments["mine"]
        assert (of.model, of.rmft.scenarios, of.sft.method) == ("gemma-2-9b-it", 7, "lora")


def test_a_scale_replaces_what_a_variant_changes_says_so_and_can_be_told_the_change(tmp_path):
    copy_parameters(tmp_path)
    slower = {"sft": {"learning_rate": 1.0e-4}}
    set_value(tmp_path, "experiments.slower", {"varies": "open_mab_qwen", **slower})
    params = load(tmp_path / "params.yaml").at_scale()
    assert params.experiments["slower"].sft == params.experiments["open_mab_qwen"].sft
    set_value(tmp_path, "experiments.shorter", {"varies": "open_mab_qwen", "evaluations": {"gaussian-25": {}}})

    def without() -> list[str]:
        full_size = load(tmp_path / "params.yaml")
        return list(without_difference(full_size, full_size.experiments))

    (line,) = without()
    assert line.startswith("experiments.slower: learns exactly as open_mab_qwen, which it varies")
    *_, key = line.split()
    set_value(tmp_path, key, slower)
    params = load(tmp_path / "params.yaml").at_scale()
    assert (params.experiments["slower"].sft.learning_rate, params.experiments["slower"].sft.epochs) == (1.0e-4, 2)
    assert without() == []
    set_value(tmp_path, key, {"sft": {"learning_rat": 1.0e-4}})
    with pytest.raises(InputError, match=rf"{re.escape(key)}\.sft\.learning_rat: unknown key"):
        load(tmp_path / "params.yaml").at_scale()


def test_every_value_of_an_experiment_is_shown_with_its_place():
    text = explained(ROOT / "params.yaml", "mab_l5_cold")
    for line, place in (
        ("temperature: 0.2 ", "mab_l5_cold.rmft.temperature"),
        ("environment: ", "open_mab_qwen.environment"),
        ("retries: 2 ", "defaults.language.protocol.retries"),
        ("model: ", 'scales.demo; "qwen3-8b" in open_mab_qwen.model'),
        ("score: ", "default"),
    ):
        assert any(of.strip().startswith(line) and of.endswith(f"# {place}") for of in text.splitlines()), line


def test_a_limit_of_the_model_is_shown_in_place_of_the_protocols_and_is_what_jobs_have():
    (line,) = [line for line in explained(ROOT / "params.yaml", "closed_mab").splitlines() if "max_tokens" in line]
    assert re.search(
        r"max_tokens: 96 +# models\.embedded-endpoint; 256 in defaults\.endpoint\.protocol\.max_tokens$", line
    )
    job = rollouts_job(load(ROOT / "params.yaml").at_scale(), "closed_mab", 0, 0, 1)
    assert job.problem.protocol.max_tokens == 96


def test_every_value_is_described_and_the_page_and_the_schemas_are_up_to_date():
    for path, text in documents().items():
        undescribed = re.findall(r"^\| (`.*`) \|.*\|\s*\|$", text, re.MULTILINE)
        assert undescribed == [], path
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run `rmft params --docs`"


@pytest.mark.parametrize("file", ["params", "outputs"])
def test_the_schemas_for_editors_allow_the_files_and_refuse_a_misspelt_key(file):
    schema = json.loads((ROOT / f"docs/{file}.schema.json").read_text(encoding="utf-8"))
    values = read_yaml(ROOT / f"{file}.yaml")
    jsonschema.validate(values, schema)
    key = {"params": "evaluation", "outputs": "report"}[file]
    with pytest.raises(jsonschema.ValidationError, match="misspelt"):
        jsonschema.validate({**values, key: {**values[key], "misspelt": 1}}, schema)


METHOD = '''
"""A method that learns nothing."""

from dataclasses import dataclass

from rmft.extensions import method


@dataclass(frozen=True)
class Settings:
    beta: float = 0.1


@method("nothing", settings=Settings, title="Nothing")
def learn_nothing(job, trajectories, selection, weights, report):
    raise NotImplementedError
'''


def test_a_method_of_an_extension_is_one_file_and_one_experiment(tmp_path, monkeypatch):
    values = values_in(ROOT)
    values["extensions"].append("extensions/nothing.py")
    values["experiments"]["mine"] = {
        "kind": "method", "varies": "open_mab_qwen", "method": "nothing", "evaluations": {"gaussian-100": {}},
    }  # fmt: skip
    values["tables"]["selection-scores-mab"]["experiments"].append("mine")
    shutil.copytree(ROOT / "extensions", tmp_path / "extensions")
    (tmp_path / "extensions/nothing.py").write_text(METHOD, encoding="utf-8")
    write_values(tmp_path, values)
    monkeypatch.chdir(tmp_path)
    try:
        params = load(tmp_path / "params.yaml").at_scale()
        job = method_job(params, "mine", 0, 1)
        assert (job.settings, job.code.extensions) == ({"beta": 0.1}, ["extensions/nothing.py"])
        assert job.sft == params.experiments["open_mab_qwen"].sft
        assert table_job(params, "selection-scores-mab", None).methods[-1].name == "Nothing (ours)"
        written = targets.training_of(params, "mine")
        assert {path.rpartition("/")[2] for path in written if "iteration-1/" in path} >= {
            *("rollouts.parquet", "selection.parquet", "model.safetensors", "training-log.csv"),
        }
        set_value(tmp_path, "experiments.mine.settings", {"betta": 0.2})
        with pytest.raises(InputError, match=r"experiments\.mine: settings\.betta: "):
            load(tmp_path / "params.yaml")
    finally:
        extensions.forget("extensions/nothing.py")


ON_REQUEST = {  # a variant of it must be on request as well, or `snakemake` would build it
    "mine": {"kind": "language", "environment": "mab", "model": "embedded", "process": ["gaussian"], "scale": "own",
             "evaluations": {"gaussian-25": {"rewards": "gaussian", "T": 25, "algorithms": ["ucb"]}}},
    "mine_long": {"varies": "mine", "T": 50},
}  # fmt: skip


def test_only_its_own_targets_build_an_experiment_on_request_with_its_figures_and_tables(tmp_path):
    copy_parameters(tmp_path)
    path = tmp_path / "params.yaml"
    before = load(path).at_scale().by_default
    values = read_yaml(path)
    values["on_request"] |= ON_REQUEST
    write_yaml(path, values)
    outputs = read_yaml(tmp_path / "outputs.yaml")
    figure = {"form": "regret", "experiments": ["mine"], "evaluations": ["gaussian-25"], "players": ["trained", "ucb"]}
    outputs["figures"]["drawn"]["mine"] = figure
    write_yaml(tmp_path / "outputs.yaml", outputs)
    after = load(path).at_scale()
    assert after.experiments["mine_long"].process == ["gaussian"]
    assert sorted(targets.everything(after.by_default)) == sorted(targets.everything(before))
    asked_for = targets.section(after, list(after.on_request))
    assert "results/figures/mine.pdf" in asked_for
    assert not {path for path in asked_for if "mine" in path} & set(targets.everything(before))


def test_a_mistake_in_an_experiment_on_request_is_named_where_it_is_written(tmp_path):
    copy_parameters(tmp_path)
    path = tmp_path / "params.yaml"
    values = read_yaml(path)
    for wrong, key in (({"T": 0}, "on_request.mine_long.T"), ({"model": "absent"}, "on_request.mine_long.model")):
        values["on_request"] |= {**ON_REQUEST, "mine_long": ON_REQUEST["mine_long"] | wrong}
        write_yaml(path, values)
        with pytest.raises(InputError, match=re.escape(f"params.yaml: {key}: ")) as refusal:
            load(path)
        assert "more)" not in str(refusal.value)  # though it is checked under `experiments` as well
