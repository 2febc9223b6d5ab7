"""`rmft results`: final regrets of every evaluation that is built, before and after training, beside the algorithms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.errors import InputError, unknown
from rmft.held_out_games import MODELS
from rmft.metrics.comparison import PairedDifference
from rmft.metrics.summary import against_base
from rmft.params import Params
from rmft.params.files import evaluation_of
from rmft.results import read_players
from rmft.tools.terminal import empty_table, interval
from rmft.workflow.current import why_not_current

if TYPE_CHECKING:
    from rich.table import Table

LEGEND = (
    "Mean final regret over n instances and runs of training. "
    "Difference: trained minus base, with its 95% interval over instances and, of several runs, over runs. "
    "Words: docs/glossary.md."
)


@dataclass(frozen=True)
class BuiltEvaluation:
    """Mean final regrets by player.

    difference: trained minus base, over n instances. trainings: runs of training. otherwise: why the evaluations of the
    experiment are not what `model` and all else in params.yaml give; None where they are.
    """

    experiment: str
    evaluation: str
    model: str
    n: int
    trainings: int
    regrets: dict[str, float]
    difference: PairedDifference
    otherwise: str | None = None


def built(params: Params, experiments: Sequence[str]) -> list[BuiltEvaluation]:
    """Return the evaluations of some experiments, or of all, that are built. Raise InputError where there is none."""
    for name in experiments:
        if name not in params.experiments:
            raise InputError(f"results: {unknown(name, params.experiments)}")
    wanted = list(experiments) or list(params.experiments)
    found = list(_built(params, wanted))
    if not found:
        cure = f"snakemake exp_{wanted[0]}" if experiments else "make quick"
        raise InputError(f"results: no evaluation of {', '.join(experiments) or 'any experiment'} is built; `{cure}`")
    return found


def not_built(found: Sequence[BuiltEvaluation], experiments: Sequence[str]) -> list[str]:
    """Return a line about each of the experiments that are wanted by name, and of which no evaluation is built."""
    there = {one.experiment for one in found}
    return [f"{name}: no evaluation is built; `snakemake exp_{name}`" for name in experiments if name not in there]


def _built(params: Params, experiments: Sequence[str]) -> Iterator[BuiltEvaluation]:
    for name in experiments:
        paths = {evaluation: evaluation_of(name, evaluation) for evaluation in params.experiments[name].evaluations}
        there = {evaluation: path for evaluation, path in paths.items() if Path(path).exists()}
        otherwise = why_not_current(params, there.values())
        for evaluation, path in there.items():
            players = read_players(Path(path))
            trained = players["trained"]
            yield BuiltEvaluation(
                name,
                evaluation,
                params.experiments[name].model,
                len(trained.by_instance),
                len(trained.regret),
                {player: float(of.final.mean()) for player, of in players.items()},
                against_base(players),
                otherwise,
            )


def as_tables(evaluations: Sequence[BuiltEvaluation]) -> Iterator["Table"]:
    """Yield a table for a terminal for each experiment."""
    for name in dict.fromkeys(one.experiment for one in evaluations):
        of_one = [one for one in evaluations if one.experiment == name]
        others = dict.fromkeys(player for one in of_one for player in one.regrets if player not in MODELS)
        table = empty_table(f"{name}, {_described(of_one)}")
        for header in ("", "n", "runs", *MODELS, "difference", *others):
            table.add_column(header, justify="right" if header else "left", no_wrap=True)
        for one in of_one:
            regrets = {player: f"{regret:.2f}" for player, regret in one.regrets.items()}
            between = one.difference
            difference = f"{between.mean:+.2f} {interval(between.low, between.high)}".rstrip()
            models = [regrets[player] for player in MODELS]
            beside = [regrets.get(player, "") for player in others]
            table.add_row(one.evaluation, str(one.n), str(one.trainings), *models, difference, *beside)
        yield table


def _described(of_one: Sequence[BuiltEvaluation]) -> str:
    """Return the model of an experiment's evaluations; where they are not current, params.yaml may name another one."""
    one = of_one[0]
    return f"{one.otherwise}; run `snakemake exp_{one.experiment}`" if one.otherwise else one.model


def plot_note(full_size: Params, evaluations: Sequence[BuiltEvaluation]) -> str | None:
    """Return what a plot of evaluations must say of their size and parameters. full_size: not yet at scale."""
    scaled = full_size.scale_note(list({one.experiment: None for one in evaluations}))
    others: dict[str, dict[str, None]] = {}  # experiments, each once, by reason
    for one in evaluations:
        if one.otherwise:
            others.setdefault(one.otherwise, {})[one.experiment] = None
    notes = [f"{', '.join(names)}: {reason}" for reason, names in others.items()]
    return "; ".join([f"scale {full_size.scale}: not the paper's results"] * bool(scaled) + notes) or None
