"""Stage `distillation`: a reference algorithm plays games in words, as a model would, for a model to learn from.

Reads the model's tokenizer, the templates of prompts and rationale, and the scenarios. Writes the trajectories
(parquet) and all of them as demonstrations (jsonl).
"""

from pathlib import Path

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.checkpoint import load_tokenizer, note_model
from rmft.artifacts.files import note_reading, noted
from rmft.artifacts.json_files import write_jsonl
from rmft.artifacts.trajectories import write_trajectories
from rmft.language.prompts import Prompts
from rmft.language.scenarios import read_scenarios
from rmft.progress import speed
from rmft.rollouts import scenarios_for
from rmft.selection import demonstrations as conversations_of
from rmft.training.distillation import distil
from rmft.workflow.paths import prompt_files
from rmft.workflow.records import DistillationJob


def run(job: DistillationJob, output: Path, demonstrations: Path) -> None:
    """Play the teacher's games and write them down in the tokens of the model that is to learn."""
    games, folder = job.games, job.games.problem.protocol.prompts
    note_model(games.model, weights=False)
    note_reading(map(Path, [*prompt_files(folder), *([job.rationale] if job.rationale else [])]))
    scenarios = scenarios_for(games, read_scenarios(noted(Path(games.scenario_set)))) if games.scenario_set else None
    template = ChatTemplate.probe(load_tokenizer(games.model))
    with speed(f"distillation {output}", games.games * games.T) as advance:
        trajectories = distil(job, template, Prompts.load(Path(folder)), scenarios, advance)
    write_jsonl(demonstrations, conversations_of(trajectories, [True] * games.games))
    write_trajectories(output, trajectories)
