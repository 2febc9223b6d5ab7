"""Games in words, played by a chat model that follows a script: messages, retries, decisions, transcripts, progress.

Symbols: n games, M scenarios, L trajectories each, T rounds, d actions. The tokens of the chat model are characters.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import assert_mean, draw

from rmft.agents.chat_models import Conversations
from rmft.artifacts.trajectories import join_trajectories, read_trajectories, write_trajectories
from rmft.environments import draw_rewards
from rmft.environments.tables import one_hot
from rmft.errors import InputError
from rmft.language.game import RandomNumbers, Transcript, play_in_words
from rmft.language.prompts import Prompts
from rmft.language.protocol import Scenario
from rmft.params import load
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.params.language_model import LanguageModelSettings
from rmft.rollouts import roll_out
from rmft.workflow.games import game_settings_of, games_of, scenarios_for
from rmft.workflow.plan import held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

ROOT = Path(__file__).parents[1]
PROMPTS = Prompts.load(ROOT / "data" / "prompts" / "plain")
BEGIN, END = 0, 1  # tokens of a message's beginning and a reply's end
EVERY_PROTOCOL = [
    (i, o, e) for i in ("dialogue", "summary") for o in ("action", "distribution") for e in ("fol", "mab")
]
every_protocol = pytest.mark.parametrize(("interaction", "output", "environment"), EVERY_PROTOCOL)

Script = Callable[[int, int, int, np.ndarray], str]  # game, round t = 0..T-1, attempt, its random numbers → reply


@dataclass(frozen=True)
class Completion:
    """A completion. cut: whether it has no end of its own."""

    text: str
    prompt_ids: list[int]
    cut: bool

    @property
    def ids(self) -> list[int]:
        """Return the tokens of the text and the end."""
        return [*map(ord, self.text), END]

    @property
    def replied(self) -> list[bool]:
        """Return which tokens the model chose: those of the text, and the end where it is its own."""
        return [False] * len(self.prompt_ids) + [True] * len(self.text) + [not self.cut]


class Scripted:
    """A chat model that follows a script. conversations: of each game, lists of (token, whether the model chose it)."""

    def __init__(self, n: int, script: Script, max_tokens: int = 40) -> None:
        self.script, self.max_tokens = script, max_tokens
        self.conversations = [[] for _ in range(n)]
        self.attempts = [[] for _ in range(n)]  # at each message
        self.prompted = [0] * n  # tokens of a conversation up to the end of its last message

    def restart(self) -> None:
        """Begin every conversation anew."""
        for conversations in self.conversations:
            conversations.append([])

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int]
    ) -> list[Completion]:
        """Reply as the script says, to new messages or to the last ones again."""
        if messages is not None:
            self.prompts = [[BEGIN, *map(ord, message)] for message in messages]
            for row in rows:
                self.conversations[row][-1] += [(token, False) for token in self.prompts[row]]
                self.prompted[row] = len(self.conversations[row][-1])
                self.attempts[row].append(0)
        return [self._completion(row, numbers) for row, numbers in zip(rows, uniforms, strict=True)]

    def _completion(self, row: int, numbers: np.ndarray) -> Completion:
        self.attempts[row][-1] += 1
        text = self.script(row, len(self.attempts[row]) - 1, self.attempts[row][-1] - 1, numbers)
        completion = Completion(text[: self.max_tokens], self.prompts[row], len(text) >= self.max_tokens)
        chosen = completion.replied[len(completion.prompt_ids) :]
        self.conversations[row][-1] += zip(completion.ids, chosen, strict=True)
        return completion

    def retract(self, rows: Sequence[int]) -> None:
        """Remove the reply to the last message."""
        for row in rows:
            del self.conversations[row][-1][self.prompted[row] :]

    def action_policies(
        self,
        completions: Sequence[Completion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int],
    ) -> np.ndarray:
        """Give the written action a half, and share the rest."""
        for completion, span, action, alternatives in zip(completions, spans, actions, names, strict=True):
            assert completion.text[slice(*span)] == alternatives[action]
        d = len(names[0])
        return np.where(one_hot(np.asarray(actions), d), 0.5, 0.5 / (d - 1))


def at_random(_game: int, _t: int, _attempt: int, numbers: np.ndarray) -> str:
    """Reply with one of three actions by the random numbers, and with nothing valid now and then."""
    if numbers[0] < 0.3:
        return "Hm."
    return f"Action: {1 + int(3 * numbers[1])}"


def policy_at_random(_game: int, _t: int, _attempt: int, numbers: np.ndarray) -> str:
    if numbers[0] < 0.3:
        return "Hm."
    shares = numbers[1:4] / numbers[1:4].sum()
    return "Policy: [{:.3f}, {:.3f}, {:.3f}]".format(*shares)


SCRIPTS = {"action": at_random, "distribution": policy_at_random}


def job(
    *,
    environment: str = "mab",
    output: str = "action",
    interaction: str = "dialogue",
    retries: int = 2,
    shard: tuple[int, int] = (1, 1),
    batch: int = 100,
    d: int = 3,
    **changes: object,
) -> RolloutsJob:
    """Return a job of M = 4 scenarios, L = 2 trajectories, T = 5 rounds."""
    settings = ProtocolSettings(
        interaction=interaction, output=output, format="with-reasoning", prompts="", max_tokens=40, retries=retries,
        tolerance=0.02,
    )  # fmt: skip
    model = LanguageModelSettings(kind="language", weights="", dtype="float32", device="cpu", batch=batch)
    sizes = {"T": 5, "scenarios": 4, "trajectories": 2, "process": ["gaussian"], "stream": "test"} | changes
    problem = LanguageProblem(kind="language", environment=environment, d=d, protocol=settings)
    return RolloutsJob(
        seed=0, problem=problem, model=model, model_name="scripted", temperature=1.0, shard=shard, **sizes
    )


def random_numbers(scenarios: int, trajectories: int = 1) -> RandomNumbers:
    games = np.stack(np.divmod(np.arange(scenarios * trajectories), trajectories), axis=1)
    return RandomNumbers(0, "test", games)


def played(rewards: np.ndarray, script: Script, **of: object) -> tuple[Transcript, Scripted]:
    """Play one trajectory on each of the rewards (n, T, d)."""
    chat_model = Scripted(len(rewards), script)
    return play_in_words(
        chat_model, rewards, game_settings_of(job(**of), PROMPTS), random_numbers(len(rewards))
    ), chat_model


def rolled(
    of: RolloutsJob, script: Script | None = None, on_round=lambda *_: None, held_out=None, scenarios=None
) -> dict[str, list]:
    script, batch = script or SCRIPTS[of.problem.protocol.output], of.model.batch
    games = games_of(of, PROMPTS, scenarios, held_out)
    return roll_out(games, lambda ids: Scripted(len(ids), script), batch, on_round)


def as_lists(columns: dict[str, list]) -> dict[str, list]:
    return {
        name: [np.asarray(v).tolist() if isinstance(v, np.ndarray) else v for v in c] for name, c in columns.items()
    }


def by_game(columns: dict[str, list]) -> dict[tuple[int, int], dict[str, list]]:
    """Return each game's values by (scenario, trajectory)."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*as_lists(columns).values(), strict=True)]
    return {(row["scenario"], row["trajectory"]): row for row in rows}


