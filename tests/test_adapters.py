"""Other people's tools play our games, with our prompts, rules and regrets.

Inspect and verifiers cannot be installed beside what the lock holds: their tests run where they are (docs/adapters.md).
"""

import asyncio
import json
import subprocess
import sys
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from endpoint_servers import MODEL, TOKEN, Server
from pydantic import ValidationError
from trees import ROOT

from rmft.adapters.games import GameOptions, offered
from rmft.agents.asked import Message
from rmft.agents.endpoint import SEEDS, EndpointCompletion
from rmft.agents.local import LocalChatModel, load
from rmft.errors import InputError
from rmft.evaluation import Instances, evaluate_in_words
from rmft.language.game import GameSettings
from rmft.params.section import first_error
from rmft.rollouts import roll_out
from rmft.selection import invalid_replies
from rmft.suite.parts import read_suite

OPTIONS = GameOptions(environment="mab", horizon=4, instances=6)
FLAGS = ["--environment", "mab", "--horizon", "4", "--instances", "6"]
REPLIES = {
    "mab": ["Action: 1", "Action: 2", "Action: 3", "I do not know."],
    "fol": ["Policy: [0.2, 0.3, 0.5]", "Policy: [1, 0, 0]", "Policy: [1, 1, 1]"],
}


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    """Run in the repository, where the suite is."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def canned(replies: list[str], messages: list[Message], seed: int) -> str:
    """Return one of some replies, which the seed and the length of the conversation choose."""
    return replies[(seed + len(messages)) % len(replies)]


class CannedModel:
    """A chat model in any number of conversations whose replies are canned."""

    max_tokens = 16

    def __init__(self, games: np.ndarray, replies: list[str]) -> None:
        self.conversations, self.replies = [[] for _ in games], replies

    def restart(self) -> None:
        """Begin all conversations anew."""
        self.conversations = [[] for _ in self.conversations]

    def retract(self, rows: list[int]) -> None:
        """Remove last replies."""
        for row in rows:
            self.conversations[row].pop()

    def reply(self, messages: Any, *, temperature: float, uniforms: np.ndarray, rows: Any) -> list:
        """Return canned replies."""
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                self.conversations[row].append({"role": "user", "content": message})
        completions = []
        for row, numbers in zip(rows, uniforms, strict=True):
            text = canned(self.replies, self.conversations[row], int(numbers[0] * SEEDS))
            self.conversations[row].append({"role": "assistant", "content": text})
            completions.append(EndpointCompletion(text))
        return completions


@pytest.mark.parametrize("environment", ["mab", "fol"])
def test_a_game_played_alone_is_the_one_that_our_rollouts_play(environment):
    games = offered(OPTIONS.model_copy(update={"environment": environment}))
    replies = REPLIES[environment]
    played = roll_out(games.games, lambda ids: CannedModel(ids, replies), 6)
    shared = games.games
    instances = Instances(shared.rewards, shared.words, shared.seed, environment, "nominal")
    curves = evaluate_in_words(instances, [("model", 0, played)], {})["regret"]

    async def ask(messages: list[Message], seed: int) -> str:
        return canned(replies, messages, seed)

    async def play_all() -> list:
        return await asyncio.gather(*(games.play_async(instance, 0, ask) for instance in range(6)))

    alone = asyncio.run(play_all())
    assert [game.regret for game in alone] == pytest.approx([curve[-1] for curve in curves])
    assert [game.invalid_replies for game in alone] == invalid_replies(played).tolist()
    assert sum(game.invalid_replies for game in alone) > 0
    assert [game.chance for game in alone] == [row.mean() for row in played["fallback"]]
    assert [game.reward for game in alone] == pytest.approx([-game.regret / 40 for game in alone])


def test_games_of_another_name_are_the_same_instances_with_other_random_numbers():
    """As of two rollouts in verifiers, whose traces have names and no numbers."""
    games = offered(OPTIONS)

    def seeds_of(name: str) -> list[int]:
        asked = []
        games.named(name).play(2, 0, lambda _, seed: asked.append(seed) or "Action: 1")
        return asked

    assert seeds_of("a") == seeds_of("a")
    assert set(seeds_of("a")).isdisjoint(seeds_of("b"))
    assert games.named("a").games.rewards is games.games.rewards


def test_uniform_play_has_the_regret_of_the_mean_action():
    games = offered(OPTIONS)
    means = games.games.rewards.means
    assert games.uniform == pytest.approx((means.max(axis=2) - means.mean(axis=2)).sum(axis=1))


WRONG_TOGETHER = [
    ({"actions": 5}, "actions: goes with environment, which is not given"),
    ({"horizon": 25}, "horizon: goes with environment, which is not given"),
    ({"process": "gamma", "part": "bandit-gaussian"}, "process: goes with environment, which is not given"),
    ({"environment": "mab", "part": "bandit-gaussian"}, "part: does not go with environment"),
    ({"environment": "fol", "suite": "quick", "actions": 5}, "suite: does not go with environment"),
]


@pytest.mark.parametrize(("options", "words"), WRONG_TOGETHER)
def test_options_that_would_be_ignored_are_refused(options, words):
    with pytest.raises(ValidationError) as refused:
        GameOptions(**options)
    assert first_error(refused.value, options) == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"part": "bandit-bernoulli"}, "part: unknown 'bandit-bernoulli'; one of bandit-gaussian, .* .suite quick"),
        ({"suite": "hard"}, "suite: unknown 'hard'; one of quick, standard, full"),
    ],
)
def test_games_that_the_suite_does_not_have_are_named_by_their_option(options, words):
    with pytest.raises(InputError, match=f"^{words}"):
        offered(GameOptions(**options))


def test_more_games_than_memory_holds_are_refused():
    with pytest.raises(ValidationError, match="less than or equal to 10000"):
        GameOptions(environment="mab", instances=10**9)


@pytest.mark.parametrize(
    ("options", "shape"),
    [({}, (40, 25, 3)), ({"environment": "mab"}, (50, 25, 3)), ({"environment": "mab", "actions": 5}, (50, 25, 5))],
)
def test_options_have_the_defaults_of_rmft_eval_and_survive_being_written_and_read(options, shape):
    of = GameOptions(**options)
    assert offered(of).games.rewards.shape == shape
    assert GameOptions.model_validate_json(of.model_dump_json()) == of


def test_several_processes_are_the_same_as_a_text_and_as_the_list_that_inspect_makes_of_it():
    assert len({GameOptions(environment="mab", process=of) for of in ("gamma,gaussian", ["gamma", "gaussian"])}) == 1


def test_means_before_clipping_take_the_reward_of_a_bandit_below_minus_one():
    games = offered(GameOptions(environment="mab", process="gamma"))
    means = games.games.rewards.means[:, 0]
    instance = int(np.ptp(means, axis=1).argmax())
    game = games.play(instance, 0, lambda *_: f"Action: {means[instance].argmin() + 1}")
    assert game.reward == pytest.approx(-np.ptp(means[instance]) / 10)
    assert game.reward < -1


def test_who_beats_the_best_fixed_action_has_a_reward_above_zero():
    games = offered(GameOptions(environment="fol", process="alternating", horizon=4, instances=1))
    turns = games.games.rewards.rewards[0].argmax(axis=1)
    replies = iter(f"Policy: {np.eye(3, dtype=int)[action].tolist()}" for action in turns)
    game = games.play(0, 0, lambda *_: next(replies))
    assert game.reward == pytest.approx((4 - 2) / 4)  # the best fixed action has its turn twice in four rounds


# TRL


@pytest.fixture(scope="module")
def language_model():
    return load(MODEL.model_copy(update={"weights": str(ROOT / "data/models/embedded")}))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_grpo_steps_learn_from_games_that_the_trainers_model_plays_as_ours_does(tmp_path, language_model):
    """Both take the likeliest token always, so that they must play the same games."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from rmft.adapters.trl_rollouts import BanditRollouts, minus_regret

    rollouts, returned = BanditRollouts(OPTIONS.model_copy(update={"seed": 3}), held_out=OPTIONS), []
    folder = ROOT / "data/models/embedded"

    def kept(prompts: list[str], trainer: GRPOTrainer) -> dict:
        returned.append((prompts, rollouts(prompts, trainer)))
        return returned[-1][1]

    config = GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=6, per_device_eval_batch_size=6, num_generations=2,
        max_completion_length=16, top_k=1,
        max_steps=2, report_to="none", use_cpu=True, bf16=False, logging_steps=1, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    data, tokenizer = rollouts.dataset(), AutoTokenizer.from_pretrained(folder)
    trainer = GRPOTrainer(
        model, minus_regret, config, data, rollouts.held_out(), processing_class=tokenizer, rollout_func=kept
    )
    trainer.train()
    log = [row for row in trainer.state.log_history if "reward" in row]
    trained = len(returned)
    measured = trainer.evaluate()["eval_reward"]
    assert measured == pytest.approx(-np.mean([of["regret"] for _, of in returned[trained:]]) / 40, rel=1e-4)
    assert {prompt.rpartition(" ")[0] for prompts, _ in returned[trained:] for prompt in prompts} == {"held-out game"}
    del returned[trained:]
    for (_, output), row in zip(returned, log, strict=True):
        assert row["reward"] == pytest.approx(-np.mean(output["regret"]) / 40, rel=1e-4)

    games, (prompts, output) = rollouts.offered["game"].games, returned[0]
    greedy = GameSettings(**{**vars(games.settings), "temperature": 0.0})
    ours = roll_out(
        SimpleNamespace(**{**vars(games), "settings": greedy}),
        lambda ids: LocalChatModel(language_model, len(ids), capacity=2000, max_tokens=16),
        6,
    )
    for prompt, before, after, mask in zip(
        prompts, output["prompt_ids"], output["completion_ids"], output["env_mask"], strict=True
    ):
        instance = int(prompt.split()[1]) - 1
        assert before + after == ours["ids"][instance][0]
        assert [0] * len(before) + mask == [int(chosen) for chosen in ours["sampled"][instance][0]]


