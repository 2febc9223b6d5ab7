"""Games played by servers that take and return tokens are those that a model in process plays.

The temperature is almost zero, so that it does not matter who samples. Most tests use our own server, which offers this
part of vLLM's protocol; the last test starts vLLM itself if RMFT_VLLM is its command (`vllm serve` of another
environment).
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from endpoint_servers import TOKEN
from faults import FaultProxy
from test_families import FAMILIES, PROBLEM, PROMPTS, SFT, checkpoint_of, demonstrations_of
from transformers import Qwen3Config

from rmft.agents.checkpoint import load_chat_tokenizer
from rmft.agents.served import ServedChatModel, ServerConnections, TokenRequest
from rmft.agents.vllm import VLLMClient
from rmft.artifacts.tensors import write_tensors
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.params.language_model import VLLM, LanguageModelSettings
from rmft.rollouts import roll_out
from rmft.stages.rollouts import open_chat_models
from rmft.training.sft import fine_tune
from rmft.workflow.games import games_of
from rmft.workflow.records import RolloutsJob

ROOT = Path(__file__).parents[1]
EMBEDDED = LanguageModelSettings(
    kind="language", weights=str(ROOT / "data/models/embedded"), dtype="float32", device="cpu", batch=8
)
ALMOST_NONE = 1e-5

pytestmark = pytest.mark.xdist_group("endpoint")


def job(model: LanguageModelSettings, problem: LanguageProblem, rounds: int = 3) -> RolloutsJob:
    return RolloutsJob(
        seed=1, stream="test", model=model, model_name="any", process=["gaussian"], T=rounds, scenarios=4,
        trajectories=2, problem=problem, temperature=ALMOST_NONE, shard=(1, 1),
    )  # fmt: skip


def problem(interaction: str = "dialogue") -> LanguageProblem:
    return LanguageProblem(
        kind="language", environment="fol", d=3,
        protocol=ProtocolSettings(
            interaction=interaction, output="action", format="with-reasoning", prompts=str(PROMPTS), max_tokens=128,
            retries=2, tolerance=0.0,
        ),
    )  # fmt: skip


def played(settings: RolloutsJob, chat_model: Callable | None = None, weights: Path | None = None) -> dict[str, list]:
    """Play a job's games with a chat model, by default the job's."""
    games = games_of(settings, Prompts.load(PROMPTS))
    if chat_model:
        return roll_out(games, chat_model, 8)
    with open_chat_models(settings, games, weights, Path("rollouts.parquet")) as chat_models:
        return roll_out(games, chat_models.open, chat_models.batch)


def assert_same_games(ours: dict[str, list], theirs: dict[str, list]) -> None:
    for name in ("reply", "ids", "sampled", "replied", "action", "attempts"):
        np.testing.assert_equal(ours[name], theirs[name], name)
    np.testing.assert_allclose(np.array(ours["policy"]), np.array(theirs["policy"]), atol=1e-4)


@pytest.fixture(scope="module")
def vllm_client(server):
    """Return connections to two addresses of a server of the embedded model."""
    with ServerConnections([f"{server.url}/v1"] * 2, TOKEN, 4, Path("server.log")) as connections:
        yield VLLMClient(connections, "embedded")


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_games_are_those_of_a_model_in_process(vllm_client, interaction):
    settings, chat_tokenizer = job(EMBEDDED, problem(interaction)), load_chat_tokenizer(EMBEDDED)
    games = played(settings, lambda games: ServedChatModel(vllm_client, chat_tokenizer, games, 128))
    assert_same_games(games, played(settings))
    assert np.std(games["policy"]) > 0.1


def test_a_request_whose_connection_was_closed_is_sent_again_twice_at_most(server):
    request = TokenRequest(0, 0, [1], max_tokens=4, temperature=1.0)
    for faults in (2, 3):
        with (
            FaultProxy(f"{server.url}/v1", 0, 1.0, faults, ["cut before"]) as proxy,
            ServerConnections([proxy.url], TOKEN, 1, Path("server.log")) as connections,
            pytest.raises(InputError, match=r"server\.log may say why") if faults == 3 else nullcontext(),
        ):
            assert VLLMClient(connections, "embedded").sample([request])[0].ids
        assert proxy.injected == {"cut before": faults}


def test_a_retracted_reply_is_given_anew_to_the_same_conversation(vllm_client):
    talk = ServedChatModel(vllm_client, load_chat_tokenizer(EMBEDDED), np.array([[0, 0], [0, 1]]), 60)
    message = 'There are 3 actions, numbered 1 to 3.\nRound 1. Reason briefly; last line "Action: " and a number.'
    numbers = np.random.default_rng(0).random((3, 2, 60))
    first = talk.reply([message] * 2, temperature=1.0, uniforms=numbers[0])
    before = [list(ids) for ids in talk.ids]
    talk.retract([1])
    again = talk.reply(None, temperature=1.0, uniforms=numbers[1, :1], rows=[1])
    assert again[0].prompt_ids == first[1].prompt_ids
    assert talk.ids[0] == before[0]
    assert talk.ids[1] == [*first[1].prompt_ids, *again[0].ids]
    talk.retract([1])
    assert talk.reply(None, temperature=1.0, uniforms=numbers[0, 1:], rows=[1])[0].ids == first[1].ids


def test_what_a_server_refuses_is_told_with_its_reason(vllm_client):
    elsewhere = VLLMClient(vllm_client.connections, "no-such-model")
    with pytest.raises(InputError, match=r"http://127.*/v1: 404, .*no-such-model"):
        elsewhere.sample([TokenRequest(0, 0, [1], max_tokens=4, temperature=1.0)])


@pytest.mark.parametrize("wrong", [{"prompt": [10**9]}, {"prompt": [-1]}, {"prompt": []}, {"max_tokens": 10**6}])
def test_a_request_that_no_model_could_answer_is_refused_and_the_server_goes_on(vllm_client, wrong):
    request = TokenRequest(0, 0, [1], max_tokens=4, temperature=1.0)
    with pytest.raises(InputError, match=r"400, .*invalid_request_error"):
        vllm_client.sample([replace(request, **wrong)])
    assert vllm_client.sample([request])[0].ids


def test_a_server_that_does_not_start_is_told_with_the_file_that_says_why(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    missing = VLLM(command=["false"], servers=1, gpus=0, concurrency=1)
    with pytest.raises(InputError, match=r"vllm: a server ended with exit code 1; logs/vllm/rollouts.log says why"):
        played(job(EMBEDDED.model_copy(update={"vllm": missing}), problem()))


@pytest.mark.skipif("RMFT_VLLM" not in os.environ, reason="RMFT_VLLM is not vLLM's command")
def test_vllm_plays_what_a_model_in_process_plays_with_and_without_an_adapter(monkeypatch, tmp_path):
    family = FAMILIES["qwen3"]
    wider = Qwen3Config(**family.config.to_dict() | {"head_dim": 32})  # vLLM has no kernels for smaller heads
    checkpoint = checkpoint_of(replace(family, config=wider), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    vllm = VLLM(
        command=os.environ["RMFT_VLLM"].split(), servers=2, gpus=0, concurrency=8,
        arguments=["--enforce-eager"],  # compiling takes longer than all the rest
    )  # fmt: skip
    here, there = checkpoint.settings, checkpoint.settings.model_copy(update={"vllm": vllm})
    games = played(job(here, PROBLEM))
    assert_same_games(played(job(there, PROBLEM)), games)
    tuned = fine_tune(demonstrations_of(checkpoint), here, None, SFT, seed=0)
    adapter = tmp_path / "adapter.safetensors"
    write_tensors(adapter, tuned.tensors, tuned.metadata)
    with_adapter = played(job(here, PROBLEM), weights=adapter)
    assert_same_games(played(job(there, PROBLEM), weights=adapter), with_adapter)
    assert with_adapter["reply"] != games["reply"]
