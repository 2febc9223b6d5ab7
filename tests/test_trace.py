"""Traces of artifacts, in text and for other programs: what is shown, and that every hash is verified."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded import CODE, EVALUATION, FIGURE, HUB, MODEL, OTHER, REWARDS, SOURCE, write_artifact, write_tree
from rocrate.rocrate import ROCrate
from trees import ROOT

from rmft.artifacts.files import SHORT, note_response, sha256
from rmft.artifacts.receipts import commit, read_receipt, receipt, receipt_path
from rmft.lineage.records import METADATA, file_of
from rmft.lineage.text import _settings
from rmft.report.ancestry import ancestry

ALL = {FIGURE, EVALUATION, OTHER, REWARDS, MODEL, SOURCE}
PROFILES = ("provenance-run-crate-0.5", "workflow-run-crate-0.5", "process-run-crate-0.5")


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Path:
    """Return a folder with a figure and its records, and make it the current one."""
    write_tree(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def workflow(recorded) -> Path:
    """Return the same with the files of the workflow, which a crate holds."""
    shutil.copy(ROOT / "Snakefile", recorded)
    shutil.copytree(ROOT / "workflow", recorded / "workflow")
    return recorded


def add_to_git(*paths: str) -> None:
    """Put files of the current folder into a git repository there."""
    subprocess.run(["git", "init", "--quiet"], check=True)
    subprocess.run(["git", "add", "--force", *paths], check=True)


def ancestors(rmft) -> dict:
    return json.loads(rmft("lineage", FIGURE, "--format", "json")[1])["ancestors"]


def flip(path: Path) -> None:
    """Change the last bit of a file."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))


