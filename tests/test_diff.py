"""`rmft diff` on a small repository of git and DVC whose edits are known.

Its parameters, code and paper's values are the real ones; its results come from a script that takes no time.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from trees import ROOT, commit, done, edit, run, set_value, values_in, write_values

from rmft.params.inheritance import resolved
from rmft.tools.diff.difference import ADDED, CHANGED, DELETED, CodeChange, Difference, LibraryChange, tree_difference
from rmft.tools.diff.revisions import compare
from rmft.tools.diff.table import ROWS, as_text

TREE = ("src", "workflow", "data/paper")
SELECTED = "experiments.numeric_mab.rmft.selected"

pytestmark = pytest.mark.xdist_group("diff")  # one worker: the tests share a history
EXPERIMENTS = ("numeric_mab", "numeric_mab_logits_normalised")
MAKE = """
import json, sys, yaml
from pathlib import Path
params = yaml.safe_load(Path("params.yaml").read_text())
metrics = {}
def write(path, value):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(value))
if sys.argv[1] == "rewards":
    for name, rewards in params["rewards"].items():
        write(f"data/rewards/{name}.npz", rewards)
    sys.exit()
for name in sys.argv[2:]:
    rmft = params["experiments"][name]["rmft"]
    write(f"results/experiments/{name}/iteration-0/model.safetensors", rmft["scenarios"])
    write(f"results/experiments/{name}/iteration-1000/model.safetensors", rmft)
    write(f"results/experiments/{name}/evaluation/gaussian.parquet", rmft)
    regret = 100 - rmft["selected"]
    metrics[name] = {"gaussian": {"regret": regret, "exponent": rmft["variance"], "ks_p": 1e-3, "paired_p": None}}