@pytest.mark.parametrize("written", ["{}", "{}s", "the {}"])
@pytest.mark.parametrize("case", [str, str.lower, str.upper])
def test_all_actions_are_compared_in_the_case_in_which_the_model_wrote_one(case, written):
    names = tuple(written.format(name) for name in ("Bond fund", "Stock fund", "Cash"))
    script = lambda *_: f"Action: {case(names[1])}"  # noqa: E731
    of = job(environment="fol", retries=0)
    columns = rolled(of, script, scenarios=[Scenario("Invest.", names)] * of.scenarios)  # Scripted compares the case
    assert (np.stack(columns["action"]) == 1).all()


# --- Messages ---


@pytest.mark.parametrize("output", ["action", "distribution"])
@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_under_bandit_feedback_messages_show_the_reward_of_the_action_and_no_other(interaction, output):
    of = {"environment": "mab", "output": output, "interaction": interaction}
    table = draw("uniform", 6, 5, 3)
    transcript, _ = played(table.rewards, SCRIPTS[output], **of)
    elsewhere = np.where(one_hot(transcript.actions.T, 3), table.rewards, 10 - table.rewards)
    again, _ = played(elsewhere, SCRIPTS[output], **of)
    assert again.ids == transcript.ids
    for t, i in np.ndindex(4, 6):
        action = transcript.actions[t, i]
        line = rf"Round {t + 1}: .*action {action + 1} .*paid \*\*{table.rewards[i, t, action]:.2f}\*\*"
        assert re.search(line, transcript.prompts[t + 1][i])


