"""The command line: one sub-command a stage, paths in, paths out. Only this module prints.

Imports are inside the commands, so that each loads what it needs and no more. What a command imports, and its own
text, is what `lineage.code` takes for its code.
"""

import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Option

from rmft.errors import InputError
from rmft.running import end_with_run

if TYPE_CHECKING:
    from rmft.lineage.trace import Trace

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Iterative regret-minimization fine-tuning: the stages that Snakemake runs, and tools to look at them.\n\n"
    "Start with `rmft simulate --help`, or run `snakemake` to rebuild every figure and table.",
)
Result = TypeVar("Result")
STAGES, TOOLS = "Stages, as Snakemake calls them", "Tools"
Settings = Annotated[
    str, Option(help="The job's record as JSON; the rules in workflow/rules build it from params.yaml.")
]
Output = Annotated[Path, Option(help="The file to write; it appears only when complete.")]
Inputs = Annotated[list[Path], Argument(help="Files to read, in the order of the job's record.")]


@app.command(rich_help_panel=TOOLS)
def params(
    path: Annotated[Path, Argument(help="The file to check.")] = Path("params.yaml"),
) -> None:
    """Check params.yaml and print it as it stands at its scale."""
    import yaml

    from rmft.params import load

    print(yaml.safe_dump(load(path).at_scale().model_dump(mode="json"), sort_keys=False), end="")


@app.command(rich_help_panel=STAGES)
def rewards(settings: Settings, output: Output) -> None:
    """Draw a reward set: rewards and means of every action, round and instance (npz)."""
    from rmft.artifacts import write_rewards
    from rmft.environments import draw_rewards
    from rmft.jobs import RewardsJob

    job = RewardsJob.parse(settings)
    shape = (job.rewards.instances, job.rewards.T, job.rewards.d)
    write_rewards(output, draw_rewards(job.seed, job.name, job.rewards.process, shape))


@app.command(rich_help_panel=STAGES)
def models(
    settings: Settings,
    folder: Annotated[Path, Option(help="The folder for the model, its tokenizer and fidelity.csv.")],
) -> None:
    """Pre-train the embedded language model, and let it out if what it says is true and agrees with itself."""
    from rmft.agents.local import Conversations, LanguageModel
    from rmft.artifacts import note_reading, write_csv, write_pretrained
    from rmft.jobs import ModelsJob
    from rmft.language.prompts import Prompts
    from rmft.models.embedded import build_tokenizer
    from rmft.models.fidelity import CONTEXT, MAX_TOKENS, examine_all, failures
    from rmft.models.pretraining import pretrain
    from rmft.paths import prompt_files

    job = ModelsJob.parse(settings)
    note_reading(map(Path, prompt_files(job.pretraining.prompts)))
    prompts, say = Prompts.load(Path(job.pretraining.prompts)), _now_and_then()
    tokenizer = build_tokenizer(job.seed, prompts)
    model = pretrain(
        job.seed,
        job.pretraining,
        prompts,
        tokenizer,
        lambda step, of, loss: say(f"models {folder}: step {step}/{of}, loss {loss:.3f}"),
    )
    player = LanguageModel.of(model, tokenizer)
    rows = list(
        examine_all(
            lambda n: Conversations(player, n, CONTEXT, MAX_TOKENS), prompts, job.seed, job.pretraining.gate_games
        )
    )
    if wrong := failures(rows):
        raise InputError(f"models {folder}: the model does not pass its gate: {'; '.join(wrong)}")
    write_pretrained(folder, model, tokenizer)
    write_csv(folder / "fidelity.csv", {column: [row[column] for row in rows] for column in rows[0]})


