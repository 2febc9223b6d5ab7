"""Stage `reasoning`: compare what replies claim with what happened, and judge why they pass over the best action.

Reads the games that the base model and the trained model of each training seed have played in words (parquet), the
words of the lexical judge, the scenarios, and the journal of a judge behind an endpoint. Writes replies.parquet,
claims.parquet and accuracy.csv into a folder.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.files import noted
from rmft.artifacts.replies import write_claims, write_replies
from rmft.artifacts.trajectories import read_trajectories
from rmft.endpoint.session import journal_of, open_connection
from rmft.language.prompts import read_template
from rmft.reasoning.accuracy import accuracies
from rmft.reasoning.judges import lexical, read_words, zero_shot
from rmft.reasoning.replies import examine, games_of
from rmft.workflow.games import protocol_of, read_scenarios_of
from rmft.workflow.records import ReasoningJob


def run(job: ReasoningJob, inputs: Sequence[Path], folder: Path) -> None:
    """Examine all replies, and say how many of their claims are right.

    inputs: the games of the base model, then those of each training seed's trained model.
    """
    judge = job.judge
    scenarios = read_scenarios_of(job.games)
    players = [("base", 0), *(("trained", seed) for seed in range(len(inputs) - 1))]
    played = [(*player, read_trajectories(path)) for player, path in zip(players, inputs, strict=True)]
    judges = {"unstable": lexical(read_words(noted(Path(job.words))))}
    with ExitStack() as stack:
        if judge is not None:
            journal, template = journal_of(folder / "replies.parquet"), read_template(noted(Path(judge.prompt)))
            opened = open_connection(judge.model_name, judge.model, judge.served, judge.model.model, journal)
            connection = stack.enter_context(opened)
            judges["unstable_judged"] = zero_shot(connection, template, judge.max_tokens, job.seed)
        means = "clipped_means" if job.mean == "clipped" else "means"
        examined = list(games_of(protocol_of(job.games.problem), played, scenarios, means))
        replies, claims = examine(examined, job.games.problem.protocol.tolerance, judges)
    accuracy = accuracies(job.seed, (job.experiment, job.evaluation), job.resamples, replies, claims)
    write_replies(folder / "replies.parquet", replies)
    write_claims(folder / "claims.parquet", claims)
    write_rows(folder / "accuracy.csv", accuracy)
