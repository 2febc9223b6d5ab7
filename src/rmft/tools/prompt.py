"""`rmft prompt`: the messages that an experiment's model gets, before anything runs."""

from collections.abc import Iterator

from rmft.agents.chat_models import typical_context, typical_round
from rmft.errors import InputError, unknown
from rmft.params import Params
from rmft.workflow.games import game_settings_of, read_prompts, read_scenarios_of
from rmft.workflow.plan import held_out_job, rollouts_job

REWARDS = (6.3, 2.8, 4.1)  # that the messages show, in turn


def messages(params: Params, experiment: str, evaluation: str | None, rounds: int) -> Iterator[str]:
    """Yield the messages of the first rounds of a game, as if the model had played its actions in turn.

    evaluation: of the experiment; None for a game of training. Raise InputError where no model plays in words, or where
    params.yaml has no such experiment or evaluation.
    """
    in_words = [name for name, of in params.experiments.items() if of.in_words]
    if experiment not in in_words:
        if experiment in params.experiments:
            raise InputError(f"prompt: {experiment}: its games are not played in words")
        raise InputError(f"prompt: {unknown(experiment, in_words)}")
    evaluations = params.experiments[experiment].evaluations
    if evaluation is not None and evaluation not in evaluations:
        raise InputError(f"prompt: --evaluation: {unknown(evaluation, evaluations)}")
    job = held_out_job(params, experiment, evaluation) if evaluation else rollouts_job(params, experiment, 0, 0, 1)
    prompts, scenarios = read_prompts(job), read_scenarios_of(job)
    game = game_settings_of(job, prompts)
    protocol = game.about(scenarios[0]) if scenarios else game.protocol
    context, d = typical_context(protocol), protocol.d
    past = [
        typical_round(protocol, t, (t - 1) % d, tuple(REWARDS[(t + a) % len(REWARDS)] for a in range(d)))
        for t in range(1, min(rounds, job.T) + 1)
    ]
    for t in range(len(past)):
        yield prompts.message(protocol, past[:t], context)