def test_log_probabilities_of_trls_generation_stay_with_their_tokens(language_model):
    from rmft.adapters.trl_rollouts import BanditRollouts

    tokenizer, calls = language_model.chat_tokenizer.tokenizer, []

    def generate(prompts: list, *_: object, **__: object) -> tuple:
        calls.append(len(prompts))
        text = "What?" if len(calls) == 1 else "Action: 2"
        # This trainer does not stop at the end of a turn: what follows belongs to no reply.
        ids = [*tokenizer.encode(text), language_model.chat_tokenizer.template.end, *tokenizer.encode("Action: 1")]
        return [ids] * len(prompts), [[-(len(prompt) + k) for k in range(len(ids))] for prompt in prompts]

    trainer = SimpleNamespace(
        _generate_single_turn=generate, processing_class=tokenizer, model=language_model.model, eos_token_ids=[],
        max_completion_length=16, accelerator=SimpleNamespace(process_index=0), state=SimpleNamespace(global_step=0),
    )  # fmt: skip
    output = BanditRollouts(OPTIONS.model_copy(update={"seed": 3}))(["game 1", "game 1"], trainer)
    assert len(calls) == 5  # four rounds and a retry
    for before, mask, logprobs in zip(output["prompt_ids"], output["env_mask"], output["logprobs"], strict=True):
        assert logprobs == [-(len(before) + k) if chosen else 0 for k, chosen in enumerate(mask)]


