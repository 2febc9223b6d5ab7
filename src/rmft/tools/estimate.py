"""Estimate the cost of an experiment of Section 6 before anything is spent: calls, tokens, dollars, hours.

Prompts are rendered as in the experiment. Two numbers cannot be known beforehand: the length of replies and, at
others' endpoints, the characters of a token. They come from params.yaml (`expected`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.agents.chat_models import typical_context, typical_round
from rmft.endpoint.budget import Usage, cost
from rmft.endpoint.journal import SUFFIX, usage_of
from rmft.endpoint.session import EPOCHS, JOURNALS, TUNED, PriceList
from rmft.endpoint.training_file import MESSAGE_TOKENS
from rmft.language.prompts import Prompts, read_template
from rmft.language.protocol import Round, Scenario
from rmft.language.scenarios import read_scenarios
from rmft.params import Params
from rmft.params.endpoint import EndpointSettings, Prices
from rmft.params.reasoning import LEXICAL
from rmft.reasoning.judges import PassingReply, question
from rmft.tools.terminal import empty_table
from rmft.workflow.games import game_settings_of, scenarios_for
from rmft.workflow.paths import own_players
from rmft.workflow.plan import first_rollouts_of, held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

if TYPE_CHECKING:
    from rich.table import Table

CACHED_FROM, CACHED_BY = 1024, 128  # ASSUME: OpenAI's cache holds beginnings of prompts this long, in steps
TYPICAL_REWARD = 5.0
# A hundred parts of the work have the same prompts and scenarios, and reading those takes longer than the rest.
load_prompts = cache(lambda folder: Prompts.load(Path(folder)))
load_scenarios = cache(lambda file: read_scenarios(Path(file)))


@dataclass(frozen=True)
class ExpectedWork:
    """One part of an experiment's work at an endpoint: its calls and tokens, their price, and how long they take."""

    experiment: str
    part: str
    calls: int
    used: Usage
    dollars: float
    hours: float


@dataclass(frozen=True)
class TokenCounter:
    """How an endpoint is expected to count tokens.

    tokens: of a text. caches_from, caches_by: the shortest beginning of a prompt that it caches, and in which steps.
    """

    tokens: Callable[[str], float]
    reply_tokens: float
    caches_from: int
    caches_by: int


def expected_work(params: Params, experiments: Sequence[str]) -> list[ExpectedWork]:
    """Return the parts of experiments that play or are judged at an endpoint, at the scale of params."""
    return [part for name in experiments for part in (*_parts(params, name), *_judged(params, name))]


def beyond_budget(params: Params, parts: Sequence[ExpectedWork]) -> str | None:
    """Return a line that says that the parts will cost more than `budget` allows; None where they will not."""
    limit, dollars = params.budget.dollars, sum(part.dollars for part in parts)
    if limit is None or dollars <= limit:
        return None
    until = list(accumulate(part.dollars for part in parts))
    last = parts[next(i for i, sum_so_far in enumerate(until) if sum_so_far > limit)]
    where = f"a run would stop in {last.experiment}, {last.part}"
    return f"budget.dollars is {limit:g}: {where}, since about {dollars:,.0f} are needed in all"


def endpoint_experiments(params: Params) -> list[str]:
    """Return the experiments that send requests to an endpoint: to play, or to judge replies."""
    judged = params.reasoning.of if params.reasoning.judge != LEXICAL else {}
    return [name for name, of in params.experiments.items() if of.kind == "endpoint" or name in judged]


def spent_on(experiment: str) -> Usage:
    """Return the usage that the journals of an experiment hold."""
    return sum(usage_of((JOURNALS / experiment).rglob(f"*{SUFFIX}")).values(), Usage())


def _parts(params: Params, name: str) -> Iterator[ExpectedWork]:
    experiment = params.experiments[name]
    if experiment.kind != "endpoint":
        return
    settings, loop = params.models[experiment.model], experiment.rmft
    prices, counter = PriceList(params), _token_counter(params, settings, experiment.feedback)
    base, tuned = prices[settings.model], prices[f"{TUNED}{settings.model}:"]
    first = rollouts_job(params, name, 0, 0, 1)
    runs = loop.training_seeds
    own = first_rollouts_of(params, name).count(name)
    yield _played(name, "rollouts, base model", first, settings, counter, base, own)
    if loop.iterations > 1:
        yield _played(name, "rollouts, fine-tuned", first, settings, counter, tuned, runs * (loop.iterations - 1))
    read = loop.scenarios * loop.selected * (experiment.sft.epochs or EPOCHS) * runs * loop.iterations  # demonstrations
    trained = Usage(trained=round(_conversation_tokens(first, counter) * read))
    yield ExpectedWork(name, "fine-tuning", runs * loop.iterations, trained, cost(trained, base), 0.0)
    for evaluation in experiment.evaluations:
        job = held_out_job(params, name, evaluation)
        playing = [player for player, _seed in own_players(params, name, evaluation)]
        replicates = playing.count("base")
        yield _played(name, f"{evaluation}, base model", job, settings, counter, base, replicates)
        yield _played(name, f"{evaluation}, fine-tuned", job, settings, counter, tuned, len(playing) - replicates)


