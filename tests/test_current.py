"""Results that were made with other parameters than params.yaml has now: `rmft export` and `rmft results` say so."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from trees import set_value

from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.receipts import Receipt, job_id, receipt_path
from rmft.errors import InputError
from rmft.lineage.records import METADATA, file_of
from rmft.params import load
from rmft.params.files import evaluation_of
from rmft.tools.results import built, plot_note
from rmft.workflow import paths, plan, plan_outputs, targets
from rmft.workflow.current import made_otherwise, refuse_other_rewards
from rmft.workflow.records import Job

ROOT = Path(__file__).parents[1]
MY_RUN = {
    "kind": "language", "scale": "own", "model": "embedded", "environment": "mab", "process": ["gaussian"],
    "rmft": {"iterations": 2, "scenarios": 4, "trajectories": 4}, "sft": {"method": "full", "epochs": 1},
    "evaluations": {"short": {"rewards": "gaussian", "T": 3, "instances": 4, "algorithms": ["ucb"]}},
}  # fmt: skip
SEED = Path("results/experiments/my_run/seed-0")
EVALUATION = evaluation_of("my_run", "short")
WORDS = "was made with other parameters than params.yaml has now; run `snakemake exp_my_run` first"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Work in a folder with the records of an experiment of two iterations."""
    for name in ("data", "extensions"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    set_value(tmp_path, "experiments.my_run", MY_RUN)
    monkeypatch.chdir(tmp_path)
    params = load().at_scale()
    base, trained = paths.held_out_of(params, "my_run", "short").values()
    rollouts = str(SEED / "iteration-0/rollouts.parquet")
    shards = targets.shards_of(params, "my_run", 0, 0)
    first, last = (paths.weights_of(params, "my_run", 0, i)[0] for i in (1, 2))
    put_on_record(EVALUATION, plan.evaluation_job(params, "my_run", "short"), base, trained)
    put_on_record(base, plan.held_out_job(params, "my_run", "short"))
    put_on_record(trained, plan.held_out_job(params, "my_run", "short"), last)
    put_on_record(last, plan.sft_job(params, "my_run", 0, 1), first)
    put_on_record(first, plan.sft_job(params, "my_run", 0, 0), rollouts)
    put_on_record(rollouts, plan.gather_job(params, "my_run"), *shards)
    for number, shard in enumerate(shards, start=1):
        put_on_record(shard, plan.rollouts_job(params, "my_run", 0, 0, number))
    return tmp_path


def put_on_record(path: str, job: Job, *inputs: str, content: bytes = b"") -> None:
    """Write a file with its receipt and Snakemake's metadata, as a job of other code would."""
    text = job.model_copy(update={"code": job.code.model_copy(update={"digest": "another"})}).canonical()
    times = {"starttime": 0, "endtime": 1}
    sources = [name for name in inputs if name.endswith(".j2")]
    hashes = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in sources}
    record = {"rule": "any", "input": inputs, "input_checksums": hashes, "params": [repr(text)], **times}
    digest = hashlib.sha256(content).hexdigest()
    receipt = Receipt(digest, job_id(text), hashes, None, "3.12", "a machine", artifact=path)
    texts = {receipt_path(Path(path)): receipt.as_json(), file_of(METADATA, path): json.dumps(record)}
    for file, of in {Path(path): content, **{file: text.encode() for file, text in texts.items()}}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(of)


def test_other_code_and_what_other_experiments_are_set_to_make_no_difference(folder):
    set_value(folder, "experiments.closed_mab.T", 30)
    assert made_otherwise(load().at_scale(), [EVALUATION]) is None


@pytest.mark.parametrize(
    ("key", "value", "otherwise"),
    [
        ("seed", 1, EVALUATION),
        ("experiments.my_run.sft.epochs", 2, str(SEED / "iteration-2/model.safetensors")),
        ("experiments.my_run.rmft.iterations", 1, EVALUATION.replace(".parquet", "/trained-0.parquet")),
        ("experiments.my_run.rmft.scenarios", 6, str(SEED / "iteration-0/rollouts.parquet")),
    ],
)
def test_the_artifact_is_named_that_other_parameters_made(folder, key, value, otherwise):
    set_value(folder, key, value)
    assert made_otherwise(load().at_scale(), [EVALUATION]) == otherwise


def test_a_model_is_not_exported_with_the_regret_of_another_iterations_model(folder, rmft):
    set_value(folder, "experiments.my_run.rmft.iterations", 1)
    code, _, error = rmft("export", SEED / "iteration-1", "--format", "merged", "--to", "out")
    assert (code, WORDS in error, error.count("\n"), Path("out").exists()) == (2, True, 1, False)


