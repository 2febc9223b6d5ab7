"""The command line: one sub-command a stage, paths in, paths out. The tools beside them are in `tools`.

Imports are inside the commands, so that each loads what it needs and no more. What a command imports, and its own
text, is what `lineage.code` takes for its code.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Exit, Option

from rmft.artifacts.job import end_with_run
from rmft.errors import InputError
from rmft.tools import commands as tools
from rmft.workflow.runs import INTERRUPTED

if TYPE_CHECKING:
    from rmft.workflow.records import SFTJob

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Iterative regret-minimization fine-tuning: the stages that Snakemake runs, and tools to look at them.\n\n"
    "Start with `rmft simulate --help`, or run `snakemake` to rebuild every figure and table.",
)
Result = TypeVar("Result")
STAGES = "Stages, as Snakemake calls them"
Settings = Annotated[
    str, Option(help="The job's record as JSON; the rules in workflow/rules build it from params.yaml.")
]
Output = Annotated[Path, Option(help="The file to write; it appears only when complete.")]
Inputs = Annotated[list[Path], Argument(help="Files to read, in the order of the job's record.")]


@app.command(rich_help_panel=STAGES)
def scenarios(settings: Settings, output: Output) -> None:
    """Have a model behind an endpoint write scenarios (jsonl)."""
    from rmft.artifacts.files import noted
    from rmft.artifacts.json_files import write_jsonl
    from rmft.endpoint.access import answering, connection_to, journal_of
    from rmft.language.generation import generate
    from rmft.language.prompts import read_template
    from rmft.progress import now_and_then
    from rmft.workflow.records import ScenariosJob

    job, found, say = ScenariosJob.parse(settings), [], now_and_then()
    asked, template = job.scenarios, read_template(noted(Path(job.scenarios.prompt)))
    total = asked.count * len(asked.d)
    with connection_to(job.model_name, job.served, job.model.model, journal_of(output)) as connection:
        ask = answering(connection, job.name, asked.temperature, asked.max_tokens)
        for d in asked.d:
            there = list(found)

            def report(new: list[dict], there: list[dict] = there) -> None:
                say(f"scenarios {output}: {len(there) + len(new)} of {total}")

            found += generate(ask, template, asked.count, d, job.seed, there, asked.batch, report)
    write_jsonl(output, found)


@app.command(rich_help_panel=STAGES)
def rewards(settings: Settings, output: Output) -> None:
    """Draw a reward set: rewards and means of every action, round and instance, and contexts (npz)."""
    from rmft.artifacts.rewards import write_rewards
    from rmft.environments import draw_rewards
    from rmft.workflow.records import RewardsJob

    job = RewardsJob.parse(settings)
    asked = job.rewards
    shape = (asked.instances, asked.T, asked.d)
    write_rewards(output, draw_rewards(job.seed, job.name, asked.process, shape, features=asked.features))


@app.command(rich_help_panel=STAGES)
def models(
    settings: Settings,
    folder: Annotated[Path, Option(help="The folder for the model, its tokenizer and fidelity.csv.")],
) -> None:
    """Pre-train the embedded language model, and let it out if what it says is true and agrees with itself."""
    from rmft.agents.local import LanguageModel, LocalChatModel
    from rmft.artifacts.csv_files import write_csv
    from rmft.artifacts.files import note_reading
    from rmft.artifacts.tensors import write_pretrained
    from rmft.embedded_model.fidelity import CONTEXT, MAX_TOKENS, examine_all, failures
    from rmft.embedded_model.pretraining import pretrain
    from rmft.embedded_model.tokenizer import build_tokenizer
    from rmft.language.prompts import Prompts
    from rmft.progress import now_and_then
    from rmft.workflow.paths import prompt_files
    from rmft.workflow.records import ModelsJob

    job = ModelsJob.parse(settings)
    note_reading(map(Path, prompt_files(job.pretraining.prompts)))
    prompts, say = Prompts.load(Path(job.pretraining.prompts)), now_and_then()
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
            lambda n: LocalChatModel(player, n, CONTEXT, MAX_TOKENS), prompts, job.seed, job.pretraining.gate_games
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
    from rmft.agents.numeric import write_model
    from rmft.artifacts.csv_files import write_csv
    from rmft.progress import progress
    from rmft.training.numeric import one_thread, rmft
    from rmft.workflow.records import TrainingJob

    job, log = TrainingJob.parse(settings), defaultdict(list)
    seeds = range(job.training.rmft.training_seeds)
    one_thread()
    with progress(f"training {folder.name}", job.training.rmft.iterations, "iterations") as advance:
        for iteration, model, figures in rmft(job.seed, job.training, job.model, job.mean):
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
    from rmft.agents.chat_models import open_chat_models
    from rmft.artifacts.files import note_reading, noted
    from rmft.artifacts.rewards import read_rewards
    from rmft.artifacts.trajectories import write_trajectories
    from rmft.language.prompts import Prompts
    from rmft.language.scenarios import read_scenarios
    from rmft.progress import speed
    from rmft.rollouts import roll_out, scenarios_for
    from rmft.workflow.paths import prompt_files
    from rmft.workflow.records import RolloutsJob

    job = RolloutsJob.parse(settings)
    note_reading(map(Path, prompt_files(job.problem.protocol.prompts)))
    prompts = Prompts.load(Path(job.problem.protocol.prompts))
    scenarios = scenarios_for(job, read_scenarios(noted(Path(job.scenario_set)))) if job.scenario_set else None
    held_out = read_rewards(rewards) if rewards else None
    with (
        open_chat_models(job, prompts, scenarios, weights, output) as speakers,
        speed(f"rollouts {output}", job.games * job.T) as advance,
    ):
        games = roll_out(job, speakers.open, prompts, scenarios, held_out, speakers.batch, advance)
        if said := speakers.said():
            print(f"rollouts {output}: {said}", file=sys.stderr)
    write_trajectories(output, games)


@app.command(rich_help_panel=STAGES)
def distillation(
    settings: Settings,
    output: Output,
    demonstrations: Annotated[Path, Option(help="The file for all games as chats with tokens and labels.")],
) -> None:
    """Let a reference algorithm play, and tell its games in words for a model to learn (parquet, jsonl)."""
    from rmft.agents.chat_template import ChatTemplate
    from rmft.agents.pretrained import load_tokenizer, note_model
    from rmft.artifacts.files import note_reading, noted
    from rmft.artifacts.json_files import write_jsonl
    from rmft.artifacts.trajectories import write_trajectories
    from rmft.language.prompts import Prompts
    from rmft.language.scenarios import read_scenarios
    from rmft.progress import speed
    from rmft.rollouts import scenarios_for
    from rmft.selection import demonstrations as demonstrated
    from rmft.training.distillation import distil
    from rmft.workflow.paths import prompt_files
    from rmft.workflow.records import DistillationJob

    job = DistillationJob.parse(settings)
    asked, telling = job.games, job.games.problem.protocol
    templates = [*prompt_files(telling.prompts), *([job.rationale] if job.rationale else [])]
    note_model(asked.model, weights=False)
    note_reading(map(Path, templates))
    scenarios = scenarios_for(asked, read_scenarios(noted(Path(asked.scenario_set)))) if asked.scenario_set else None
    turns = ChatTemplate.probe(load_tokenizer(asked.model))
    with speed(f"distillation {output}", asked.games * asked.T) as advance:
        games = distil(job, turns, Prompts.load(Path(telling.prompts)), scenarios, advance)
    write_jsonl(demonstrations, demonstrated(games, [True] * asked.games))
    write_trajectories(output, games)


@app.command(rich_help_panel=STAGES)
def gather(settings: Settings, inputs: Inputs, output: Output) -> None:
    """Join the shards of an iteration's rollouts (parquet)."""
    from rmft.artifacts.trajectories import join_trajectories
    from rmft.workflow.records import GatherJob

    join_trajectories(output, inputs, GatherJob.parse(settings).games)


