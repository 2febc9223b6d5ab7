"""The environments as Gymnasium environments: `rmft.make` for one game, `rmft.make_vec` for many at once.

Symbols: n games, T rounds, d actions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike

from rmft.environments import ADAPTIVE, ENVIRONMENTS, RewardTable, check_processes, draw_rewards, require_size
from rmft.environments.clipping import HIGH, LOW
from rmft.errors import InputError

STREAM = "play"  # names the random streams of `rmft.play`
LARGEST_ROOT = 2**31


def check_whole(name: str, value: object, least: int) -> None:
    """Raise InputError where a value is no whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: {value!r}: must be a whole number of at least {least}")


class Episodes:
    """n games that end together after T rounds.

    Raise InputError for a process that they cannot have, for n < 1, d < 2 or T < 1, and for more than memory can hold.
    """

    def __init__(self, environment: str, process: str | Sequence[str], n: int, d: int, T: int) -> None:
        if not isinstance(environment, str):
            raise InputError(f"environment: {environment!r}: must be the name of an environment, such as 'mab'")
        if not isinstance(process, Iterable):
            raise InputError(f"process: {process!r}: must be the name of a reward process, or several names")
        self.processes = [process] if isinstance(process, str) else list(process)
        check_processes(environment, self.processes)
        self.environment, self.settings = environment, ENVIRONMENTS[environment]
        for name, value, least in (("num_envs", n, 1), ("d", d, 2), ("T", T, 1)):
            check_whole(name, value, least)
        self.n, self.d, self.T = int(n), int(d), int(T)
        require_size((self.n, self.T, self.d))
        self._t: int | None = None  # rounds that are over; None before the first reset
        if self.settings.contextual or ADAPTIVE in self.processes:
            raise InputError(f"{environment}, {', '.join(self.processes)}: not offered as a Gymnasium environment")
        self.observed = self.d if self.settings.full_feedback else 1

    def begin(self, generator: np.random.Generator) -> np.ndarray:
        """Draw new rewards, and return the first observation (n, …): zeros, since nothing has been paid yet."""
        root = int(generator.integers(LARGEST_ROOT))
        self.table: RewardTable = draw_rewards(root, "gymnasium", self.processes, (self.n, self.T, self.d))
        self._t = 0
        self.totals = np.zeros((self.n, self.d))  # with full information: what each action has earned
        self.earned, self.best = np.zeros((2, self.n))  # what the actions played have earned, and the comparator
        return np.zeros((self.n, self.observed))

    @property
    def t(self) -> int:
        """Return how many rounds are over. Raise InputError before the first reset."""
        if self._t is None:
            raise InputError("no game has begun: call reset before step")
        return self._t

    def play(self, actions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Play a round; return the observation (n, …) and the rewards (n,) of actions (n,), whole numbers.

        Raise InputError for actions of another shape or type, for an action that there is none of, before the first
        reset and after the last round.
        """
        if self.t == self.T:
            raise InputError(f"the game is over after {self.T} rounds: call reset")
        try:
            actions = np.asarray(actions)
        except ValueError:  # rows of several lengths
            raise InputError(f"actions must be whole numbers, one for each game, not {actions}") from None
        if actions.shape != (self.n,) or actions.dtype.kind not in "iu":
            wanted = f"whole numbers of shape ({self.n},), one for each game"
            raise InputError(f"actions must be {wanted}, not {actions.dtype} of shape {actions.shape}")
        if (actions < 0).any() or (actions >= self.d).any():
            raise InputError(f"actions are 0 to {self.d - 1}, not {actions.tolist()}")
        shown, played = self.table.rewards[:, self.t], (np.arange(self.n), actions)
        paid, self.best_actions = shown[played], self._count(played)
        self._t += 1
        return (shown.copy() if self.settings.full_feedback else paid[:, None].copy()), paid

    def _count(self, played: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Add a round to what `regret.regret("expected", …)` sums up; return the comparator's actions (n,)."""
        if self.settings.comparator == "best mean":
            means = self.table.means[:, self.t]
            self.earned += means[played]
            self.best += means.max(axis=1)
            return means.argmax(axis=1)
        rewards = self.table.rewards[:, self.t]
        self.totals += rewards
        self.earned += rewards[played]
        self.best = self.totals.max(axis=1)
        return self.totals.argmax(axis=1)

    def info(self) -> dict[str, np.ndarray]:
        """Return the regret (n,) of the rounds so far, and the best action (n,) of the last one."""
        return {"regret": self.best - self.earned, "best_action": self.best_actions} if self.t else {}


def _checked(seed: int | None) -> int | None:
    """Return a seed as Gymnasium takes it, which refuses numpy's. Raise InputError where it is no whole number."""
    if seed is None:
        return None
    check_whole("seed", seed, 0)
    return int(seed)


class GameEnv(gymnasium.Env):
    """One game. An action is 0-based.

    The observation is what the last action paid, (1,); with full information the last rewards of all actions, (d,);
    before the first round, zeros. An episode is truncated after T rounds. `info` has the regret so far and the best
    action: in bandits the one of highest mean, with full information the one that has earned most.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, games: Episodes) -> None:
        self.games = games
        self.observation_space = Box(LOW, HIGH, (games.observed,), np.float64)
        self.action_space = Discrete(games.d)
        described = {"environment": games.environment, "process": games.processes, "d": games.d, "T": games.T}
        name = f"rmft/{games.environment}-v0"  # not registered: wrappers ask a specification for the number of rounds
        self.spec = EnvSpec(name, entry_point="rmft:make", kwargs=described, max_episode_steps=games.T)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a game; the same seed draws the same rewards. Raise InputError for a seed that is no whole number."""
        super().reset(seed=_checked(seed))
        return self.games.begin(self.np_random)[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play a round. Raise InputError for a wrong action, before `reset` and after the last round."""
        observation, paid = self.games.play([action])
        info = {name: of[0].item() for name, of in self.games.info().items()}
        return observation[0], float(paid[0]), False, self.games.t == self.games.T, info


class GamesEnv(VectorEnv):
    """n games at once, vectorised; otherwise like `GameEnv`. After the last round the next step begins new games."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, games: Episodes) -> None:
        self.games, self.num_envs = games, games.n
        self.single_observation_space = Box(LOW, HIGH, (games.observed,), np.float64)
        self.single_action_space = Discrete(games.d)
        self.observation_space = Box(LOW, HIGH, (games.n, games.observed), np.float64)
        self.action_space = MultiDiscrete([games.d] * games.n)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin n games; the same seed draws the same rewards. Raise InputError for a seed that is no whole number."""
        super().reset(seed=_checked(seed))
        return self.games.begin(self.np_random), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Play a round of all games, with actions (n,); where they are over, begin new ones in place of a round.

        Raise InputError for wrong actions, and before `reset`.
        """
        none = np.zeros(self.games.n, dtype=bool)
        if self.games.t == self.games.T:
            return self.games.begin(self.np_random), np.zeros(self.games.n), none, none, {}
        observation, paid = self.games.play(actions)
        return observation, paid, none, np.full(self.games.n, self.games.t == self.games.T), self.games.info()


def make(environment: str, process: str | Sequence[str] = "gaussian", *, d: int = 3, T: int = 25) -> GameEnv:
    """Return one game.

    Args:
        environment: "fol" (full information), "mab" (bandit) or "ns-mab" (bandit whose means change).
        process: of rewards; several make an even mixture.
        d: actions, at least 2.
        T: rounds, at least 1.

    Raises:
        InputError: for an unknown environment, a process that does not belong in it, or a wrong number.

    Examples:
        >>> env = make("mab", "gaussian", d=3, T=25)
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """
    return GameEnv(Episodes(environment, process, 1, d, T))


def make_vec(
    environment: str, process: str | Sequence[str] = "gaussian", *, num_envs: int, d: int = 3, T: int = 25
) -> GamesEnv:
    """Return `num_envs` games that are played at once; see `make`."""
    return GamesEnv(Episodes(environment, process, num_envs, d, T))
