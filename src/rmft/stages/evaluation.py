"""Stage `evaluation`: base model, trained model and reference algorithms on common instances.

Reads the reward set (npz), and the numeric models (safetensors, base then trained) or the games that language models
have played in words (parquet, one file a player). Writes the regret of every player (parquet).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.agents.numeric import read_model
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.rewards import read_rewards
from rmft.artifacts.trajectories import read_trajectories
from rmft.evaluation import Instances, evaluate, evaluate_in_words, first_instances
from rmft.workflow.records import EvaluationJob


def run(job: EvaluationJob, inputs: Sequence[Path], rewards: Path, output: Path) -> None:
    """Evaluate the players, and the reference algorithms beside them."""
    problem, evaluation, numeric = job.problem, job.evaluation, job.problem.kind == "numeric"
    players = [read_model(path) if numeric else read_trajectories(path) for path in inputs]
    shape = (evaluation.instances, evaluation.T, problem.d)
    table = first_instances(read_rewards(rewards), evaluation.rewards, shape)
    radius = problem.radius if numeric else None
    instances = Instances(table, evaluation.rewards, job.seed, problem.environment, job.mean, radius)
    algorithms = {name: job.algorithms[name] for name in evaluation.algorithms}
    if numeric:
        models = dict(zip(("base", "trained"), players, strict=True))
        columns = evaluate(instances, models, algorithms, normalise=problem.normalise)
    else:
        games = [(*player, played) for player, played in zip(job.players, players, strict=True)]
        columns = evaluate_in_words(instances, games, algorithms)
    write_evaluation(output, columns)
