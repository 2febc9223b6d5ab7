"""The audit of a tree that somebody has interfered with: what it names, and that the commands it gives mend it."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from recorded import EVALUATION, FIGURE, MODEL, OTHER, REWARDS, SOURCE, write_artifact, write_tree
from trees import digests, run, set_value, snakemake, to_do

from chaos import corruptions
from rmft.artifacts.files import sha256
from rmft.artifacts.receipts import Receipt, read_receipt, receipt_path
from rmft.errors import InputError
from rmft.lineage.audit import (
    KNOWN_HASHES,
    Finding,
    as_lines,
    audit,
    naming_targets,
    outdated,
    refuse_altered,
    refuse_left_alone,
    retired,
    weights_that_differ,
)
from rmft.lineage.records import METADATA, UNFINISHED, Record, file_of, unfinished
from rmft.params import load
from rmft.workflow.targets import requested

pytestmark = pytest.mark.xdist_group("lineage")
ARTIFACTS = (REWARDS, MODEL, EVALUATION, OTHER, FIGURE)
STARTED = datetime.now(UTC)


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Path:
    """Return a folder with five artifacts and their records, and make it the current one."""
    write_tree(monkeypatch, tmp_path)
    return tmp_path


def problems(**reasons: str) -> list[str]:
    """Return the audit of the recorded tree in lines. reasons: why Snakemake would make an artifact, by its stem."""
    return [str(problem) for problem in audit({path: reasons.get(Path(path).stem, "") for path in ARTIFACTS})]


def test_the_command_for_what_is_made_on_request_names_its_target():
    artifacts = requested(load().at_scale())
    figure, other = "results/figures/real-fol-gemma.pdf", "results/figures/parameter.pdf"
    log = "results/experiments/real_mab_gemma/seed-0/iteration-1/training-log.csv"
    found = [Finding("stale", path, "", "snakemake") for path in (figure, other, log)]
    remedies = [problem.remedy for problem in naming_targets(found, artifacts)]
    assert remedies == [
        f"snakemake {figure}",
        "snakemake",
        "snakemake exp_real_mab_gemma",
    ]


def flip(path: Path) -> None:
    """Change the last bit of a file and none of its times."""
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def swap(one: Path, other: Path) -> None:
    """Give two files each other's name."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def change_receipt(**values: object) -> None:
    """Change values of a receipt, with its checksum."""
    receipt = replace(read_receipt(Path(EVALUATION)), **values)
    RECEIPT.write_text(receipt.as_json(), encoding="utf-8")


RECORD, RECEIPT = file_of(METADATA, EVALUATION), receipt_path(Path(EVALUATION))
INTERFERENCE = {
    "flipped bit": (lambda: flip(Path(EVALUATION)), [f"altered: {EVALUATION} "]),
    "swapped": (lambda: swap(Path(EVALUATION), Path(OTHER)), [f"altered: {OTHER} ", f"altered: {EVALUATION} "]),
    "deleted record": (RECORD.unlink, [f"unrecorded: {EVALUATION} "]),
    "damaged record": (lambda: rewrite(RECORD, lambda text: text[:-9]), [f"unrecorded: {EVALUATION} "]),
    "garbled record": (
        lambda: rewrite(RECORD, lambda text: json.dumps({**json.loads(text), "params": ['\'{"code":{']})),
        [f"unrecorded: {EVALUATION} "],
    ),
    "record without the code's digest": (
        lambda: rewrite(RECORD, lambda text: text.replace("digest", "digess")),
        [f"unrecorded: {EVALUATION} "],
    ),
    "deleted receipt": (RECEIPT.unlink, [f"unrecorded: {EVALUATION} "]),
    "receipt of another job": (
        lambda: change_receipt(job="another"),
        [f"unrecorded: {EVALUATION} was written by another job "],
    ),
    "receipt of a job that read something else": (
        lambda: change_receipt(read={}),
        [f"unrecorded: {EVALUATION} was written by another job "],
    ),
    "exchanged with another artifact of its job, receipts included": (
        lambda: change_receipt(artifact=OTHER),
        [f"unrecorded: {EVALUATION} is what its job wrote as {OTHER}; run "],
    ),
    "flipped bit of a receipt": (
        lambda: rewrite(RECEIPT, lambda text: text.replace("Linux", "Minux")),
        [f"unrecorded: {EVALUATION} has no whole record "],
    ),
    "receipt of too many brackets": (
        lambda: rewrite(RECEIPT, lambda _: "[" * 100_000),
        [f"unrecorded: {EVALUATION} has no whole record "],
    ),
    "deleted artifact": (Path(EVALUATION).unlink, [f"missing: {EVALUATION} "]),
    "edited source": (lambda: flip(Path(SOURCE)), [f"stale: {FIGURE} was made from another {SOURCE}"]),
    "deleted source": (Path(SOURCE).unlink, [f"missing: {SOURCE} is not there, and {FIGURE} was made from it"]),
    "stranger": (lambda: Path("results/mine.txt").write_text("mine"), ["orphan: results/mine.txt "]),
    "edited artifact of a former job": (lambda: (former("results/old.csv"), flip(Path("results/old.csv"))), [
        "orphan: results/old.csv is no part of what snakemake builds, and no job wrote it as it is; run `mv",
    ]),
}  # fmt: skip