def test_a_limit_of_replies_that_trl_would_not_keep_is_refused():
    from rmft.adapters.trl_rollouts import BanditRollouts

    with pytest.raises(InputError, match="max_completion_length of GRPOConfig"):
        BanditRollouts(GameOptions(environment="mab", seed=1, max_tokens=4))


def test_games_of_the_suite_are_not_for_training():
    from rmft.adapters.trl_rollouts import BanditRollouts

    for seed in (None, read_suite().seed):
        with pytest.raises(InputError, match="seed: needed, and another than the suite's"):
            BanditRollouts(GameOptions(seed=seed))


def test_held_out_games_are_others_and_a_prompt_of_another_dataset_is_refused():
    from rmft.adapters.trl_rollouts import BanditRollouts

    trainer = SimpleNamespace(accelerator=SimpleNamespace(process_index=0), state=SimpleNamespace(global_step=0))
    own, held_out = OPTIONS.model_copy(update={"seed": 3}), OPTIONS.model_copy(update={"seed": None, "instances": 8})
    rollouts = BanditRollouts(own, held_out)
    assert rollouts.held_out()["prompt"] == [f"held-out game {i}" for i in range(1, 9)]
    for prompts, options in ((rollouts.dataset(), own), (rollouts.held_out(), held_out)):
        _, games = rollouts._games(prompts["prompt"], trainer)
        np.testing.assert_array_equal(games.rewards.means, offered(options).games.rewards.means)
    alone = BanditRollouts(own)
    for prompts in (["held-out game 1"], ["What is 2+2?"], ["game 1", "What is 2+2?"], ["game 7"], ["game 0"]):
        with pytest.raises(InputError, match="is no row of the datasets that this BanditRollouts made"):
            alone(prompts, trainer)
    with pytest.raises(InputError, match="held_out: BanditRollouts got no options"):
        alone.held_out()