@app.command(rich_help_panel=STAGES)
def training(
    settings: Settings,
    folder: Annotated[Path, Option(help="Where iteration-<i>/model.safetensors and training-log.csv go.")],
) -> None:
    """Train the numeric agent by iterative RMFT; keep base, checkpoints, last model and the training log."""
    from rmft.artifacts import write_csv, write_model
    from rmft.jobs import TrainingJob
    from rmft.training.numeric import one_thread, rmft

    job, log = TrainingJob.parse(settings), defaultdict(list)
    seeds = range(job.training.rmft.training_seeds)
    one_thread()
    with _progress(f"training {folder.name}", job.training.rmft.iterations, "iterations") as advance:
        for iteration, model, figures in rmft(job.seed, job.training, job.model):
            if iteration in job.training.saved_iterations:
                write_model(folder / f"iteration-{iteration}" / "model.safetensors", model.to_numpy())
            if figures:
                rows = {"iteration": [iteration] * len(seeds), "training_seed": seeds, **vars(figures)}
                for column, values in rows.items():
                    log[column].extend(values)
                advance()
    write_csv(folder / "training-log.csv", log)


@app.command(rich_help_panel=STAGES)
def rollouts(
    settings: Settings,
    output: Output,
    weights: Annotated[Path | None, Option(help="Fine-tuned weights or adapter; none for the base model.")] = None,
    rewards: Annotated[Path | None, Option(help="A reward set to play on; none to draw rewards for training.")] = None,
) -> None:
    """Let a language model play a shard of games that it is told of in words (parquet)."""
    from rmft.agents.local import Conversations, load
    from rmft.artifacts import note_reading, read_rewards, write_trajectories
    from rmft.jobs import RolloutsJob
    from rmft.language.prompts import Prompts
    from rmft.paths import model_files, prompt_files
    from rmft.rollouts import roll_out, tokens_needed

    job = RolloutsJob.parse(settings)
    note_reading(map(Path, model_files(job.model.weights) + prompt_files(job.problem.protocol.prompts)))
    prompts = Prompts.load(Path(job.problem.protocol.prompts))
    model = load(job.model, weights)
    needed = tokens_needed(job, prompts, model)
    held_out = read_rewards(rewards) if rewards else None
    with _speed(f"rollouts {output}", job.games * job.T) as advance:
        games = roll_out(
            job,
            lambda n: Conversations(model, n, needed, job.problem.protocol.max_tokens),
            prompts,
            held_out,
            advance,
        )
    write_trajectories(output, games)


@app.command(rich_help_panel=STAGES)
def gather(settings: Settings, inputs: Inputs, output: Output) -> None:
    """Join the shards of an iteration's rollouts (parquet)."""
    from rmft.artifacts import join_trajectories
    from rmft.jobs import GatherJob

    join_trajectories(output, inputs, GatherJob.parse(settings).games)


@app.command(rich_help_panel=STAGES)
def selection(
    settings: Settings,
    rollouts: Annotated[Path, Option(help="The trajectories to select from.")],
    output: Output,
    demonstrations: Annotated[Path, Option(help="The file for the selected ones as chats with tokens and labels.")],
) -> None:
    """Rank trajectories by regret and keep the best of each scenario (parquet, jsonl)."""
    from rmft.artifacts import read_trajectories, write_jsonl, write_selection
    from rmft.jobs import SelectionJob
    from rmft.metrics.luck import advantages
    from rmft.selection import demonstrations as demonstrated
    from rmft.selection import select

    job, played = SelectionJob.parse(settings), read_trajectories(rollouts)
    found = select(job, played)
    write_jsonl(demonstrations, demonstrated(played, found["selected"]))
    write_selection(output, found)
    in_hindsight, redrawn = advantages(found)
    print(
        f"selection {output.parent}: {found['selected'].sum()} of {len(found['regret'])} trajectories; better than"
        f" their scenario's average by {in_hindsight:.2f}, on rewards drawn again by {redrawn:.2f}"
    )