write("results/figures/tfbandit.csv", metrics)
write("results/figures/tfbandit.pdf", "always the same")
write("results/summary.json", metrics)
"""
STAGES = {
    "rewards": {"cmd": "python make.py rewards", "params": ["rewards"], "outs": ["data/rewards"]},
    "results": {
        "cmd": f"python make.py results {' '.join(EXPERIMENTS)}",
        "params": ["experiments"],
        "outs": [*(f"results/{name}" for name in EXPERIMENTS), "results/figures"],
        "metrics": ["results/summary.json"],
    },
}


def parameters() -> dict[str, Any]:
    """Return the parameters with what two experiments need."""
    values = resolved(values_in(ROOT))
    values["report"]["story"] = None
    values["experiments"] = {name: values["experiments"][name] for name in EXPERIMENTS}
    del values["scales"]["demo"]["language"]["experiments"]
    values["quick"], values["reasoning"]["of"] = {}, {}
    values["figures"]["drawn"] = {label: values["figures"]["drawn"][label] for label in ("tfbandit", "tfgamma")}
    values["tables"] = {"theorem-1": values["tables"]["theorem-1"]}
    return values


def commit_as(folder: Path, tag: str) -> None:
    commit(folder, tag)
    done(folder, "git", "tag", tag)


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """Return a repository with the commits `unbuilt`, `first` and `second`, and the DVC experiment `noisier`."""
    folder = tmp_path_factory.mktemp("history")
    for name in TREE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_values(folder, parameters())
    (folder / "requirements.lock").write_text("aiohttp==3.14.5\nPyYAML==6.0.3\nscipy==1.17\n", encoding="utf-8")
    (folder / "make.py").write_text(MAKE, encoding="utf-8")
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}), encoding="utf-8")
    (folder / ".gitignore").write_text("/results/\n/data/rewards/\n__pycache__/\n", encoding="utf-8")
    done(folder, "git", "init", "--quiet")
    done(folder, "dvc", "init", "--quiet")
    commit_as(folder, "unbuilt")
    done(folder, "dvc", "repro", "--quiet")
    commit_as(folder, "first")
    done(folder, "dvc", "exp", "run", "--quiet", "--name", "noisier", "--set-param", f"{SELECTED}=3")
    done(folder, "git", "checkout", "--quiet", ".")
    set_value(folder, SELECTED, 2)
    set_value(folder, "rewards.gamma.instances", 500)
    edit(folder / "src/rmft/metrics/growth.py", "\ndef ", "\nEDITED = True\n\n\ndef ")
    edit(folder / "requirements.lock", "aiohttp==3", "aiohttp==4")
    edit(folder / "requirements.lock", "PyYAML==6", "PyYAML==7")
    edit(folder / "data/paper/simplex-table.csv", "\n", "\n\n")
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
    assert edits.parameters == {SELECTED: (1, 2), "rewards.gamma.instances": (400, 500)}
    assert edits.code == [CodeChange("rmft.metrics.growth", CHANGED, ["metrics", "report", "tables"])]
    assert edits.inputs == {
        "data/paper/new.csv": ADDED,
        "data/paper/simplex-table.csv": CHANGED,
        "data/rewards/gamma.npz": CHANGED,
    }
    assert edits.results == {
        "results/figures/tfbandit.csv": CHANGED,  # the pdf is the same
        "results/summary.json": CHANGED,
        "results/experiments/numeric_mab/evaluation/gaussian.parquet": CHANGED,
        "results/experiments/numeric_mab/iteration-1000/model.safetensors": CHANGED,
    }
    assert edits.metrics == {"numeric_mab/gaussian": {"regret": (99, 98)}}
    assert edits.unknown == []


def test_a_locked_library_concerns_the_sub_commands_that_import_it(edits):
    yaml_library, indirect = edits.libraries
    assert (yaml_library.name, yaml_library.versions) == ("PyYAML", ("6.0.3", "7.0.3"))
    assert "rewards" in yaml_library.commands  # by `import yaml`, in params.py
    assert indirect == LibraryChange("aiohttp", ("3.14.5", "4.14.5"), [])


@pytest.mark.usefixtures("repository")
def test_the_other_way_round_everything_is_turned(edits):
    turned = compare("second", "first")
    assert turned.parameters == {key: (new, old) for key, (old, new) in edits.parameters.items()}
    assert turned.inputs == edits.inputs | {"data/paper/new.csv": DELETED}
    assert turned.metrics == {"numeric_mab/gaussian": {"regret": (98, 99)}}


def test_the_workspace_is_compared_as_it_lies_there(repository):
    set_value(repository, "seed", 5)
    (repository / "results/figures/tfbandit.pdf").unlink()
    (repository / "results/figures/more.csv").write_text("more", encoding="utf-8")
    (repository / "data/paper/untracked.csv").write_text("new\n", encoding="utf-8")
    found, turned = compare(), compare("workspace", "HEAD")
    assert (found.parameters, turned.parameters) == ({"seed": (0, 5)}, {"seed": (5, 0)})
    assert found.inputs == {"data/paper/untracked.csv": ADDED}
    assert found.results == {"results/figures/more.csv": ADDED, "results/figures/tfbandit.pdf": DELETED}
    assert turned.results == {"results/figures/more.csv": DELETED, "results/figures/tfbandit.pdf": ADDED}
    assert [found.code, found.metrics, found.unknown] == [[], {}, []]


def test_what_changes_no_syntax_is_no_change_of_code(repository):
    edit(repository / "src/rmft/streams.py", '"""', '"""Said otherwise. ')
    edit(repository / "src/rmft/play.py", "\ndef ", "\n# a comment\ndef ")
    assert compare().code == []


def test_a_stage_of_one_side_alone_is_named_and_so_is_the_module_of_a_changed_one(repository):
    stages = repository / "src/rmft/stages"
    edit(
        stages / "figures.py",
        "    draw(job",
        "    import rmft.training.theory  # which `theory` runs already\n\n    draw(job",
    )
    (stages / "judging.py").write_text("import rmft.streams\n", encoding="utf-8")
    assert compare().code == [
        CodeChange("rmft judging", ADDED),
        CodeChange("rmft.stages.figures", CHANGED, ["figures"]),
    ]


def test_modules_and_workflow_files_come_and_go(repository):
    (repository / "src/rmft/metrics/curvature.py").write_text("CURVED = True\n", encoding="utf-8")
    edit(repository / "src/rmft/metrics/summary.py", "\nimport ", "\nimport rmft.metrics.curvature\nimport ")
    (repository / "workflow/rules/theory.smk").unlink()
    assert compare().code == [
        CodeChange("rmft.metrics.curvature", ADDED, ["metrics"]),
        CodeChange("rmft.metrics.summary", CHANGED, ["metrics"]),
        CodeChange("workflow/rules/theory.smk", DELETED),
    ]


@pytest.mark.usefixtures("repository")
def test_an_experiment_of_dvc_is_a_revision_by_its_name():
    found = compare("first", "noisier")
    assert found.parameters == {SELECTED: (1, 3)}
    assert found.metrics == {"numeric_mab/gaussian": {"regret": (99, 97)}}
    assert [found.code, found.inputs] == [[], {}]


@pytest.mark.usefixtures("repository")
def test_results_that_no_commit_of_dvc_lock_vouches_for_are_unknown_and_not_deleted():
    found = compare("first", "unbuilt")
    assert [found.results, found.inputs, found.metrics] == [{}, {}, {}]
    (line,) = found.unknown
    assert re.fullmatch(
        r"results and reward sets of unbuilt \(\w{7}\) are unknown: no dvc.lock is committed there", line
    )
    assert "no difference" not in as_text(found)


def test_results_that_are_nowhere_to_be_read_are_unknown(repository, monkeypatch):
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(repository / "site"))  # where DVC would still know the lists of files
    shutil.rmtree(repository / ".dvc/cache")
    found = compare("first")
    assert found.results["results/experiments/numeric_mab/"] == CHANGED
    assert [line.split(" are")[0] for line in found.unknown][1:] == [
        "files of data/rewards/", "files of results/figures/", "files of results/experiments/numeric_mab/",
    ]  # fmt: skip
    assert "numeric_mab" in as_text(found)
    shutil.rmtree(repository / "results")
    assert "results and reward sets of workspace are unknown: nothing is built here" in compare().unknown


def test_two_experiments_of_the_parameters_are_compared_in_the_workspace(repository):
    found = compare(*EXPERIMENTS)
    assert found.parameters == {
        "normalise": (False, True),
        "rmft.perturb": ("policy", "logits"),
        "rmft.selected": (2, 1),
    }
    assert found.results == {"evaluation/gaussian.parquet": CHANGED, "iteration-1000/model.safetensors": CHANGED}
    assert found.metrics == {"gaussian": {"regret": (98, 99)}}
    set_value(repository, "scale", "smoke")
    set_value(repository, f"experiments.{EXPERIMENTS[1]}.rmft.scenarios", 50)
    assert compare(*EXPERIMENTS).parameters.keys() == found.parameters.keys()  # at this scale both have 20


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("names", [("first", "first"), ("workspace", "workspace"), ("second",), ()])
def test_where_nothing_differs_one_line_says_so(rmft, names):
    code, out, error = rmft("diff", *names)
    assert (code, out.splitlines()[1:], error) == (0, ["no difference"], "")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("name", ["nowhere", "HEAD~99", "HEAD:src", "-x", "numeric_mab", "first..second"])
def test_an_unknown_name_is_refused_with_what_would_be_right(rmft, name):
    code, out, error = rmft("diff", "--", name)
    right = "give a commit, a DVC experiment, workspace, or two experiments of params.yaml"
    assert (code, out, error) == (2, "", f"rmft: diff: unknown {name!r}; {right}\n")


def test_what_cannot_be_compared_is_refused_in_one_line(repository, rmft, tmp_path, monkeypatch):
    def refusal() -> str:
        code, out, error = rmft("diff")
        assert (code, out, error.count("\n")) == (2, "", 1)
        return error

    edit(repository / "src/rmft/play.py", "\ndef ", "\ndef def ")
    assert "code of workspace is not Python" in refusal()
    done(repository, "git", "checkout", "--quiet", ".")
    (repository / "dvc.yaml").write_text("stages: [", encoding="utf-8")
    assert "'dvc.yaml', YAML file structure is corrupted" in refusal()
    shutil.rmtree(repository / ".git")
    assert "no git repository here" in refusal()
    monkeypatch.chdir(tmp_path)
    assert "no DVC repository here" in refusal()


def test_the_command_prints_its_table_alone_and_from_any_folder(repository, edits):
    ran = run(repository, "bash", "-c", "cd workflow && rmft diff first second")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, as_text(edits) + "\n", "")


def test_json_shortens_nothing(repository, rmft):
    long = {str(i): "x" * 90 for i in range(3)}
    set_value(repository, "experiments.long", long)
    assert json.loads(rmft("diff", "--json")[1])["parameters"] == {"experiments.long": [None, long]}


def test_the_table_stays_short():
    files = {
        f"results/experiments/numeric_{i}/iteration-{j}/model.safetensors": CHANGED for i in range(2) for j in range(50)
    }
    metrics = {f"numeric/{i}": {"regret": (1.0, 2.0), "ks_p": (None, 1e-9)} for i in range(ROWS + 7)}
    parameters = {"long": (None, {str(i): "x" * 90 for i in range(3)})}
    lines = as_text(Difference("a", "b", parameters, results=files, metrics=metrics)).splitlines()
    assert lines[2].split() == ["long", "–", "(3", "values)"]
    assert [line.split() for line in lines[4:6]] == [["numeric_0", "50", CHANGED], ["numeric_1", "50", CHANGED]]
    assert lines[7].split() == ["numeric/0", "1", "→", "2", "(+1)", "–", "→", "1e-09"]
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
