"""The record of each job, made from params.yaml: all that Snakemake compares, and all that the job is given."""

from collections.abc import Iterable
from typing import TypeVar

from rmft import extensions
from rmft.agents.extras import pinned
from rmft.errors import InputError
from rmft.lineage.code import fingerprint, server_fingerprint
from rmft.params import Params
from rmft.params.endpoint import EndpointModel
from rmft.params.experiment import Experiment
from rmft.params.grpo import Objective
from rmft.params.language import LanguageProblem
from rmft.params.language_model import Checkpoint
from rmft.params.numeric import NumericProblem, Training
from rmft.params.reasoning import LEXICAL
from rmft.params.section import Section
from rmft.workflow import records
from rmft.workflow.paths import replicate_of

Kind = TypeVar("Kind", bound=Section)


def _part(kind: type[Kind], whole: Section) -> Kind:
    """Return the fields that `kind` has of a record that extends it."""
    return kind.model_validate({name: getattr(whole, name) for name in kind.model_fields})


def code_of_job(
    command: str,
    processes: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    methods: Iterable[str] = (),
    extras: Iterable[str] = (),
) -> records.Code:
    """Return what a job runs.

    processes, algorithms, methods: those that it draws, plays and learns by, ours or not. extras: libraries that it
    loads beside those that its code imports.
    """
    files = extensions.files_of(processes, algorithms, methods)
    digest, libraries = fingerprint(command, extensions=tuple(files))
    return records.Code(digest=digest, libraries=libraries | pinned(extras), extensions=files)


def extras_of(params: Params, model: str) -> tuple[str, ...]:
    """Return the libraries of extras that a model of params.yaml plays with, here or in our own server."""
    settings = params.models.get(params.played_here(model))
    return settings.extras if settings and settings.kind == "language" else ()


def scenarios_job(params: Params, name: str) -> records.ScenariosJob:
    """Return what the job that has scenarios written depends on."""
    scenarios = params.scenarios[name]
    return records.ScenariosJob(
        code=code_of_job("scenarios", extras=extras_of(params, scenarios.model)),
        seed=params.seed,
        name=name,
        scenarios=scenarios,
        **model_of(params, scenarios.model),
    )


def rewards_job(params: Params, name: str) -> records.RewardsJob:
    """Return what the job that draws a reward set depends on."""
    rewards = params.rewards[name]
    return records.RewardsJob(
        code=code_of_job("rewards", rewards.process), seed=params.seed, name=name, rewards=rewards
    )


def models_job(params: Params, name: str) -> records.ModelsJob:
    """Return what making an embedded model depends on."""
    of = params.pretraining
    own = of.model_copy(update={"corpora": {name: of.corpora[name]}})
    return records.ModelsJob(
        code=code_of_job("models", own.corpora[name].process), seed=params.seed, name=name, pretraining=own
    )


def conversion_job(params: Params, model: str) -> records.ConversionJob:
    """Return what the conversion of a model's GGUF file depends on."""
    conversion = params.conversion
    return records.ConversionJob(
        code=code_of_job("conversion", extras=("gguf", "xllamacpp")),
        name=model,
        checkpoint=_part(Checkpoint, params.models[model]),
        prompts=conversion.prompts,
        scenario_sets=[params.scenarios[name].path(name) for name in conversion.scenarios],
    )


def training_job(params: Params, experiment: str) -> records.TrainingJob:
    """Return what an experiment's training depends on."""
    chosen = params.experiments[experiment]
    return records.TrainingJob(
        code=code_of_job("training", chosen.process),
        seed=params.seed,
        training=_part(Training, chosen),
        model=params.models[chosen.model],
        mean=params.evaluation.mean,
    )


def rollouts_job(
    params: Params, experiment: str, training_seed: int, iteration: int, shard: int
) -> records.RolloutsJob:
    """Return what a shard (from 1) of an iteration's rollouts depends on, besides the fine-tuned weights."""
    chosen = params.experiments[experiment]
    return records.RolloutsJob(
        code=code_of_job("rollouts", chosen.process, extras=extras_of(params, chosen.model)),
        seed=params.seed,
        stream=_stream(params, experiment, training_seed, iteration),
        problem=_in_words(params, chosen),
        **model_of(params, chosen.model),
        scenario_set=scenario_set(params, chosen.protocol.scenarios),
        process=chosen.process,
        T=chosen.T,
        scenarios=chosen.loop.scenarios,
        trajectories=chosen.loop.trajectories,
        temperature=chosen.loop.temperature,
        shard=(shard, params.shards(experiment)),
    )


def rollouts_of(params: Params, experiment: str, training_seed: int, iteration: int) -> str:
    """Return the experiment whose shards hold an iteration's rollouts: itself, or what it is a variant of.

    The base model of a variant plays the same games as that of the original, unless the variant says otherwise.
    """
    params = params.whole  # a part may lack the original
    original = stream_name(params, experiment)
    if iteration or training_seed >= params.experiments[original].loop.training_seeds:
        return experiment
    ours, theirs = (rollouts_job(params, name, training_seed, 0, 1) for name in (experiment, original))
    of_its_kind = ours.problem.model_copy(update={"kind": theirs.problem.kind})  # which says how the model learns
    return original if ours.model_copy(update={"problem": of_its_kind}) == theirs else experiment


