"""Checks of what params.yaml names, made before anything runs: by `rmft params`, and whenever Snakemake starts."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from rmft.agents.chat_models import typical_context, typical_round
from rmft.artifacts.files import atomic, is_artifact, sha256
from rmft.errors import InputError
from rmft.language.prompts import Prompts, read_template
from rmft.language.protocol import Protocol
from rmft.language.scenarios import read_scenarios
from rmft.lineage.code import module_fingerprint
from rmft.lineage.syntax import short_hash
from rmft.params import Params
from rmft.params.reasoning import LEXICAL
from rmft.params.scenarios import check_spreadsheets
from rmft.workflow.contexts import conversations_of, most_tokens
from rmft.workflow.games import game_settings_of, scenarios_for
from rmft.workflow.paths import GLOSSARY, REPORT_TEXTS, made_model_of
from rmft.workflow.plan import held_out_job, rollouts_job
from rmft.workflow.records import RolloutsJob

CHECKED = Path(".rmft/checked-messages")  # a digest: see `what_messages_come_of`; a check takes up to a second
REWARD = 10.0  # in the messages that are tried
OF_PAPER = "data/paper/"
GENERATED = "results/scenarios"  # those that models wrote
PLACES = ("data/prompts", "data/scenarios")  # of texts: what DVC compares, see `deps` in dvc.yaml


def check_inputs(params: Params) -> None:
    """Raise InputError where params.yaml names a model, scenarios or templates that are missing or do not work."""
    check_spreadsheets(params.scenarios.values())
    for name, model in params.models.items():
        if model.kind == "language" and not made_model_of(params, name):  # jobs make the others
            check_weights(f"params.yaml: models.{name}.weights", model.weights, model.revision)
    check_places(params)
    check_sources(params)
    for _, file in _other_templates(params):
        read_template(Path(file))
    if (digest := what_messages_come_of(params)) != _text_of(CHECKED):  # that of the last messages that passed
        check_messages(params)
        with suppress(InputError), atomic(CHECKED) as temporary:  # where nothing can be written, they are checked again
            temporary.write_text(digest, encoding="utf-8")


def check_folder(folder: Path) -> None:
    """Raise InputError for a folder in which Snakemake fails: it takes braces in a path for wildcards."""
    if {"{", "}"} & {*str(folder)}:
        raise InputError(f"{folder}: Snakemake cannot run in a folder with braces in its path; rename the folder")


def check_weights(key: str, weights: str, revision: str | None) -> None:
    """Raise InputError for weights that are neither in a folder, whole, nor at a revision of the hub."""
    folder = Path(weights)
    lacking = [pattern for pattern in ("config.json", "*.safetensors") if not any(folder.glob(pattern))]
    if folder.is_dir() and lacking:
        raise InputError(f"{key}: {weights}: holds no {lacking[0]}; put all files of the model there")
    if not folder.is_dir() and not revision:
        cure = "a model of the hub needs its `revision` too, a commit of 40 digits"
        raise InputError(f"{key}: {weights}: no such folder; {cure}")


def check_places(params: Params) -> None:
    """Raise InputError for texts that are outside of the folders in which DVC sees edits."""
    for key, file in (*_other_templates(params), *_other_texts(params)):
        if not f"{os.path.relpath(file)}/".startswith(tuple(f"{place}/" for place in PLACES)):
            cure = f"move it into {' or '.join(PLACES)}: DVC does not see edits elsewhere"
            raise InputError(f"params.yaml: {key}: {file}: {cure}")


def check_sources(params: Params) -> None:
    """Raise InputError where a text or table is missing that artifacts are made from.

    Snakemake keeps an artifact whose source is gone, whatever else has changed, and makes further ones from it.
    """
    for key, file in (*_other_templates(params), *_other_texts(params)):
        if not Path(file).exists():
            raise InputError(f"params.yaml: {key}: {file}: no such file or folder")
    for label, table in params.tables.items():
        for path in table.inputs(label, (), params):
            if path.startswith(OF_PAPER) and not Path(path).exists():
                needs = f"form {table.form} stands beside the paper's values in this file"
                cure = f"`git checkout {path}` restores it if it was there"
                raise InputError(f"outputs.yaml: tables.{label}: {path}: is not there, and {needs}; {cure}")
    of_tables = (path for label, table in params.tables.items() for path in table.inputs(label, (), params))
    for path in (*REPORT_TEXTS, GLOSSARY, *of_tables):
        if not is_artifact(path) and not Path(path).exists():
            raise InputError(f"{path}: is not there, and artifacts are made from it; `git checkout {path}` restores it")


def check_messages(params: Params) -> None:
    """Raise InputError for the first experiment whose messages fail, or are longer than the `context` of its model."""
    prompts_in = cache(lambda folder: Prompts.load(Path(folder)))  # compiling templates takes most of the time
    scenarios_in = cache(lambda file: read_scenarios(Path(file)))
    try_once, count_once = cache(try_messages), cache(most_tokens)
    for name, experiment in params.experiments.items():
        for played, job in _jobs(params, name) if experiment.in_words else ():
            if job.scenario_set and is_artifact(job.scenario_set) and not Path(job.scenario_set).exists():
                continue  # the model that writes these scenarios has not run yet
            where = f"params.yaml: {_place_of(params, name)}: {played}"
            context = getattr(params.models[experiment.model], "context", None)
            try:
                prompts = prompts_in(job.problem.protocol.prompts)
                scenarios = scenarios_for(job, scenarios_in(job.scenario_set)) if job.scenario_set else None
                try_once(prompts, game_settings_of(job, prompts).about(scenarios[0] if scenarios else None))
                if context:
                    where += f", models.{experiment.model}"
                    count_once(conversations_of(job, prompts, scenarios), context)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None


def try_messages(prompts: Prompts, protocol: Protocol) -> None:
    """Make the first, the second and the third message of a game. Raise InputError where a template fails."""
    context = typical_context(protocol)
    past = [typical_round(protocol, t, t - 1, (REWARD,) * protocol.d) for t in (1, 2)]
    for t in range(3):
        prompts.message(protocol, past[:t], context)


def what_messages_come_of(params: Params) -> str:
    """Return a digest of all that `check_messages` reads: parameters, texts, and its own code."""
    files = [file for place in (*PLACES, GENERATED) for file in sorted(Path(place).rglob("*")) if file.is_file()]
    texts = {file.as_posix(): sha256(file) for file in files}
    return short_hash([params.model_dump(mode="json"), texts, module_fingerprint(__name__)])


def _text_of(path: Path) -> str | None:
    """Return the text of a small file; None where there is none that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _other_templates(params: Params) -> Iterator[tuple[str, str]]:
    """Yield key and file of the templates besides those of games: of questions to a judge, scenarios and rationales."""
    if params.reasoning.judge != LEXICAL:
        yield "reasoning.prompt", params.reasoning.prompt
    for name, of in params.scenarios.items():
        if of.source == "generated":
            yield f"scenarios.{name}.prompt", of.prompt
    for name, of in params.experiments.items():
        if of.kind == "distillation" and of.distillation.rationale:
            yield f"{_place_of(params, name)}.distillation.rationale", of.distillation.rationale


