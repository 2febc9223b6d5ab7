"""Stage `rollouts`: Algorithm `ssft-language-model`, "sample L": a language model plays a shard of games in words.

Reads the model, its fine-tuned weights if there are any, the templates of the prompts, the scenarios, and the reward
set of an evaluation. Writes the trajectories (parquet).
"""

import sys
from pathlib import Path

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


def run(job: RolloutsJob, output: Path, weights: Path | None = None, rewards: Path | None = None) -> None:
    """Play the games of one shard: on the reward set, or where there is none on rewards drawn for training."""
    folder = job.problem.protocol.prompts
    note_reading(map(Path, prompt_files(folder)))
    prompts = Prompts.load(Path(folder))
    scenarios = scenarios_for(job, read_scenarios(noted(Path(job.scenario_set)))) if job.scenario_set else None
    held_out = read_rewards(rewards) if rewards else None
    with (
        open_chat_models(job, prompts, scenarios, weights, output) as chat_models,
        speed(f"rollouts {output}", job.games * job.T) as advance,
    ):
        games = roll_out(job, chat_models.open, prompts, scenarios, held_out, chat_models.batch, advance)
        if summary := chat_models.summary():
            print(f"rollouts {output}: {summary}", file=sys.stderr)
    write_trajectories(output, games)
