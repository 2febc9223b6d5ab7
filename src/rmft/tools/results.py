"""`rmft results`: final regrets of every evaluation that is built, before and after training, beside the algorithms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmft.errors import InputError, unknown
from rmft.metrics.comparison import PairedDifference
from rmft.metrics.summary import against_base
from rmft.params import Params
from rmft.params.files import evaluation_of
from rmft.results import read_players
from rmft.tools.terminal import empty_table

if TYPE_CHECKING:
    from rich.table import Table

MODELS = ("base", "trained")
LEGEND = (
    "Mean final regret over n instances and runs of training. "
    "Difference: trained minus base, with its 95% interval over instances and, of several runs, over runs. "
    "Words: docs/glossary.md."
)


@dataclass(frozen=True)
class BuiltEvaluation:
    """Mean final regrets by player. difference: trained minus base, over n instances; trainings: runs of training."""

    experiment: str
    evaluation: str
    model: str
    n: int
    trainings: int
    regrets: dict[str, float]
    difference: PairedDifference


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


def _built(params: Params, experiments: Sequence[str]) -> Iterator[BuiltEvaluation]:
    for name in experiments:
        for evaluation in params.experiments[name].evaluations:
            path = Path(evaluation_of(name, evaluation))
            if path.exists():
                players = read_players(path)
                trained = players["trained"]
                yield BuiltEvaluation(
                    name,
                    evaluation,
                    params.experiments[name].model,
                    len(trained.by_instance),
                    len(trained.regret),
                    {player: float(of.final.mean()) for player, of in players.items()},
                    against_base(players),
                )


def as_tables(evaluations: Sequence[BuiltEvaluation]) -> Iterator["Table"]:
    """Yield a table for a terminal for each experiment."""
    for name in dict.fromkeys(one.experiment for one in evaluations):
        of_one = [one for one in evaluations if one.experiment == name]
        others = dict.fromkeys(player for one in of_one for player in one.regrets if player not in MODELS)
        table = empty_table(f"{name}, {of_one[0].model}")
        for header in ("", "n", "runs", *MODELS, "difference", *others):
            table.add_column(header, justify="right" if header else "left", no_wrap=True)
        for one in of_one:
            regrets = {player: f"{regret:.2f}" for player, regret in one.regrets.items()}
            between = one.difference
            difference = f"{between.mean:+.2f} [{between.low:+.2f}, {between.high:+.2f}]"
            models = [regrets[player] for player in MODELS]
            beside = [regrets.get(player, "") for player in others]
            table.add_row(one.evaluation, str(one.n), str(one.trainings), *models, difference, *beside)
        yield table