@pytest.mark.parametrize("output", ["action", "distribution"])
@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_under_full_feedback_messages_show_every_reward_after_its_round_and_none_before(interaction, output):
    n, horizon, d = 2, 4, 3
    rewards = np.random.default_rng(0).permutation(1000)[: n * horizon * d].reshape(n, horizon, d) / 100
    transcript, _ = played(rewards, SCRIPTS[output], environment="fol", output=output, interaction=interaction)
    for t, i in np.ndindex(horizon, n):
        due = range(t) if interaction == "summary" else range(max(t - 1, 0), t)
        for at, a in np.ndindex(horizon, d):
            assert (f"**{rewards[i, at, a]:.2f}**" in transcript.prompts[t][i]) == (at in due)


@every_protocol
def test_a_summary_begins_a_new_conversation_each_round_and_a_dialogue_never(interaction, output, environment):
    transcript, chat_model = played(
        draw("uniform", 3, 5, 3).rewards, SCRIPTS[output],
        interaction=interaction, output=output, environment=environment,
    )  # fmt: skip
    conversations = 5 if interaction == "summary" else 1
    assert [len(game) for game in chat_model.conversations] == [conversations] * 3
    opening = "You make a decision in each of many rounds."
    for t in range(5):
        assert transcript.prompts[t][0].startswith(opening) == (t == 0 or interaction == "summary")


# --- Transcripts ---


def now_and_then_too_long(game: int, t: int, attempt: int, numbers: np.ndarray) -> str:
    reply = at_random(game, t, attempt, numbers)
    return f"{reply} {'and so on ' * 9}" if numbers[2] < 0.4 else reply


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_a_transcript_has_the_tokens_of_the_conversations_and_which_of_them_the_model_chose(interaction):
    transcript, chat_model = played(draw("uniform", 20, 5, 3).rewards, now_and_then_too_long, interaction=interaction)
    kept = [
        [list(zip(*of_part, strict=True)) for of_part in zip(*of_game, strict=True)]
        for of_game in zip(transcript.ids, transcript.sampled, transcript.replied, strict=True)
    ]
    tokens = [[[(token, by_model) for token, by_model, _ in part] for part in game] for game in kept]
    assert tokens == chat_model.conversations
    assert transcript.attempts.max() > 1
    assert transcript.fallback.any()
    chosen = [token for game in kept for part in game for token, _, valid in part if valid]
    # The text and its own end; of a reply that was cut, the end is ours. Invalid replies are not to be learnt from.
    own = sum(
        len(reply) + (len(reply) < 40)
        for replies, fell_back in zip(transcript.replies, transcript.fallback, strict=True)
        for reply, nothing in zip(replies, fell_back, strict=True)
        if not nothing
    )
    assert len(chosen) == own
    assert chosen.count(BEGIN) == 0


def test_a_conversation_is_prompts_and_replies_in_turn():
    transcript, _ = played(draw("uniform", 4, 5, 3).rewards, at_random)
    for i in range(4):
        rounds = [(transcript.prompts[t][i], transcript.replies[t][i]) for t in range(5)]
        expected = [token for prompt, reply in rounds for token in [BEGIN, *map(ord, prompt + reply), END]]
        assert transcript.ids[i] == [expected]


# --- Retries and fallback ---


@pytest.mark.parametrize("retries", [0, 1, 2, 3])
def test_an_invalid_reply_is_retried_and_then_the_action_is_uniform(retries):
    n, horizon = 5, 3

    def fails(game: int, _t: int, attempt: int, _numbers: np.ndarray) -> str:
        return "Action: 2" if attempt >= game else "No idea."

    transcript, chat_model = played(draw("uniform", n, horizon, 3).rewards, fails, retries=retries)
    for t, i in np.ndindex(horizon, n):
        assert transcript.attempts[t, i] == min(i, retries) + 1 == chat_model.attempts[i][t]
        assert transcript.fallback[t, i] == (i > retries)
        assert transcript.replies[t][i] == ("No idea." if i > retries else "Action: 2")
        if transcript.fallback[t, i]:
            assert transcript.policies[t, i].tolist() == [1 / 3] * 3
            assert transcript.actions[t, i] == int(3 * random_numbers(n).fallback(t)[i])
        else:
            assert transcript.actions[t, i] == 1


