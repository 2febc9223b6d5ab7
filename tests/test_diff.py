"""`rmft diff` on a small repository of git and DVC whose edits are known; its stages compute nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from trees import ROOT, commit, done, edit, environment, set_value

from rmft.artifacts.evaluations import write_evaluation
from rmft.errors import InputError
from rmft.tools.diff.difference import ADDED, CHANGED, DELETED, CodeChange, Difference, LibraryChange, tree_difference
from rmft.tools.diff.revisions import compare
from rmft.tools.diff.table import ROWS, as_text

pytestmark = pytest.mark.xdist_group("diff")  # one worker: the tests share a history
RIGHT = "give a commit, a DVC experiment, workspace, or two experiments of params.yaml"
PARAMS = {
    "seed": 0,
    "rewards": {"gaussian": {"instances": 400}, "gamma": {"instances": 400}},
    "defaults": {"numeric": {"rmft": {"selected": 1, "variance": 1.0}, "each_evaluation": {"T": 100}}},
    "experiments": {
        "one": {"kind": "numeric", "evaluations": {"gaussian": {}}},
        "two": {"kind": "numeric", "evaluations": {"gaussian": {}}, "rmft": {"variance": 2.0}},
        "three": {"varies": "two", "rmft": {"selected": 5}},
    },
}
SOURCES = {
    "src/rmft/__init__.py": "",
    "src/rmft/stages/__init__.py": "",
    "src/rmft/stages/tables.py": "import yaml\n\nimport rmft.growth\n\n\ndef run():\n    return rmft.growth\n",
    "src/rmft/stages/metrics.py": "import rmft.growth\n",
    "src/rmft/stages/rewards.py": "import numpy\n",
    "src/rmft/growth.py": '"""How fast regret grows."""\n\nSLOPE = 1\n',
    "Snakefile": "rule all:\n",
    "workflow/rules/tables.smk": "rule table:\n",
    "data/paper/regret.csv": "27.99\n",
    "requirements.lock": "aiohttp==3.14.5\nPyYAML==6.0.3\nscipy==1.17\n",
    "outputs.yaml": "report: {trajectories: 2}\n",
    ".gitignore": "/results/\n/data/rewards/\n__pycache__/\n",
}
MAKE = """
import json, sys, yaml
from pathlib import Path
params = yaml.safe_load(Path("params.yaml").read_text())
def write(path, value):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(value))
for name, rewards in params["rewards"].items():
    write(f"data/rewards/{name}.npz", rewards)
metrics = {}
for name in ("one", "two"):
    rmft = {**params["defaults"]["numeric"]["rmft"], **params["experiments"][name].get("rmft", {})}
    write(f"results/experiments/{name}/iteration-0/model.safetensors", "always the same")
    write(f"results/experiments/{name}/evaluation/gaussian.parquet", rmft)
    regret = 100 - rmft["selected"]
    metrics[name] = {"gaussian": {"regret": regret, "exponent": rmft["variance"], "ks_p": 1e-3, "paired_p": None}}