def test_games_that_do_not_fit_into_the_models_context_are_refused(language_model):
    from rmft.adapters.trl_rollouts import BanditRollouts

    config = deepcopy(language_model.model.config)
    config.layer_types = ["full_attention"] * config.num_hidden_layers  # the embedded model's window slides for ever
    trainer = SimpleNamespace(
        processing_class=language_model.chat_tokenizer.tokenizer, model=SimpleNamespace(config=config),
        eos_token_ids=[], max_completion_length=10**6, accelerator=SimpleNamespace(process_index=0),
        state=SimpleNamespace(global_step=0),
    )  # fmt: skip
    with pytest.raises(InputError, match="context: 4 rounds need up to"):
        BanditRollouts(OPTIONS.model_copy(update={"seed": 3}))(["game 1"], trainer)


# Inspect and verifiers, at our own server

needs_inspect = pytest.mark.skipif(find_spec("inspect_ai") is None, reason="inspect_ai is not installed")
needs_verifiers = pytest.mark.skipif(find_spec("verifiers") is None, reason="verifiers is not installed")


@pytest.fixture
def regrets(rmft, server, tmp_path, monkeypatch) -> list[float]:
    """Return the final regrets that `rmft eval` measures at our server, which gives the same replies to all clients."""
    monkeypatch.setenv("RMFT_API_KEY", TOKEN)
    monkeypatch.setenv("RMFT_BASE_URL", f"{server.url}/v1")
    at = ["--base-url", f"{server.url}/v1", "--key-env", "RMFT_API_KEY", "--output", str(tmp_path / "eval")]
    code, _, error = rmft("eval", "embedded", *at, *FLAGS)
    assert code == 0, error
    return json.loads((tmp_path / "eval/eval.json").read_text(encoding="utf-8"))["parts"]["custom"]["final_regrets"]


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment's packages."""
    path = Path(sys.executable).with_name(name)
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=300, check=False)


@needs_inspect
def test_inspect_measures_what_we_measure(regrets, tmp_path):
    from inspect_ai.log import list_eval_logs, read_eval_log

    options = [word for flag in ("environment=mab", "horizon=4", "instances=6") for word in ("-T", flag)]
    at = ["rmft/bandit", "--model", "openai-api/rmft/embedded", "--log-dir", str(tmp_path / "logs")]
    run = command("inspect", "eval", *at, *options, "--display", "plain")
    assert run.returncode == 0, run.stdout + run.stderr
    log = read_eval_log(list_eval_logs(str(tmp_path / "logs"))[0])
    samples = sorted(log.samples, key=lambda sample: sample.id)
    assert [sample.scores["game_scores"].value["regret"] for sample in samples] == pytest.approx(regrets, abs=1e-6)
    assert [len(sample.messages) for sample in samples] == [8] * 6  # the game, as its viewer shows it
    by_name = {score.name: score.metrics for score in log.results.scores}
    assert by_name["regret"]["mean"].value == pytest.approx(np.mean(regrets))
    share = np.sum(regrets) / np.sum(offered(OPTIONS).uniform)
    assert by_name["regret"]["rmft/share_of_uniform"].value == pytest.approx(share)
    for option, words in (
        ("part=none", "rmft/bandit: part: unknown 'none'; one of bandit-gaussian"),
        ("actions=5", "rmft/bandit: actions: goes with environment, which is not given"),
    ):
        wrong = command("inspect", "eval", "rmft/bandit", "--model", "openai-api/rmft/embedded", "-T", option)
        assert words in " ".join((wrong.stdout + wrong.stderr).split())
        assert "Traceback" not in wrong.stdout + wrong.stderr