@pytest.mark.usefixtures("recorded")
def test_the_short_text_names_experiment_job_settings_code_inputs_sources_and_seed_in_a_dozen_lines(rmft, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    add_to_git(SOURCE)
    code, out, error = rmft("lineage", FIGURE)
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert len(lines) < 16
    assert (lines[0], lines[-1]) == (FIGURE, "verified: 6 hashes; --full shows every job")
    machine = json.loads(receipt_path(Path(FIGURE)).read_text(encoding="utf-8"))["machine"]
    assert re.fullmatch(r"Linux \w+(, \w+( \w+)?)?, \d+ cores", machine)
    assert re.search(rf"job +figure: 1.5 s \([\d.]+ s of CPU\) on {re.escape(machine)}", out)
    assert re.search(rf"code +{CODE['digest']}, commit \S+, Python {re.escape(platform.python_version())}\n", out)
    assert "settings    label=regret\n" in out  # and not its colours
    assert f"{EVALUATION}  {hashlib.sha256(Path(EVALUATION).read_bytes()).hexdigest()[:12]}  evaluation" in out
    assert "experiment  numeric\n" in out
    assert "trained by  training: training.rmft.selected=1" in out
    assert "numpy" not in out  # --full names the libraries
    assert "artifacts by rule: evaluation (2), reward_set, training\n" in out
    assert "sources in git: data/paper\n" in out
    assert "root seed 7\n" in out


@pytest.mark.usefixtures("recorded")
def test_a_source_that_git_does_not_hold_is_not_said_to_be_in_git(rmft, monkeypatch, tmp_path_factory):
    own = tmp_path_factory.mktemp("model") / "config.json"
    own.write_text("{}", encoding="utf-8")
    write_artifact(monkeypatch, "results/report.html", "report", [str(own)])
    _, out, _ = rmft("lineage", "results/report.html")
    assert f"sources not in git: {own.parent}" in " ".join(out.split())
    assert "sources in git" not in out
    add_to_git(OTHER)
    assert "sources in git" not in rmft("lineage", FIGURE)[1]  # data/paper/regret.csv is not committed yet
    Path("Snakefile").touch()
    code, _, error = rmft("lineage", "results/report.html", "--format", "rocrate", "--output", "crate")
    assert (code, error) == (0, "")
    assert ":config.json" in Path("crate/ro-crate-metadata.json").read_text(encoding="utf-8")
    assert not list(Path("crate").rglob("config.json"))


@pytest.mark.usefixtures("recorded")
def test_another_spelling_of_a_path_is_the_same_input(rmft, monkeypatch):
    Path("data/paper/own.csv").write_text("own", encoding="utf-8")
    write_artifact(monkeypatch, "results/report.html", "report", ["./data//paper/own.csv"])
    code, out, _ = rmft("lineage", "results/report.html")
    assert (code, "data/paper/own.csv" in out) == (0, True)


@pytest.mark.usefixtures("recorded")
def test_many_inputs_are_counted_and_sources_of_one_folder_are_one_line(rmft, monkeypatch):
    names = [f"data/paper/{number}.csv" for number in range(5)] + [f"results/{number}.csv" for number in range(9)]
    for name in names:
        Path(name).write_text(name, encoding="utf-8")
    write_artifact(monkeypatch, "results/report.html", "report", names)
    add_to_git("data")
    code, out, error = rmft("lineage", "results/report.html")
    assert "data/paper  5 sources, in git" in out
    assert "and 7 more\n" in out
    assert "verified" not in out
    assert code == 1
    assert error.count("unrecorded: results/") == 9


@pytest.mark.usefixtures("recorded")
def test_the_full_text_shows_every_job_and_every_setting_once(rmft):
    lines = rmft("lineage", FIGURE, "--full")[1].splitlines()
    assert {line.split()[0] for line in lines if line.strip().startswith(("results/", "data/"))} == ALL
    text = "\n".join(lines)
    assert "style.colours.ucb=#0072B2" in text
    assert text.count("numpy 2.4.6") == text.count("training.rmft.selected=1") == 1
    assert "radius" not in text  # it is null
    assert text.count("(above)") == 2  # rewards and model of the second evaluation
    assert lines[-1] == "verified: 6 hashes"


@pytest.mark.usefixtures("recorded")
def test_a_trace_of_an_artifact_whose_record_is_damaged_says_so(rmft):
    record = file_of(METADATA, FIGURE)
    record.write_text(record.read_text(encoding="utf-8").replace("digest", "digess"), encoding="utf-8")
    code, _, error = rmft("lineage", FIGURE)
    assert code == 1
    assert error.startswith(f"unrecorded: {FIGURE} has no whole record of what made it; run ")


@pytest.mark.parametrize("spoil", [FIGURE, EVALUATION, REWARDS])
def test_a_trace_verifies_the_artifact_itself_and_everything_on_the_way(recorded, rmft, spoil):
    flip(recorded / spoil)
    code, out, error = rmft("lineage", FIGURE)
    assert code == 1
    assert "verified" not in out
    again = f"mv {spoil} {spoil.replace('/', '-')}; snakemake {spoil}"
    assert error == f"altered: {spoil} is not what its job wrote; run `{again}`\n"


def test_sources_that_changed_or_are_gone_are_problems_with_a_remedy(recorded, rmft):
    add_to_git(SOURCE)
    flip(recorded / SOURCE)
    again = f"snakemake --forcerun {FIGURE}"
    assert rmft("lineage", FIGURE)[2] == f"stale: {FIGURE} was made from another {SOURCE}; run `{again}`\n"
    (recorded / SOURCE).unlink()
    assert rmft("lineage", FIGURE)[2] == f"missing: {SOURCE} is not there; run `git checkout {SOURCE}`\n"


def test_git_is_not_asked_for_a_source_that_it_does_not_hold(recorded, rmft):
    (recorded / SOURCE).unlink()
    put_back = f"missing: {SOURCE} is not there; git does not hold it, so put it back; run `snakemake`\n"
    assert rmft("lineage", FIGURE)[2] == put_back


def test_nobody_is_told_to_delete_a_file_that_no_job_may_have_written(recorded, rmft):
    (recorded / "results/notes.txt").write_text("mine", encoding="utf-8")
    code, _, error = rmft("lineage", "results/notes.txt")
    unrecorded = "unrecorded: results/notes.txt has no whole record of what made it"
    assert (code, error) == (1, f"{unrecorded}; run `rmft lineage --all`\n")


def test_json_gives_every_hash_as_it_is_and_the_same_from_absolute_paths(recorded, rmft):
    assert rmft("lineage", recorded / FIGURE, "--format", "json") == rmft("lineage", FIGURE, "--format", "json")
    found = ancestors(rmft)
    assert found.keys() == ALL
    for path, ancestor in found.items():
        assert ancestor["sha256"] == hashlib.sha256((recorded / path).read_bytes()).hexdigest()
    assert found[REWARDS]["settings"]["seed"] == 7
    assert found[SOURCE]["kind"] == "source"


@pytest.mark.usefixtures("recorded")
def test_mermaid_has_an_arrow_for_everything_that_was_read(rmft):
    chart = rmft("lineage", FIGURE, "--format", "mermaid")[1]
    numbers = {name: number for number, name in re.findall(r'  (n\d+)\["(.+?)<br/>', chart)}
    arrows = set(re.findall(r"  (n\d+) -->\|\w+\| (n\d+)", chart))
    read = {(name, path) for path, ancestor in ancestors(rmft).items() for name in ancestor.get("inputs", [])}
    assert arrows == {(numbers[name], numbers[path]) for name, path in read}


def test_a_crate_is_read_back_with_every_file_job_step_and_setting(workflow, rmft):
    assert rmft("lineage", FIGURE, "--format", "rocrate", "--output", "crate") == (0, "", "")
    crate = ROCrate(workflow / "crate")
    files = {entity.id: entity for entity in crate.get_by_type("File")}
    assert files.keys() > ALL
    for path in ALL:
        assert files[path]["sha256"] == hashlib.sha256((workflow / "crate" / path).read_bytes()).hexdigest()
    jobs = [action for action in crate.get_by_type("CreateAction") if action.id != "#run"]
    read = {action["result"].id: [entity.id for entity in action["object"]] for action in jobs}
    for path, ancestor in ancestors(rmft).items():
        assert list(ancestor.get("inputs", {})) == [name for name in read.get(path, []) if name in ALL]
    (training,) = (action for action in jobs if action["result"].id == MODEL)
    settings = {entity["name"]: entity["value"] for entity in training["object"]}
    assert settings == {"seed": 7, "training.rmft.selected": 1, **HUB}
    assert crate.mainEntity.id == "Snakefile"
    steps = {step["name"] for step in crate.mainEntity["step"]}
    assert steps == {"reward_set", "training", "evaluation", "figure"}
    assert crate.dereference("#run")["result"].id == FIGURE


@pytest.mark.usefixtures("workflow")
def test_jobs_of_one_code_on_other_commits_and_machines_are_told_apart(rmft):
    other = replace(read_receipt(Path(EVALUATION)), commit=f"{'f' * 40}-dirty", machine="a machine elsewhere")
    receipt_path(Path(EVALUATION)).write_text(other.as_json(), encoding="utf-8")
    assert "before it: commit ffffffffffff-dirty; machine a machine elsewhere\n" in rmft("lineage", FIGURE)[1]
    rmft("lineage", FIGURE, "--format", "rocrate", "--output", "crate")
    jobs = [one for one in ROCrate("crate").get_by_type("CreateAction") if one["name"] == "evaluation of rmft"]
    commits = {one["result"].id: one["instrument"]["softwareVersion"].split()[-1] for one in jobs}
    assert commits == {EVALUATION: f"{'f' * 40}-dirty", OTHER: str(commit())}


@pytest.mark.usefixtures("workflow")
def test_the_rules_in_a_crate_have_the_commit_only_where_they_are_those_of_the_commit(monkeypatch, rmft):
    add_to_git("Snakefile", "workflow")
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin"], check=True)
    commit.cache_clear()
    write_artifact(monkeypatch, FIGURE, "figure", [EVALUATION])
    for rules, version in (("", commit()), ("# edited since\n", None)):
        Path("Snakefile").write_text(Path("Snakefile").read_text(encoding="utf-8") + rules, encoding="utf-8")
        code, out, error = rmft("lineage", FIGURE, "--format", "rocrate")
        assert (code, error) == (0, "")
        (main,) = (one for one in json.loads(out)["@graph"] if one["@id"] == "Snakefile")
        assert (main.get("version"), main["sha256"]) == (version, sha256(Path("Snakefile")))
    commit.cache_clear()


@pytest.mark.usefixtures("workflow")
def test_every_job_is_a_step_of_the_workflow_that_snakemake_started_as_the_profile_wants(rmft):
    rmft("lineage", FIGURE, "--format", "rocrate", "--output", "crate")
    crate = ROCrate("crate")
    jobs = {action.id for action in crate.get_by_type("CreateAction")}
    (snakemake,) = crate.get_by_type("OrganizeAction")
    assert snakemake["result"].id == "#run"
    assert {start["object"].id for start in snakemake["object"]} == jobs - {"#run"}
    for start in snakemake["object"]:
        assert (start.type, start["instrument"].type) == ("ControlAction", "HowToStep")
        assert start["instrument"]["workExample"] == start["object"]["instrument"]
        assert start["instrument"] in crate.mainEntity["step"]
        assert start["object"]["instrument"] in crate.mainEntity["hasPart"]
    for parameter in crate.get_by_type("FormalParameter"):
        assert parameter["additionalType"] in {"File", "Integer", "Text"}
    assert {profile["name"] for profile in crate.root_dataset["conformsTo"]} == {
        "Process Run Crate", "Workflow Run Crate", "Provenance Run Crate", "Workflow RO-Crate",
    }  # fmt: skip


@pytest.mark.usefixtures("workflow")
def test_the_public_validator_passes_a_crate_for_all_profiles_that_it_names(rmft):
    validator = shutil.which("rocrate-validator")
    if validator is None:  # not in our environment: it needs an older rich than we lock
        pytest.skip("no rocrate-validator: install roc-validator in an environment of its own, and put it on the PATH")
    rmft("lineage", FIGURE, "--format", "rocrate", "--output", "crate")
    for profile in PROFILES:
        command = [validator, "--no-interactive", "--disable-color", "validate", "--no-paging", "-p", profile]
        ran = subprocess.run([*command, "--offline", "crate"], capture_output=True, text=True, check=False)
        printed = ran.stdout + ran.stderr
        if "cache" in printed.lower():
            pytest.skip(
                "rocrate-validator has no JSON-LD contexts: run `rocrate-validator cache warm` once, with a network"
            )
        assert f"valid {profile}" in printed, printed
        assert ran.returncode == 0, printed


def test_a_crate_is_not_made_of_what_is_not_as_recorded_nor_over_another_nor_without_the_workflow(workflow, rmft):
    taken = rmft("lineage", OTHER, "--format", "rocrate", "--output", "workflow")
    assert taken == (2, "", "rmft: workflow: exists already; name a new folder\n")
    flip(workflow / EVALUATION)
    assert rmft("lineage", FIGURE, "--format", "rocrate", "--output", "crate")[0] == 1
    (workflow / "Snakefile").unlink()
    _, _, error = rmft("lineage", OTHER, "--format", "rocrate", "--output", "crate")
    assert error == f"rmft: {OTHER}: no Snakefile in this folder, so there is no crate of it\n"
    assert not (workflow / "crate").exists()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("README.md",), "README.md: no artifact of this workflow; try a file below results or data/rewards"),
        (
            (f"docs/{Path(FIGURE).name}",),
            f"docs/{Path(FIGURE).name}: no artifact of this workflow; did you mean {FIGURE}?",
        ),
        (("results/figures",), "results/figures: is a folder; name a file in it, such as results/figures/"),
        (("results/figures/none.pdf",), "results/figures/none.pdf: no such file, and no record of it;"),
        ((), "lineage: name one artifact, or say --all"),
        (("--all", "--format", "json"), "--format goes with an artifact, not with --all"),
        ((FIGURE, "--format", "xml"), "Invalid value for '--format': "),
    ],
)
def test_what_has_no_lineage_is_refused_in_one_line(rmft, arguments, says):
    Path("Snakefile").touch()
    code, _, error = rmft("lineage", *arguments)
    assert code == 2
    assert error.startswith(f"rmft: {says}")
    assert error.count("\n") == 1


