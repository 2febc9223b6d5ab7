"""Checks of what params.yaml names, made before anything runs: by `rmft params`, and whenever Snakemake starts."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rmft.agents.chat_models import typical_context
from rmft.artifacts.files import is_artifact
from rmft.errors import InputError
from rmft.language.prompts import Prompts, read_template
from rmft.language.protocol import Protocol, Round
from rmft.language.scenarios import read_scenarios
from rmft.params import Params
from rmft.params.reasoning import LEXICAL
from rmft.params.scenarios import check_spreadsheets
from rmft.workflow.contexts import longest_conversation
from rmft.workflow.games import game_settings_of, scenarios_for
from rmft.workflow.paths import made_model_of
from rmft.workflow.plan import held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

REWARD = 10.0  # in the messages that are tried


def check_inputs(params: Params) -> None:
    """Raise InputError where params.yaml names a model, scenarios or templates that are missing or do not work."""
    check_spreadsheets(params.scenarios.values())
    for name, model in params.models.items():
        if model.kind == "language" and not made_model_of(params, name):  # jobs make the others
            check_weights(f"params.yaml: models.{name}.weights", model.weights, model.revision)
    for file in _other_templates(params):
        read_template(Path(file))
    check_messages(params)


def check_weights(key: str, weights: str, revision: str | None) -> None:
    """Raise InputError for weights that are neither in a folder nor at a revision of the hub."""
    if Path(weights).is_dir() or revision:
        return
    cure = "a model of the hub needs its `revision` too, a commit of 40 digits"
    raise InputError(f"{key}: {weights}: no such folder; {cure}")


def check_messages(params: Params) -> None:
    """Raise InputError for the first experiment whose messages fail, or are longer than the `context` of its model."""
    prompts_in = cache(lambda folder: Prompts.load(Path(folder)))  # compiling templates takes most of the time
    scenarios_in = cache(lambda file: read_scenarios(Path(file)))
    try_once = cache(try_messages)
    for name, experiment in params.experiments.items():
        for played, job in _jobs(params, name) if experiment.in_words else ():
            if job.scenario_set and is_artifact(job.scenario_set) and not Path(job.scenario_set).exists():
                continue  # the model that writes these scenarios has not run yet
            section = "on_request" if name in params.on_request else "experiments"
            where = f"params.yaml: {section}.{name}: {played}"
            context = getattr(params.models[experiment.model], "context", None)
            try:
                prompts = prompts_in(job.problem.protocol.prompts)
                scenarios = scenarios_for(job, scenarios_in(job.scenario_set)) if job.scenario_set else None
                try_once(prompts, game_settings_of(job, prompts).about(scenarios[0] if scenarios else None))
                if context:
                    where += f", models.{experiment.model}"
                    longest_conversation(job, prompts, scenarios, context)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None


def try_messages(prompts: Prompts, protocol: Protocol) -> None:
    """Make the first, the second and the third message of a game. Raise InputError where a template fails."""
    context, d = typical_context(protocol), protocol.d
    policy = (1 / d,) * d if protocol.output == "distribution" else None
    past = [Round(t, t - 1, policy, (REWARD,) * d, context) for t in (1, 2)]
    for t in range(3):
        prompts.message(protocol, past[:t], context)


def _other_templates(params: Params) -> Iterator[str]:
    """Yield the templates besides those of games: of questions to a judge, of scenarios and of rationales."""
    if params.reasoning.judge != LEXICAL:
        yield params.reasoning.prompt
    yield from (of.prompt for of in params.scenarios.values() if of.source == "generated")
    distilled = (of.distillation for of in params.experiments.values() if of.kind == "distillation")
    yield from (of.rationale for of in distilled if of.rationale)


def _jobs(params: Params, experiment: str) -> Iterator[tuple[str, RolloutsJob]]:
    """Yield the games of training and of every evaluation, with their name."""
    yield "training", rollouts_job(params, experiment, 0, 0, 1)
    for evaluation in params.experiments[experiment].evaluations:
        yield f"evaluation {evaluation}", held_out_job(params, experiment, evaluation)