@app.command(rich_help_panel=STAGES)
def sft(
    settings: Settings,
    demonstrations: Annotated[Path, Option(help="The conversations to learn from.")],
    output: Output,
    log: Annotated[Path, Option(help="The file for the loss of every step (csv).")],
    weights: Annotated[Path | None, Option(help="Weights or adapter to continue from; none: the base model.")] = None,
) -> None:
    """Fine-tune a language model on demonstrations (safetensors)."""
    from rmft.artifacts import note_reading, read_jsonl, write_csv, write_tensors
    from rmft.jobs import SFTJob
    from rmft.paths import model_files
    from rmft.training.sft import fine_tune

    job = SFTJob.parse(settings)
    note_reading(map(Path, model_files(job.model.weights)))
    say = _now_and_then()
    tuned = fine_tune(
        read_jsonl(demonstrations),
        job.model,
        weights,
        job.sft,
        job.seed,
        (job.stream,),
        lambda step, of, loss: say(f"sft {output}: {step}/{of} steps, loss {loss:.4f}"),
    )
    write_csv(log, {column: [row[column] for row in tuned.log] for column in tuned.log[0]})
    write_tensors(output, tuned.tensors, tuned.metadata)


@app.command(rich_help_panel=STAGES)
def evaluation(
    settings: Settings,
    base: Annotated[Path, Argument(help="The base model, or the games that it has played in words.")],
    trained: Annotated[list[Path], Argument(help="The trained model, or the games of each training seed's.")],
    rewards: Annotated[Path, Option(help="The reward set.")],
    output: Output,
) -> None:
    """Compare base model, trained model and reference algorithms on common instances (parquet)."""
    from rmft.artifacts import read_model, read_rewards, read_trajectories, write_evaluation
    from rmft.evaluation import evaluate, evaluate_in_words
    from rmft.jobs import EvaluationJob

    job = EvaluationJob.parse(settings)
    if job.problem.kind == "numeric":
        found = evaluate(job, {"base": read_model(base), "trained": read_model(trained[0])}, read_rewards(rewards))
    else:
        games = [("base", 0, read_trajectories(base))]
        games += [("trained", seed, read_trajectories(path)) for seed, path in enumerate(trained)]
        found = evaluate_in_words(job, games, read_rewards(rewards))
    write_evaluation(output, found)


@app.command(rich_help_panel=STAGES)
def theory(settings: Settings, output: Output) -> None:
    """Check Theorem 1: train linear attention without its Operator on the best policy in hindsight (csv)."""
    from rmft.artifacts import write_csv
    from rmft.jobs import TheoryJob
    from rmft.training.numeric import one_thread
    from rmft.training.theory import closed_form, minimise, moments

    job, rows = TheoryJob.parse(settings), []
    grid = job.theory
    one_thread()
    with _progress("theory", len(grid.d) * len(grid.T) * len(grid.radius), "fits") as advance:
        for d in grid.d:
            for horizon in grid.T:
                sample = moments(job.seed, d, horizon, grid.samples)
                for radius in grid.radius:
                    found = minimise(job.seed, sample, d, horizon, radius)
                    expected = closed_form(d, horizon, radius)
                    rows.append({"d": d, "T": horizon, "radius": radius, "c_closed_form": expected, **vars(found)})
                    advance()
    write_csv(output, {column: [row[column] for row in rows] for column in rows[0]})


@app.command(rich_help_panel=STAGES)
def figures(
    settings: Settings,
    inputs: Inputs,
    stem: Annotated[Path, Option(help="Path without ending of the pdf, png and csv.")],
) -> None:
    """Draw a figure of the paper, with the numbers that are drawn."""
    from rmft.figures import draw
    from rmft.jobs import FigureJob

    draw(FigureJob.parse(settings), inputs).save(stem)


@app.command(rich_help_panel=STAGES)
def tables(
    settings: Settings,
    inputs: Inputs,
    stem: Annotated[Path, Option(help="Path without ending of the csv, md and tex.")],
) -> None:
    """Make a table of the paper, beside the values that the paper reports."""
    from rmft.jobs import TableJob
    from rmft.tables import make

    make(TableJob.parse(settings), inputs).save(stem)


