"""The command line: a sub-command for each stage, whose module is in `stages`, and the tools of `tools`.

Nothing here decides what a stage does: this file is no part of any job's code.
"""

import os
import sys
from copy import copy
from errno import EACCES, ENAMETOOLONG, EPERM
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rmft.artifacts.job import end_with_run
from rmft.errors import AFTER_CTRL_C, INTERRUPTED, WORKFLOW, InputError, without_workflow
from rmft.tools import commands, eval_commands, export_commands, lineage_commands, play_commands

OF_A_NAME = (EACCES, EPERM, ENAMETOOLONG)  # errors that are mistakes in the name of a file, and not a fault of ours

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Iterative regret-minimization fine-tuning: the stages that Snakemake runs, and tools to look at them.\n\n"
    "Start with `rmft simulate --help`, or run `snakemake` to rebuild every figure and table.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes as long as all else that a command imports

        print(f"rmft {version('rmft')}")
        raise typer.Exit


Version = Annotated[bool, Option("--version", help="Print the version.", is_eager=True, callback=_print_version)]


@app.callback()
def _options(_version: Version = False) -> None:
    pass


STAGES = "Stages, as Snakemake calls them, or by hand from params.yaml"
BY_HAND = "By hand, in place of --settings"

Settings = Annotated[str | None, Option(help="The job's record as JSON; the rules build it from params.yaml.")]
Read = Annotated[Path | None, Option(help="The {} to read. By hand: the workflow's file, unless given.")]
Inputs = Annotated[list[Path] | None, Argument(help="Files to read, in order. By hand: the workflow's, unless given.")]
Write = Annotated[
    Path | None, Option(help="Where to write the {}; the file appears when complete. By hand: in scratch/.")
]
Folder = Annotated[Path | None, Option(help="The folder to write into. By hand: in scratch/, unless given.")]
Stem = Annotated[Path | None, Option(help="The path to write, without its ending. By hand: in scratch/, unless given.")]

Name = Annotated[str | None, Option(help="Its name, as in params.yaml.", rich_help_panel=BY_HAND)]
Label = Annotated[str | None, Option(help="Its label, as in outputs.yaml.", rich_help_panel=BY_HAND)]
Experiment = Annotated[str | None, Option(help="An experiment of params.yaml.", rich_help_panel=BY_HAND)]
TrainingSeed = Annotated[int, Option(help="A training seed, from 0.", rich_help_panel=BY_HAND)]
Iteration = Annotated[int | None, Option(help="The iteration of the rollouts, from 0.", rich_help_panel=BY_HAND)]
Shard = Annotated[int, Option(help="A shard of the rollouts, from 1.", rich_help_panel=BY_HAND)]
Evaluation = Annotated[str | None, Option(help="An evaluation of the experiment.", rich_help_panel=BY_HAND)]
Player = Annotated[str, Option(help="base, trained-<seed> or iteration-<i>-<seed>.", rich_help_panel=BY_HAND)]
TUNED = {"weights": Read, "output": Write, "log": Write}  # the files of a stage that trains a language model
OF_ITERATION = {"experiment": Experiment, "training_seed": TrainingSeed, "iteration": Iteration}
DEFAULTS = {"training_seed": 0, "shard": 1, "player": "base"}  # of the options above; None of the others


def _naming(option: str, kind: Any) -> object:  # noqa: ANN401 (a type with its Option)
    """Return the annotation of an option, with the option's name in its help."""
    described = copy(kind.__metadata__[0])
    described.help = described.help.replace("{}", option.replace("_", " "))
    return Annotated[kind.__origin__, described]


def stage(name: str, does: str, /, **options: object) -> None:
    """Add the sub-command that runs a stage. options: the files of its `run`, and what names its job by hand."""
    writes = [option for option, kind in options.items() if kind in (Write, Folder, Stem)]

    def run(settings: str | None, **given: object) -> None:
        from rmft.workflow.stage import run_stage

        run_stage(name, settings, given, writes)

    run.__signature__ = Signature(
        Parameter(option, Parameter.KEYWORD_ONLY, default=DEFAULTS.get(option), annotation=_naming(option, kind))
        for option, kind in {"settings": Settings, **options}.items()
    )
    app.command(name, help=does, rich_help_panel=STAGES)(run)


