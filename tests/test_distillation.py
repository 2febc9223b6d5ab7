"""A teacher's games in words: its own actions, in the tokens of a model, with rationales that are true.

Symbols: N games, T rounds, d actions.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import single_tokens
from rmft.algorithms import AlgorithmSettings, start_on
from rmft.environments import draw_rewards
from rmft.errors import InputError
from rmft.game import action_uniforms, play
from rmft.language.parsing import parse
from rmft.language.prompts import Prompts, read_template
from rmft.language.protocol import NOT_LEARNT, Scenario
from rmft.params import load
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.params.language_model import LanguageModelSettings
from rmft.selection import demonstrations
from rmft.training.distillation import distil
from rmft.workflow.games import game_settings_of, games_of
from rmft.workflow.paths import held_out_of
from rmft.workflow.plan import distillation_job, held_out_job
from rmft.workflow.records import DistillationJob, RolloutsJob
from rmft.workflow.targets import artifacts_of

ROOT = Path(__file__).parents[1]
PROMPTS = Prompts.load(ROOT / "data/prompts/plain")
AVERAGES = str(ROOT / "data/prompts/rationales/averages.j2")
TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "data/models/embedded")
CHAT_TEMPLATE = ChatTemplate.probe(TOKENIZER)
N, T, D = 6, 12, 3


def job(
    algorithm: str = "greedy",
    *,
    environment: str = "mab",
    interaction: str = "dialogue",
    rationale: str | None = None,
    max_tokens: int = 128,
    retries: int = 0,
    process: str = "gaussian",
) -> DistillationJob:
    settings = ProtocolSettings(
        interaction=interaction, output="action", format="with-reasoning", prompts="", max_tokens=max_tokens,
        retries=retries, tolerance=0.02,
    )  # fmt: skip
    model = LanguageModelSettings(kind="language", weights="", dtype="float32", device="cpu", batch=4)
    games = RolloutsJob(
        seed=3, stream="test", model=model, model_name="tiny", process=[process], T=T, scenarios=N, trajectories=1,
        problem=LanguageProblem(kind="distillation", environment=environment, d=D, protocol=settings), temperature=1.0,
        shard=(1, 1),
    )  # fmt: skip
    return DistillationJob(games=games, teacher_name="own", teacher=AlgorithmSettings(algorithm), rationale=rationale)


def taught(of: DistillationJob, scenarios: list[Scenario] | None = None, stops: Sequence[int] = ()) -> dict[str, list]:
    games, protocol = games_of(of.games, PROMPTS, scenarios), of.games.problem.protocol
    rationale = read_template(Path(of.rationale)) if of.rationale else None
    batch = of.games.model.batch
    name, most = of.teacher_name, protocol.max_tokens
    return distil(games, of.teacher, name, rationale, CHAT_TEMPLATE, most, batch, stops=stops)


EVERY_TEACHER = [("greedy", "mab"), ("ucb", "mab"), ("thompson-sampling", "mab"), ("exp3", "mab"), ("ftl", "fol")]


@pytest.mark.parametrize("rationale", [None, AVERAGES])
@pytest.mark.parametrize(("algorithm", "environment"), EVERY_TEACHER)
def test_the_games_are_those_of_the_algorithm_on_the_rewards_of_training(algorithm, environment, rationale):
    teaching = job(algorithm, environment=environment, rationale=rationale)
    games, table = taught(teaching), draw_rewards(3, "test", ["gaussian"], (N, T, D))
    player = start_on(3, "test", AlgorithmSettings(algorithm), table, None)
    alone = play(player, table, full_feedback=environment == "fol", uniforms=action_uniforms(3, N, "test"))
    np.testing.assert_array_equal(np.array(games["action"]), alone.actions)
    np.testing.assert_array_equal(np.array(games["rewards"]).reshape(N, T, D), table.rewards)
    protocol = game_settings_of(teaching.games, PROMPTS).protocol
    actions = [[parse(reply, protocol, 0.0).action for reply in game] for game in games["reply"]]
    assert actions == alone.actions.tolist()
    if environment == "fol":  # the policy behind the action, not the action
        np.testing.assert_allclose(np.array(games["policy"]).reshape(N, T, D), alone.policies)
    assert not np.any(games["fallback"])


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_tokens_are_those_of_the_chat_template_and_replies_with_their_ends_are_learnt(interaction):
    teaching = job("ucb", interaction=interaction, rationale=AVERAGES)
    lines = demonstrations(taught(teaching), [True] * N)
    assert len(lines) == (N if interaction == "dialogue" else N * T)
    for line in lines[:: max(1, len(lines) // 8)]:
        whole = TOKENIZER.apply_chat_template(line["messages"], tokenize=False)
        ids = TOKENIZER(whole, add_special_tokens=False).input_ids
        assert ids[: len(line["ids"])] == line["ids"]
        assert TOKENIZER.decode(ids[len(line["ids"]) :]).strip() == ""  # what the template puts behind the last end
        learnt = TOKENIZER.decode([label for label in line["labels"] if label != NOT_LEARNT])
        replies = [message["content"] for message in line["messages"] if message["role"] == "assistant"]
        end = TOKENIZER.decode([CHAT_TEMPLATE.end])
        assert learnt == "".join(f"{reply}{end}" for reply in replies)


def test_a_reply_ends_with_the_stop_token_of_the_model_that_learns_it():
    newline = single_tokens(TOKENIZER, ["\n"])
    usual, stopped = (demonstrations(taught(job("ucb"), stops=stops), [True] * N) for stops in ((), newline))
    for one, other in zip(usual, stopped, strict=True):
        learnt, instead = ([label for label in line["labels"] if label != NOT_LEARNT] for line in (one, other))
        assert [newline[0] if label == CHAT_TEMPLATE.end else label for label in learnt] == instead
        assert other["ids"].count(CHAT_TEMPLATE.end) == one["ids"].count(CHAT_TEMPLATE.end)  # appended, and not learnt
    with pytest.raises(InputError, match=r"rationale: the reply .* holds one of the model's stop_tokens"):
        taught(job("ucb", rationale=AVERAGES), stops=newline)


@pytest.mark.parametrize("process", ["gaussian", "bernoulli"])  # of which the second has equal averages
@pytest.mark.parametrize("algorithm", ["greedy", "ucb", "thompson-sampling"])
def test_a_rationale_is_true_of_the_prompts_so_far(algorithm, process):
    games = taught(job(algorithm, rationale=AVERAGES, process=process))
    seen_reasons = set()
    for prompts, replies in zip(games["prompt"], games["reply"], strict=True):
        paid = {number: [] for number in range(1, D + 1)}
        for prompt, reply in zip(prompts, replies, strict=True):
            if found := re.search(r"your action (\d) paid \*\*([0-9.]+)\*\*", prompt):
                paid[int(found[1])].append(float(found[2]))
            reason, chosen = re.search(
                r"^(Not tried yet|Highest average|Worth another try): (\d)\.$", reply, re.MULTILINE
            ).groups()
            averages = {number: np.mean(of) for number, of in paid.items() if of}
            stated = {int(a): float(value) for a, value in re.findall(r"(\d)=([0-9.]+\d)", reply)}
            assert reply.endswith(f"Action: {chosen}")
            if reason == "Not tried yet":
                assert not paid[int(chosen)]
            else:
                assert stated == pytest.approx(averages, abs=0.011)
                below = max(averages.values()) - averages[int(chosen)]
                if below < 1e-9 or below > 0.011:  # else rounding in the prompts decides
                    assert (below < 1e-9) == (reason == "Highest average")
            seen_reasons.add(reason)
    assert ("Worth another try" in seen_reasons) == (algorithm != "greedy")


def test_a_reply_that_a_model_could_not_give_is_refused():
    with pytest.raises(InputError, match=r"has \d+ tokens, and protocol\.max_tokens allows 2"):
        taught(job(max_tokens=2))


@pytest.mark.parametrize("retries", [0, 2])
def test_actions_whose_names_are_other_actions_numbers_are_refused(retries):
    confusing = Scenario("Pick a door.", ("2", "3", "1"))
    with pytest.raises(InputError, match="read as another action than it chose"):
        taught(job(retries=retries), [confusing] * N)


def test_budgets_are_those_of_the_loop_it_is_compared_with_at_every_scale():
    params = load()
    for of in (params, params.at_scale()):
        loop = of.experiments["open_mab_qwen"].rmft
        learnt, played = (loop.iterations * loop.scenarios * each for each in (loop.selected, loop.trajectories))
        most = {} if of is params else params.scales[params.scale].language.taught
        learnt_from = [of.experiments[f"mab_distil_ucb_{budget}"].learnt for budget in ("imk", "iml", "2iml")]
        budgets = {"IMk": learnt, "IML": played, "2IML": 2 * played}
        assert learnt_from == [min(games, most.get(budget, games)) for budget, games in budgets.items()]
        assert distillation_job(of, "mab_distil_ucb_2iml", 0).games.scenarios == learnt_from[-1]
        assert of.experiments["open_mab_qwen"].learnt == learnt


def test_the_base_model_plays_once_for_all_methods_and_all_are_given_its_random_numbers():
    params = load().at_scale()
    methods = params.tables["qwen-ad-grpo-comparison"].experiments
    bases = {held_out_of(params, name, "gaussian-100")["base", 0] for name in methods}
    assert bases == {"results/experiments/open_mab_qwen/evaluation/gaussian-100/base.parquet"}
    games = [held_out_job(params, name, "gaussian-100") for name in methods]
    assert {of.stream for of in games} == {"open_mab_qwen/evaluation/gaussian-100"}
    assert {(of.T, of.scenarios, of.temperature, of.model_name) for of in games} == {(100, 50, 1.0, "embedded")}
    own = held_out_of(params, "open_mab_gemma", "gaussian-50")["base", 0]
    assert own.startswith("results/experiments/open_mab_gemma/")


def test_an_experiment_of_a_teacher_leaves_its_games_and_no_selection():
    left = artifacts_of(load().at_scale(), "mab_distil_greedy")
    folder = "results/experiments/mab_distil_greedy/seed-0"
    assert left == [
        f"{folder}/iteration-0/rollouts.parquet",
        f"{folder}/iteration-0/demonstrations.jsonl",
        f"{folder}/iteration-1/model.safetensors",
        f"{folder}/iteration-1/training-log.csv",
        "results/experiments/mab_distil_greedy/evaluation/gaussian-25/trained-0.parquet",
        "results/experiments/mab_distil_greedy/evaluation/gaussian-100/trained-0.parquet",
        "results/experiments/mab_distil_greedy/evaluation/gaussian-25.parquet",
        "results/experiments/mab_distil_greedy/evaluation/gaussian-100.parquet",
    ]


def test_a_table_of_methods_reads_the_papers_values_only_where_something_stands_beside_them():
    params = load()
    for label, paper in (("qwen-ad-grpo-comparison", True), ("selection-scores-mab", False)):
        inputs = params.tables[label].inputs(label, [("open_mab_qwen", "gaussian-100")], params)
        assert any(path.startswith("data/paper/") for path in inputs) == paper