@pytest.mark.usefixtures("recorded")
def test_a_repository_that_git_does_not_trust_is_a_line_and_not_one_without_files(rmft, monkeypatch, tmp_path):
    Path("Snakefile").touch()
    (tmp_path / "git").write_text(
        "#!/bin/sh\n"
        "echo \"fatal: detected dubious ownership in repository at '/work'\" >&2\n"
        "echo 'To add an exception for this directory, call:' >&2\n"
        "echo '\tgit config --global --add safe.directory /work' >&2\n"
        "exit 128\n"
    )
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, _, error = rmft("lineage", FIGURE)
    cure = "run `git config --global --add safe.directory /work`"
    assert (code, error) == (2, f"rmft: git: detected dubious ownership in repository at '/work'; {cure}\n")


def test_a_lineage_is_asked_for_in_a_clone(rmft, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused = "rmft: Snakefile: no such file; run from the root of a clone of the repository\n"
    for command in (("lineage", "figure.pdf"), ("params", "--docs"), ("paper-map",)):
        assert rmft(*command) == (2, "", refused)
    assert list(tmp_path.iterdir()) == []


def test_neither_host_nor_folder_nor_user_is_in_a_receipt_or_a_crate(workflow, rmft, monkeypatch):
    monkeypatch.setenv("USER", "somebody-in-particular")
    write_artifact(monkeypatch, FIGURE, "figure", [EVALUATION])
    written = "".join(path.read_text(encoding="utf-8") for path in (workflow / ".snakemake/receipts").rglob("*.json"))
    written += rmft("lineage", FIGURE, "--format", "rocrate")[1]
    for private in (platform.node(), str(workflow), "somebody-in-particular"):
        assert private not in written


@pytest.mark.usefixtures("recorded")
def test_a_receipt_without_its_checksum_is_none():
    path = receipt_path(Path(FIGURE))
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["checksum"]
    path.write_text(json.dumps(values), encoding="utf-8")
    assert read_receipt(Path(FIGURE)) is None


def test_a_receipt_says_what_an_endpoint_answered_and_what_makes_libraries_round_otherwise(recorded, monkeypatch):
    monkeypatch.setattr("rmft.artifacts.job.JOB_CONTEXT.responses", {})
    monkeypatch.setenv("RMFT_JOB_OF", "1:1.0")
    found = []
    for answer, capability in (("Action: 1", None), ("Action: 2", None), ("Action: 2", "default")):
        note_response("key", {"text": answer})
        if capability:
            monkeypatch.setenv("ATEN_CPU_CAPABILITY", capability)
        found.append(receipt(recorded / "x", ""))
    first, second, third = found
    assert len({first.responses, second.responses, ""}) == 3
    assert (first.ran_with, third.ran_with) == ({}, {"ATEN_CPU_CAPABILITY": "default"})


@pytest.mark.usefixtures("recorded")
def test_the_report_shows_hashes_of_the_files_that_it_is_made_from_and_of_no_others():
    shown = ancestry([FIGURE], [FIGURE])
    assert shown[FIGURE] == ["figure", sha256(Path(FIGURE))[:SHORT], sorted([EVALUATION, OTHER, SOURCE])]
    assert (shown[REWARDS], shown[SOURCE]) == (["reward_set", "", []], ["", "", []])
    assert [path for path, (_, digest, _) in shown.items() if digest] == [FIGURE]


def test_decisive_settings_are_shown_first_and_those_of_games_and_servers_last():
    values = {
        "served": {"sft": {"epochs": 3}},
        "seed": 0,
        "T": 15,
        "problem": {"d": 3},
        "trajectories": 8,
        "selected": 1,
    }
    assert _settings(SimpleNamespace(settings=values)) == (
        "selected=1  trajectories=8  T=15  seed=0  served.sft.epochs=3  problem.d=3"
    )