@app.command(rich_help_panel=STAGES)
def metrics(
    settings: Settings,
    inputs: Inputs,
    output: Output,
    summary: Annotated[Path, Option(help="The file for the few numbers of each evaluation that DVC lists.")],
) -> None:
    """Collect final regrets, growth and tests of every evaluation (json), and of the trained model alone."""
    from rmft.artifacts import write_json
    from rmft.jobs import MetricsJob
    from rmft.metrics.summary import all_metrics, summarised

    found = all_metrics(MetricsJob.parse(settings), inputs)
    write_json(output, found)
    write_json(summary, summarised(found))


@app.command(rich_help_panel=TOOLS)
def prune(
    folder: Annotated[Path, Argument(help="A folder below results or data/rewards.")] = Path("results"),
) -> None:
    """Delete artifacts that params.yaml has no place for any more; files that no job wrote are left alone."""
    from rmft.artifacts import delete
    from rmft.lineage.audit import retired
    from rmft.params import load
    from rmft.paths import everything
    from rmft.running import hold_folder

    hold_folder()
    for path in retired(folder, everything(load().at_scale())):
        delete(path)
        print(f"deleted {path}, which is no part of the workflow any more")


@app.command(rich_help_panel=TOOLS)
def lineage(
    path: Annotated[Path | None, Argument(help="An artifact, say results/figures/parameter.pdf.")] = None,
    everything: Annotated[bool, Option("--all", help="Audit every artifact of the workflow instead.")] = False,
    as_format: Annotated[str, Option("--format", help="text, json, mermaid or rocrate.")] = "text",
    output: Annotated[
        Path | None, Option(help="With --format rocrate: a new folder for the crate with all files in it.")
    ] = None,
) -> None:
    """Print what made an artifact, back to the root seed, and verify every hash on the way.

    With --all, audit the whole tree: missing, altered, unrecorded, stale, orphan. Exit code 1 if anything is.
    """
    from rmft.lineage.audit import ask_snakemake, audit
    from rmft.lineage.trace import as_text, trace

    _one_of("format", as_format, ("text", "json", "mermaid", "rocrate"))
    if everything == (path is not None):
        raise InputError("lineage: name one artifact, or say --all")
    if everything and as_format != "text":
        raise InputError("--format goes with an artifact, not with --all")
    if output is not None and as_format != "rocrate":
        raise InputError("--output belongs to --format rocrate; for others: > FILE")
    if everything:
        artifacts = ask_snakemake()
        problems = audit(artifacts)
        print(f"{len(artifacts)} artifacts, {len(problems) or 'no'} problems")
    else:
        found = trace(path)
        problems = found.problems
        if as_format == "text":
            print("\n".join(as_text(found, shutil.get_terminal_size((120, 24)).columns)))
        else:
            _export(found, as_format, output)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        raise typer.Exit(1)


def _export(found: "Trace", as_format: str, output: Path | None) -> None:
    """Print a trace for another program, or write it; a crate only of what is as recorded."""
    from rmft.lineage.export import as_crate, as_json, as_mermaid, write_crate

    if as_format == "json":
        print(json.dumps(as_json(found), indent=2))
    elif as_format == "mermaid":
        print(as_mermaid(found), end="")
    elif found.problems:
        print("rmft: no crate of what is not as recorded", file=sys.stderr)
    elif output is None:
        print(json.dumps(as_crate(found).metadata.generate(), indent=2))
    else:
        write_crate(output, as_crate(found))


