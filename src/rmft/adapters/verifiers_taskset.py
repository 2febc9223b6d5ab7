"""verifiers: `vf-eval rmft-bandit` plays the games of `rmft eval`, and prime-rl trains on them; a rollout is a game.

verifiers leaves the conversation to a harness. Ours runs the game in process, and asks for each reply through the
address that verifiers gives it, so that a trace holds every reply. A reply that is retracted begins a branch.
"""

from collections import Counter

import verifiers.v1 as vf
from httpx2 import AsyncClient
from pydantic import field_validator

from rmft.adapters.games import GameOptions, GameResult, OfferedGames, offered
from rmft.agents.asked import Message
from rmft.errors import InputError
from rmft.params.section import prefixed

GAME = "rmft"  # where a trace keeps its game
ROLLOUTS: Counter[tuple[GameOptions, int]] = Counter()  # with seeds, so far; verifiers makes a harness for each
SUCCESS = vf.ProgramResult(exit_code=0, stdout="", stderr="")


class BanditData(vf.TaskData):
    """An instance, and the options that name its games. seeded: whether requests have seeds."""

    instance: int
    options: GameOptions
    seeded: bool


class BanditTask(vf.Task[BanditData]):
    """A game: what a rollout earned."""

    @vf.reward
    async def minus_regret(self, trace: vf.Trace) -> float:
        """Return −regret / (10 T): usually in [-1, 0]; see `GameResult.reward`."""
        return _game(trace).reward

    @vf.metric
    async def game(self, trace: vf.Trace) -> dict[str, float]:
        """Return the regret, that of uniform play, invalid replies and the share of rounds that chance decided."""
        game = _game(trace)
        of_game = ("regret", "uniform", "invalid_replies", "chance")
        return {name: float(getattr(game, name)) for name in of_game}


class BanditConfig(vf.TasksetConfig):
    """Which games are played. seeded: send a seed with each request: a server that heeds it replies the same again."""

    games: GameOptions = GameOptions()
    seeded: bool = False

    @field_validator("games")
    @classmethod
    def _there(cls, games: GameOptions) -> GameOptions:
        prefixed("games", offered, games)
        return games


class BanditTaskset(vf.Taskset[BanditTask, BanditConfig]):
    """The games of one part of the suite, or of one's own."""

    def load(self) -> list[BanditTask]:
        """Return a task for each instance."""
        games = offered(self.config.games)
        shared = {"prompt": games.opening, "options": self.config.games, "seeded": self.config.seeded}
        return [
            BanditTask(BanditData(name=f"game {instance + 1}", instance=instance, **shared), self.config.task)
            for instance in range(len(games.uniform))
        ]


class BanditHarness(vf.Harness[vf.HarnessConfig]):
    """Play the task's game."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: BanditData,
    ) -> vf.ProgramResult:
        """Play the game, and keep its result in the trace."""
        games, repetition = _games(data, trace)
        system, _ = self.resolve_prompt(data)
        first = [{"role": "system", "content": system}] if system else []
        headers = {"Authorization": f"Bearer {secret}"}
        async with AsyncClient(base_url=endpoint, headers=headers, timeout=None, trust_env=False) as client:

            async def ask(messages: list[Message], seed: int) -> str:
                body = {"model": ctx.model, "messages": [*first, *messages], "max_completion_tokens": games.max_tokens}
                body |= {"temperature": 1.0} | ({"seed": seed} if data.seeded else {})
                response = await client.post("chat/completions", json=body)
                if response.status_code != 200:
                    raise vf.HarnessError(f"{response.status_code}: {response.text.strip()[:500]}")
                return response.json()["choices"][0]["message"]["content"] or ""

            trace.info[GAME] = vars(await games.play_async(data.instance, repetition, ask))
        return SUCCESS


class BanditEnvConfig(vf.EnvConfig):
    """The player runs on this machine, since its harness starts no program."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class BanditEnv(vf.Env[BanditEnvConfig]):
    """One player, one game."""

    async def run(self, task: BanditTask, agents: vf.Agents) -> None:
        """Play the game of a task."""
        await agents.agent.run(task)


def _games(data: BanditData, trace: vf.Trace) -> tuple[OfferedGames, int]:
    """Return the games, and which repetition of its instance a rollout is: no two have the same random numbers.

    With seeds the repetitions are counted in this process, so that a new process plays the same games. Without, every
    trace plays games of its own.
    """
    games, key = offered(data.options), (data.options, data.instance)
    if not data.seeded:
        return games.named(str(trace.id)), 0
    ROLLOUTS[key] += 1
    return games, ROLLOUTS[key] - 1


def _game(trace: vf.Trace) -> GameResult:
    """Return the game of a trace. Raise InputError where a limit ended it before its last round."""
    if GAME not in trace.info:
        stop = trace.stop_condition or "an error"
        raise InputError(f"the game was ended by {stop} before its last round, so that it has no regret")
    return GameResult(**trace.info[GAME])
