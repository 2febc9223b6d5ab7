"""Tools to look at parameters and results, and to play: sub-commands of `rmft` that are no stages.

Commands read options, call one module of `tools`, and print. They alone print.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from rmft.algorithms import ALGORITHMS, AlgorithmSettings
from rmft.environments import ENVIRONMENTS, PROCESSES, EnvironmentName, PolicySpace
from rmft.environments.regret import Mean, Notion
from rmft.errors import InputError, refuse_options
from rmft.tools import result_commands

TOOLS = "Tools"
app = typer.Typer()
app.add_typer(result_commands.app)
Scale = Annotated[str | None, Option(help="A scale of params.yaml. Default: the one that is set there.")]
GameRegret = Literal["realized", "expected", "pseudo"]
PROCESS = f"Reward process: {', '.join(PROCESSES)}, or an extension's; several with commas make an even mixture."
PLAYABLE = {
    environment: ", ".join(name for name, algorithm in ALGORITHMS.items() if environment in algorithm.environments)
    for environment in ENVIRONMENTS
}
ALGORITHM = "; ".join(f"in {of}: {names}" for of, names in PLAYABLE.items()) + "; or one of your extensions."
ETA = "Step size: a number, T=ROUNDS it is tuned to, or anytime. Default: T is the horizon."
REGRET = "Default: expected in fol, pseudo in mab and cb, dynamic in ns-mab."


@app.command(rich_help_panel=TOOLS)
def params(
    experiment: Annotated[
        str | None, Argument(help="Print this experiment alone, and where each of its values comes from.")
    ] = None,
    file: Annotated[Path, Option(help="The file to check; outputs.yaml is beside it.")] = Path("params.yaml"),
    scale: Scale = None,
    write: Annotated[
        Path | None, Option(help="A folder: write each experiment's parameters to a file of its own instead, for DVC.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Print all values at their scale, inherited ones too.")] = False,
    docs: Annotated[bool, Option("--docs", help="Make docs/parameters.md and the JSON schemas for editors.")] = False,
) -> None:
    """Check params.yaml and outputs.yaml; print an experiment as it will run, or all values.

    Example: `rmft params open_mab_rerolled`
    """
    import yaml

    from rmft.params import load
    from rmft.params.reading import OUTPUTS
    from rmft.tools.estimate import beyond_budget, endpoint_experiments, expected_work
    from rmft.tools.parameters import explained, without_difference
    from rmft.workflow.checks import check_inputs
    from rmft.workflow.parameters import write_parameters

    options = {"EXPERIMENT": experiment, "--write": write, "--all": everything, "--docs": docs}
    if len(given := [name for name, value in options.items() if value]) > 1:
        raise InputError(f"params: {' and '.join(given)} do not go together; give one of them")
    if docs:
        from rmft.package_data import require_clone
        from rmft.tools.parameter_docs import write_docs

        require_clone()
        write_docs()
        return
    full_size = load(file, scale)
    found = full_size.at_scale()
    check_inputs(found)
    if experiment is not None:
        print(explained(file, experiment, scale))
    for line in without_difference(full_size, [experiment] if experiment else full_size.experiments):
        print(line, file=sys.stderr)
    if experiment is not None:
        return
    if line := beyond_budget(found, expected_work(found, endpoint_experiments(found))):
        print(line, file=sys.stderr)
    if write is not None:
        write_parameters(write, found)
    elif everything:
        print(yaml.safe_dump(found.model_dump(mode="json"), sort_keys=False), end="")
    else:
        print(
            f"{file} and {OUTPUTS} are valid, at scale {found.scale}: {len(found.experiments)} experiments, "
            f"{len(found.figures.drawn)} figures, {len(found.tables)} tables. `rmft params EXPERIMENT` prints what an "
            "experiment runs with, `rmft params --all` everything."
        )


@app.command(rich_help_panel=TOOLS)
def serve(
    port: Annotated[int, Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    host: Annotated[str, Option(help="Where to listen; anyone who has the key can send requests.")] = "127.0.0.1",
    plays: Annotated[str, Option(help="A language model of params.yaml.")] = "embedded",
    model: Annotated[str | None, Option(help="The name by which clients ask for the model. Default: the same.")] = None,
    state: Annotated[Path, Option(help="The folder of files, jobs and models.")] = Path(".rmft/serve"),
    settings: Annotated[
        str | None, Option(help="The model and its fine-tuning as JSON, in place of params.yaml.")
    ] = None,
    announce: Annotated[
        Path | None, Option(help="A file for the process and the port, written once the server answers.")
    ] = None,
) -> None:
    """Serve a local model by the OpenAI protocol: chat completions, files, and fine-tuning jobs that really train.

    Example: `RMFT_API_KEY=secret rmft serve --port 8000`, then any client with base_url http://127.0.0.1:8000/v1
    """
    from rmft.endpoint.failures import key_in
    from rmft.endpoint_server.settings import API_KEY, ServerSettings
    from rmft.package_data import find_file
    from rmft.params import load
    from rmft.workflow.plan import served_as
    from rmft.workflow.records import OwnServer

    key = key_in(API_KEY, os.environ.get(API_KEY))
    if not key:
        raise InputError(f"serve: needs a key that clients must show: export {API_KEY}=…")
    served = OwnServer.parse(settings) if settings else served_as(load(find_file("params.yaml")), plays)
    from rmft.endpoint_server.server import serve as start  # imports large libraries: not before the checks

    where = {"state": state, "host": host, "port": port, "announce": announce}
    start(ServerSettings(served.model, model or plays, key, sft=served.sft, seed=served.seed, **where))


@app.command(rich_help_panel=TOOLS)
def estimate(
    experiments: Annotated[
        list[str] | None, Argument(help="Experiments in which language models play. Default: all of them.")
    ] = None,
    scale: Scale = None,
) -> None:
    """Estimate what experiments take before they run.

    At an endpoint: calls, tokens, dollars, hours, and what journals hold already. Of models that play here: the least
    hours, memory, disk and download.

    Example: `rmft estimate open_mab_qwen --scale paper`
    """
    from rmft.params import load
    from rmft.tools import local_estimate
    from rmft.tools.estimate import as_table, beyond_budget, expected_work
    from rmft.tools.terminal import print_tables

    params = load(scale=scale).at_scale()
    remote, local = local_estimate.chosen(params, experiments or [])
    work, here = expected_work(params, remote), local_estimate.local_work(params, local)
    if remote:
        print_tables(as_table(work, params.scale))
    if local:
        print_tables(local_estimate.as_table(here, params.scale))
    for line in filter(None, (beyond_budget(params, work), local_estimate.unknown_sizes(here, params))):
        print(line, file=sys.stderr)


@app.command(rich_help_panel=TOOLS)
def show(
    path: Annotated[
        Path, Argument(help="A file of games in words, a selection, an evaluation, or a folder with such files.")
    ],
    worst: Annotated[int | None, Option(min=1, help="How many games of highest regret to print. Default: 1.")] = None,
    best: Annotated[int | None, Option(min=1, help="How many games of lowest regret to print.")] = None,
    scenario: Annotated[int | None, Option(help="Only games of this scenario.")] = None,
    trajectory: Annotated[int | None, Option(help="Only this trajectory of each scenario.")] = None,
    rounds: Annotated[
        str | None, Option(metavar="A-B", help="These rounds, in full. Default: the first and the last ones.")
    ] = None,
    environment: Annotated[
        EnvironmentName | None, Option(help="The environment of the games; needed only for a file of no experiment.")
    ] = None,
    regret: Annotated[
        GameRegret | None, Option(help="The regret that ranks. Default: the experiment's own; else realized.")
    ] = None,
) -> None:
    """Print games with their prompts and replies, round by round.

    Of a selection, print the games that it keeps; of an evaluation, the regret of each player; list a folder's files.

    Example: `rmft show results/experiments/open_mab_gemma/seed-0/iteration-0/rollouts.parquet --worst 3`
    """
    from rich.console import Console

    from rmft.artifacts.trajectories import read_trajectories
    from rmft.params import load
    from rmft.tools import show_files as files
    from rmft.tools.show import GameFilter, Scoring, dialogues, rounds_named, scoring_of

    if worst is not None and best is not None:
        raise InputError("--worst and --best: say one of them")
    kind = files.kind_of(path)
    if kind in ("folder", "evaluation"):
        options = {"--worst": worst, "--best": best, "--scenario": scenario, "--trajectory": trajectory}
        options |= {"--rounds": rounds, "--environment": environment, "--regret": regret}
        refuse_options(options, f"goes with a file of games; `rmft show {path}` lists those that are there")
        print(*(files.folder_lines(path) if kind == "folder" else files.evaluation_lines(path)), sep="\n")
        return
    played = files.selected_games(path) if kind == "selection" else read_trajectories(path)
    scoring = Scoring(environment, "realized") if environment else scoring_of(path, load())
    if regret is not None:
        scoring = replace(scoring, notion=regret)
    if worst is best is scenario is trajectory is None:
        worst = 1
    chosen = GameFilter(worst, best, scenario, trajectory, rounds_named(rounds) if rounds is not None else None)
    Console(highlight=False).print(*dialogues(played, scoring, chosen))


@app.command(rich_help_panel=TOOLS)
def prompt(
    experiment: Annotated[str, Argument(help="An experiment in words.")],
    evaluation: Annotated[str | None, Option(help="An evaluation of it. Default: a game of training.")] = None,
    rounds: Annotated[int, Option(min=1, help="Rounds, each with its message.")] = 3,
) -> None:
    """Print the messages that an experiment's model would get, before anything runs.

    Example: `rmft prompt closed_mab --evaluation gaussian-vivid`
    """
    from rmft.params import load
    from rmft.tools.prompt import messages

    for t, message in enumerate(messages(load().at_scale(), experiment, evaluation, rounds), start=1):
        print(f"── message {t} " + "─" * 60, message, sep="\n")


@app.command(rich_help_panel=TOOLS)
def plots(
    revisions: Annotated[
        list[str] | None, Argument(help="Commits or DVC experiments to compare with the workspace or each other.")
    ] = None,
    output: Annotated[Path, Option(help="The folder for the page and its images.")] = Path("plots"),
) -> None:
    """Draw the training curves and figures that dvc.yaml declares, as a page that needs no network."""
    from rmft.tools.plots import draw_plots

    print(draw_plots(revisions or [], output))


@app.command(rich_help_panel=TOOLS)
def paper_map(
    check: Annotated[bool, Option("--check", help="Only check whether docs/paper-map.md is up to date.")] = False,
) -> None:
    """Make docs/paper-map.md: where each labelled part of the paper is in this repository."""
    from rmft.artifacts.text import write_text
    from rmft.package_data import require_clone
    from rmft.params import load
    from rmft.tools.paper_map import PAGE, page

    require_clone()
    text = page(Path(), load())
    if not check:
        write_text(PAGE, text)
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        raise InputError(f"{PAGE}: is not up to date; make it again: rmft paper-map")


@app.command(rich_help_panel=TOOLS)
def forensics(
    questions: Annotated[
        list[str] | None, Argument(help="Names of questions in data/forensics/questions.yaml. Default: all.")
    ] = None,
    only: Annotated[
        Literal["check", "page", "sweeps"] | None, Option(help="Only check or make the page, or train the sweeps.")
    ] = None,
) -> None:
    """Find which readings of the paper's text fit the reference rows of its tables; make docs/forensics.md.

    Example: `rmft forensics gaussian-section-5`
    """
    from rmft.package_data import require_clone
    from rmft.tools.forensics import run

    require_clone()
    run(questions or [], only)


@app.command(rich_help_panel=TOOLS)
def simulate(
    environment: Annotated[EnvironmentName, Option(help="fol: full information; cb: contextual bandits.")],
    process: Annotated[str, Option(help=PROCESS)],
    algorithm: Annotated[str, Option(help=ALGORITHM)],
    actions: Annotated[int, Option(help="d, the number of actions.")] = 3,
    horizon: Annotated[int, Option(help="T, the number of rounds.")] = 100,
    replicates: Annotated[int, Option(help="Independent instances to play.")] = 1000,
    seed: Annotated[int, Option(help="Root of every random stream.")] = 0,
    policy_space: Annotated[PolicySpace, Option(help="ball: in fol only.")] = "simplex",
    radius: Annotated[float | None, Option(help="The radius of the ball. Default: 1.")] = None,
    eta: Annotated[str | None, Option(help=ETA)] = None,
    gamma: Annotated[float | None, Option(help="Exploration of exp3. Default: min(1, eta d / 2).")] = None,
    variation: Annotated[float | None, Option(help="V_T for rexp3. Default: each instance's own.")] = None,
    features: Annotated[
        int | None, Option(help="The number of features of the context shown before each round, in cb. Default: 3.")
    ] = None,
    alpha: Annotated[float | None, Option(help="Width of linucb's confidence bound. Default: 1.")] = None,
    options: Annotated[
        list[str] | None, Option("--option", metavar="NAME=VALUE", help="An option of an extension's algorithm.")
    ] = None,
    regret: Annotated[Notion | None, Option(help=REGRET)] = None,
    mean: Annotated[Mean, Option(help="Means in regret, before (nominal) or after rewards are clipped.")] = "nominal",
    as_json: Annotated[bool, Option("--json", help="Print JSON; min_frac in it is d · MinFrac(t).")] = False,
    plot: Annotated[Path | None, Option(help="Also draw: this path's pdf, png and csv.")] = None,
) -> None:
    """Play a reference algorithm on freshly drawn instances.

    Example: `rmft simulate --environment mab --process gaussian --algorithm ucb --plot ucb`
    """
    from rmft.params import load_extensions
    from rmft.progress import bar
    from rmft.tools import simulate as tool

    load_extensions()
    stem = None if plot is None else tool.stem_of(plot)
    tuning = {"eta": tool.number_or_text(eta), "gamma": gamma, "variation": variation, "alpha": alpha}
    settings = AlgorithmSettings(algorithm, **tuning, options=tool.named_values(options or []))
    processes, radius = [name.strip() for name in process.split(",")], tool.radius_of(policy_space, radius)
    features = tool.features_of(environment, features)
    game = tool.SimulatedGame(environment, processes, actions, horizon, settings, radius, regret, mean, features)
    with bar("rounds", replicates * horizon) as advance:
        summary = tool.simulate(seed, game, replicates, advance)
    if stem:
        from rmft.tools.simulation_plot import draw_summary

        draw_summary(game, summary).save(stem)
    print(json.dumps(summary.as_json()) if as_json else summary.as_text())