def first_rollouts_of(params: Params, experiment: str) -> list[str]:
    """Return the experiment that plays each training seed's first rollouts, see `rollouts_of`."""
    return [
        rollouts_of(params, experiment, seed, 0) for seed in range(params.experiments[experiment].loop.training_seeds)
    ]


def distillation_job(params: Params, experiment: str, training_seed: int) -> records.DistillationJob:
    """Return what the games of an experiment's teacher depend on: each has rewards of its own."""
    chosen = params.experiments[experiment]
    distillation = chosen.distillation
    teacher = params.evaluation.algorithms[distillation.teacher]
    games = rollouts_job(params, experiment, training_seed, 0, 1)
    return records.DistillationJob(
        code=code_of_job("distillation", chosen.process, [teacher.algorithm]),
        games=games.model_copy(update={"code": None, "shard": (1, 1)}),
        teacher_name=distillation.teacher,
        teacher=teacher,
        rationale=distillation.rationale,
    )


def held_out_job(params: Params, experiment: str, evaluation: str, player: str = "base") -> records.RolloutsJob:
    """Return what the games of a model in an evaluation depend on, besides its weights and the reward set.

    All models play with the same random numbers, in each replicate.
    """
    chosen, replicate = params.experiments[experiment], replicate_of(params, experiment, evaluation, player)
    evaluation_settings = chosen.evaluations[evaluation]
    words = [stream_name(params, experiment), "evaluation", evaluation]
    return records.RolloutsJob(
        code=code_of_job("rollouts", extras=extras_of(params, chosen.model)),
        seed=params.seed,
        stream="/".join([*words, *([f"replicate-{replicate}"] if replicate else [])]),
        problem=problem_in(params, experiment, evaluation),
        **model_of(params, chosen.model),
        scenario_set=scenario_set(params, evaluation_settings.scenarios or chosen.protocol.scenarios),
        process=None,
        T=evaluation_settings.T,
        scenarios=evaluation_settings.instances,
        trajectories=1,
        temperature=evaluation_settings.temperature or chosen.loop.temperature,
        shard=(1, 1),
    )


def gather_job(params: Params, experiment: str) -> records.GatherJob:
    """Return what joining the shards of an iteration depends on."""
    loop = params.experiments[experiment].loop
    return records.GatherJob(code=code_of_job("gather"), games=loop.scenarios * loop.trajectories)


def selection_job(params: Params, experiment: str, training_seed: int, iteration: int) -> records.SelectionJob:
    """Return what the selection of an iteration depends on, besides its rollouts."""
    chosen = params.experiments[experiment]
    return records.SelectionJob(
        code=code_of_job("selection"),
        seed=params.seed,
        stream=_stream(params, experiment, training_seed, iteration),
        problem=_in_words(params, chosen),
        selected=chosen.rmft.selected,
        score=chosen.rmft.score,
        pool=chosen.rmft.pool,
        mean=params.evaluation.mean,
    )


def sft_job(params: Params, experiment: str, training_seed: int, iteration: int) -> records.SFTJob:
    """Return what the fine-tuning that ends in model(iteration + 1) depends on, besides demonstrations and weights."""
    chosen = params.experiments[experiment]
    player = model_of(params, chosen.model)
    return records.SFTJob(
        code=code_of_job("sft", extras=extras_of(params, chosen.model)),
        seed=params.seed,
        stream=_stream(params, experiment, training_seed, iteration),
        **{**player, "model": without_servers(player["model"])},
        sft=chosen.sft,
    )


def grpo_job(params: Params, experiment: str, training_seed: int, iteration: int) -> records.GRPOJob:
    """Return what the GRPO that ends in model(iteration + 1) depends on, besides rollouts and weights."""
    chosen = params.experiments[experiment]
    return records.GRPOJob(
        code=code_of_job("grpo", extras=extras_of(params, chosen.model)),
        seed=params.seed,
        stream=_stream(params, experiment, training_seed, iteration),
        problem=_in_words(params, chosen),
        model=without_servers(params.models[chosen.model]),
        grpo=_part(Objective, chosen.grpo),
        temperature=chosen.grpo.temperature,
        mean=params.evaluation.mean,
    )


def method_job(params: Params, experiment: str, training_seed: int, iteration: int) -> records.MethodJob:
    """Return what a method of an extension depends on to give model(iteration + 1), besides the files it reads."""
    chosen = params.experiments[experiment]
    return records.MethodJob(
        code=code_of_job("method", methods=[chosen.method], extras=extras_of(params, chosen.model)),
        seed=params.seed,
        stream=_stream(params, experiment, training_seed, iteration),
        problem=_in_words(params, chosen),
        model=without_servers(params.models[chosen.model]),
        method=chosen.method,
        settings=chosen.settings,
        sft=chosen.sft,
        temperature=chosen.rmft.temperature,
        mean=params.evaluation.mean,
    )