def test_each_attempt_is_sampled_with_numbers_of_its_own():
    drawn_numbers = []

    def keeps_numbers(_game: int, _t: int, _attempt: int, numbers: np.ndarray) -> str:
        drawn_numbers.append(tuple(numbers))
        return ""

    played(draw("uniform", 3, 2, 3).rewards, keeps_numbers, retries=2)
    assert len(set(drawn_numbers)) == len(drawn_numbers) == 3 * 2 * 3


@pytest.mark.parametrize("output", ["action", "distribution"])
def test_without_a_valid_reply_every_action_is_played_equally_often(output):
    settings = game_settings_of(job(output=output, retries=0), PROMPTS)
    transcript = play_in_words(Scripted(600, lambda *_: "?"), np.zeros((600, 1, 3)), settings, random_numbers(6, 100))
    assert_mean(one_hot(transcript.actions[0], 3), 1 / 3)
    assert transcript.fallback.all()


def test_the_replies_of_one_game_change_no_other():
    def stubborn(game: int, t: int, attempt: int, numbers: np.ndarray) -> str:
        return "?" if game == 0 else at_random(game, t, attempt, numbers)

    rewards = draw("uniform", 4, 5, 3).rewards
    (one, _), (other, _) = played(rewards, at_random), played(rewards, stubborn)
    assert one.ids[0] != other.ids[0]
    assert one.ids[1:] == other.ids[1:]


# --- Decisions ---


@pytest.mark.parametrize("environment", ["fol", "mab"])
def test_a_stated_policy_is_normalised_and_sampled_from_with_the_numbers_for_actions(environment):
    n, horizon = 60, 3
    transcript, _ = played(
        draw("uniform", n, horizon, 3).rewards, policy_at_random, environment=environment, output="distribution"
    )
    np.testing.assert_allclose(transcript.policies.sum(axis=2), 1)
    for t in range(horizon):
        numbers = np.where(transcript.fallback[t], random_numbers(n).fallback(t), random_numbers(n).actions(t))
        for i in range(n):
            assert transcript.actions[t, i] == np.searchsorted(
                transcript.policies[t, i].cumsum()[:-1], numbers[i], side="right"
            )
            if not transcript.fallback[t, i]:
                stated = np.array(transcript.replies[t][i].removeprefix("Policy: [")[:-1].split(", "), dtype=float)
                np.testing.assert_allclose(transcript.policies[t, i], stated / stated.sum())


@pytest.mark.parametrize("environment", ["fol", "mab"])
def test_a_stated_action_is_played_and_its_policy_is_the_models_own_only_under_full_feedback(environment):
    transcript, _ = played(draw("uniform", 30, 4, 3).rewards, at_random, environment=environment)
    held = (0.5, 0.25) if environment == "fol" else (1.0, 0.0)
    for t, i in np.ndindex(4, 30):
        if transcript.fallback[t, i]:
            expected = [1 / 3] * 3
        else:
            assert transcript.replies[t][i] == f"Action: {transcript.actions[t, i] + 1}"
            expected = [held[0] if a == transcript.actions[t, i] else held[1] for a in range(3)]
        assert transcript.policies[t, i].tolist() == expected


# --- Random numbers ---


@every_protocol
def test_shards_together_are_the_whole(interaction, output, environment, tmp_path):
    of = {"interaction": interaction, "output": output, "environment": environment}
    paths = []
    for shard in (1, 2, 3):
        part = job(**of, shard=(shard, 3), batch=shard)
        games = rolled(part)
        assert len(games["scenario"]) == part.games
        paths.append(tmp_path / f"{shard}.parquet")
        write_trajectories(paths[-1], games)
    join_trajectories(tmp_path / "all.parquet", paths, job(**of).games)
    joined, whole = read_trajectories(tmp_path / "all.parquet"), as_lists(rolled(job(**of)))
    assert joined == whole
    assert [*zip(whole["scenario"], whole["trajectory"], strict=True)] == [*np.ndindex(4, 2)]