write("results/figures/regret.csv", metrics)
write("results/figures/regret.pdf", "always the same")
write("results/summary.json", metrics)
"""
OUTPUTS = ["data/rewards", "results/experiments/one", "results/experiments/two", "results/figures"]
STAGE = {"cmd": "python make.py", "deps": ["params.yaml"], "outs": OUTPUTS, "metrics": ["results/summary.json"]}


def commit_as(folder: Path, tag: str) -> None:
    commit(folder, tag)
    done(folder, "git", "tag", tag)


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """Return a repository with the commits `unbuilt`, `first` and `second`, and the DVC experiment `noisier`."""
    folder = tmp_path_factory.mktemp("history")
    texts = {"params.yaml": yaml.safe_dump(PARAMS), "dvc.yaml": yaml.safe_dump({"stages": {"all": STAGE}})}
    for name, text in {**SOURCES, **texts, "make.py": MAKE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    done(folder, "git", "init", "--quiet")
    done(folder, "dvc", "init", "--quiet")
    commit_as(folder, "unbuilt")
    done(folder, "dvc", "repro", "--quiet")
    commit_as(folder, "first")
    done(folder, "dvc", "exp", "run", "--quiet", "--name", "noisier", "-S", "experiments.two.rmft.variance=3.0")
    done(folder, "git", "checkout", "--quiet", ".")
    values = yaml.safe_load((folder / "params.yaml").read_text(encoding="utf-8"))
    values["defaults"]["numeric"]["rmft"]["selected"] = 2
    values["rewards"]["gamma"]["instances"] = 500
    (folder / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    edit(folder / "outputs.yaml", "2", "3")
    edit(folder / "src/rmft/growth.py", "SLOPE = 1", "SLOPE = 2")
    edit(folder / "requirements.lock", "aiohttp==3", "aiohttp==4")
    edit(folder / "requirements.lock", "PyYAML==6", "PyYAML==7")
    edit(folder / "data/paper/regret.csv", "\n", "\n\n")
    (folder / "data/paper/new.csv").write_text("new\n", encoding="utf-8")
    done(folder, "dvc", "repro", "--quiet")
    commit_as(folder, "second")
    return folder


@pytest.fixture
def repository(history, tmp_path, monkeypatch) -> Path:
    """Return a copy of the repository, in which `second` is checked out, to work in."""
    folder = tmp_path / "repository"
    shutil.copytree(history, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def edits(history) -> Difference:
    """Return what differs between `first` and `second`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(history)
        return compare("first", "second")


def test_between_two_commits_exactly_the_edits_differ(edits):
    assert edits.code == [CodeChange("rmft.growth", CHANGED, ["metrics", "tables"])]
    assert edits.inputs == {
        "data/paper/new.csv": ADDED,
        "data/paper/regret.csv": CHANGED,
        "data/rewards/gamma.npz": CHANGED,
    }
    assert edits.results == {
        "results/experiments/one/evaluation/gaussian.parquet": CHANGED,
        "results/experiments/two/evaluation/gaussian.parquet": CHANGED,
        "results/figures/regret.csv": CHANGED,  # the pdf is the same
        "results/summary.json": CHANGED,
    }
    assert edits.metrics == {"one/gaussian": {"regret": (99, 98)}, "two/gaussian": {"regret": (99, 98)}}
    assert edits.unknown == []


def test_a_default_changes_the_experiments_that_inherit_it_and_no_other(edits):
    key, default = "experiments.{}.rmft.selected", "defaults.numeric.rmft.selected"
    assert edits.parameters == {
        "report.trajectories": (2, 3),
        "rewards.gamma.instances": (400, 500),
        key.format("one"): (1, 2),
        key.format("two"): (1, 2),  # and not of three, which says what it selects
    }
    assert edits.inherited == {key.format("one"): default, key.format("two"): default}
    assert f"  {default}, in one, two" in as_text(edits)


def test_a_locked_library_concerns_the_stages_that_import_it(edits):
    assert edits.libraries == [
        LibraryChange("PyYAML", ("6.0.3", "7.0.3"), ["tables"]),
        LibraryChange("aiohttp", ("3.14.5", "4.14.5"), []),
    ]


@pytest.mark.usefixtures("repository")
def test_the_other_way_round_everything_is_turned(edits):
    turned = compare("second", "first")
    assert turned.parameters == {key: (new, old) for key, (old, new) in edits.parameters.items()}
    assert turned.inputs == edits.inputs | {"data/paper/new.csv": DELETED}
    assert turned.metrics["one/gaussian"] == {"regret": (98, 99)}


def test_the_workspace_is_compared_as_it_lies_there(repository):
    edit(repository / "params.yaml", "seed: 0", "seed: 5")
    (repository / "results/figures/regret.pdf").unlink()
    (repository / "results/figures/more.csv").write_text("more", encoding="utf-8")
    (repository / "data/paper/untracked.csv").write_text("new\n", encoding="utf-8")
    difference, turned = compare(), compare("workspace", "HEAD")
    assert (difference.parameters, turned.parameters) == ({"seed": (0, 5)}, {"seed": (5, 0)})
    assert difference.inputs == {"data/paper/untracked.csv": ADDED}
    assert difference.results == {"results/figures/more.csv": ADDED, "results/figures/regret.pdf": DELETED}
    assert turned.results == {"results/figures/more.csv": DELETED, "results/figures/regret.pdf": ADDED}
    assert [difference.code, difference.metrics, difference.unknown] == [[], {}, []]


