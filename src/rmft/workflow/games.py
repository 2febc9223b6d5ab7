"""The games of a job's record, as `rollouts` takes them."""

from collections.abc import Sequence
from pathlib import Path

from rmft.artifacts.files import note_reading, noted
from rmft.environments import RewardTable, draw_rewards
from rmft.errors import InputError
from rmft.language.game import GameSettings
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Scenario
from rmft.language.scenarios import for_actions, read_scenarios
from rmft.package_data import find_file
from rmft.params.files import prompt_files
from rmft.params.language import LanguageProblem
from rmft.rollouts import Games, games_of_shard
from rmft.workflow.records import RolloutsJob


def read_prompts(job: RolloutsJob) -> Prompts:
    """Return the templates of a job's prompts."""
    folder = find_file(job.problem.protocol.prompts)
    note_reading(map(Path, prompt_files(folder)))
    return Prompts.load(folder)


def read_scenarios_of(job: RolloutsJob) -> list[Scenario] | None:
    """Return the texts of a job's M scenarios; None where actions are mere numbers."""
    return scenarios_for(job, read_scenarios(noted(Path(job.scenario_set)))) if job.scenario_set else None


def scenarios_for(job: RolloutsJob, bundled: Sequence[Scenario]) -> list[Scenario]:
    """Return the texts of a job's M scenarios from a set; raise InputError where the set has none of d actions.

    # ASSUME: all iterations have the same texts. Training reads a set from the front and evaluation from the back, so
    that they share texts only where M and the instances together are more than the set has.
    """
    fitting = for_actions(bundled, job.problem.d)
    if not fitting:
        raise InputError(f"{job.scenario_set}: has no scenario of {job.problem.d} actions")
    ordered = fitting if job.process is not None else fitting[::-1]
    return [ordered[i % len(ordered)] for i in range(job.scenarios)]


def protocol_of(problem: LanguageProblem) -> Protocol:
    """Return the protocol of a problem's games, without a scenario."""
    settings = problem.protocol
    in_words = settings.interaction, settings.output, problem.feedback, settings.format
    return Protocol(*in_words, problem.d, features=problem.features or 0)


def game_settings_of(job: RolloutsJob, prompts: Prompts) -> GameSettings:
    """Return how a job's games are played in words."""
    return game_settings(job.problem, prompts, job.temperature)


def game_settings(problem: LanguageProblem, prompts: Prompts, temperature: float) -> GameSettings:
    """Return how the games of a problem are played in words."""
    settings = problem.protocol
    return GameSettings(prompts, protocol_of(problem), temperature, settings.retries, settings.tolerance)


def games_of(
    job: RolloutsJob,
    prompts: Prompts,
    scenarios: Sequence[Scenario] | None = None,
    held_out: RewardTable | None = None,
) -> Games:
    """Return the games of a job's shard: on a reward set, or where there is none on rewards drawn for training."""
    shape, problem = (job.scenarios, job.T, job.problem.d), job.problem
    if held_out is None:
        rewards = draw_rewards(job.seed, job.stream, job.process, shape, features=problem.features)
    else:
        rewards = held_out.head(*shape[:2])
    if rewards.shape != shape:
        raise InputError(f"reward set: holds (n, T, d) = {held_out.shape}, too little for {shape}")
    return Games(
        ids=games_of_shard(job.scenarios, job.trajectories, *job.shard),
        rewards=rewards,
        settings=game_settings_of(job, prompts),
        scenarios=scenarios,
        seed=job.seed,
        words=job.stream,
        environment=problem.environment,
        notion=problem.training_regret,
    )