@every_protocol
@pytest.mark.parametrize("more", [{"trajectories": 5}, {"scenarios": 7}, {"batch": 3}], ids=str)
def test_a_game_is_the_same_whatever_others_are_played(interaction, output, environment, more):
    of = {"interaction": interaction, "output": output, "environment": environment}
    few, many = by_game(rolled(job(**of))), by_game(rolled(job(**of, **more)))
    assert few == {key: many[key] for key in few}


def test_a_round_is_the_same_whatever_the_horizon():
    short, long = by_game(rolled(job(T=3))), by_game(rolled(job(T=8)))
    for key, game in short.items():
        assert game["reply"] == long[key]["reply"][:3]
        assert game["rewards"] == long[key]["rewards"][:9]


def test_trajectories_of_a_scenario_have_the_same_rewards_and_different_replies():
    games = by_game(rolled(job(scenarios=3, trajectories=4)))
    assert len({tuple(game["rewards"]) for game in games.values()}) == 3
    assert len({tuple(game["reply"]) for game in games.values()}) == 12


def test_every_iteration_and_training_seed_draws_rewards_of_its_own():
    params, tables = load(ROOT / "params.yaml"), []
    for seed, iteration in np.ndindex(2, 3):
        of = rollouts_job(params, "open_mab_gemma", int(seed), int(iteration), 1)
        small = of.model_copy(update={"scenarios": 3, "trajectories": 1, "T": 2, "shard": (1, 1)})
        tables.append(np.array(rolled(small)["rewards"]).reshape(3, 2, 3))
        drawn = draw_rewards(of.seed, of.stream, of.process, (3, 2, 3))
        np.testing.assert_array_equal(tables[-1], drawn.rewards)
    assert len({table.tobytes() for table in tables}) == len(tables)


def test_base_and_trained_model_play_the_same_held_out_rewards_with_the_same_random_numbers():
    evaluation = held_out_job(load(ROOT / "params.yaml"), "open_mab_gemma", "gaussian-50")
    of = evaluation.model_copy(update={"scenarios": 4, "T": 3})
    table, numbers = draw("gamma", 6, 9, 3), []

    def trained(_game: int, _t: int, _attempt: int, drawn: np.ndarray) -> str:
        numbers[-1].append(tuple(drawn))
        return "Action: 1"

    rewards = []
    for _ in range(2):
        numbers.append([])
        games = rolled(of, trained, held_out=table)
        rewards.append(np.array(games["rewards"]).reshape(4, 3, 3))
        np.testing.assert_array_equal(np.array(games["means"]).reshape(4, 3, 3), table.means[:4, :3])
    np.testing.assert_array_equal(rewards, [table.rewards[:4, :3]] * 2)
    assert numbers[0] == numbers[1]


def test_a_reward_set_that_is_too_small_is_refused():
    with pytest.raises(InputError, match="too little"):
        rolled(job(process=None, scenarios=4, T=5), held_out=draw("gamma", 4, 4, 3))


def test_a_shard_that_would_be_empty_is_refused():
    with pytest.raises(InputError, match="shards"):
        rolled(job(scenarios=2, shard=(3, 3)))


# --- Progress ---


def regret_by_loops(of, game, t):
    """Return a game's regret after t rounds by the words of the paper: what selects, see `LanguageProblem`."""
    rewards, means, policy = (np.array(game[name]).reshape(-1, 3) for name in ("rewards", "means", "policy"))
    if of.problem.environment == "mab":
        best = sum(max(means[s]) for s in range(t))
        pays = means if of.problem.protocol.output == "distribution" else rewards
    else:
        best, pays = max(sum(rewards[s, a] for s in range(t)) for a in range(3)), rewards
    if of.problem.protocol.output == "distribution" or of.problem.environment == "fol":
        return best - sum(policy[s, a] * pays[s, a] for s in range(t) for a in range(3))
    return best - sum(pays[s, game["action"][s]] for s in range(t))


