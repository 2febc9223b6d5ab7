"""What an experiment of Section 6 will cost before anything is spent: calls, tokens, dollars, hours.

Prompts are rendered as they will be. What cannot be known before, how long replies are and, at others' endpoints, how
many characters a token has, is taken from params.yaml (`expected`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.agents.chat_models import typical_context
from rmft.endpoint.access import EPOCHS, JOURNALS, TUNED, PriceList
from rmft.endpoint.budget import Usage, cost
from rmft.endpoint.journal import SUFFIX, usage_of
from rmft.errors import InputError
from rmft.language.prompts import Prompts, read_template
from rmft.language.protocol import Round, Scenario
from rmft.language.scenarios import read_scenarios
from rmft.params import Params
from rmft.params.endpoint import EndpointSettings, Prices
from rmft.params.reasoning import LEXICAL
from rmft.reasoning.judges import Case, question
from rmft.workflow.games import game_settings_of, scenarios_for
from rmft.workflow.plan import held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

if TYPE_CHECKING:
    from rich.table import Table

MESSAGE_TOKENS = 4  # ASSUME: around each message, as OpenAI's own counting example has it
CACHED_FROM, CACHED_BY = 1024, 128  # ASSUME: OpenAI's cache holds beginnings of prompts this long, in steps
TYPICAL_REWARD = 5.0


@dataclass(frozen=True)
class ExpectedWork:
    """Part of an experiment: what it is, how many calls, what they use, what that costs, and how long it takes."""

    experiment: str
    part: str
    calls: int
    used: Usage
    dollars: float
    hours: float


def estimate(params: Params, experiments: Sequence[str]) -> list[ExpectedWork]:
    """Return the parts of experiments, at the scale of params. Raise InputError where one plays at no endpoint."""
    there = answering(params)
    for name in experiments:
        if name not in there:
            those = f"those are {', '.join(there)}"
            raise InputError(f"estimate: {name!r} is no experiment that plays or is judged at an endpoint; {those}")
    return [part for name in experiments for part in (*_parts(params, name), *_judged(params, name))]


def answering(params: Params) -> list[str]:
    """Return the experiments that ask an endpoint: to play, or to judge replies."""
    judged = params.reasoning.of if params.reasoning.judge != LEXICAL else {}
    return [name for name, of in params.experiments.items() if of.kind == "endpoint" or name in judged]


def spent_on(experiment: str) -> Usage:
    """Return what the journals of an experiment hold."""
    return sum(usage_of((JOURNALS / experiment).rglob(f"*{SUFFIX}")).values(), Usage())


@dataclass(frozen=True)
class Meter:
    """How an endpoint is expected to count. tokens: of a text. caches_from, caches_by: what it remembers, in tokens."""

    tokens: Callable[[str], float]
    reply_tokens: float
    caches_from: int
    caches_by: int


def _parts(params: Params, name: str) -> Iterator[ExpectedWork]:
    experiment = params.experiments[name]
    if experiment.kind != "endpoint":
        return
    settings, loop = params.models[experiment.model], experiment.rmft
    prices, meter = PriceList(params), _meter(params, settings, experiment.feedback)
    base, tuned = prices[settings.model], prices[f"{TUNED}{settings.model}:"]
    first = rollouts_job(params, name, 0, 0, 1)
    runs = loop.training_seeds
    yield _played(name, "rollouts, base model", first, settings, meter, base, runs)
    if loop.iterations > 1:
        yield _played(name, "rollouts, fine-tuned", first, settings, meter, tuned, runs * (loop.iterations - 1))
    epochs = loop.scenarios * loop.selected * (experiment.sft.epochs or EPOCHS) * runs * loop.iterations
    trained = Usage(trained=round(_conversation(first, meter) * epochs))
    yield ExpectedWork(name, "fine-tuning", runs * loop.iterations, trained, cost(trained, base), 0.0)
    for evaluation in experiment.evaluations:
        job = held_out_job(params, name, evaluation)
        playing = [player for player, _ in experiment.evaluations[evaluation].players(runs)]
        replicates = playing.count("base")
        yield _played(name, f"{evaluation}, base model", job, settings, meter, base, replicates)
        yield _played(name, f"{evaluation}, fine-tuned", job, settings, meter, tuned, len(playing) - replicates)


def _judged(params: Params, name: str) -> Iterator[ExpectedWork]:
    """Yield what a judge behind an endpoint is asked at most: of every reply, though only those count that err."""
    asked, experiment = params.reasoning, params.experiments[name]
    if asked.judge == LEXICAL:
        return
    settings = params.models[asked.judge]
    meter, prices = _meter(params, settings, experiment.feedback), PriceList(params)[settings.model]
    for evaluation in asked.of.get(name, []):
        job = held_out_job(params, name, evaluation)
        protocol = game_settings_of(job, Prompts.load(Path(job.problem.protocol.prompts))).about(None)
        told = question(read_template(Path(asked.prompt)), Case("", protocol, 0, frozenset(), None))
        calls = job.games * job.T * len(experiment.evaluations[evaluation].players(experiment.loop.training_seeds))
        prompt = meter.tokens(told) + meter.reply_tokens + MESSAGE_TOKENS
        used = Usage(calls, round(calls * prompt), 0, calls * asked.max_tokens)
        hours = settings.expected.seconds * calls / settings.concurrency / 3600
        yield ExpectedWork(name, f"{evaluation}, judge, at most", calls, used, cost(used, prices), hours)


def _meter(params: Params, settings: EndpointSettings, feedback: str) -> Meter:
    """Return how an endpoint is expected to count; of our own server the tokenizer is at hand."""
    expected = settings.expected
    reply = getattr(expected.reply_tokens, feedback)
    if settings.serves is None:
        return Meter(lambda text: len(text) / expected.characters_per_token, reply, CACHED_FROM, CACHED_BY)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(params.models[settings.serves].weights) / "tokenizer.json"))
    return Meter(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), reply, 0, 1)


def _played(
    name: str, part: str, job: RolloutsJob, settings: EndpointSettings, meter: Meter, prices: Prices, times: int
) -> ExpectedWork:
    """Return what it takes to play a job's games so many times."""
    games = job.games * times
    used = Usage(job.T * games, *(round(games * tokens) for tokens in _game(job, meter)))
    seconds = settings.expected.seconds * job.T * max(1.0, job.games / settings.concurrency) * times
    return ExpectedWork(name, part, used.answers, used, cost(used, prices), seconds / 3600)


