"""The records of the jobs that show results: figures, tables, metrics, the report."""

from collections.abc import Sequence

from rmft.params import Params
from rmft.params.experiment import Experiment
from rmft.workflow.paths import prefix_of, shown_of
from rmft.workflow.plan import code_of_job
from rmft.workflow.records_outputs import (
    FigureJob,
    MetricsJob,
    ReportedExperiment,
    ReportJob,
    TableJob,
    TrainedExperiment,
    TrainingBudget,
)

ENVIRONMENT_TITLES = {
    "fol": "Full information",
    "mab": "Bandits",
    "ns-mab": "Non-stationary bandits",
    "cb": "Contextual bandits",
}


def figure_job(params: Params, label: str, scale_note: str | None) -> FigureJob:
    """Return what a figure depends on, besides its evaluations or training logs."""
    figure = params.figures.drawn[label]
    experiments = {name: params.experiments[name] for name in figure.experiments}
    return FigureJob(
        code=code_of_job("figures"),
        label=label,
        figure=figure,
        titles={name: _evaluation_title(params, figure.experiments[0], name) for name in figure.evaluations},
        experiment_titles={name: _experiment_title(of) for name, of in experiments.items()},
        style=params.figures.style,
        loops=figure.loops(params),
        scale_note=scale_note,
    )


def _evaluation_title(params: Params, experiment: str, name: str) -> str:
    """Return an evaluation in words: its rewards and horizon, and where it differs from what was trained on."""
    trained = params.experiments[experiment]
    evaluation = trained.evaluations[name]
    rewards = params.rewards[evaluation.rewards]
    processes = " and ".join(process.replace("-", " ").title() for process in rewards.process)
    parts = [f"{processes.replace('Sine Trend', 'Sine-trend')} rewards", f"T = {evaluation.T}"]
    parts += [f"d = {rewards.d}"] if rewards.d != trained.d else []
    parts += ["other scenarios"] if evaluation.scenarios is not None else []
    return ", ".join(parts)


def _experiment_title(experiment: Experiment) -> str:
    """Return an experiment in words: its environment, model and protocol."""
    parts = [ENVIRONMENT_TITLES[experiment.environment], experiment.model.replace("_", " ")]
    if experiment.in_words:
        parts += [experiment.protocol.interaction]
        parts += ["stated policies"] if experiment.protocol.output == "distribution" else []
    return ", ".join(parts)


def table_job(params: Params, label: str, scale_note: str | None) -> TableJob:
    """Return what a table depends on, besides its evaluations and the paper's values."""
    table, measures = params.tables[label], params.evaluation
    sources = _evaluations_of(params, table.experiments, table.evaluations)
    return TableJob(
        code=code_of_job("tables"),
        seed=params.seed,
        label=label,
        table=table,
        models=[params.experiments[name].model for name in table.experiments],
        loops=table.loops(params),
        methods=_methods(params, table.experiments) if table.compares_methods else (),
        generated=table.generated(params),
        sources=sources,
        floor=measures.floor,
        resamples=measures.resamples,
        theory_rows=table.theory_rows(params),
        scale_note=scale_note,
    )


def _methods(params: Params, experiments: list[str]) -> tuple[TrainingBudget, ...]:
    named = ((name, params.experiments[name]) for name in experiments)
    return tuple(
        TrainingBudget(
            experiment=name,
            name=of.method_name,
            played=of.played,
            learnt=None if of.kind == "method" else of.learnt,  # a method chooses among what was played
            cut=of.cut,
        )
        for name, of in named
    )


def metrics_job(params: Params) -> MetricsJob:
    """Return what metrics.json depends on, besides all evaluations."""
    sources = _evaluations_of(params, list(params.experiments))
    return MetricsJob(code=code_of_job("metrics"), seed=params.seed, floor=params.evaluation.floor, sources=sources)


def report_job(params: Params, full_size: Params) -> ReportJob:
    """Return what the report depends on. full_size: the parameters before their scale, which say what is smaller."""
    story = params.report.story
    in_words = {
        name: ReportedExperiment(
            model=of.model,
            environment=of.environment,
            T=of.T,
            iterations=of.rmft.iterations,
            selected=of.rmft.selected,
            regret=of.training_regret,
            mean=params.evaluation.mean,
            held_out={evaluation: shown_of(params, name, evaluation) for evaluation in of.evaluations},
        )
        for name, of in params.selecting.items()
    }
    titles = {
        name: {evaluation: _evaluation_title(params, name, evaluation) for evaluation in of.evaluations}
        for name, of in params.experiments.items()
    }
    return ReportJob(
        code=code_of_job("report"),
        scale=params.scale,
        prefix=prefix_of(params),
        figures=params.figures.drawn,
        tables=params.tables,
        figure_notes={label: full_size.scale_note(of.experiments) for label, of in params.figures.drawn.items()},
        table_notes={label: full_size.scale_note(of.experiments) for label, of in params.tables.items()},
        models={name: of.model for name, of in params.experiments.items()},
        players=params.figures.style.labels,
        titles=titles,
        trained=_trained(params, full_size),
        story=story and (story, params.first_evaluation(story)),
        in_words=in_words,
        trajectories=params.report.trajectories,
    )


def _trained(params: Params, full_size: Params) -> dict[str, TrainedExperiment]:
    """Return the experiments that train on games of low regret. Variants in words answer other questions."""
    return {
        name: TrainedExperiment(
            environment=ENVIRONMENT_TITLES[of.environment],
            numeric=not of.in_words,
            stands_for=full_size.experiments[name].model,
            as_trained=[
                key for key, held in of.evaluations.items() if {*params.rewards[held.rewards].process} <= {*of.process}
            ],
        )
        for name, of in params.experiments.items()
        if (of.selects and of.varies is None) or not of.in_words
    }


def _evaluations_of(params: Params, experiments: list[str], shown: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return (experiment, evaluation) of the evaluations that are shown; if none are named, of all."""
    return [(name, evaluation) for name in experiments for evaluation in shown or params.experiments[name].evaluations]