def former(path: str) -> None:
    """Write an artifact that the workflow makes no more."""
    with pytest.MonkeyPatch.context() as patch:
        write_artifact(patch, path, "former")


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", INTERFERENCE)
def test_the_audit_names_what_was_interfered_with_and_nothing_that_follows_from_it(name):
    interfere, expected = INTERFERENCE[name]
    assert problems() == []
    interfere()
    follows = {"regret": "updated input files"} if EVALUATION in expected[-1] else {}
    found = problems(**follows)
    assert len(found) == len(expected)
    for problem, start in zip(found, expected, strict=True):
        assert problem.startswith(start)


@pytest.mark.usefixtures("recorded")
def test_what_snakemake_would_make_again_is_stale_for_its_reason():
    changed = "is out of date: its parameters or its code changed; run `snakemake`"
    assert problems(gamma="params changed") == [f"stale: {OTHER} {changed}"]
    file_of(UNFINISHED, REWARDS).parent.mkdir(parents=True)
    file_of(UNFINISHED, REWARDS).write_text("{}", encoding="utf-8")
    flip(Path(REWARDS))
    assert problems(regret="ok") == [f"stale: {REWARDS} was never finished; run `snakemake`"]


@pytest.mark.usefixtures("recorded")
def test_all_results_of_a_former_layout_are_one_line_and_those_of_a_dropped_experiment_another():
    old = [f"results/numeric/seed-{seed}/iteration-{i}/rollouts.parquet" for seed in range(3) for i in range(3)]
    dropped = [f"results/experiments/dropped/iteration-{i}/model.safetensors" for i in range(2)]
    for path in (*old, *dropped, "data/rewards/dropped.npz"):
        former(path)
    moved, *others = sorted(problems(), reverse=True)
    assert moved == (
        "orphan: results/numeric of a former version, before results/experiments: "
        "move away what you want to keep; run `rmft prune`"
    )
    is_none = "is no part of what snakemake builds; run `rmft prune"
    assert others == [
        f"orphan: results/experiments/dropped (2 files) {is_none} results/experiments/dropped`",
        f"orphan: data/rewards/dropped.npz {is_none} data/rewards/dropped.npz`",
    ]
    assert [path.as_posix() for path in retired(Path("data/rewards/dropped.npz"), ARTIFACTS)] == [
        "data/rewards/dropped.npz"
    ]
    assert len(retired(Path("results"), ARTIFACTS)) == 11


@pytest.mark.usefixtures("recorded")
def test_what_is_none_of_the_audits_business_is_no_orphan():
    former("results/figures/real.png")
    reasons = dict.fromkeys(ARTIFACTS, "")
    assert [problem.kind for problem in audit(reasons)] == ["orphan"]
    assert audit(reasons, ["results/figures/real.png"]) == []


@pytest.mark.usefixtures("recorded")
def test_nothing_that_is_wanted_or_that_no_job_wrote_is_retired_however_the_folder_is_written():
    Path("results/figures/mine.txt").write_text("mine", encoding="utf-8")
    for folder in ("results/figures", "results/../results/figures", "results/figures/."):
        assert retired(Path(folder), ARTIFACTS) == []
        assert retired(Path(folder), []) == [Path(FIGURE)]
    with pytest.raises(InputError, match="src: not below results or data/rewards"):
        retired(Path("results/../src"), [])


def test_many_problems_that_are_alike_are_one_line():
    missing = [Finding("missing", f"results/{number}", "is not there", "snakemake") for number in range(11)]
    problems = [*missing, Finding("altered", "results/a", "is not what its job wrote", "mv results/a .; snakemake")]
    first, second = as_lines(problems)
    assert first == "missing: results/0 is not there, as with 10 more files (--full names them); run `snakemake`"
    assert second == str(problems[-1])
    assert [*as_lines(problems, full=True)] == [str(problem) for problem in problems]
    assert [*as_lines(missing[1:])] == [str(problem) for problem in missing[1:]]