def test_modules_stages_and_workflow_files_come_and_go_and_what_changes_no_syntax_is_no_change(repository):
    edit(repository / "src/rmft/growth.py", "SLOPE", "# a comment\nSLOPE")
    edit(repository / "src/rmft/growth.py", '"""How', '"""Say how')
    assert compare().code == []
    (repository / "src/rmft/stages/judging.py").write_text("import rmft.growth\n", encoding="utf-8")
    (repository / "src/rmft/curvature.py").write_text("CURVED = True\n", encoding="utf-8")
    edit(repository / "src/rmft/stages/metrics.py", "import", "import rmft.curvature\nimport")
    edit(repository / "Snakefile", "all", "everything")
    (repository / "workflow/rules/tables.smk").unlink()
    assert compare().code == [
        CodeChange("rmft judging", ADDED),
        CodeChange("rmft.curvature", ADDED, ["metrics"]),
        CodeChange("rmft.stages.metrics", CHANGED, ["metrics"]),
        CodeChange("Snakefile", CHANGED),
        CodeChange("workflow/rules/tables.smk", DELETED),
    ]


@pytest.mark.usefixtures("repository")
def test_an_experiment_of_dvc_is_a_revision_by_its_name():
    difference = compare("first", "noisier")
    assert difference.parameters == {
        "experiments.two.rmft.variance": (2.0, 3.0),
        "experiments.three.rmft.variance": (2.0, 3.0),
    }
    assert difference.inherited == {"experiments.three.rmft.variance": "experiments.two.rmft.variance"}
    assert difference.metrics == {"two/gaussian": {"exponent": (2.0, 3.0)}}
    assert [difference.code, difference.inputs] == [[], {}]


@pytest.mark.usefixtures("repository")
def test_results_that_no_commit_of_dvc_lock_vouches_for_are_unknown_and_not_deleted():
    difference = compare("first", "unbuilt")
    assert [difference.results, difference.inputs, difference.metrics] == [{}, {}, {}]
    (line,) = difference.unknown
    assert re.fullmatch(
        r"results and reward sets of unbuilt \(\w{7}\) are unknown: no dvc.lock is committed there .*`dvc repro`.*",
        line,
    )
    assert "no difference" not in as_text(difference)


def test_what_a_stage_would_make_that_never_ran_is_not_deleted(repository):
    stages = yaml.safe_load((repository / "dvc.yaml").read_text(encoding="utf-8"))
    stages["stages"]["never"] = {"cmd": "exit 1", "outs": ["results/never.csv", "results/figures-that-never-were"]}
    (repository / "dvc.yaml").write_text(yaml.safe_dump(stages), encoding="utf-8")
    commit(repository, "Add a stage")
    assert compare().results == {}
    assert compare("first").results == compare("first", "second").results


def test_results_that_are_nowhere_to_be_read_are_unknown(repository, monkeypatch):
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(repository / "site"))  # where DVC would still know the lists of files
    shutil.rmtree(repository / ".dvc/cache")
    difference = compare("first")
    assert difference.results["results/experiments/one/"] == CHANGED
    assert [line.split(" are")[0] for line in difference.unknown][1:] == [
        "files of data/rewards/", "files of results/experiments/one/", "files of results/experiments/two/",
        "files of results/figures/",
    ]  # fmt: skip
    assert "  one" in as_text(difference)
    shutil.rmtree(repository / "results")
    assert "results and reward sets of workspace are unknown: nothing is built here" in compare().unknown


def write_receipt(folder: Path, artifact: str, machine: str) -> None:
    path = folder / ".snakemake/receipts" / f"{artifact}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine}), encoding="utf-8")


