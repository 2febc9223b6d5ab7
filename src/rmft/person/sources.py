"""What a person can play: a part of the suite of `rmft eval`, or a built evaluation, with the regret of other players.

Symbols: n instances, T rounds, d actions.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rmft.environments import RewardTable
from rmft.environments.regret import Mean
from rmft.errors import InputError, unknown
from rmft.evaluation import Instances, evaluate_in_words
from rmft.params import Params
from rmft.params.files import evaluation_of
from rmft.person.game import PersonGame
from rmft.results import read_players
from rmft.rollouts import Games
from rmft.suite import FILE
from rmft.suite.measuring import MEAN, ReplySettings
from rmft.suite.parts import DECIMALS, Part, Suite, read_suite
from rmft.suite.results import read_result
from rmft.workflow.games import games_of, read_prompts, read_scenarios_of

Named = dict[str, str | int]  # what tells games from others, as games.jsonl has it
REPLY = ReplySettings()  # as `rmft eval` asks a model
NO_GAME = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Source:
    """Instances of one kind, on each of which a person can play a game.

    games: all of them, none chosen yet. others: takes rounds, and a number of instances; returns by name the regret of
    other players after these rounds, (m,) on the first m instances, where m is at most what was asked for.
    """

    named: Named
    games: Games
    mean: Mean
    others: Callable[[int, int], dict[str, np.ndarray]]

    @property
    def title(self) -> str:
        """Return what the games are called."""
        return ", ".join(f"{key} {value}" for key, value in self.named.items())

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (n, T, d)."""
        return self.games.rewards.shape

    def game(self, instance: int, rounds: int) -> PersonGame:
        """Return the first rounds of the game of an instance. Raise InputError where it has not as many."""
        n, horizon, _ = self.shape
        if not 0 <= instance < n:
            raise InputError(f"play: --instance: {instance} must be 0 to {n - 1}")
        if rounds > horizon:
            raise InputError(f"play: --rounds: {rounds} is more than the {horizon} of a game of {self.title}")
        return PersonGame(replace(self.games, ids=np.array([[instance, 0]])), self.mean).first(rounds)

    def digest(self, instance: int) -> str:
        """Return a digest of an instance, which tells it from others of the same number."""
        rewards = self.games.rewards.rewards[instance].round(DECIMALS) + 0.0
        return hashlib.sha256(rewards.tobytes()).hexdigest()[:12]


def of_suite(suite: Suite, part: str, evals: Path) -> Source:
    """Return the games of a part of the suite. evals: the folder below which models' results are looked for.

    Raise InputError for an unknown part.
    """
    if part not in suite.parts:
        raise InputError(f"play: --part: {unknown(part, suite.parts)}")
    of, stream = suite.parts[part], suite.stream(part)
    rewards = suite.rewards(part, max(level.get(part, 0) for level in suite.levels.values()))

    def others(rounds: int, instances: int) -> dict[str, np.ndarray]:
        shared = Instances(rewards.head(instances, of.T), stream, suite.seed, of.environment, MEAN)
        played = evaluate_in_words(shared, [], {name: suite.algorithms[name] for name in of.references})
        regret = np.array([curve[rounds - 1] for curve in played["regret"]]).reshape(-1, instances)
        models = _models(suite, part, evals) if rounds == of.T else {}
        return dict(zip(of.references, regret, strict=True)) | models

    games = REPLY.games(of, suite.prompts, suite.seed, stream, rewards, NO_GAME)
    return Source({"suite": suite.version, "part": part, "seed": suite.seed}, games, MEAN, others)


def _models(suite: Suite, part: str, evals: Path) -> dict[str, np.ndarray]:
    """Return the final regrets of the models that `rmft eval` measured on a part, by name."""
    found, identity = {}, suite.identity(part, REPLY.format)
    for path in sorted(evals.rglob(FILE)):
        with suppress(InputError):  # a result of another version is no mistake of the player's
            result = read_result(path)
            if part in result.parts and result.parts[part].identity == identity:
                name = result.model.name
                name = f"{name} ({path.parent.name})" if name in found else name
                found[name] = np.array(result.parts[part].final_regrets)
    return found


def of_evaluation(params: Params, experiment: str, evaluation: str) -> Source:
    """Return the games of a built evaluation. Raise InputError where they are no games for a person."""
    from rmft.workflow.current import rewards_of
    from rmft.workflow.plan import held_out_job, problem_in

    played = {name: of.by_instance for name, of in read_players(Path(evaluation_of(experiment, evaluation))).items()}
    n, horizon = next(iter(played.values())).shape
    name = params.experiments[experiment].evaluations[evaluation].rewards
    held_out, problem = rewards_of("play", params, experiment, evaluation), problem_in(params, experiment, evaluation)
    if not isinstance(held_out, RewardTable) or getattr(problem, "radius", None) is not None:
        raise InputError(f"play: {experiment}, {evaluation}: is played by policies; a person chooses actions")
    if problem.kind == "numeric":
        process = params.rewards[name].process
        part = Part(environment=problem.environment, process=process, d=problem.d, T=horizon, references=[])
        games = REPLY.games(part, read_suite().prompts, params.seed, name, held_out.head(n, horizon), NO_GAME)
    else:
        job = held_out_job(params, experiment, evaluation).model_copy(update={"scenarios": n, "T": horizon})
        games = replace(games_of(job, read_prompts(job), read_scenarios_of(job), held_out), ids=NO_GAME)
    return Source(
        {"experiment": experiment, "evaluation": evaluation},
        games,
        params.evaluation.mean,
        lambda rounds, instances: {name: curves[:instances, rounds - 1] for name, curves in played.items()},
    )