@app.command(rich_help_panel=TOOLS)
def show(
    path: Annotated[Path, Argument(help="Games told in words: of an iteration's rollouts or of an evaluation.")],
    worst: Annotated[int | None, Option(min=1, help="So many games of highest regret. Default: 1.")] = None,
    best: Annotated[int | None, Option(min=1, help="So many games of lowest regret.")] = None,
    scenario: Annotated[int | None, Option(help="Only games of this scenario.")] = None,
    trajectory: Annotated[int | None, Option(help="Only this trajectory of each scenario.")] = None,
    rounds: Annotated[
        str | None, Option(metavar="A-B", help="These rounds, in full. Default: the first and the last ones.")
    ] = None,
    environment: Annotated[str | None, Option(help="fol, mab or ns-mab, for a file of no experiment.")] = None,
    regret: Annotated[
        str | None,
        Option(help="realized, expected or pseudo: what ranks. Default: the experiment's own; else realized."),
    ] = None,
) -> None:
    """Print games as they were told and answered, round by round.

    Example: `rmft show results/open_mab_gemma/seed-0/iteration-0/rollouts.parquet --worst 3`
    """
    from dataclasses import replace

    from rich.console import Console

    from rmft.artifacts import read_trajectories
    from rmft.environments import ENVIRONMENTS
    from rmft.params import load
    from rmft.show import Asked, Scoring, dialogues, rounds_named, scoring_of

    if worst is not None and best is not None:
        raise InputError("--worst and --best: say one of them")
    if environment is not None:
        _one_of("environment", environment, tuple(ENVIRONMENTS))
    played = read_trajectories(path)
    scoring = Scoring(environment, "realized") if environment else scoring_of(path, load())
    if regret is not None:
        _one_of("regret", regret, ("realized", "expected", "pseudo"))
        scoring = replace(scoring, notion=regret)
    if worst is best is scenario is trajectory is None:
        worst = 1
    asked = Asked(worst, best, scenario, trajectory, rounds_named(rounds) if rounds is not None else None)
    Console(highlight=False).print(*dialogues(played, scoring, asked))


@app.command(rich_help_panel=TOOLS)
def diff(
    a: Annotated[
        str, Argument(metavar="A", help="A commit, a DVC experiment, workspace, or an experiment of params.yaml.")
    ] = "HEAD",
    b: Annotated[
        str, Argument(metavar="B", help="The same; an experiment of params.yaml goes with another one.")
    ] = "workspace",
    as_json: Annotated[bool, Option("--json", help="Print JSON, in which nothing is shortened.")] = False,
) -> None:
    """Say which parameters, code, inputs and results differ between two commits or experiments.

    Example: `rmft diff numeric_mab numeric_mab_logits_normalised`
    """
    from rmft.diff.revisions import compare
    from rmft.diff.table import as_text

    found = compare(a, b)
    print(json.dumps(found.as_json()) if as_json else as_text(found))


@app.command(rich_help_panel=TOOLS)
def plots(
    revisions: Annotated[
        list[str] | None, Argument(help="Commits or DVC experiments to compare with the workspace or each other.")
    ] = None,
    output: Annotated[Path, Option(help="The folder for the page and its images.")] = Path("plots"),
) -> None:
    """Draw the training curves and figures that dvc.yaml declares, as a page that needs no network."""
    from rmft.plots import draw_plots

    print(draw_plots(revisions or [], output))


