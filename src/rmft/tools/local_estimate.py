"""The least time, memory and disk that experiments of local models take: the cost model of docs/scale.md.

While games are played, weights, keys and values are read once for each sampled token. Two numbers are assumed: the
length of replies, and the speed of a thread of a CPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmft.agents.model_shapes import BYTES, ModelShape, local_folder, shape_of, weights_bytes
from rmft.errors import InputError, unknown
from rmft.params import Params
from rmft.params.experiment import Experiment
from rmft.params.language_model import LanguageModelSettings
from rmft.tools.estimate import MESSAGE_TOKENS, TokenCounter, endpoint_experiments, message_tokens
from rmft.tools.terminal import empty_table
from rmft.workflow.contexts import PIECE, TURN
from rmft.workflow.paths import own_players
from rmft.workflow.plan import first_rollouts_of, held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

if TYPE_CHECKING:
    from rich.table import Table

REPLIES = {"with-reasoning": 60, "policy-only": 8}  # ASSUME: tokens of a reply; with reasoning as in docs/scale.md
FREE = 0.9  # of the memory, for weights, keys and values
BACKWARD = 3  # a step of training computes about three times as much as a forward pass
GAME_BYTES = 1.6  # on disk for each token of a game: benchmarks/prediction.py


@dataclass(frozen=True)
class Machine:
    """bandwidth: bytes/s. flops: of the model's type, dense. memory: bytes; None: as much as is needed."""

    name: str
    bandwidth: float
    flops: float
    memory: float | None = None


GPUS = Machine("A100-80", 2.04e12, 312e12, 80e9), Machine("H200", 4.8e12, 989e12, 141e9)
THREAD = Machine("CPU thread", 10.7e9, 340e9)  # ASSUME: measured on one machine, benchmarks/engines.csv


@dataclass(frozen=True)
class GameLoad:
    """The games of a job, which are played at the same time, and how many such jobs there are.

    read, sampled: tokens of a game that the model reads and writes. context: the longest history of a game in tokens.
    """

    games: float
    read: float
    sampled: float
    context: float
    jobs: int = 1


@dataclass(frozen=True)
class LocalWork:
    """What an experiment takes. disk, download: bytes; hours: by machine.

    memory: bytes of the weights, and of each game that is played at the same time. hours, memory and download are None
    where the size of the model is unknown.
    """

    experiment: str
    model: str
    games: float
    tokens: float
    disk: float
    hours: dict[str, float] | None = None
    memory: tuple[float, float] | None = None
    download: float | None = None


def play_seconds(
    shape: ModelShape, machine: Machine, weights: float, played: GameLoad, batch: float, number: float = 2.0
) -> tuple[float, float]:
    """Return the least seconds for sampling and for reading.

    weights: their bytes. batch: the most games at a time. number: bytes of a key's or a value's number.
    """
    flying = games_at_once(shape, machine, weights, played, batch, number)
    read = (weights / flying + shape.state_bytes(played.context, number) / 2) / machine.bandwidth
    computed = 2 * shape.parameters / machine.flops
    return played.games * played.sampled * max(read, computed), played.games * played.read * computed


def games_at_once(
    shape: ModelShape, machine: Machine, weights: float, played: GameLoad, batch: float, number: float = 2.0
) -> float:
    """Return how many games are played at a time; not fewer than one, even if the memory is too small."""
    games = min(played.games, batch)
    if machine.memory is None:
        return games
    return min(games, max(1, int((FREE * machine.memory - weights) / shape.state_bytes(played.context, number))))


def learn_seconds(shape: ModelShape, machine: Machine, tokens: float) -> float:
    """Return the least seconds for learning from so many tokens, those of several epochs counted several times."""
    return tokens * BACKWARD * 2 * shape.parameters / machine.flops


def local_experiments(params: Params) -> list[str]:
    """Return the experiments in which a language model plays here and not behind an endpoint."""
    return [name for name, of in params.experiments.items() if of.in_words and of.model_kind == "language"]