def test_results_of_two_kinds_of_machines_are_told_in_one_line(repository):
    for tag, machine in (("here", "Linux, avx2"), ("there", "Linux, avx512"), ("there again", "Linux, avx512")):
        write_receipt(repository, "results/summary.json", machine)
        write_receipt(repository, "results/figures/regret.csv", "Linux, avx2")
        (repository / "note").write_text(tag, encoding="utf-8")
        done(repository, "dvc", "add", "--quiet", ".snakemake/receipts")
        commit_as(repository, tag.replace(" ", "-"))
    both = ["Linux, avx2", "Linux, avx512"]
    difference = compare("here", "there")
    assert difference.machines == (both[:1], both)
    line = "computed on different kinds of machines: A on Linux, avx2, B on Linux, avx2; Linux, avx512"
    assert line in as_text(difference).splitlines()
    assert compare("here").machines == (both[:1], both)  # the workspace is there
    assert compare("there", "there-again").machines is None
    assert compare("first", "there").machines is None  # no receipt says where the first results come from


def test_two_experiments_of_the_parameters_are_compared_in_the_workspace(tmp_path, monkeypatch):
    a, b = "numeric_mab", "numeric_mab_logits_normalised"
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "extensions", tmp_path / "extensions")
    (tmp_path / "dvc.yaml").write_text("metrics: [results/summary.json]\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done(tmp_path, "git", "init", "--quiet")
    done(tmp_path, "dvc", "init", "--quiet")
    assert compare(a, b).unknown == [f"results of {name} are unknown: not built" for name in (a, b)]
    assert (
        compare("real_mab_gemma", "real_mab_gemma_more").unknown[0].startswith("results of real_mab_gemma are unknown")
    )
    for name in (a, b):
        folder = tmp_path / "results/experiments" / name
        (folder / "evaluation").mkdir(parents=True)
        (folder / "training-log.csv").write_text("always the same", encoding="utf-8")
        columns = {
            "player": ["base", "base", "trained", "trained"], "training_seed": [0] * 4, "instance": [0, 1] * 2,
            "d": [3] * 4, "regret": [[0.0, 1.0, 2.0]] * 2 + [[0.0, 0.0, len(name)]] * 2, "action": [[0, 0, 0]] * 4,
            "best_action": [[0, 0, 0]] * 4, "policy": [None] * 4, "invalid": [0] * 4,
        }  # fmt: skip
        write_evaluation(Path(f"results/experiments/{name}/evaluation/gaussian.parquet"), columns)
        write_receipt(tmp_path, f"results/experiments/{name}/training-log.csv", f"a machine for {name}")
    (tmp_path / "results/summary.json").write_text('{"of": "before an edit"}', encoding="utf-8")
    difference = compare(a, b)
    assert {"normalise": (False, True), "rmft.perturb": ("policy", "logits")}.items() <= difference.parameters.items()
    assert difference.results == {"evaluation/gaussian.parquet": CHANGED}
    assert difference.metrics["gaussian"]["regret"] == (len(a), len(b))
    assert difference.machines == ([f"a machine for {a}"], [f"a machine for {b}"])
    set_value(tmp_path, "scale", "smoke")
    set_value(tmp_path, f"experiments.{b}.rmft.scenarios", 50)
    assert compare(a, b).parameters.keys() == difference.parameters.keys()  # at this scale both have 20


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("names", [("first", "first"), ("second",), ()])
def test_where_nothing_differs_one_line_says_so(rmft, names):
    code, out, error = rmft("diff", *names)
    assert (code, out.splitlines()[1:], error) == (0, ["no difference"], "")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("names", "says"),
    [
        *(([name], f"unknown {name!r}; {RIGHT}") for name in ("nowhere", "HEAD~99", "HEAD:src", "-x", "first..second")),
        (["one", "twoo"], "unknown 'twoo'; did you mean two?"),
        (["oone", "two"], "unknown 'oone'; did you mean one?"),
        (["one"], f"one is an experiment of params.yaml and workspace is not; {RIGHT}"),
        (["HEAD", "two"], f"two is an experiment of params.yaml and HEAD is not; {RIGHT}"),
    ],
)
def test_the_name_that_is_wrong_is_refused_with_what_would_be_right(rmft, names, says):
    assert rmft("diff", "--", *names) == (2, "", f"rmft: diff: {says}\n")