@app.command(rich_help_panel=TOOLS)
def simulate(
    environment: Annotated[str, Option(help="fol, mab or ns-mab.")],
    process: Annotated[
        str,
        Option(
            help="Reward process: uniform, gaussian, gamma, bernoulli, sine-trend, alternating, noisy-alternating, "
            "adaptive, gradual-variation; several with commas make an even mixture."
        ),
    ],
    algorithm: Annotated[
        str,
        Option(help="In fol: ftl, ftrl, hedge, uniform; else: ucb, exp3, rexp3, greedy, thompson-sampling, uniform."),
    ],
    actions: Annotated[int, Option(help="d, the number of actions.")] = 3,
    horizon: Annotated[int, Option(help="T, the number of rounds.")] = 100,
    replicates: Annotated[int, Option(help="Independent instances to play.")] = 1000,
    seed: Annotated[int, Option(help="Root of every random stream.")] = 0,
    policy_space: Annotated[str, Option(help="simplex, or for fol also ball.")] = "simplex",
    radius: Annotated[float | None, Option(help="Of the ball. Default: 1.")] = None,
    eta: Annotated[
        str | None, Option(help="Step size: a number, T=ROUNDS it is tuned to, or anytime. Default: T is the horizon.")
    ] = None,
    gamma: Annotated[float | None, Option(help="Exploration of exp3. Default: min(1, eta d / 2).")] = None,
    variation: Annotated[float | None, Option(help="V_T for rexp3. Default: each instance's own.")] = None,
    regret: Annotated[
        str | None,
        Option(
            help="expected, pseudo, realized or dynamic. Default: expected in fol, pseudo in mab, dynamic in ns-mab."
        ),
    ] = None,
    mean: Annotated[str, Option(help="Means of clipped processes: nominal (the paper's) or clipped.")] = "nominal",
    as_json: Annotated[bool, Option("--json", help="Print JSON; min_frac in it is d · MinFrac(t).")] = False,
    plot: Annotated[Path | None, Option(help="Also draw: this path's pdf, png and csv.")] = None,
) -> None:
    """Play a reference algorithm on freshly drawn instances.

    Example: `rmft simulate --environment mab --process gaussian --algorithm ucb --plot ucb`
    """
    from rmft.algorithms import AlgorithmSettings
    from rmft.environments import ENVIRONMENTS
    from rmft.simulate import Game, simulate

    _one_of("environment", environment, tuple(ENVIRONMENTS))
    _one_of("policy-space", policy_space, ("simplex", "ball"))
    _one_of("mean", mean, ("nominal", "clipped"))
    if regret is not None:
        _one_of("regret", regret, ("expected", "pseudo", "realized", "dynamic"))
    if plot is not None and not plot.name:
        raise InputError("--plot needs a file name")
    if radius is not None and policy_space == "simplex":
        raise InputError("--radius belongs to --policy-space ball")
    game = Game(
        environment,
        [name.strip() for name in process.split(",")],
        actions,
        horizon,
        AlgorithmSettings(algorithm, _number_or_text(eta), gamma, variation),
        (1.0 if radius is None else radius) if policy_space == "ball" else None,
        regret,
        mean,
    )
    with _bar("rounds", replicates * horizon) as advance:
        summary = simulate(seed, game, replicates, advance)
    if plot:
        from rmft.figures.simulation import draw_summary

        draw_summary(game, summary).save(plot.with_suffix("") if plot.suffix in (".pdf", ".png", ".csv") else plot)
    print(json.dumps(summary.as_json()) if as_json else summary.as_text(), end="\n")


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"--{option}: unknown {value!r}; one of {', '.join(allowed)}")


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield what advances it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def _progress(name: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
    """Print a line every few seconds, since jobs that run side by side share a terminal; yield what advances it."""
    begun, say, done = time.monotonic(), _now_and_then(), 0

    def advance() -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - begun) / done * (total - done)
        say(f"{name}: {done}/{total} {unit}, {left:.0f} s left")

    yield advance


@contextmanager
def _speed(name: str, total: int) -> Iterator[Callable[[int, int, float], None]]:
    """Print how games told in words get on, as `_progress` does; yield what is told of every round that is over."""
    begun, say, rounds, tokens = time.monotonic(), _now_and_then(), 0, 0

    def advance(games: int, more_tokens: int, regret: float) -> None:
        nonlocal rounds, tokens
        rounds, tokens = rounds + games, tokens + more_tokens
        passed = time.monotonic() - begun
        left = passed / rounds * (total - rounds)
        speed = f"{tokens / passed:,.0f} tokens/s"
        say(f"{name}: {rounds}/{total} rounds, {speed}, mean regret so far {regret:.2f}, {left:.0f} s left")

    yield advance


def _now_and_then(every_seconds: float = 5.0) -> Callable[[str], None]:
    shown = time.monotonic()

    def say(line: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= every_seconds:
            shown = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return say


INTERRUPTED = 130


def or_stop(check: Callable[..., Result], *arguments: object) -> Result:
    """Return what a check of the Snakefile returns; where it raises InputError, stop with its line and exit code 2.

    Snakemake would wrap an exception, and with it the line, in a traceback.
    """
    try:
        return check(*arguments)
    except InputError as error:
        print(f"rmft: {error}", file=sys.stderr, flush=True)
        os._exit(2)


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
