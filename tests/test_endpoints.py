"""A job's session with its endpoint: prices, journals, keys, expected cost; our own server, started when needed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import wait_until
from openai import Omit
from tiny_gguf import FEED_FORWARD, WIDTH, write_tiny_gguf
from trees import checkout, digests, done, environment

from rmft.agents.model_shapes import PUBLISHED, shape_of
from rmft.artifacts.files import SCRATCH
from rmft.artifacts.job import this_run
from rmft.endpoint.budget import Usage, cost
from rmft.endpoint.journal import usage_of
from rmft.endpoint.session import PriceList, journal_of, open_endpoint
from rmft.endpoint_server import launch
from rmft.endpoint_server.launch import own_server
from rmft.errors import InputError
from rmft.params import load
from rmft.tools import estimate
from rmft.tools.estimate import beyond_budget, expected_work, spent_on
from rmft.tools.local_estimate import (
    GPUS,
    GameLoad,
    chosen,
    games_at_once,
    learn_seconds,
    local_work,
    play_seconds,
    unknown_sizes,
)  # fmt: skip
from rmft.workflow.plan import served

ROOT = Path(__file__).parents[1]
PARAMS = load(ROOT / "params.yaml")
EVERY = (Usage(1, 1_000_000, 0, 1_000_000), 0.15 + 0.60), (Usage(1, 1_000_000, 1_000_000, 0), 0.075)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


# --- Prices and journals ---


def test_what_is_fine_tuned_has_the_prices_of_fine_tuned_models_of_what_it_was_tuned_from():
    prices, model = PriceList(PARAMS), PARAMS.models["gpt-4o-mini"]
    assert prices[model.model] == model.prices
    assert prices[f"ft:{model.model}:org:closed-mab:abc"] == model.tuned_prices
    assert prices["ft:embedded:x::y"] == PARAMS.models["embedded-endpoint"].tuned_prices
    for unknown in ("gpt-4o-mini", f"ft:{model.model}-2:org:x:y", "ft:other:x::y"):
        with pytest.raises(KeyError):
            prices[unknown]
    for used, dollars in EVERY:
        assert cost(used, prices[model.model]) == pytest.approx(dollars)


def test_every_artifact_has_a_journal_of_its_own():
    assert journal_of(Path("results/experiments/closed_mab/seed-0/iteration-0/shards/1-of-1.parquet")) == Path(
        "journal/closed_mab/seed-0/iteration-0/shards/1-of-1.jsonl.zst"
    )
    names = [
        "results/experiments/e/evaluation/g/base.parquet",
        "results/experiments/e/evaluation/g/trained-0.parquet",
        "results/scenarios/s.jsonl",
    ]
    assert len({journal_of(Path(name)) for name in names}) == len(names)
    assert [journal_of(SCRATCH / name) for name in names] == [journal_of(Path(name)) for name in names]  # by hand


def test_a_missing_key_is_said_in_one_line_when_something_has_to_be_asked_and_not_before(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    needed = pytest.raises(InputError, match=r"^https://api.openai.com/v1: needs a key: export OPENAI_API_KEY=…$")
    recorded = PARAMS.models["gpt-4o-mini"]
    with open_endpoint("gpt-4o-mini", recorded, None, tmp_path / "a.jsonl.zst") as endpoint, needed:
        endpoint.client()


def test_in_a_copy_that_dvc_deletes_nothing_is_paid_for_and_what_is_free_is_allowed(monkeypatch, tmp_path):
    copy = tmp_path / ".dvc/tmp/exps/tmp1"
    checkout(copy)
    monkeypatch.chdir(copy)
    for model in ("gpt-4o-mini", "embedded-endpoint"):
        with open_endpoint(model, load().models[model], None, Path("a.jsonl.zst")) as endpoint:
            allowed = endpoint.budget.allows(load().models[model].model, 1000, 10)
            assert allowed == (model == "embedded-endpoint")
            if not allowed:
                with pytest.raises(InputError, match=r"^dvc exp run: 0\.0000 of 0 dollars .* run it in the workspace$"):
                    endpoint.budget.reserve(load().models[model].model, 1000, 10)


def test_fine_tuning_goes_to_the_project_of_the_key_as_chat_requests_do(monkeypatch, tmp_path):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, f"of-{name}")
    with open_endpoint("gpt-4o-mini", PARAMS.models["gpt-4o-mini"], None, tmp_path / "a.jsonl.zst") as endpoint:
        headers = endpoint.client().default_headers
    sent = {name for name, value in headers.items() if not isinstance(value, Omit)}
    assert "User-Agent" in sent
    assert not sent & {"OpenAI-Organization", "OpenAI-Project"}


@pytest.mark.parametrize(
    "edit", [{"seeded": False}, {"base_urls": ["http://127.0.0.1:1/v1"]}, {"model": "gpt-4o-mini-2025"}]
)
def test_a_job_does_not_ask_another_endpoint_than_its_record_has(tmp_path, edit):
    recorded = PARAMS.models["gpt-4o-mini"].model_copy(update=edit)
    says = rf"^params.yaml: models.gpt-4o-mini.{next(iter(edit))}: has been edited since this job was planned; run snak"
    with (
        pytest.raises(InputError, match=says),
        open_endpoint("gpt-4o-mini", recorded, None, tmp_path / "a.jsonl.zst"),
    ):
        pass


def test_other_weights_behind_our_own_server_are_another_endpoint(tmp_path):
    plays = served(PARAMS, "embedded-endpoint")
    other = plays.model_copy(update={"seed": 1})
    names = []
    for one in (plays, plays, other):
        recorded = PARAMS.models["embedded-endpoint"]
        with open_endpoint("embedded-endpoint", recorded, one, tmp_path / "a.jsonl.zst") as endpoint:
            names.append(endpoint.settings.name)
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("own server of embedded-")


def test_our_own_server_is_refused_at_once_while_another_run_has_it_and_waited_for_after_that(tmp_path, monkeypatch):
    with subprocess.Popen(["sleep", "60"]) as run, subprocess.Popen(["sleep", "60"]) as server:
        used = {"process": this_run(server.pid), "run": this_run(run.pid), "port": 1}
        (tmp_path / "own-server").mkdir()
        (tmp_path / "own-server/running.json").write_text(json.dumps(used))
        (tmp_path / "own-server/key").write_text("old")
        monkeypatch.setattr(launch, "RUN", tmp_path)
        monkeypatch.setattr(launch, "_start", lambda *_: used | {"port": 2})
        monkeypatch.setattr(time, "sleep", lambda _: server.kill())
        arguments = served(PARAMS, "embedded-endpoint"), "embedded", "own server"
        with pytest.raises(InputError, match=f"in use by process {run.pid}: run again when that has ended, or end it"):
            own_server(*arguments)
        run.kill()
        run.wait()
        assert own_server(*arguments) == ("http://127.0.0.1:2/v1", "old")


# --- What it will cost ---


def test_an_estimate_is_arithmetic_of_rounds_games_and_a_history_that_is_sent_whole():
    params = PARAMS.model_copy(update={"scale": "paper"}).at_scale()
    parts = {part.part: part for part in expected_work(params, ["closed_mab"])}
    base, tuned = parts["rollouts, base model"], parts["rollouts, fine-tuned"]
    assert base.calls == 200 * 5 * 25
    assert tuned.used.prompt == pytest.approx(4 * base.used.prompt, rel=1e-6)
    reply = params.models["gpt-4o-mini"].expected.reply_tokens.bandit
    assert base.used.completion == base.calls * reply
    assert tuned.dollars == pytest.approx(8 * base.dollars, rel=1e-6)  # four times as much, twice as dear
    longer, shorter = parts["gaussian-100, base model"], parts["gaussian-25, base model"]
    assert 12 < longer.used.prompt / shorter.used.prompt < 16  # the square of the horizon, but for the opening


def test_a_variant_is_not_charged_for_games_of_the_base_model_that_it_shares():
    params = PARAMS.model_copy(update={"scale": "demo"}).at_scale()
    parts = {part.part: part for part in expected_work(params, ["closed_mab_seeds"])}
    assert parts["gaussian-100, base model"].calls == 0
    assert parts["gaussian-100, fine-tuned"].calls == 5 * 16 * 100


def test_fine_tuning_on_summaries_reads_the_past_of_every_round():
    params = PARAMS.model_copy(update={"scale": "paper"}).at_scale()
    of = params.experiments["closed_mab"]
    summary = of.model_copy(update={"protocol": of.protocol.model_copy(update={"interaction": "summary"})})
    other = params.model_copy(update={"experiments": params.experiments | {"closed_mab": summary}})
    trained = [
        next(part.used.trained for part in expected_work(each, ["closed_mab"]) if part.part == "fine-tuning")
        for each in (params, other)
    ]
    assert trained[1] > 3 * trained[0]


def test_the_papers_cost_is_that_of_longer_replies_without_a_cache(monkeypatch):
    """Sec. `appendix:sec6-training-details`: about 0.5·T² dollars for a training."""
    monkeypatch.setattr(estimate, "CACHED_FROM", 10**9)
    whole = PARAMS.model_copy(update={"scale": "paper"}).at_scale()
    model = whole.models["gpt-4o-mini"]
    tokens = model.expected.reply_tokens.model_copy(update={"bandit": 360})
    longer = model.model_copy(update={"expected": model.expected.model_copy(update={"reply_tokens": tokens})})
    params = whole.model_copy(update={"models": whole.models | {"gpt-4o-mini": longer}})
    work = expected_work(params, ["closed_mab"])
    dollars = sum(part.dollars for part in work if part.part.startswith(("rollouts", "fine-tuning")))
    assert dollars == pytest.approx(0.5 * 25**2, rel=0.01)
    assert "is 25: a run would stop in closed_mab, rollouts, fine-tuned, since about 443" in beyond_budget(params, work)


def test_a_judge_behind_an_endpoint_is_estimated_as_if_it_were_asked_of_every_reply():
    assert not [part for part in expected_work(PARAMS.at_scale(), ["closed_mab"]) if "judge" in part.part]
    reasoning = PARAMS.reasoning.model_copy(update={"judge": "gpt-4o-mini"})
    params = PARAMS.model_copy(update={"reasoning": reasoning, "scale": "paper"}).at_scale()
    (judge,) = expected_work(params, ["open_mab_qwen"])  # whose games are played without an endpoint
    assert judge.part == "gaussian-25, judge, at most"
    assert judge.calls == 50 * 25 * 2
    assert judge.used.completion == judge.calls * reasoning.max_tokens
    assert judge.used.prompt > judge.calls * params.models["gpt-4o-mini"].expected.reply_tokens.bandit
    assert judge.dollars > 0


def test_the_least_time_of_a_local_model_is_that_of_the_table_in_docs_scale():
    """Qwen3-8B on an A100: 150 games in flight, and 216, 52 and 118 seconds an iteration."""
    shape, gpu = PUBLISHED["Qwen/Qwen3-8B"], GPUS[0]
    played = GameLoad(games=1000, read=25 * 40, sampled=25 * 60, context=25 * 100)
    assert games_at_once(shape, gpu, 2 * shape.parameters, played, 1000) == 150
    assert [round(seconds) for seconds in play_seconds(shape, gpu, 2 * shape.parameters, played, 1000)] == [216, 52]
    assert round(learn_seconds(shape, gpu, 3 * 100 * 2500)) == 118


def test_the_size_of_a_model_is_read_from_its_files_and_unknown_without_them(tmp_path):
    embedded = PARAMS.models["embedded"]
    found = shape_of(embedded)
    assert (found.layers, found.heads, found.head, found.sliding, found.window) == (2, 5, 32, 2, 192)
    assert found.parameters == pytest.approx(0.96e6, rel=0.05)
    tiny = shape_of(embedded.model_copy(update={"weights": str(write_tiny_gguf(tmp_path / "tiny.gguf"))}))
    assert (tiny.layers, tiny.heads, tiny.head) == (2, 2, 16)
    assert tiny.parameters > 10_000
    heads, inner = WIDTH * 2 * (WIDTH + 32), 3 * WIDTH * FEED_FORWARD
    assert tiny.linear == 2 * (heads + inner)  # the output of attention too, and not the output layer
    assert 0 < found.linear < found.parameters
    assert shape_of(embedded.model_copy(update={"weights": "nobody/Nothing-70B"})) is None


def test_an_estimate_of_local_models_says_what_it_does_not_know():
    not_here = PARAMS.models["gemma-3-270m"].model_copy(update={"weights": "models/not-here.gguf"})
    models = {**PARAMS.models, "gemma-3-270m": not_here}
    params = PARAMS.model_copy(update={"scale": "paper", "models": models}).at_scale()
    assert chosen(params, ["open_mab_qwen"]) == ([], ["open_mab_qwen"])
    remote, local = chosen(params, [])
    assert {"closed_fol", "closed_mab", "closed_nsmab"} < {*remote}
    qwen, real = local_work(params, ["open_mab_qwen", "real_mab_gemma"])
    assert qwen.games == 3 * 100 * 10 + 4 * 50 * 2
    assert qwen.hours.keys() == {"A100-80", "H200"}
    assert real.hours is None
    assert "gemma-3-270m (models/not-here.gguf)" in unknown_sizes([qwen, real], params)
    assert {"real_mab_gemma", "open_mab_qwen"} < {*local}
    with pytest.raises(InputError, match="estimate: numeric_mab: no language model plays in it"):
        chosen(params, ["numeric_mab"])


@pytest.mark.xdist_group("built")
def test_an_estimate_is_within_a_fifth_of_what_the_journal_shows_later(built, monkeypatch):
    monkeypatch.chdir(built / "rmft")
    work = expected_work(load().at_scale(), ["closed_mab"])
    expected, held = sum((part.used for part in work), Usage()), spent_on("closed_mab")
    for part in ("answers", "prompt", "completion", "trained"):
        assert getattr(expected, part) == pytest.approx(getattr(held, part), rel=0.2), part


# --- In the workflow ---


def of_closed(artifacts: dict[str, str]) -> dict[str, str]:
    return {path: digest for path, digest in artifacts.items() if path.startswith("results/experiments/closed_mab/")}


@pytest.mark.xdist_group("built")
@pytest.mark.long
def test_without_its_results_and_its_server_an_experiment_is_rebuilt_from_the_journal_byte_by_byte(tree):
    before, paid = digests(tree), usage_of((tree / "journal").rglob("*.zst"))
    done(tree, "rm", "-r", "results/experiments/closed_mab", ".rmft")
    printed = done(tree, "snakemake", "--cores", "2", "exp_closed_mab")
    assert "replayed" in printed
    assert of_closed(digests(tree)) == of_closed(before)
    assert usage_of((tree / "journal").rglob("*.zst")) == paid
    assert not list((tree / ".rmft").rglob("running.json"))  # no request was sent, so no server was started


@pytest.mark.xdist_group("built")
def test_a_key_is_in_no_file_that_a_run_leaves_but_its_own(built):
    tree = built / "rmft"
    keys = [*(tree / ".rmft/run").rglob("key")]
    assert keys
    assert not any(key.stat().st_mode & 0o077 for key in keys)
    secrets = [key.read_bytes() for key in keys]
    folders = ("results", "journal", ".rmft", ".snakemake", "logs")
    kept = [path for part in folders for path in (tree / part).rglob("*") if path.is_file() and path not in keys]
    assert [path for path in kept if any(secret in path.read_bytes() for secret in secrets)] == []


@pytest.mark.xdist_group("built")
@pytest.mark.long
def test_a_run_that_is_killed_leaves_no_server_behind_and_the_next_one_gives_the_same_bytes(tree):
    before = digests(tree)
    done(tree, "rm", "-r", "results/experiments/closed_mab", "journal/closed_mab", ".rmft")
    run = subprocess.Popen(
        ["snakemake", "--cores", "2", "exp_closed_mab"],
        cwd=tree, env=environment(tree), start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    answered = tree / "journal/closed_mab/seed-0/iteration-0/shards/1-of-1.jsonl.zst"
    wait_until(lambda: answered.exists() and answered.stat().st_size > 0)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    (announced,) = (tree / ".rmft/run").rglob("running.json")
    server = int(json.loads(announced.read_text())["process"].split(":")[0])
    wait_until(lambda: not psutil.pid_exists(server))
    kept = usage_of([answered])
    assert kept["embedded"].answers > 0
    done(tree, "snakemake", "--cores", "2", "exp_closed_mab")
    assert of_closed(digests(tree)) == of_closed(before)


def test_a_server_that_cannot_start_says_why():
    broken = f"{sys.executable} -c 'from rmft.cli import main; main()' serve --port 0 --plays nothing"
    finished = subprocess.run(
        broken, shell=True, cwd=ROOT, env={**environment(ROOT), "RMFT_API_KEY": "k"}, capture_output=True, text=True
    )
    assert finished.returncode == 2
    assert finished.stderr.strip().startswith("rmft: models.nothing: is no language model of params.yaml")