def _judged(params: Params, name: str) -> Iterator[ExpectedWork]:
    """Yield the largest possible work of a judge behind an endpoint: it reads every reply, though only errors count."""
    reasoning, experiment = params.reasoning, params.experiments[name]
    if reasoning.judge == LEXICAL:
        return
    settings = params.models[reasoning.judge]
    counter, prices = _token_counter(params, settings, experiment.feedback), PriceList(params)[settings.model]
    for evaluation in reasoning.of.get(name, []):
        job = held_out_job(params, name, evaluation)
        protocol = game_settings_of(job, load_prompts(job.problem.protocol.prompts)).about(None)
        empty = question(read_template(Path(reasoning.prompt)), PassingReply("", protocol, 0, frozenset(), None))
        calls = job.games * job.T * len(experiment.evaluations[evaluation].players(experiment.loop.training_seeds))
        prompt = counter.tokens(empty) + counter.reply_tokens + MESSAGE_TOKENS
        used = Usage(calls, round(calls * prompt), 0, calls * reasoning.max_tokens)
        hours = settings.expected.seconds * calls / settings.concurrency / 3600
        yield ExpectedWork(name, f"{evaluation}, judge, at most", calls, used, cost(used, prices), hours)


def _token_counter(params: Params, settings: EndpointSettings, feedback: str) -> TokenCounter:
    """Return how an endpoint is expected to count tokens; our own server's model has a tokenizer that counts them."""
    expected = settings.expected
    reply = min(getattr(expected.reply_tokens, feedback), settings.max_tokens or math.inf)
    at_hand = settings.serves and Path(params.models[settings.serves].folder, "tokenizer.json")
    if not at_hand or not at_hand.exists():  # elsewhere, on the hub, or not converted yet
        return TokenCounter(lambda text: len(text) / expected.characters_per_token, reply, CACHED_FROM, CACHED_BY)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(at_hand))
    return TokenCounter(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), reply, 0, 1)


def _played(
    name: str,
    part: str,
    job: RolloutsJob,
    settings: EndpointSettings,
    counter: TokenCounter,
    prices: Prices,
    times: int,
) -> ExpectedWork:
    """Return the work of playing a job's games so many times."""
    games = job.games * times
    used = Usage(job.T * games, *(round(games * tokens) for tokens in _game_tokens(job, counter)))
    seconds = settings.expected.seconds * job.T * max(1.0, job.games / settings.concurrency) * times
    return ExpectedWork(name, part, used.answers, used, cost(used, prices), seconds / 3600)


def _conversation_tokens(job: RolloutsJob, counter: TokenCounter) -> float:
    """Return the tokens of a game's conversation, or of its T conversations where each round has one (`summary`)."""
    opening, later = message_tokens(job, counter)
    prompts = opening + (job.T - 1) * later
    if job.problem.protocol.interaction == "summary":
        prompts = job.T * opening + later * job.T * (job.T - 1) / 2
    return prompts + job.T * (counter.reply_tokens + MESSAGE_TOKENS)


def _game_tokens(job: RolloutsJob, counter: TokenCounter) -> tuple[float, float, float]:
    """Return the tokens of a game whose every round sends the whole history: prompt, cached part of it, completion."""
    opening, later = message_tokens(job, counter)
    dialogue = job.problem.protocol.interaction == "dialogue"
    reply = counter.reply_tokens + MESSAGE_TOKENS if dialogue else 0.0
    prompts = [opening + t * (later + reply) for t in range(job.T)]
    kept = prompts[:-1] if dialogue else []
    cached = [length // counter.caches_by * counter.caches_by for length in kept if length >= counter.caches_from]
    return sum(prompts), sum(cached), job.T * counter.reply_tokens


def message_tokens(job: RolloutsJob, counter: TokenCounter) -> tuple[float, float]:
    """Return the tokens of the first message and of a later one; in summaries, of a round that is added to it."""
    prompts, d = load_prompts(job.problem.protocol.prompts), job.problem.d
    game = game_settings_of(job, prompts)
    context = typical_context(game.protocol)
    rounds = [typical_round(game.protocol, t, 0, (TYPICAL_REWARD,) * d) for t in (1, 2)]
    scenarios: list[Scenario | None] = [None]
    if job.scenario_set:
        scenarios = list(dict.fromkeys(scenarios_for(job, load_scenarios(job.scenario_set))))
    protocols = [game.about(scenario) for scenario in scenarios]

    def tokens(past: list[Round]) -> float:
        counts = [counter.tokens(prompts.message(protocol, past, context)) for protocol in protocols]
        return sum(counts) / len(counts) + MESSAGE_TOKENS

    if game.protocol.interaction == "summary":
        return tokens([]), tokens(rounds) - tokens(rounds[:1])
    return tokens([]), tokens(rounds)


def as_table(parts: Sequence[ExpectedWork], scale: str) -> "Table":
    """Return the parts, their sums, and the usage that journals hold already, for a terminal."""
    table = empty_table(f"At scale {scale}, before retries, and as if nothing were on record; in tokens")
    table.add_column("", no_wrap=True)
    for header in ("calls", "prompt", "cached", "reply", "trained", "dollars", "hours"):
        table.add_column(header, justify="right", no_wrap=True)
    for name in dict.fromkeys(part.experiment for part in parts):
        of_one = [part for part in parts if part.experiment == name]
        table.add_row(name, style="bold")
        for part in of_one:
            table.add_row(f" {part.part}", *_cells([part]))
        table.add_row(" in all", *_cells(of_one), style="bold")
        table.add_row(" on record", *map(_short, astuple(spent_on(name))), style="dim", end_section=True)
    table.add_row("all", *_cells(parts), style="bold")
    return table


def _cells(parts: Sequence[ExpectedWork]) -> list[str]:
    """Return the sums over parts: calls and tokens, dollars, hours."""
    used = sum((part.used for part in parts), Usage())
    dollars, hours = sum(part.dollars for part in parts), sum(part.hours for part in parts)
    return [*map(_short, astuple(used)), f"{dollars:,.2f}", f"{hours:.2f}"]


def _short(count: int) -> str:
    """Return a count in few characters."""
    if count < 10_000:
        return f"{count:,}"
    value, unit = (count / 1e6, "M") if count >= 1_000_000 else (count / 1e3, "k")
    return f"{value:,.{int(value < 100)}f}{unit}"
