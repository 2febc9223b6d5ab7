"""The tidy frames that figures draw, and that their CSV files hold.

Columns: panel, player; series: which of a player's lines or samples in a panel a row belongs to; x, y; low, high: the
ends of the interval around y, empty where there is none. S training seeds, n games, T rounds.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from rmft.metrics.comparison import t_quantile

COLUMNS = ["panel", "player", "series", "x", "y", "low", "high"]
CURVE = "curve"  # the main line of a player
SEED = "training seed"  # followed by its number: the line of one training seed
GAMES = "final regret of a game"  # a sample, whose distribution is drawn
PRINTED = "printed: "  # followed by what it is: a number that is written into the figure
Z = 1.96  # of the normal distribution, for intervals of 95%


def rows(panel: str, player: str, series: str, x: object, y: object = None, **columns: object) -> pd.DataFrame:
    """Return the rows of one series; columns: low and high, or further ones."""
    return pd.DataFrame({"panel": panel, "player": player, "series": series, "x": x, "y": y, **columns})


def joined(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return all parts as one frame, whose columns begin with COLUMNS."""
    parts = list(parts)
    columns = list(dict.fromkeys([*COLUMNS, *(column for part in parts for column in part)]))
    return pd.concat([part.reindex(columns=columns).astype(object) for part in parts], ignore_index=True)


def printed(panel: str, player: str, what: str, value: float) -> pd.DataFrame:
    """Return the row of a number that is written into the figure."""
    return rows(panel, player, PRINTED + what, [None], [value])


def wilson(share: np.ndarray, n: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95% intervals (Wilson) of shares of n, which have a width even where the share is 0."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    margin = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return np.minimum(middle - margin, share).clip(0), np.maximum(middle + margin, share).clip(None, 1)


def mean_over_games(
    panel: str, player: str, values: np.ndarray, bounds: tuple[float, float] | None = None, *, is_share: bool = False
) -> pd.DataFrame:
    """Return the mean of values (S, n, T) by round with its 95% interval over games and, if S > 1, that of each seed.

    The models of all seeds play the same games, so that their mean in a game is one observation. bounds: of the
    quantity, which its interval does not leave. is_share: whether the mean is a share of games; then its interval is
    Wilson's, and by Student's t else.
    """
    seeds, n, horizon = values.shape
    rounds = np.arange(1, horizon + 1)
    mean, by_game = values.mean(axis=(0, 1)), values.mean(axis=0)
    if is_share:
        low, high = wilson(mean, n)
    else:
        margin = t_quantile(n) * by_game.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(horizon, np.nan)
        low, high = (np.clip(mean + sign * margin, *(bounds or (-np.inf, np.inf))) for sign in (-1, 1))
    lines = [rows(panel, player, CURVE, rounds, mean, low=low, high=high)]
    if seeds > 1:
        lines += [rows(panel, player, f"{SEED} {seed}", rounds, values[seed].mean(axis=0)) for seed in range(seeds)]
    return joined(lines)