@every_protocol
def test_progress_counts_every_round_and_token_and_the_regret_so_far(interaction, output, environment):
    of, reports = job(interaction=interaction, output=output, environment=environment, batch=5), []
    games = rolled(of, on_round=lambda *figures: reports.append(figures))
    assert [count for count, _, _ in reports] == [5] * of.T + [3] * of.T
    assert sum(tokens for _, tokens, _ in reports) == sum(len(part) for game in games["ids"] for part in game)
    rows = list(by_game(games).values())
    for start, t in ((0, 1), (0, 4), (0, 5), (5, 2), (5, 5)):
        expected = np.mean([regret_by_loops(of, game, t) for game in rows[start : start + 5]])
        assert reports[(of.T if start else 0) + t - 1][2] == pytest.approx(expected)


@every_protocol
def test_no_conversation_grows_longer_than_its_capacity(interaction, output, environment):
    of = job(interaction=interaction, output=output, environment=environment, T=25, d=10, retries=0)
    template = SimpleNamespace(first=lambda message: f"^{message}", next=lambda message: f"^{message}")  # ^: BEGIN
    capacity = Conversations(game_settings_of(of, PROMPTS), 25, 40).capacity(
        SimpleNamespace(limit=None, template=template)
    )
    decision = "Action: 10" if output == "action" else f"Policy: [{'0, ' * 9}1]"
    chat_model = Scripted(2, lambda *_: f"{'x' * (40 - len(decision) - 1)}\n{decision}")
    transcript = play_in_words(chat_model, np.full((2, 25, 10), 10.0), game_settings_of(of, PROMPTS), random_numbers(2))
    assert not transcript.fallback.any()
    assert capacity - 20 <= max(len(part) for game in transcript.ids for part in game) <= capacity


# --- Scenarios ---

SCENARIOS = [
    Scenario(f"It is about {name}s.", tuple(f"{name} {word}" for word in ("one", "two", "three"))) for name in "abc"
]


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
def test_the_capacity_is_enough_for_games_of_the_action_with_the_longest_name(interaction):
    names = ("a name of very many words", "b", "c")
    short, long = Scenario("Short.", names), Scenario("It is about much, and told at length." * 2, ("a", "b", "c"))
    of = job(interaction=interaction, output="action", environment="mab", T=25, d=3, retries=0)
    settings = game_settings_of(of, PROMPTS)
    template = SimpleNamespace(first=lambda message: f"^{message}", next=lambda message: f"^{message}")  # ^: BEGIN
    reply = f"Action: {names[0]}"
    capacity = Conversations(settings, 25, len(reply) + 1, [short, long]).capacity(
        SimpleNamespace(limit=None, template=template)
    )
    scripted, rewards = Scripted(2, lambda *_: reply), np.full((2, 25, 3), 10.0)
    transcript = play_in_words(scripted, rewards, settings, random_numbers(2), scenarios=[short, short])
    assert not transcript.fallback.any()
    assert max(len(part) for game in transcript.ids for part in game) <= capacity


OTHER_SCENARIO = Scenario("It is about two.", ("this", "that"))


def test_every_game_shows_its_own_scenario_and_is_replied_to_with_its_names():
    games = rolled(job(retries=0), lambda *_: "Action: b two", scenarios=[*SCENARIOS, SCENARIOS[1]])
    for scenario, prompts, fallback in zip(games["scenario"], games["prompt"], games["fallback"], strict=True):
        about = [*SCENARIOS, SCENARIOS[1]][scenario]
        assert about.text in prompts[0]
        assert all(name in prompts[0] for name in about.names)
        assert not any(other.text in prompts[0] for other in SCENARIOS if other != about)
        assert all(fallback) == (about != SCENARIOS[1])  # a name of another scenario is no action here


def test_training_reads_scenarios_from_the_front_and_evaluation_from_the_back_of_those_with_d_actions():
    there = [OTHER_SCENARIO, *SCENARIOS]
    assert scenarios_for(job(scenarios=4), there) == [*SCENARIOS, SCENARIOS[0]]
    assert scenarios_for(job(scenarios=2, process=None), there) == SCENARIOS[:0:-1]
    with pytest.raises(InputError, match=r"set\.jsonl: has no scenario of 5 actions"):
        scenarios_for(job(d=5, scenario_set="set.jsonl"), there)
