"""Stage `distillation`: a reference algorithm plays games in words, as a model would, for a model to learn from.

Reads the model's tokenizer, the templates of prompts and rationale, and the scenarios. Writes the trajectories
(parquet) and all of them as demonstrations (jsonl).
"""

from pathlib import Path

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import single_tokens
from rmft.agents.checkpoint import load_tokenizer, note_model
from rmft.artifacts.files import noted
from rmft.artifacts.json_files import write_jsonl
from rmft.artifacts.trajectories import write_trajectories
from rmft.language.prompts import read_template
from rmft.progress import speed
from rmft.selection import demonstrations as conversations_of
from rmft.training.distillation import distil
from rmft.workflow.games import games_of, read_prompts, read_scenarios_of
from rmft.workflow.records import DistillationJob


def run(job: DistillationJob, output: Path, demonstrations: Path) -> None:
    """Play the teacher's games and write them down in the tokens of the model that is to learn."""
    model, count = job.games.model, job.games.games
    note_model(model, weights=False)
    games = games_of(job.games, read_prompts(job.games), read_scenarios_of(job.games))
    rationale = read_template(noted(Path(job.rationale))) if job.rationale else None
    tokenizer = load_tokenizer(model)
    chat_template, stops = ChatTemplate.probe(tokenizer), single_tokens(tokenizer, model.stop_tokens or ())
    max_tokens = job.games.problem.protocol.max_tokens
    with speed(f"distillation {output}", count * job.games.T) as advance:
        trajectories = distil(
            games, job.teacher, job.teacher_name, rationale, chat_template, max_tokens, model.batch, advance, stops
        )
    write_jsonl(demonstrations, conversations_of(trajectories, [True] * count))
    write_trajectories(output, trajectories)