def test_bytes_of_a_hub_that_differ_at_one_revision_are_reported_once():
    file = "org/model@0123/model.safetensors"

    def record(path: str, digest: str) -> Record:
        receipt = Receipt("", "", {}, None, "", "", {file: digest})
        return Record(path, "rollouts_shard", {}, {}, {}, "", STARTED, 1.0, receipt)

    same = [record("results/a", "1"), record("results/b", "1")]
    assert list(weights_that_differ(same)) == []
    (problem,) = weights_that_differ([*same, record("results/c", "2"), record("results/d", "2")])
    assert (problem.kind, problem.path) == ("stale", "results/c")
    assert f"{file} of other bytes than results/a" in problem.reason


@pytest.mark.usefixtures("recorded")
def test_a_build_is_refused_on_what_no_job_wrote_and_many_such_files_can_be_moved_aside():
    refuse_altered(ARTIFACTS)
    flip(Path(EVALUATION))
    with pytest.raises(
        InputError,
        match=rf"^altered: {EVALUATION} is not .*`mv {EVALUATION} results-\S+; snakemake {EVALUATION}`, or `dvc",
    ):
        refuse_altered(ARTIFACTS)
    paths = [f"results/{number}.txt" for number in range(11)]
    for path in paths:
        Path(path).write_text("copied from elsewhere", encoding="utf-8")
    with pytest.raises(InputError, match=r"10 more: .*`mkdir old; mv results data/rewards old; snakemake` makes all"):
        refuse_altered(paths)


@pytest.mark.usefixtures("recorded")
def test_what_is_made_on_request_is_left_alone_where_its_record_is_of_another_commit_and_refused_where_a_run_uses_it():
    flip(Path(EVALUATION))  # as where `dvc checkout` has brought the record of another file
    paths = [f"results/{number}.txt" for number in range(11)]
    for path in paths:
        Path(path).write_text("of a commit whose records are gone", encoding="utf-8")
    on_request = {EVALUATION, *paths, "results/none.txt"}
    left_alone = refuse_altered([*ARTIFACTS, *paths, "results/none.txt"], on_request)
    assert left_alone.keys() == {EVALUATION, *paths}
    assert not any(map(unfinished, left_alone))
    refuse_left_alone([])
    cure = r"`mv results/experiments/(\S+) results-experiments-\1; snakemake exp_\1`"
    with pytest.raises(
        InputError, match=f"^altered: {EVALUATION} .*{cure}, or go to the commit that made it .and 11 mo"
    ):
        refuse_left_alone([left_alone[path] for path in (EVALUATION, *paths)])


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("content", ["[]", "{", "", f'{{"{FIGURE}": 3}}'])
def test_known_hashes_that_are_damaged_are_hashed_anew(content):
    KNOWN_HASHES.write_text(content, encoding="utf-8")
    refuse_altered(ARTIFACTS)
    flip(Path(FIGURE))
    with pytest.raises(InputError, match=f"altered: {FIGURE}"):
        refuse_altered(ARTIFACTS)


@pytest.mark.usefixtures("recorded")
def test_what_is_older_than_the_last_attempt_at_a_missing_input_is_made_again():
    Path(EVALUATION).unlink()
    refuse_altered(ARTIFACTS)
    assert not unfinished(FIGURE)  # it is younger than the evaluation
    rewrite(RECORD, lambda text: json.dumps({**json.loads(text), "starttime": 4e9, "endtime": 4e9}))  # and failed
    refuse_altered(ARTIFACTS)
    assert unfinished(FIGURE)
    assert not unfinished(OTHER)


@pytest.mark.usefixtures("recorded")
def test_what_was_made_while_its_source_was_edited_is_made_again():
    def as_at_the_end_of_the_job(text: str) -> str:
        record = json.loads(text)
        record["input_checksums"][SOURCE] = f"sha256:{sha256(Path(SOURCE))}"
        return json.dumps(record)

    flip(Path(SOURCE))  # after the job has read it, and before Snakemake has looked at it
    rewrite(file_of(METADATA, FIGURE), as_at_the_end_of_the_job)
    assert problems() == [f"stale: {FIGURE} was made while {SOURCE} was edited; run `snakemake`"]
    refuse_altered(ARTIFACTS)
    assert [path for path in ARTIFACTS if unfinished(path)] == [FIGURE]