stage("scenarios", "Have a model behind an endpoint write scenarios (jsonl).", output=Write, name=Name)
stage(
    "rewards",
    "Draw a reward set: rewards and means of every action, round and instance, and contexts (npz).",
    output=Write,
    name=Name,
)
stage(
    "models",
    "Pre-train an embedded language model; write it to its place only if it passes the fidelity gate.",
    folder=Folder,
    name=Name,
)
stage(
    "conversion",
    "Convert a model's GGUF file once, for jobs that need its weights; write it only if llama.cpp agrees.",
    folder=Folder,
    name=Name,
)
stage(
    "training",
    "Train the numeric agent by iterative RMFT; keep base, checkpoints, last model and the training log.",
    folder=Folder,
    experiment=Experiment,
)
stage(
    "rollouts",
    "Have a language model play games in words: a shard of an iteration, or the games of an evaluation (parquet).",
    weights=Read,
    rewards=Read,
    output=Write,
    **OF_ITERATION,
    shard=Shard,
    evaluation=Evaluation,
    player=Player,
)
stage(
    "distillation",
    "Have a reference algorithm play games in words, for a model to learn from (parquet, jsonl).",
    output=Write,
    demonstrations=Write,
    experiment=Experiment,
    training_seed=TrainingSeed,
)
stage("gather", "Join the shards of an iteration's rollouts (parquet).", inputs=Inputs, output=Write, **OF_ITERATION)
stage(
    "selection",
    "Rank trajectories by regret and keep the best of each scenario (parquet, jsonl).",
    rollouts=Read,
    output=Write,
    demonstrations=Write,
    **OF_ITERATION,
)
stage(
    "sft",
    "Fine-tune a language model on demonstrations (safetensors, or at an endpoint its model's name: json).",
    demonstrations=Read,
    **TUNED,
    **OF_ITERATION,
)
stage(
    "grpo",
    "Reinforce what earned more than the other trajectories of its scenario (safetensors).",
    rollouts=Read,
    **TUNED,
    **OF_ITERATION,
)
stage(
    "method",
    "Learn from trajectories and their regret by a training method of an extension (safetensors).",
    rollouts=Read,
    selection=Read,
    **TUNED,
    **OF_ITERATION,
)
stage(
    "evaluation",
    "Compare base model, trained model and reference algorithms on common instances (parquet).",
    inputs=Inputs,
    rewards=Read,
    output=Write,
    experiment=Experiment,
    evaluation=Evaluation,
)
stage(
    "reasoning",
    "Compare what replies claim with what happened, and judge why they pass over the best action.",
    inputs=Inputs,
    folder=Folder,
    experiment=Experiment,
    evaluation=Evaluation,
)
stage(
    "theory",
    "Check Theorem 1: train linear attention without its Operator on the best policy in hindsight (csv).",
    output=Write,
)
stage(
    "figures",
    "Draw a figure of the paper, with the numbers that are drawn (pdf, png, csv).",
    inputs=Inputs,
    stem=Stem,
    label=Label,
)
stage(
    "tables",
    "Make a table of the paper, beside the values that the paper reports (csv, md, tex).",
    inputs=Inputs,
    stem=Stem,
    label=Label,
)
stage(
    "metrics",
    "Collect final regrets, growth and tests of every evaluation (json), and of the trained model alone.",
    inputs=Inputs,
    output=Write,
    summary=Write,
)
stage(
    "report",
    "Write the report, one page with every figure and table, and the trajectory viewer (html).",
    inputs=Inputs,
    output=Write,
    trajectories=Write,
)

app.add_typer(commands.app)
app.add_typer(lineage_commands.app)
app.add_typer(eval_commands.app)
app.add_typer(play_commands.app)
app.add_typer(export_commands.app)
command = typer.main.get_command(app)  # made once, in the fork server for all jobs


def main() -> None:
    """Run the command line; turn a user's mistake into one line and exit code 2."""
    end_with_run()
    try:
        code = command(standalone_mode=False)
        print(end="", flush=True)
    except InputError as error:
        print(f"rmft: {error}", file=sys.stderr)
        code = 2
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in WORKFLOW:
            raise
        print(f"rmft: {without_workflow(library)}", file=sys.stderr)
        code = 2
    except typer.TyperException as error:
        if error.format_message():  # empty where a bare `rmft` has already printed its help
            print(f"rmft: {' '.join(error.format_message().split())} (see --help)", file=sys.stderr)
        code = 2
    except OSError as error:
        if error.filename is not None and error.errno in OF_A_NAME:
            print(f"rmft: {InputError(f'{error.filename}: {error.strerror}')}", file=sys.stderr)
        elif _can_print():
            raise
        else:
            print(f"rmft: standard output cannot be written: {error.strerror or error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # which is also what typer makes of Ctrl-C
        print(f"rmft: {AFTER_CTRL_C}", file=sys.stderr)
    sys.exit(code)


def _can_print() -> bool:
    """Return whether standard output can be written; if not, drop what it holds, which Python writes at exit."""
    try:
        print(flush=True)  # an empty line: no text may be left over from what failed
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