@needs_inspect
def test_inspect_gives_no_score_to_a_game_that_its_limit_cut_short(regrets, tmp_path):  # noqa: ARG001
    from inspect_ai.log import list_eval_logs, read_eval_log

    options = [word for flag in ("environment=mab", "horizon=4", "instances=4") for word in ("-T", flag)]
    at = ["rmft/bandit", "--model", "openai-api/rmft/embedded", "--log-dir", str(tmp_path / "logs")]
    run = command("inspect", "eval", *at, *options, "--message-limit", "4", "--display", "plain")
    assert run.returncode == 0, run.stdout + run.stderr
    log = read_eval_log(list_eval_logs(str(tmp_path / "logs"))[0])
    assert log.status == "success"
    assert [sample.error for sample in log.samples] == [None] * 4
    assert "Inspect ended the game before its last round" in log.samples[0].scores["game_scores"].explanation


def by_verifiers(server: Server, folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """Return a run of verifiers with seeds, and its traces by instance."""
    at = ["--model", "embedded", "--client.base-url", f"{server.url}/v1", "--client.api-key-var", "RMFT_API_KEY"]
    games = [f"--env.taskset.games.{flag[2:]}" if flag.startswith("--") else flag for flag in FLAGS]
    output = ["--no-push", "--no-rich", "--output-dir", str(folder / "out")]
    run = command("vf-eval", "rmft-bandit", *at, *games, "--env.taskset.seeded", *output, *options)
    (file,) = (folder / "out").rglob("traces.jsonl")
    episodes = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    traces = [trace for of in episodes for trace in of["traces"]]
    return run, sorted(traces, key=lambda of: of["task"]["data"]["instance"])


@needs_verifiers
def test_rollouts_of_a_game_in_verifiers_have_seeds_of_their_own(regrets, server, tmp_path):  # noqa: ARG001
    _, traces = by_verifiers(server, tmp_path, "-r", "2")
    actions = [trace["info"]["rmft"]["actions"] for trace in traces]
    assert len(actions) == 12
    assert any(first != second for first, second in zip(actions[::2], actions[1::2], strict=True))


@needs_verifiers
def test_verifiers_says_why_a_game_has_no_reward(regrets, server, tmp_path):  # noqa: ARG001
    _, traces = by_verifiers(server, tmp_path, "--env.agent.max-turns", "2")
    assert "the game was ended by max_turns before its last round" in json.dumps(traces[0])


@needs_verifiers
def test_verifiers_plays_what_we_play(regrets, server, tmp_path):
    run, traces = by_verifiers(server, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [trace["metrics"]["regret"] for trace in traces] == pytest.approx(regrets, abs=1e-6)
    earned = [trace["rewards"]["minus_regret"]["score"] for trace in traces]
    assert earned == pytest.approx(-np.array(regrets) / 40, abs=1e-6)


@needs_verifiers
def test_verifiers_refuses_games_that_there_are_none_of():
    from rmft.adapters.verifiers_taskset import BanditConfig

    with pytest.raises(ValidationError, match=r"games: .*unknown 'none'; one of bandit-gaussian"):
        BanditConfig(games={"part": "none"})
    with pytest.raises(ValidationError, match=r"games\n +Value error, actions: goes with environment"):
        BanditConfig(games={"actions": 5})
    wrong = command("vf-eval", "rmft-bandit", "--model", "m", "--env.taskset.games.actions", "5", "--no-push")
    assert "actions: goes with environment, which is not given" in wrong.stdout + wrong.stderr
    assert "Traceback" not in wrong.stdout + wrong.stderr
