"""The command line: a sub-command for each stage, whose module is in `stages`, and the tools of `tools`.

Nothing here decides what a stage does: this file is no part of any job's code.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rmft.artifacts.job import end_with_run
from rmft.errors import InputError
from rmft.tools import commands as tools
from rmft.workflow.runs import INTERRUPTED

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Iterative regret-minimization fine-tuning: the stages that Snakemake runs, and tools to look at them.\n\n"
    "Start with `rmft simulate --help`, or run `snakemake` to rebuild every figure and table.",
)
STAGES = "Stages, as Snakemake calls them, or by hand from params.yaml"
BY_HAND = "By hand, in place of --settings"

Settings = Annotated[str | None, Option(help="The job's record as JSON; the rules build it from params.yaml.")]
Read = Annotated[Path | None, Option(help="A file to read. By hand: the workflow's, unless given.")]
Inputs = Annotated[list[Path] | None, Argument(help="Files to read, in order. By hand: the workflow's, unless given.")]
Write = Annotated[Path | None, Option(help="A file to write, which appears only when complete. By hand: in scratch/.")]
Folder = Annotated[Path | None, Option(help="The folder to write into. By hand: in scratch/, unless given.")]
Stem = Annotated[Path | None, Option(help="The path to write, without its ending. By hand: in scratch/, unless given.")]

Experiment = Annotated[str | None, Option(help="An experiment of params.yaml.", rich_help_panel=BY_HAND)]
TrainingSeed = Annotated[int, Option(help="A training seed, from 0.", rich_help_panel=BY_HAND)]
Iteration = Annotated[int | None, Option(help="The iteration of the rollouts, from 0.", rich_help_panel=BY_HAND)]
Shard = Annotated[int, Option(help="A shard of the rollouts, from 1.", rich_help_panel=BY_HAND)]
Evaluation = Annotated[str | None, Option(help="An evaluation of the experiment.", rich_help_panel=BY_HAND)]
Player = Annotated[str, Option(help="base, trained-<seed> or iteration-<i>-<seed>.", rich_help_panel=BY_HAND)]
Name = Annotated[str | None, Option(help="Its name in params.yaml.", rich_help_panel=BY_HAND)]
Label = Annotated[str | None, Option(help="Its label in params.yaml.", rich_help_panel=BY_HAND)]


def stage(command: Callable[..., None]) -> Callable[..., None]:
    """Add the sub-command that runs the stage of its name, with the options that it lists."""
    parameters = inspect.signature(command).parameters
    writes = [name for name, parameter in parameters.items() if parameter.annotation in (Write, Folder, Stem)]

    @app.command(command.__name__, rich_help_panel=STAGES)
    @functools.wraps(command)
    def run(settings: str | None = None, **options: object) -> None:
        from rmft.workflow.stage import run_stage

        run_stage(command.__name__, settings, options, writes)

    return run


@stage
def scenarios(settings: Settings = None, output: Write = None, name: Name = None) -> None:
    """Have a model behind an endpoint write scenarios (jsonl)."""


@stage
def rewards(settings: Settings = None, output: Write = None, name: Name = None) -> None:
    """Draw a reward set: rewards and means of every action, round and instance, and contexts (npz)."""


@stage
def models(settings: Settings = None, folder: Folder = None) -> None:
    """Pre-train the embedded language model; write it only if it passes the fidelity gate."""


@stage
def training(settings: Settings = None, folder: Folder = None, experiment: Experiment = None) -> None:
    """Train the numeric agent by iterative RMFT; keep base, checkpoints, last model and the training log."""


@stage
def rollouts(
    settings: Settings = None,
    weights: Read = None,
    rewards: Read = None,
    output: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
    shard: Shard = 1,
    evaluation: Evaluation = None,
    player: Player = "base",
) -> None:
    """Have a language model play games in words: a shard of an iteration, or the games of an evaluation (parquet)."""


@stage
def distillation(
    settings: Settings = None,
    output: Write = None,
    demonstrations: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
) -> None:
    """Have a reference algorithm play games in words, for a model to learn from (parquet, jsonl)."""


@stage
def gather(
    settings: Settings = None,
    inputs: Inputs = None,
    output: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
) -> None:
    """Join the shards of an iteration's rollouts (parquet)."""


@stage
def selection(
    settings: Settings = None,
    rollouts: Read = None,
    output: Write = None,
    demonstrations: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
) -> None:
    """Rank trajectories by regret and keep the best of each scenario (parquet, jsonl)."""


@stage
def sft(
    settings: Settings = None,
    demonstrations: Read = None,
    weights: Read = None,
    output: Write = None,
    log: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
) -> None:
    """Fine-tune a language model on demonstrations (safetensors, or at an endpoint its model's name: json)."""


@stage
def grpo(
    settings: Settings = None,
    rollouts: Read = None,
    weights: Read = None,
    output: Write = None,
    log: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
) -> None:
    """Reinforce what earned more than the other trajectories of its scenario (safetensors)."""


@stage
def method(
    settings: Settings = None,
    rollouts: Read = None,
    selection: Read = None,
    weights: Read = None,
    output: Write = None,
    log: Write = None,
    experiment: Experiment = None,
    training_seed: TrainingSeed = 0,
    iteration: Iteration = None,
) -> None:
    """Learn from trajectories and their regret by a training method of an extension (safetensors)."""


@stage
def evaluation(
    settings: Settings = None,
    inputs: Inputs = None,
    rewards: Read = None,
    output: Write = None,
    experiment: Experiment = None,
    evaluation: Evaluation = None,
) -> None:
    """Compare base model, trained model and reference algorithms on common instances (parquet)."""


@stage
def reasoning(
    settings: Settings = None,
    inputs: Inputs = None,
    folder: Folder = None,
    experiment: Experiment = None,
    evaluation: Evaluation = None,
) -> None:
    """Compare what replies claim with what happened, and judge why they pass over the best action."""


@stage
def theory(settings: Settings = None, output: Write = None) -> None:
    """Check Theorem 1: train linear attention without its Operator on the best policy in hindsight (csv)."""


@stage
def figures(settings: Settings = None, inputs: Inputs = None, stem: Stem = None, label: Label = None) -> None:
    """Draw a figure of the paper, with the numbers that are drawn (pdf, png, csv)."""


@stage
def tables(settings: Settings = None, inputs: Inputs = None, stem: Stem = None, label: Label = None) -> None:
    """Make a table of the paper, beside the values that the paper reports (csv, md, tex)."""


@stage
def metrics(settings: Settings = None, inputs: Inputs = None, output: Write = None, summary: Write = None) -> None:
    """Collect final regrets, growth and tests of every evaluation (json), and of the trained model alone."""


@stage
def report(settings: Settings = None, inputs: Inputs = None, output: Write = None, trajectories: Write = None) -> None:
    """Write the report, one page with every figure and table, and the trajectory viewer (html)."""


app.add_typer(tools.app)


def main() -> None:
    """Run the command line; turn a user's mistake into one line and exit code 2."""
    end_with_run()
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        print(f"rmft: {error}", file=sys.stderr)
        code = 2
    except typer.TyperException as error:
        if error.format_message():  # empty where a bare `rmft` has already printed its help
            print(f"rmft: {error.format_message()} (see --help)", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # which is also what typer makes of Ctrl-C
        print("rmft: interrupted; no file was left half-written", file=sys.stderr)
    sys.exit(code)
