"""`rmft simulate`: any reference algorithm on any environment, over as many replicates as wanted.

Replicates are played a block at a time, so memory does not grow with their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rmft.algorithms import AlgorithmSettings, check_algorithm, start_on
from rmft.artifacts.json_files import finite
from rmft.environments import (
    ENVIRONMENTS,
    EnvironmentName,
    PolicySpace,
    block_of_rewards,
    check_features,
    check_policy_space,
    check_processes,
)
from rmft.environments.regret import Mean, Notion, best_actions, regret
from rmft.errors import InputError
from rmft.game import action_uniforms, play
from rmft.metrics.exploration import scaled_min_frac, suffix_failure
from rmft.metrics.growth import Growth, growth
from rmft.streams import blocks

OnRound = Callable[[int], object]
PLOTTED = (".pdf", ".png", ".csv")
DEFAULT_FEATURES = 3
DEFAULT_NOTION: dict[EnvironmentName, Notion] = {
    "fol": "expected",
    "mab": "pseudo",
    "ns-mab": "dynamic",
    "cb": "pseudo",
}


@dataclass(frozen=True)
class SimulatedGame:
    """A game to simulate. radius: of the ball, None for the simplex. features: of contexts, None if there are none."""

    environment: EnvironmentName
    processes: Sequence[str]
    d: int
    horizon: int
    algorithm: AlgorithmSettings
    radius: float | None = None
    notion: Notion | None = None
    mean: Mean = "nominal"
    features: int | None = None

    def check(self) -> None:
        """Raise InputError if the game cannot be played."""
        if self.d < 2:
            raise InputError(f"actions must be 2 or more, not {self.d}")
        if self.horizon < 1:
            raise InputError(f"horizon must be 1 or more, not {self.horizon}")
        if self.radius is not None and not 0 < self.radius < float("inf"):
            raise InputError(f"radius must be a positive number, not {self.radius:g}")
        check_policy_space(self.environment, on_ball=self.radius is not None)
        if self.features is not None and self.features < 1:
            raise InputError(f"features must be 1 or more, not {self.features}")
        check_processes(self.environment, self.processes)
        check_features(self.processes, self.features)
        check_algorithm(self.algorithm, self.environment, "simplex" if self.radius is None else "ball")


@dataclass(frozen=True)
class Summary:
    """The results of n replicates of T rounds.

    final: final regrets (n,). curve, spread: (T,), mean and standard deviation of Regret(t). suff_fail_freq, min_frac:
    (T,), SuffFailFreq(t) and d · MinFrac(t); None on the ball, which has no actions.
    """

    final: np.ndarray
    curve: np.ndarray
    spread: np.ndarray
    suff_fail_freq: np.ndarray | None
    min_frac: np.ndarray | None

    @property
    def growth(self) -> Growth:
        """Return the fits to the mean regret curve."""
        return growth(self.curve)

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean final regret; NaN for one replicate."""
        n = len(self.final)
        return float(self.final.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")

    def as_json(self) -> dict[str, Any]:
        """Return the values that `rmft simulate --json` prints; those that are not finite become None."""
        fit, final = self.growth, self.final
        values = {
            "final_regret": {"mean": final.mean(), "se": self.standard_error, "max": final.max()},
            "growth": {"exponent": fit.exponent, "p": fit.exponent_p, "dropped": fit.dropped, "slope": fit.slope},
            "suff_fail_freq": self.suff_fail_freq,
            "min_frac": self.min_frac,
        }
        return finite(values)

    def as_text(self) -> str:
        """Return the main numbers in a few lines."""
        fit, final = self.growth, self.final
        error = f" ± {self.standard_error:.2f}" if len(final) > 1 else ""
        text = (
            f"final regret   {final.mean():.2f}{error} (largest {final.max():.2f})\n"
            f"growth         exponent {fit.exponent:.3f} (p = {fit.exponent_p:.2g}, {fit.dropped} rounds dropped), "
            f"slope {fit.slope:.3f}"
        )
        if self.min_frac is None:
            return text
        half = self.suff_fail_freq[len(self.suff_fail_freq) // 2]
        explored = f"d·MinFrac {self.min_frac[-1]:.3f}, SuffFailFreq of the second half {half:.3f}"
        return f"{text}\nexploration    {explored}"


def number_or_text(text: str | None) -> float | str | None:
    """Return an option's value: a number if it is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def option_value(text: str) -> bool | int | float | str:
    """Return an option's value as params.yaml would have it: true or false, a whole number, a number, or a text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return number_or_text(text)


def named_values(options: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Return the values of NAME=VALUE options by name. Raise InputError for any other."""
    for option in options:
        if "=" not in option:
            raise InputError(f"--option: {option!r} is no NAME=VALUE")
    return {name: option_value(value) for name, _, value in (option.partition("=") for option in options)}


def radius_of(policy_space: PolicySpace, radius: float | None) -> float | None:
    """Return the ball's radius, 1 by default; None for the simplex, for which no radius can be given."""
    if policy_space == "ball":
        return 1.0 if radius is None else radius
    if radius is not None:
        raise InputError("--radius belongs to --policy-space ball")
    return None


def features_of(environment: EnvironmentName, features: int | None) -> int | None:
    """Return the number of features of contexts, DEFAULT_FEATURES by default; None where there are no contexts."""
    return DEFAULT_FEATURES if features is None and ENVIRONMENTS[environment].contextual else features


def stem_of(plot: Path) -> Path:
    """Return the path of a plot without the ending of any file that is drawn. Raise InputError where it has no name."""
    if plot.name in ("", ".."):
        raise InputError("--plot needs a file name")
    return plot.with_suffix("") if plot.suffix in PLOTTED else plot


def simulate(root: int, game: SimulatedGame, replicates: int, on_round: OnRound = lambda _: None) -> Summary:
    """Play `replicates` independent instances. Raise InputError if the game cannot be played.

    on_round: called after each round of a block with the number of replicates in the block.
    """
    game.check()
    if root < 0:
        raise InputError(f"seed must be 0 or more, not {root}")
    if replicates < 1:
        raise InputError(f"replicates must be 1 or more, not {replicates}")
    final, sums = zip(*(_play_block(root, game, block, n, on_round) for block, n in blocks(replicates)), strict=True)
    mean, square, failures, fractions = sum(sums) / replicates
    if not np.isfinite(mean).all():
        raise InputError("regret is no finite number: eta or radius is too large")
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    explored = (None, None) if game.radius is not None else (failures, fractions)
    return Summary(np.concatenate(final), mean, spread, *explored)


def _play_block(root: int, game: SimulatedGame, block: int, n: int, on_round: OnRound) -> tuple[np.ndarray, np.ndarray]:
    """Return final regrets (n,), and sums over replicates (4, T): of Regret(t), its square, suffix failure, MinFrac."""
    environment, name, on_ball = ENVIRONMENTS[game.environment], "simulate", game.radius is not None
    shape = (n, game.horizon, game.d)
    rewards = block_of_rewards(root, name, game.processes, shape, block, features=game.features)
    player = start_on(root, f"{name}-{block}", game.algorithm, rewards, game.radius)
    uniforms = None if on_ball else action_uniforms(root, n, name, block)
    full = environment.full_feedback
    with np.errstate(all="ignore"):  # `simulate` refuses what is not finite
        played = play(player, rewards, full_feedback=full, uniforms=uniforms, on_round=partial(on_round, n))
    notion, table = game.notion or DEFAULT_NOTION[game.environment], played.table
    policies, actions = played.policies, played.actions
    curves = regret(notion, environment.comparator, table, policies, actions, mean=game.mean, radius=game.radius)
    failures = fractions = np.zeros_like(curves)
    if not on_ball:
        failures = suffix_failure(actions, best_actions(environment.comparator, table, game.mean))
        fractions = scaled_min_frac(actions, game.d)
    return curves[:, -1], np.stack([of.sum(axis=0) for of in (curves, curves**2, failures, fractions)])