def _other_texts(params: Params) -> Iterator[tuple[str, str]]:
    """Yield key and path of further texts: the folders of games' templates, word lists, scenarios, chat templates."""
    yield from (("conversion.prompts", params.conversion.prompts), ("pretraining.prompts", params.pretraining.prompts))
    yield "reasoning.words", params.reasoning.words
    for name, of in params.scenarios.items():
        if of.source != "generated":
            yield f"scenarios.{name}.file", of.file
    for name, of in params.experiments.items():
        if of.in_words:
            yield f"{_place_of(params, name)}.protocol.prompts", of.protocol.prompts
    for name, of in params.models.items():
        if of.kind == "language" and of.chat_template:
            yield f"models.{name}.chat_template", of.chat_template


def _place_of(params: Params, experiment: str) -> str:
    """Return the dotted key of an experiment in params.yaml."""
    return f"{'on_request' if experiment in params.on_request else 'experiments'}.{experiment}"


def _jobs(params: Params, experiment: str) -> Iterator[tuple[str, RolloutsJob]]:
    """Yield the games of training and of every evaluation, with their name."""
    yield "training", rollouts_job(params, experiment, 0, 0, 1)
    for evaluation in params.experiments[experiment].evaluations:
        yield f"evaluation {evaluation}", held_out_job(params, experiment, evaluation)