def model_of(params: Params, model: str) -> dict[str, object]:
    """Return the fields of a record that say which model plays: its settings, its name, what our own server plays."""
    settings = params.models[model]
    played: records.ModelSettings = _part(EndpointModel, settings) if settings.kind == "endpoint" else settings
    return {"model": played, "model_name": model, "served": served(params, model)}


def without_servers(settings: records.ModelSettings) -> records.ModelSettings:
    """Return the settings of a model for its training, in which the servers that may play it change nothing."""
    return settings.model_copy(update={"vllm": None, "llama_cpp": None}) if settings.kind == "language" else settings


def served(params: Params, model: str) -> records.OwnServer | None:
    """Return what our own server plays as a model of params.yaml; None where the model is elsewhere."""
    settings = params.models[model]
    if settings.kind != "endpoint" or settings.serves is None:
        return None
    return served_as(params, settings.serves)


def served_as(params: Params, model: str) -> records.OwnServer:
    """Return what our own server plays as a language model of params.yaml. Raise InputError where that is none."""
    at_hand = [name for name, of in params.models.items() if of.kind == "language"]
    if model not in at_hand:
        raise InputError(f"models.{model}: is no language model of params.yaml; those are {', '.join(at_hand)}")
    code = server_fingerprint()
    return records.OwnServer(code=code, seed=params.seed, model=params.models[model], sft=params.server.sft)


def scenario_set(params: Params, name: str | None) -> str | None:
    """Return the file of a set of scenarios."""
    return None if name is None else params.scenarios[name].path(name)


def problem_in(params: Params, experiment: str, evaluation: str) -> NumericProblem | LanguageProblem:
    """Return what is played in an evaluation.

    A language model may meet another number of actions, or of features, than in training.
    """
    chosen = params.experiments[experiment]
    if not chosen.in_words:
        return _part(NumericProblem, chosen)
    held_out = params.rewards[chosen.evaluations[evaluation].rewards]
    return _in_words(params, chosen).model_copy(update={"d": held_out.d, "features": held_out.features})


def _in_words(params: Params, chosen: Experiment) -> LanguageProblem:
    """Return what a language model plays in training. Its replies are no longer than the model's own limit."""
    problem = _part(LanguageProblem, chosen)
    shorter, _ = reply_limit(params, chosen)
    return problem.model_copy(update={"protocol": problem.protocol.model_copy(update={"max_tokens": shorter})})


def reply_limit(params: Params, chosen: Experiment) -> tuple[int, str | None]:
    """Return the most tokens of a reply, and the model that limits it, or None where the protocol does."""
    limit = params.models[chosen.model].max_tokens
    if limit and limit < chosen.protocol.max_tokens:
        return limit, chosen.model
    return chosen.protocol.max_tokens, None


def stream_name(params: Params, experiment: str) -> str:
    """Return the experiment that names the random streams of an experiment: itself, or what it is a variant of."""
    return params.experiments[experiment].varies or experiment


def _stream(params: Params, experiment: str, training_seed: int, iteration: int) -> str:
    return f"{stream_name(params, experiment)}/seed-{training_seed}/iteration-{iteration}"


def evaluation_job(params: Params, experiment: str, evaluation: str) -> records.EvaluationJob:
    """Return what one evaluation of an experiment depends on, besides models or rollouts, and rewards."""
    chosen = params.experiments[experiment]
    evaluation_settings = chosen.evaluations[evaluation]
    algorithms = {name: params.evaluation.algorithms[name] for name in evaluation_settings.algorithms}
    return records.EvaluationJob(
        code=code_of_job("evaluation", algorithms=[of.algorithm for of in algorithms.values()]),
        seed=params.seed,
        players=evaluation_settings.players(chosen.loop.training_seeds) if chosen.in_words else [],
        problem=problem_in(params, experiment, evaluation),
        evaluation=evaluation_settings,
        mean=params.evaluation.mean,
        algorithms=algorithms,
    )


def reasoning_job(params: Params, experiment: str, evaluation: str) -> records.ReasoningJob:
    """Return what examining the replies of an evaluation depends on, besides its games."""
    reasoning, judge = params.reasoning, None
    if reasoning.judge != LEXICAL:
        judge = records.JudgeModel(
            **model_of(params, reasoning.judge), prompt=reasoning.prompt, max_tokens=reasoning.max_tokens
        )
    return records.ReasoningJob(
        code=code_of_job("reasoning", extras=extras_of(params, reasoning.judge) if judge else ()),
        seed=params.seed,
        experiment=experiment,
        evaluation=evaluation,
        games=held_out_job(params, experiment, evaluation).model_copy(update={"code": None}),
        mean=params.evaluation.mean,
        resamples=params.evaluation.resamples,
        words=reasoning.words,
        judge=judge,
    )


def theory_job(params: Params) -> records.TheoryJob:
    """Return what the check of Theorem 1 depends on."""
    return records.TheoryJob(code=code_of_job("theory"), seed=params.seed, theory=params.theory)