def test_games_are_not_exported_as_those_of_a_model_that_did_not_play(folder, rmft):
    set_value(folder, "experiments.my_run.model", "qwen3-8b")
    Path(SEED / "iteration-0/selection.parquet").touch()
    code, _, error = rmft("export", SEED / "iteration-0", "--format", "dataset", "--to", "out")
    assert (code, WORDS in error, error.count("\n"), Path("out").exists()) == (2, True, 1, False)


@pytest.mark.parametrize(
    ("key", "value", "output"),
    [
        ("evaluation.floor", 0.01, "results/tables/mine.csv"),
        ("evaluation.resamples", 7, "results/tables/mine.csv"),
        ("evaluation.floor", 0.01, "results/metrics.json"),
        ("figures.style.dpi", 80, "results/figures/mine.png"),
    ],
)
def test_figures_tables_and_metrics_of_other_parameters_are_named(folder, key, value, output):
    evaluations = {"experiments": ["my_run"], "evaluations": ["short"]}
    set_value(folder, "tables.mine", {"form": "regret", **evaluations})
    set_value(folder, "figures.drawn.mine", {"form": "regret", "players": ["base", "trained"], **evaluations})
    params = load().at_scale()
    put_on_record("results/tables/mine.csv", plan_outputs.table_job(params, "mine", "scale smoke"))
    put_on_record("results/figures/mine.png", plan_outputs.figure_job(params, "mine", "scale smoke"))
    put_on_record("results/metrics.json", plan_outputs.metrics_job(params.by_default))
    assert made_otherwise(load().at_scale(), [output]) is None
    set_value(folder, key, value)
    assert made_otherwise(load().at_scale(), [output]) == output


def test_a_variant_that_would_play_its_own_first_games_now_did_not_learn_from_them(folder):
    set_value(folder, "experiments.shorter", {"varies": "my_run"})
    params = load().at_scale()
    rollouts, shards = "results/experiments/shorter/seed-0/iteration-0/rollouts.parquet", targets.shards_of
    put_on_record(rollouts, plan.gather_job(params, "shorter"), *shards(params, "my_run", 0, 0))
    assert shards(params, "shorter", 0, 0) == shards(params, "my_run", 0, 0)
    assert made_otherwise(params, [rollouts]) is None
    set_value(folder, "experiments.shorter.T", 10)
    assert made_otherwise(load().at_scale(), [rollouts]) == rollouts


def test_games_are_not_shown_beside_rewards_that_they_were_not_played_on():
    refuse_other_rewards("compare", EVALUATION, "none.npz")  # which is not there: reading it says so
    Path("rewards.npz").write_bytes(b"drawn since")
    with pytest.raises(InputError, match=f"^compare: {EVALUATION} was not played on rewards.npz as it is now"):
        refuse_other_rewards("compare", EVALUATION, "rewards.npz")
    refuse_other_rewards("compare", "results/experiments/my_run/evaluation/other.parquet", "rewards.npz")


def test_results_name_no_model_of_params_yaml_over_the_numbers_of_another_one(folder, rmft):
    players, rounds = ("base", "trained"), [[0.0, 1.0, 2.0]]
    whole = Path("played.parquet")
    write_evaluation(
        whole,
        {
            "player": players, "training_seed": [0, 0], "instance": [0, 0], "d": [3, 3], "regret": rounds * 2,
            "action": [[0, 0, 0]] * 2, "best_action": [[0, 0, 0]] * 2, "policy": [None] * 2, "invalid": [0, 0],
        },
    )  # fmt: skip
    shutil.copy(whole, EVALUATION)

    def heading() -> str:
        return " ".join(rmft("results", "my_run")[1].partition(" n ")[0].split())

    assert heading() == "my_run, altered, or without a whole record of what made it; run `snakemake exp_my_run`"
    job = plan.evaluation_job(load().at_scale(), "my_run", "short")
    games = paths.held_out_of(load().at_scale(), "my_run", "short").values()
    Path("words.j2").write_text("Choose.")
    put_on_record(EVALUATION, job, *games, "words.j2", content=whole.read_bytes())
    assert heading() == "my_run, embedded"
    Path("words.j2").write_text("Choose one.")
    assert heading() == "my_run, made from words.j2 as it was before an edit; run `snakemake exp_my_run`"
    Path("words.j2").write_text("Choose.")
    assert "my_run" not in (plot_note(load(), built(load().at_scale(), ["my_run"])) or "")
    set_value(folder, "experiments.my_run.model", "qwen3-8b")
    assert heading() == "my_run, made with other parameters than params.yaml has now; run `snakemake exp_my_run`"
    note = plot_note(load(), built(load().at_scale(), ["my_run"]))
    assert note.endswith("my_run: made with other parameters than params.yaml has now")
