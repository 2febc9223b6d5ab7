"""Sub-commands of `rmft` about what is built and what runs: results, compare, status. They alone print."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

TOOLS = "Tools"
app = typer.Typer()


@app.command(rich_help_panel=TOOLS)
def results(
    experiments: Annotated[list[str] | None, Argument(help="Experiments of params.yaml. Default: all.")] = None,
    plot: Annotated[Path | None, Option(help="Also draw: this path's pdf, png and csv.")] = None,
) -> None:
    """Print final regrets of whatever is built: before and after training, beside the reference algorithms.

    Example: `rmft results numeric_mab --plot plots/mab`
    """
    from rmft.params import load
    from rmft.tools.results import LEGEND, as_tables, built, not_built, plot_note
    from rmft.tools.simulate import stem_of
    from rmft.tools.terminal import print_tables

    stem, full_size = None if plot is None else stem_of(plot), load()
    found = built(full_size.at_scale(), experiments or [])
    print_tables(*as_tables(found), *not_built(found, experiments or []), LEGEND)
    if stem:
        from rmft.tools.results_plot import draw_results

        draw_results(found, full_size.figures.style, plot_note(full_size, found)).save(stem)
        print(f"{stem}.png: the same as a picture")


@app.command(rich_help_panel=TOOLS)
def compare(
    experiment: Annotated[str, Argument(help="An experiment of params.yaml.")],
    evaluation: Annotated[
        str | None, Option(help="One of its evaluations. Default: the first one that is built.")
    ] = None,
    instance: Annotated[
        int | None, Option(help="An instance, from 0. Default: the one whose final regrets differ most.")
    ] = None,
    players: Annotated[
        tuple[str, str], Option(metavar="A B", help="Two of base, trained-SEED, and the reference algorithms.")
    ] = ("base", "trained-0"),
    replies: Annotated[bool, Option("--replies", help="Print the models' replies, too.")] = False,
) -> None:
    """Print two games of the same held-out instance side by side, round by round.

    Example: `rmft compare numeric_mab --players trained-0 ucb`
    """
    from rich.console import Console

    from rmft.params import load
    from rmft.params.files import evaluation_of
    from rmft.tools.compare import as_text, comparison
    from rmft.workflow.current import why_not_current

    params = load().at_scale()
    found = comparison(params, experiment, evaluation, players, instance, replies=replies)
    path = evaluation_of(experiment, found.evaluation)
    if why := why_not_current(params, [path]):
        print(f"rmft: warning: {path}: {why}; run `snakemake {path}`", file=sys.stderr)
    Console(highlight=False).print(*as_text(found, chosen=instance is None), sep="\n")


@app.command(rich_help_panel=TOOLS)
def status() -> None:
    """Print what Snakemake does in this folder: jobs done and running, and an estimate of the time left.

    Where nothing runs: what became of the last run. It disturbs no run, and starts none.
    """
    import time

    from rich.console import Console

    from rmft.package_data import require_clone
    from rmft.tools.status import as_text

    require_clone()
    Console(highlight=False).print(*as_text(time.time()), sep="\n")