def _conversation(job: RolloutsJob, meter: Meter) -> float:
    """Return the tokens of a game's conversation."""
    opening, feedback = _told(job, meter)
    return opening + (job.T - 1) * feedback + job.T * (meter.reply_tokens + MESSAGE_TOKENS)


def _game(job: RolloutsJob, meter: Meter) -> tuple[float, float, float]:
    """Return the tokens of a game of which every round sends the whole history: prompt, cached of it, completion."""
    opening, feedback = _told(job, meter)
    dialogue = job.problem.protocol.interaction == "dialogue"
    said = meter.reply_tokens + MESSAGE_TOKENS if dialogue else 0.0
    prompts = [opening + t * (feedback + said) for t in range(job.T)]
    kept = prompts[:-1] if dialogue else []
    cached = [length // meter.caches_by * meter.caches_by for length in kept if length >= meter.caches_from]
    return sum(prompts), sum(cached), job.T * meter.reply_tokens


def _told(job: RolloutsJob, meter: Meter) -> tuple[float, float]:
    """Return the tokens of the first message, and of a later one; in summaries, by how much a round adds to it."""
    prompts, d = Prompts.load(Path(job.problem.protocol.prompts)), job.problem.d
    rules = game_settings_of(job, prompts)
    policy = (1 / d,) * d if rules.protocol.output == "distribution" else None
    context = typical_context(rules.protocol)
    played = [Round(t, 0, policy, (TYPICAL_REWARD,) * d, context) for t in (1, 2)]
    told: list[Scenario | None] = [None]
    if job.scenario_set:
        told = list(dict.fromkeys(scenarios_for(job, read_scenarios(Path(job.scenario_set)))))
    protocols = [rules.about(scenario) for scenario in told]

    def tokens(past: list[Round]) -> float:
        counts = [meter.tokens(prompts.message(protocol, past, context)) for protocol in protocols]
        return sum(counts) / len(counts) + MESSAGE_TOKENS

    if rules.protocol.interaction == "summary":
        return tokens([]), tokens(played) - tokens(played[:1])
    return tokens([]), tokens(played)


def as_table(parts: Sequence[ExpectedWork], params: Params) -> "Table":
    """Return the parts, their sums, and what journals hold already, for a terminal."""
    from rich.table import Table

    table = Table(
        title=f"At scale {params.scale}, before retries, and as if nothing were on record; in tokens",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    table.add_column("", no_wrap=True)
    for header in ("calls", "prompt", "cached", "reply", "trained", "dollars", "hours"):
        table.add_column(header, justify="right", no_wrap=True)
    for name in dict.fromkeys(part.experiment for part in parts):
        of_one = [part for part in parts if part.experiment == name]
        table.add_row(name, style="bold")
        for part in of_one:
            table.add_row(f" {part.part}", *_cells(part.used, part.dollars, part.hours))
        table.add_row(" in all", *_cells(*_sums(of_one)), style="bold")
        table.add_row(" on record", *_cells(spent_on(name), 0.0, 0.0)[:5], style="dim", end_section=True)
    table.add_row("all", *_cells(*_sums(parts)), style="bold")
    return table


def _sums(parts: Sequence[ExpectedWork]) -> tuple[Usage, float, float]:
    return total(parts), sum(part.dollars for part in parts), sum(part.hours for part in parts)


def _cells(used: Usage, dollars: float, hours: float) -> list[str]:
    tokens = (used.answers, used.prompt, used.cached, used.completion, used.trained)
    return [*map(_short, tokens), f"{dollars:,.2f}", f"{hours:.2f}"]


def _short(count: int) -> str:
    """Return a count as it fits a terminal."""
    if count < 10_000:
        return f"{count:,}"
    value, unit = (count / 1e6, "M") if count >= 1_000_000 else (count / 1e3, "k")
    return f"{value:,.{int(value < 100)}f}{unit}"


def total(parts: Sequence[ExpectedWork]) -> Usage:
    """Return what all parts use together."""
    return Usage(*(sum(getattr(part.used, field.name) for part in parts) for field in fields(Usage)))
