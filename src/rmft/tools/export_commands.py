"""Sub-commands of `rmft` that hand results to other people's tools: export, push. They alone print."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from rmft.errors import InputError

TOOLS = "Share results"
app = typer.Typer()


@app.command(rich_help_panel=TOOLS)
def export(
    iteration: Annotated[Path, Argument(help="results/experiments/NAME/seed-S/iteration-I")],
    form: Annotated[
        Literal["peft", "merged", "gguf", "dataset"],
        Option("--format", help="An adapter, the whole model, an adapter for llama.cpp, or the trajectories."),
    ],
    to: Annotated[Path, Option(help="The new folder.")],
    everything: Annotated[bool, Option("--all", help="All trajectories, and not the selected ones alone.")] = False,
) -> None:
    """Write a trained model, or the trajectories that it played, as other tools read them, with a card.

    Example: `rmft export results/experiments/open_mab_qwen/seed-0/iteration-3 --format merged --to exports/mab`
    """
    from rmft.artifacts.folders import new_folder
    from rmft.artifacts.text import write_text
    from rmft.export.iteration import BuiltIteration
    from rmft.lineage.trace import trace
    from rmft.workflow.current import refuse_other_parameters

    if everything and form != "dataset":
        raise InputError(f"--all: goes with --format dataset, not with {form}")
    source = BuiltIteration.at(iteration)
    made = source.trajectories if form == "dataset" else [source.weights, *source.evaluations]
    shown = [path.as_posix() for path in made]
    refuse_other_parameters("export", source.params, shown, f"exp_{source.experiment}")
    with new_folder(to) as folder:
        if form == "dataset":
            from rmft.export.card import dataset_card
            from rmft.export.dataset import write_dataset

            traced = trace(*made)
            card = dataset_card(
                source, write_dataset(source, folder, everything=everything), traced, everything=everything
            )
        else:
            from rmft.export.card import model_card
            from rmft.export.models import write_model

            traced = trace(*made)
            write_model(source, form, folder)
            card = model_card(source, form, traced)
        write_text(folder / "README.md", card)
    for problem in traced.problems[:1]:
        print(f"export: {problem}; the card says that the lineage is not verified", file=sys.stderr)
    print(f"{to}: {form}; read {to / 'README.md'} before you share it")


@app.command(rich_help_panel=TOOLS)
def push(
    folder: Annotated[Path, Argument(help="A folder that `rmft export` made.")],
    repository: Annotated[str, Argument(metavar="REPO_ID", help="The repository on the hub: owner/name.")],
    public: Annotated[bool, Option("--public", help="Let everyone see a repository that this makes.")] = False,
) -> None:
    """Send an exported folder to the Hugging Face hub. A new repository is private.

    The token is that of `hf auth login` or of HF_TOKEN; HF_ENDPOINT names another hub.
    """
    from rmft.export.hub import push as send

    print(f"{send(folder, repository, private=not public)}: has {folder}")