@app.command(rich_help_panel=STAGES)
def selection(
    settings: Settings,
    rollouts: Annotated[Path, Option(help="The trajectories to select from.")],
    output: Output,
    demonstrations: Annotated[Path, Option(help="The file for the selected ones as chats with tokens and labels.")],
) -> None:
    """Rank trajectories by regret and keep the best of each scenario (parquet, jsonl)."""
    from rmft.artifacts.json_files import write_jsonl
    from rmft.artifacts.trajectories import trajectory_batches, write_selection
    from rmft.metrics.luck import advantages
    from rmft.selection import demonstrations_in, select
    from rmft.workflow.records import SelectionJob

    found = select(SelectionJob.parse(settings), trajectory_batches(rollouts, tokens=False))
    write_jsonl(demonstrations, demonstrations_in(trajectory_batches(rollouts), found["selected"]))
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
    """Fine-tune a language model on demonstrations (safetensors, or at an endpoint its model's name: json)."""
    from rmft.artifacts.csv_files import write_csv
    from rmft.artifacts.json_files import read_jsonl
    from rmft.artifacts.tensors import write_tensors
    from rmft.progress import now_and_then
    from rmft.workflow.records import SFTJob

    job = SFTJob.parse(settings)
    if job.sft.method == "api":
        _sft_at_endpoint(job, demonstrations, weights, output, log)
        return
    from rmft.training.processes import is_first, launch, must_launch

    if must_launch(job.sft.processes):
        raise Exit(code=launch(job.sft.processes))
    from rmft.agents.pretrained import note_model
    from rmft.training.sft import fine_tune

    note_model(job.model)
    say = now_and_then()
    tuned = fine_tune(
        read_jsonl(demonstrations),
        job.model,
        weights,
        job.sft,
        job.seed,
        (job.stream,),
        lambda step, of, loss: say(f"sft {output}: {step}/{of} steps, loss {loss:.4f}") if is_first() else None,
    )
    if not is_first():
        return
    write_csv(log, {column: [row[column] for row in tuned.log] for column in tuned.log[0]})
    write_tensors(output, tuned.tensors, tuned.metadata)