def chosen(params: Params, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which of some experiments, or of all, use an endpoint, and in which a model plays here; some do both.

    Raise InputError for a name that is neither.
    """
    remote, local = endpoint_experiments(params), local_experiments(params)
    for name in names:
        if name not in params.experiments:
            raise InputError(f"estimate: {unknown(name, params.experiments)}")
        if name not in (*remote, *local):
            raise InputError(f"estimate: {name}: no language model plays in it; it takes minutes on a CPU")
    wanted = names or [*remote, *local]
    return [name for name in remote if name in wanted], [name for name in local if name in wanted]


def local_work(params: Params, experiments: Sequence[str]) -> list[LocalWork]:
    """Return what experiments of local models take, at the scale of params."""
    return [_work_of(params, name, params.experiments[name]) for name in experiments]


def _work_of(params: Params, name: str, experiment: Experiment) -> LocalWork:
    settings, loop = params.models[experiment.model], experiment.loop
    played = list(_games(params, name, experiment))
    first = _played(rollouts_job(params, name, 0, 0, 1))
    learnt = experiment.learnt * loop.training_seeds * _epochs(experiment) * (first.read + first.sampled)
    games = sum(one.jobs * one.games for one in played)
    tokens = sum(one.jobs * one.games * (one.read + one.sampled) for one in played)
    shape, disk = shape_of(settings), GAME_BYTES * tokens
    if shape is None:
        return LocalWork(name, experiment.model, games, tokens, disk)
    weights, size = weights_bytes(settings, shape), shape.parameters * BYTES[settings.dtype]
    number = BYTES[settings.dtype]
    hours = {
        machine.name: (
            sum(one.jobs * sum(play_seconds(shape, machine, weights, one, settings.batch, number)) for one in played)
            + learn_seconds(shape, machine, learnt)
        )
        / 3600
        for machine in _machines(settings)
    }
    memory = weights, max(shape.state_bytes(one.context, number) for one in played)
    if experiment.weights == "model.safetensors":
        disk += size * loop.iterations * loop.training_seeds
    if settings.is_gguf:
        disk += size
    there = settings.is_gguf or local_folder(settings) is not None
    return LocalWork(name, experiment.model, games, tokens, disk, hours, memory, 0.0 if there else 2 * shape.parameters)


def _games(params: Params, name: str, experiment: Experiment) -> Iterator[GameLoad]:
    """Yield the games of training, and those of each evaluation; a variant's base model plays in another experiment."""
    loop = experiment.loop
    if experiment.kind != "distillation":  # there an algorithm plays
        later = (loop.iterations - 1) * loop.training_seeds
        shards = (later + first_rollouts_of(params, name).count(name)) * params.shards(name)
        yield _played(rollouts_job(params, name, 0, 0, 1), shards)
    for evaluation in experiment.evaluations:
        yield _played(held_out_job(params, name, evaluation), len(own_players(params, name, evaluation)))


def _played(job: RolloutsJob, jobs: int = 1) -> GameLoad:
    protocol = job.problem.protocol
    reply = min(REPLIES[protocol.format], protocol.max_tokens)
    counter = TokenCounter(lambda text: len(PIECE.findall(text)) + TURN - MESSAGE_TOKENS, reply, 0, 1)
    opening, later = message_tokens(job, counter)
    if protocol.interaction == "summary":
        read = sum(opening + t * later for t in range(job.T))
        return GameLoad(job.games, read, job.T * reply, opening + job.T * later + reply, jobs)
    read = opening + (job.T - 1) * later
    return GameLoad(job.games, read, job.T * reply, read + job.T * reply, jobs)


def _epochs(experiment: Experiment) -> int:
    return getattr(getattr(experiment, "sft", None) or experiment.loop, "epochs", 1)


def _machines(settings: LanguageModelSettings) -> tuple[Machine, ...]:
    if settings.device.startswith("cuda"):
        return GPUS
    threads = settings.threads_to_play
    name = f"{threads} thread{'s' if threads > 1 else ''}"
    return (Machine(name, threads * THREAD.bandwidth, threads * THREAD.flops),)


def as_table(work: Sequence[LocalWork], scale: str) -> "Table":
    """Return what experiments take, for a terminal."""
    table = empty_table(
        f"Local models at scale {scale}: the least hours, by machine; memory to play; as if nothing were built"
    )
    for header in ("", "model", "games", "tokens", "least hours", "memory", "disk", "download"):
        table.add_column(
            header, justify="right" if header not in ("", "model") else "left", no_wrap=header != "least hours"
        )
    for one in work:
        size = [f"{one.games:,.0f}", f"{one.tokens / 1e6:,.2f}M"]
        if one.hours is None:
            table.add_row(one.experiment, one.model, *size, "unknown size", "", _gigabytes(one.disk), "")
            continue
        hours = ", ".join(f"{hours:,.2f} ({name})" for name, hours in one.hours.items())
        memory = f"{_gigabytes(one.memory[0])} + {_gigabytes(one.memory[1])} a game"
        table.add_row(one.experiment, one.model, *size, hours, memory, _gigabytes(one.disk), _gigabytes(one.download))
    return table


def unknown_sizes(work: Sequence[LocalWork], params: Params) -> str | None:
    """Return a line on the models whose size is not known; None where all are."""
    names = dict.fromkeys(one.model for one in work if one.hours is None)
    if not names:
        return None
    listed = ", ".join(f"{name} ({params.models[name].weights})" for name in names)
    return f"unknown size: {listed}; estimate again when the model's files are here"


def _gigabytes(size: float) -> str:
    return "none" if not size else f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.1f} MB"
