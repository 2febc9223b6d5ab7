"""Algorithms that observe the reward of the played action only: greedy, UCB, Thompson sampling, EXP3, Rexp3.

Symbols: n instances, d actions (the paper's K), T rounds. Rewards are normalised to [0, 1].
"""

import math
from collections.abc import Callable

import numpy as np

from rmft.algorithms.players import one_hot_of_best, softmax
from rmft.environments.tables import zeros


class Greedy:
    """The action with the best average so far.

    # ASSUME: every action is played once first, as by UCB; the paper draws Greedy without defining it.
    """

    deterministic = True

    def __init__(self, n: int, d: int) -> None:
        self.plays = zeros(n, d)
        self.totals = zeros(n, d)
        self.rounds = 0

    def bonus(self) -> np.ndarray | float:
        """Return what is added to the averages (n, d)."""
        return 0.0

    def policy(self) -> np.ndarray:
        """Return the best action by average plus bonus as policies (n, d); unplayed ones first, in order."""
        if self.rounds < self.plays.shape[1]:
            return one_hot_of_best(self.plays == 0)
        return one_hot_of_best(self.totals / self.plays + self.bonus())

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Count the play and add its reward."""
        self.plays += revealed
        self.totals += rewards
        self.rounds += 1


class UpperConfidenceBound(Greedy):
    """UCB1: average + √(2 log t / N_t(a)).

    # ASSUME: t is the number of rounds observed, Σ_a N_t(a), as the sums up to t in the appendix and Auer et
    al. (2002) have it, and not the round about to be played.
    """

    def bonus(self) -> np.ndarray:
        """Return the width (n, d) of the confidence bound."""
        return np.sqrt(2 * math.log(self.rounds) / self.plays)


class ThompsonSampling:
    """Beta-Bernoulli Thompson sampling, uniform prior.

    # ASSUME: a reward x in [0, 1] counts as a success with probability x (Agrawal and Goyal, 2012); the paper
    does not use Thompson sampling.
    """

    deterministic = True

    def __init__(self, n: int, d: int, streams: Callable[..., np.random.Generator]) -> None:
        self.successes = zeros(n, d)
        self.plays = zeros(n, d)
        self.streams = streams
        self.round = 1

    def policy(self) -> np.ndarray:
        """Return the action with the best draw from its posterior as policies (n, d)."""
        posterior = self.streams("posterior", self.round)
        return one_hot_of_best(posterior.beta(1 + self.successes, 1 + self.plays - self.successes))

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Toss a coin with the reward's probability of success."""
        coins = self.streams("success", self.round).random((len(rewards), 1))
        self.successes += coins < rewards  # 0 where a reward is not revealed
        self.plays += revealed
        self.round += 1


class EXP3:
    """EXP3: exponential weights on importance-weighted rewards, mixed with uniform exploration."""

    deterministic = False

    def __init__(self, n: int, d: int, eta: float, gamma: float) -> None:
        self.estimates = zeros(n, d)  # Σ of R_t(a) / p_t(a) over the rounds that played a
        self.eta = eta
        self.gamma = gamma
        self.probabilities = zeros(n, d) + 1 / d

    @staticmethod
    def tuned_eta(d: int, horizon: int) -> float:
        """Return the paper's η = √(2 log K / (K T))."""
        return math.sqrt(2 * math.log(d) / (d * horizon))

    @staticmethod
    def tuned_gamma(d: int, eta: float) -> float:
        """Return the paper's γ = min(1, η K / 2)."""
        return min(1.0, eta * d / 2)

    def policy(self) -> np.ndarray:
        """Return the sampling distributions (n, d)."""
        d = self.estimates.shape[1]
        self.probabilities = (1 - self.gamma) * softmax(self.eta * self.estimates) + self.gamma / d
        return self.probabilities

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the importance-weighted reward of the played action."""
        self.estimates += rewards / self.probabilities


class Rexp3(EXP3):
    """Rexp3 (Besbes et al., 2014): EXP3 restarted every Δ_T rounds, tuned by the variation V_T.

    variation: V_T on the scale of the normalised rewards; one number, or (n,) for one an instance. Δ_T is the
    appendix's ⌈(K log K / V_T)^(1/3) T^(2/3)⌉; Besbes et al. have (T / V_T)^(2/3) in it.
    # ASSUME: a batch is no longer than the game, so that γ stays tuned where V_T is small.
    """

    def __init__(self, n: int, d: int, horizon: int, variation: float | np.ndarray) -> None:
        tuning = d * math.log(d)
        with np.errstate(divide="ignore"):
            batch = np.ceil(np.cbrt(tuning / np.asarray(variation, dtype=float)) * horizon ** (2 / 3))
        self.batch = np.broadcast_to(np.minimum(batch, horizon), (n,))
        gamma = np.minimum(1.0, np.sqrt(tuning / ((math.e - 1) * self.batch)))[:, None]
        super().__init__(n, d, gamma / d, gamma)
        self.round = 0

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the reward, and reset the estimates at the end of a batch."""
        super().observe(revealed, rewards)
        self.round += 1
        self.estimates[self.round % self.batch == 0] = 0.0