def test_what_cannot_be_compared_is_refused_in_one_line(repository, rmft, tmp_path, monkeypatch):
    def refusal() -> str:
        code, out, error = rmft("diff")
        assert (code, out, error.count("\n")) == (2, "", 1)
        return error

    edit(repository / "src/rmft/growth.py", "SLOPE", "def SLOPE")
    assert re.search(r"code of workspace: .*growth\.py:\d+: SyntaxError", refusal())
    done(repository, "git", "checkout", "--quiet", ".")
    (repository / "dvc.yaml").write_text("stages: [", encoding="utf-8")
    assert "'dvc.yaml', YAML file structure is corrupted" in refusal()
    shutil.rmtree(repository / ".git")
    assert "no git repository here" in refusal()
    monkeypatch.chdir(tmp_path)
    assert "no DVC repository here" in refusal()


@pytest.mark.usefixtures("edits")
def test_a_clone_without_all_files_of_a_commit_is_refused(repository, tmp_path, monkeypatch):
    for option in ("allowFilter", "allowAnySHA1InWant"):
        done(repository, "git", "config", f"uploadpack.{option}", "true")
    done(tmp_path, "git", "clone", "--quiet", "--filter=blob:none", f"file://{repository}", "part")
    monkeypatch.chdir(tmp_path / "part")
    with pytest.raises(InputError, match=r"^diff: not all files of HEAD~1 are in this clone"):
        compare("HEAD~1", "HEAD")


def test_the_command_prints_its_table_alone_and_from_any_folder(repository, edits):
    settings = {**environment(repository), "PYTHONPATH": str(ROOT / "src")}
    command = [str(Path(sys.executable).parent / "rmft"), "diff", "first", "second"]
    ran = subprocess.run(
        command, cwd=repository / "workflow", env=settings, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, as_text(edits) + os.linesep, "")


def test_json_shortens_nothing(repository, rmft):
    long = {str(i): "x" * 90 for i in range(3)}
    values = yaml.safe_load((repository / "params.yaml").read_text(encoding="utf-8"))
    (repository / "params.yaml").write_text(yaml.safe_dump({**values, "long": long}), encoding="utf-8")
    assert json.loads(rmft("diff", "--json")[1])["parameters"] == {"long": [None, long]}


def test_the_table_stays_short():
    files = {
        f"results/experiments/numeric_{i}/iteration-{j}/model.safetensors": CHANGED for i in range(2) for j in range(50)
    }
    metrics = {f"numeric/{i}": {"regret": (1.0, 2.0), "ks_p": (None, 1e-9)} for i in range(ROWS + 7)}
    changed = {f"experiments.numeric_{i}.T": (1, 2) for i in range(9)}
    parameters = {"long": (None, {str(i): "x" * 90 for i in range(3)}), **changed}
    inherited = dict.fromkeys(changed, "defaults.numeric.T")
    difference = Difference("a", "b", parameters, inherited, results=files, metrics=metrics)
    lines = as_text(difference).splitlines()
    assert lines[2].split() == ["long", "–", "(3", "values)"]
    assert lines[3].split() == ["defaults.numeric.T,", "in", "numeric_0,", "numeric_1,", "7", "more", "1", "2"]
    assert [line.split() for line in lines[5:7]] == [["numeric_0", "50", CHANGED], ["numeric_1", "50", CHANGED]]
    assert lines[8].split() == ["numeric/0", "1", "→", "2", "(+1)", "–", "→", "1e-09"]
    assert lines[-1].startswith("  … and 7 more")


def nested(leaf):
    return st.recursive(leaf, lambda part: st.dictionaries(st.sampled_from("abc"), part, min_size=1), max_leaves=6)


@given(*(st.dictionaries(st.sampled_from("abc"), nested(st.integers(0, 3))) for _ in range(2)))
def test_a_map_with_its_differences_made_is_the_other(old, new):
    made = json.loads(json.dumps(old))
    for key, (before, after) in tree_difference(old, new):
        *parents, last = key.split(".")
        section = made
        for parent in parents:
            section = section[parent]
        assert section.get(last) == before
        assert before != after
        section.pop(last, None)
        if after is not None:
            section[last] = after
    assert made == new