def _sft_at_endpoint(job: "SFTJob", demonstrations: Path, start: Path | None, output: Path, log: Path) -> None:
    from rmft.artifacts.csv_files import write_csv
    from rmft.artifacts.json_files import read_jsonl, write_json
    from rmft.endpoint.access import fine_tune_at_endpoint
    from rmft.endpoint.fine_tuning import LOG

    def say(line: str) -> None:
        print(f"sft {output}: {line}", file=sys.stderr, flush=True)

    tuned = fine_tune_at_endpoint(job, list(read_jsonl(demonstrations)), start, output, say)
    rows = tuned.pop("log")
    write_csv(log, {column: [row[column] for row in rows] for column in LOG})
    write_json(output, tuned)


@app.command(rich_help_panel=STAGES)
def grpo(
    settings: Settings,
    rollouts: Annotated[Path, Option(help="The trajectories to learn from.")],
    output: Output,
    log: Annotated[Path, Option(help="The file for the loss of every step (csv).")],
    weights: Annotated[Path | None, Option(help="Weights or adapter to continue from; none: the base model.")] = None,
) -> None:
    """Reinforce what paid better than in the other trajectories of its scenario (safetensors)."""
    from rmft.agents.pretrained import note_model
    from rmft.artifacts.csv_files import write_csv
    from rmft.artifacts.tensors import write_tensors
    from rmft.artifacts.trajectories import read_trajectories
    from rmft.progress import now_and_then
    from rmft.training.grpo import reinforce
    from rmft.workflow.records import GRPOJob

    job, say = GRPOJob.parse(settings), now_and_then()
    note_model(job.model)
    tuned = reinforce(
        job,
        read_trajectories(rollouts),
        weights,
        lambda step, of, loss: say(f"grpo {output}: {step}/{of} steps, loss {loss:.4f}"),
    )
    write_csv(log, {column: [row[column] for row in tuned.log] for column in tuned.log[0]})
    write_tensors(output, tuned.tensors, tuned.metadata)


@app.command(rich_help_panel=STAGES)
def evaluation(
    settings: Settings,
    inputs: Annotated[
        list[Path], Argument(help="The base and the trained model, or the games told in words of each of the job's.")
    ],
    rewards: Annotated[Path, Option(help="The reward set.")],
    output: Output,
) -> None:
    """Compare base model, trained model and reference algorithms on common instances (parquet)."""
    from rmft.agents.numeric import read_model
    from rmft.artifacts.evaluations import write_evaluation
    from rmft.artifacts.rewards import read_rewards
    from rmft.artifacts.trajectories import read_trajectories
    from rmft.evaluation import evaluate, evaluate_in_words
    from rmft.workflow.records import EvaluationJob

    job = EvaluationJob.parse(settings)
    if job.problem.kind == "numeric":
        models = dict(zip(("base", "trained"), map(read_model, inputs), strict=True))
        found = evaluate(job, models, read_rewards(rewards))
    else:
        games = [(*player, read_trajectories(path)) for player, path in zip(job.players, inputs, strict=True)]
        found = evaluate_in_words(job, games, read_rewards(rewards))
    write_evaluation(output, found)


