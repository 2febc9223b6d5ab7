"""Stage `rewards`: draw a held-out reward set.

Reads nothing. Writes rewards and means of every action, round and instance, and contexts (npz).
"""

from pathlib import Path

from rmft.artifacts.rewards import write_rewards
from rmft.environments import draw_rewards
from rmft.workflow.records import RewardsJob


def run(job: RewardsJob, output: Path) -> None:
    """Draw the reward set from the root seed and its own name."""
    settings = job.rewards
    shape = (settings.instances, settings.T, settings.d)
    write_rewards(output, draw_rewards(job.seed, job.name, settings.process, shape, features=settings.features))
