"""What a job reads and depends on, by its wildcards: functions that rules share."""

# Priorities: first jobs that take a second and that long jobs wait for, then those of iterations, then games of evaluations.
# Training of the numeric agent and Theorem 1 take half a minute and could be done at any time, but not last, on one core.
SHORT_AND_WAITED_FOR = 1_000_000
ITERATION = 10_000  # more than the rounds of a game
GAMES_IN_A_PLACE, MOST_PLACES = 64, 4  # at our own server, which caches 1,024 conversations of a small model


def evaluation_of(wildcards):
    """Return the evaluation that the wildcards name."""
    return EXPERIMENTS[wildcards.experiment].evaluations[wildcards.evaluation]


def extensions(job):
    """Return the files of a user's own that a job runs, and the data that these name."""
    return [*job.code.extensions, *data_of(job.code.extensions)]


def with_model(kind):
    """Return the experiments that start from a model of a kind, without those on request."""
    return [name for name, of in BY_DEFAULT.experiments.items() if of.model_kind == kind]


def with_stage(stage):
    """Return the experiments that have jobs of a stage."""
    return [name for name, of in EXPERIMENTS.items() if stage in of.stages]


def one_of(names):
    """Return the expression that matches any of these names, and nothing where there are none."""
    return "|".join(names) or "(?!)"


def this_iteration(wildcards):
    """Return the training seed and the iteration that the wildcards name."""
    return int(wildcards.seed), int(wildcards.iteration)


def previous_iteration(wildcards):
    """Return the training seed, and the iteration before the one that the wildcards name."""
    return int(wildcards.seed), int(wildcards.iteration) - 1


def iterations_left(wildcards):
    """Return the priority of a job of an iteration. What the most iterations wait for comes first.

    Otherwise one experiment's last iterations end a build on one core.
    """
    return ITERATION * (EXPERIMENTS[wildcards.experiment].loop.iterations - int(wildcards.iteration) + 1)


def rounds_to_play(wildcards):
    """Return the priority of games of an evaluation: below all iterations, and the longest games first.

    Otherwise the longest ones end a build, on one core.
    """
    return evaluation_of(wildcards).T


def model_files(experiment):
    """Return the files of an experiment's base model; of one behind an endpoint, those that our own server plays."""
    return paths.base_model_of(PARAMS, EXPERIMENTS[experiment].model)


def played_files(experiment):
    """Return the files that an experiment's base model plays from."""
    return or_stop(paths.played_from, PARAMS, EXPERIMENTS[experiment].model, needed=not AUDIT)


def scenarios_in(name):
    """Return the file of a set of scenarios, if games are told in one."""
    return [plan.scenario_set(PARAMS, name)] if name else []


def gpus(wildcards):
    """Return how many GPUs a job needs that runs an experiment's model in its own process."""
    model = PARAMS.models[EXPERIMENTS[wildcards.experiment].model]
    return int(model.kind == "language" and model.device.startswith(("cuda", "mps")))


def gpus_to_play(wildcards):
    """Return how many GPUs a job needs in which an experiment's model plays, here or in servers of its own."""
    model = PARAMS.models[EXPERIMENTS[wildcards.experiment].model]
    served = model.vllm if model.kind == "language" else None
    return served.gpus if served else gpus(wildcards)


def gpus_to_learn(wildcards):
    """Return how many GPUs a job needs that fine-tunes an experiment's model: one for each of its processes."""
    return gpus(wildcards) and EXPERIMENTS[wildcards.experiment].sft.processes


def own_server(wildcards, games=1):
    """Return how many places a job takes at our own server, if that plays and fine-tunes an experiment's model; else 0."""
    served = plan.served(PARAMS, EXPERIMENTS[wildcards.experiment].model) is not None
    return served * min(MOST_PLACES, math.ceil(games / GAMES_IN_A_PLACE))


def places_to_train(wildcards):
    """Return how many places at our own server the games of a shard of an iteration take."""
    loop = EXPERIMENTS[wildcards.experiment].loop
    return own_server(wildcards, loop.scenarios * loop.trajectories / int(wildcards.shards))


def places_to_evaluate(wildcards):
    """Return how many places at our own server the games of an evaluation take."""
    return own_server(wildcards, evaluation_of(wildcards).instances)


def threads_to_play(wildcards):
    """Return how many threads a job takes in which an experiment's model plays, here or in a server of the job's.

    None where it waits for our own server, which computes in one thread for all such jobs together.
    """
    model = PARAMS.models[EXPERIMENTS[wildcards.experiment].model]
    return model.threads_to_play if model.kind == "language" else 1 - own_server(wildcards)


def threads_to_learn(wildcards):
    """Return how many threads a job takes that fine-tunes an experiment's model; see `threads_to_play`."""
    model = PARAMS.models[EXPERIMENTS[wildcards.experiment].model]
    return model.threads if model.kind == "language" else 1 - own_server(wildcards)


def prompts_of(experiment):
    """Return the templates of an experiment's prompts."""
    return prompt_files(EXPERIMENTS[experiment].protocol.prompts)


def players_of(wildcards):
    """Return what an evaluation compares: numeric models, or games that language models have played."""
    if EXPERIMENTS[wildcards.experiment].in_words:
        return list(paths.held_out_of(PARAMS, wildcards.experiment, wildcards.evaluation).values())
    models = paths.models_of(PARAMS, wildcards.experiment)
    return [models[0], models[-1]]


def figure_inputs(wildcards):
    """Return the evaluations that a figure draws, or what training has left where it draws that."""
    return PARAMS.figures.drawn[wildcards.label].inputs(PARAMS)


def figure_job(wildcards):
    """Return what a figure depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.figures.drawn[wildcards.label].experiments)
    return plan_outputs.figure_job(PARAMS, wildcards.label, note)


def table_inputs(wildcards):
    """Return what a table is made from and then, if there is one, the file of the paper's values."""
    return PARAMS.tables[wildcards.label].inputs(wildcards.label, table_job(wildcards).sources, PARAMS)


def table_job(wildcards):
    """Return what a table depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.tables[wildcards.label].experiments)
    return plan_outputs.table_job(PARAMS, wildcards.label, note)