@app.command(rich_help_panel=STAGES)
def reasoning(
    settings: Settings,
    base: Annotated[Path, Argument(help="The games that the base model has played in words.")],
    trained: Annotated[list[Path], Argument(help="The games of each training seed's trained model.")],
    folder: Annotated[Path, Option(help="The folder for replies.parquet, claims.parquet and accuracy.csv.")],
) -> None:
    """Hold what replies say against what happened, and judge why they pass over the best action."""
    from contextlib import ExitStack

    from rmft.artifacts.csv_files import write_csv
    from rmft.artifacts.files import noted
    from rmft.artifacts.replies import write_claims, write_replies
    from rmft.artifacts.trajectories import read_trajectories
    from rmft.endpoint.access import connection_to, journal_of
    from rmft.language.prompts import read_template
    from rmft.language.scenarios import read_scenarios
    from rmft.reasoning.accuracy import accuracies
    from rmft.reasoning.judges import lexical, read_words, zero_shot
    from rmft.reasoning.replies import examine, games_of
    from rmft.rollouts import scenarios_for
    from rmft.workflow.records import ReasoningJob

    job = ReasoningJob.parse(settings)
    about = (
        scenarios_for(job.games, read_scenarios(noted(Path(job.games.scenario_set))))
        if job.games.scenario_set
        else None
    )
    played = [("base", 0, read_trajectories(base))]
    played += [("trained", seed, read_trajectories(path)) for seed, path in enumerate(trained)]
    judges, model = {"unstable": lexical(read_words(noted(Path(job.words))))}, job.judge
    with ExitStack() as stack:
        if model is not None:
            journal, template = journal_of(folder / "replies.parquet"), read_template(noted(Path(model.prompt)))
            way = stack.enter_context(connection_to(model.model_name, model.served, model.model.model, journal))
            judges["unstable_judged"] = zero_shot(way, template, model.max_tokens, job.seed)
        replies, claims = examine(job, list(games_of(job, played, about)), judges)
    found = accuracies(job.seed, (job.experiment, job.evaluation), job.resamples, replies, claims)
    write_replies(folder / "replies.parquet", replies)
    write_claims(folder / "claims.parquet", claims)
    write_csv(folder / "accuracy.csv", found)


@app.command(rich_help_panel=STAGES)
def theory(settings: Settings, output: Output) -> None:
    """Check Theorem 1: train linear attention without its Operator on the best policy in hindsight (csv)."""
    from rmft.artifacts.csv_files import write_csv
    from rmft.progress import progress
    from rmft.training.numeric import one_thread
    from rmft.training.theory import closed_form, minimise, moments
    from rmft.workflow.records import TheoryJob

    job, rows = TheoryJob.parse(settings), []
    grid = job.theory
    one_thread()
    with progress("theory", len(grid.d) * len(grid.T) * len(grid.radius), "fits") as advance:
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
    from rmft.workflow.records import FigureJob

    draw(FigureJob.parse(settings), inputs).save(stem)


@app.command(rich_help_panel=STAGES)
def tables(
    settings: Settings,
    inputs: Inputs,
    stem: Annotated[Path, Option(help="Path without ending of the csv, md and tex.")],
) -> None:
    """Make a table of the paper, beside the values that the paper reports."""
    from rmft.tables import make
    from rmft.workflow.records import TableJob

    make(TableJob.parse(settings), inputs).save(stem)


@app.command(rich_help_panel=STAGES)
def metrics(
    settings: Settings,
    inputs: Inputs,
    output: Output,
    summary: Annotated[Path, Option(help="The file for the few numbers of each evaluation that DVC lists.")],
) -> None:
    """Collect final regrets, growth and tests of every evaluation (json), and of the trained model alone."""
    from rmft.artifacts.json_files import write_json
    from rmft.metrics.summary import all_metrics, summarised
    from rmft.workflow.records import MetricsJob

    found = all_metrics(MetricsJob.parse(settings), inputs)
    write_json(output, found)
    write_json(summary, summarised(found))


@app.command(rich_help_panel=STAGES)
def report(
    settings: Settings,
    inputs: Annotated[list[Path], Argument(help="All files that the pages show; each is found by its name.")],
    output: Output,
    trajectories: Annotated[Path, Option(help="The file for the trajectory viewer.")],
) -> None:
    """Write the report, one page with every figure and table, and the trajectory viewer (html)."""
    from rmft.artifacts.text import write_text
    from rmft.report import page, viewer
    from rmft.workflow.records import ReportJob

    job, files = ReportJob.parse(settings), {path.as_posix(): path for path in inputs}
    pages = page(job, files), viewer(job, files)  # both read before either is written: one job, one set of inputs
    for path, text in zip((output, trajectories), pages, strict=True):
        write_text(path, text)


app.add_typer(tools.app)


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