@pytest.mark.usefixtures("recorded")
def test_what_was_made_from_a_source_that_an_older_file_has_replaced_is_made_again():
    Path(SOURCE).write_text("regret\n1\n", encoding="utf-8")
    os.utime(SOURCE, (0, 0))  # as `mv` and `cp -p` leave it
    refuse_altered(ARTIFACTS)
    assert Path(SOURCE).stat().st_mtime > Path(FIGURE).stat().st_mtime  # so that Snakemake looks at its bytes
    assert not any(map(unfinished, ARTIFACTS))


def test_an_attempt_counts_through_everything_that_is_missing():
    def record(path: str, hours: int, *inputs: str) -> Record:
        receipt = Receipt("", "", {}, None, "", "")
        started = STARTED + timedelta(hours=hours)
        return Record(path, "rule", dict.fromkeys(inputs, ""), {}, {}, "", started, 1.0, receipt)

    records = {"a": record("a", 5), "b": record("b", 1, "a"), "c": record("c", 2, "b"), "d": record("d", 3, "c")}
    assert outdated(records, {"a", "b", "c", "d"}) == set()
    assert outdated(records, {"d"}) == {"b", "c", "d"}


# With a real Snakemake


def audited(tree: Path) -> list[str]:
    """Return the problems that `rmft lineage --all` names; its exit code must tell whether there are any."""
    finished = run(tree, "rmft", "lineage", "--all", "--full")
    lines = finished.stderr.splitlines()
    assert finished.returncode == bool(lines), finished.stdout + finished.stderr
    return lines


BUILT = "results/experiments/numeric_mab/evaluation/gaussian.parquet"


@pytest.mark.long
def test_damage_of_any_type_of_file_is_named_and_is_no_traceback_for_its_reader(built):
    """`make chaos` does the same a hundred times as often, with older versions of files too."""
    types = [name for name, of in corruptions.TYPES.items() if not of.pattern.startswith(("evals/", "chaos/"))]
    counts = corruptions.run(2, 0, types, built)
    assert not counts.failures, "\n".join(counts.failures)
    assert counts.outcomes.keys() == {*types}


@pytest.mark.long
def test_edits_of_parameters_and_of_values_of_the_paper_are_stale(tree):
    """That building mends them is tested in test_versions, where a value is changed."""
    assert (to_do(tree), audited(tree)) == (set(), [])
    set_value(tree, "evaluation.floor", 0.5)
    paper = tree / "data/paper/simplex-table.csv"
    rewrite(paper, lambda text: text + "\n")
    os.utime(paper, (0, 0))  # older than what was made from it
    stale = {line.split()[1] for line in audited(tree) if line.startswith("stale: ")}
    assert {"results/metrics.json", "results/tables/simplex-table.csv", "results/tables/theorem-1.csv"} <= stale
    assert not any(path.startswith(("results/experiments/", "results/figures/")) for path in stale)


@pytest.mark.long
def test_snakemake_refuses_to_build_on_what_was_touched_and_each_command_of_the_audit_mends_one_thing(tree):
    before = digests(tree)
    set_value(tree, "experiments.numeric_mab.evaluations.gaussian.T", 50)
    assert run(tree, "snakemake", "--touch").returncode == 0
    set_value(tree, "experiments.numeric_mab.evaluations.gaussian.T", 100)
    flip(tree / "results/metrics.json")
    (tree / "results/mine.txt").write_text("mine", encoding="utf-8")
    for arguments in ((), ("--dry-run",)):
        refused = run(tree, "snakemake", *arguments)
        assert refused.returncode == 2
        assert refused.stderr.splitlines()[-1].startswith(("rmft: altered: results/", "rmft: unrecorded: results/"))
    lines = audited(tree)
    assert {line.split(": ")[0] for line in lines} >= {"altered", "orphan"}
    for line in lines:
        run(tree, "bash", "-c", line.rpartition("run `")[2].removesuffix("`"))  # which may stop at the next problem
    assert audited(tree) == []
    assert digests(tree) == before
    assert (tree / "results-mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.long
def test_an_artifact_that_is_a_link_to_nothing_or_was_never_finished_is_made_again(tree):
    before = digests(tree)
    (tree / BUILT).unlink()
    (tree / BUILT).symlink_to(tree / "nothing")
    other = "results/experiments/numeric_mab/evaluation/gamma.parquet"
    (tree / file_of(UNFINISHED, other)).write_text("{}", encoding="utf-8")
    flip(tree / other)
    snakemake(tree)
    assert digests(tree) == before
    assert audited(tree) == []
