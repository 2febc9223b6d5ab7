"""Online decision problems: reward processes, feedback and regret.

Symbols: n instances, T rounds, d actions, p features of a context.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from rmft.environments.processes import CONTEXTUAL, TABULAR
from rmft.environments.tables import AdaptiveRewards, Rewards, RewardTable
from rmft.errors import InputError, unknown
from rmft.streams import blocks, stream

EnvironmentName = Literal["fol", "mab", "ns-mab", "cb"]  # keys of ENVIRONMENTS
PolicySpace = Literal["simplex", "ball"]
ADAPTIVE = "adaptive"
MOST_NUMBERS = 10**9  # rewards of a set, which takes three times eight bytes for each
PROCESSES = (*TABULAR, ADAPTIVE, *CONTEXTUAL)  # without those of extensions


@dataclass(frozen=True)
class Environment:
    """A class of problems: its feedback, the comparator of regret, and its reward processes.

    comparator: "hindsight", the best fixed policy on the draws, or "best mean", the action of the best mean in each
    round. processes: their names; `rmft.extensions` adds those of users. contextual: whether a context is shown before
    each round.
    """

    full_feedback: bool
    comparator: str
    processes: list[str]
    contextual: bool = False


ENVIRONMENTS: dict[EnvironmentName, Environment] = {
    "fol": Environment(True, "hindsight", [*(name for name in TABULAR if name != "gradual-variation"), ADAPTIVE]),
    "mab": Environment(
        False,
        "best mean",
        ["uniform", *(name for name in TABULAR if name.startswith("gaussian")), "gamma", "bernoulli"],
    ),
    "ns-mab": Environment(False, "best mean", ["gradual-variation"]),
    "cb": Environment(False, "best mean", [*CONTEXTUAL], contextual=True),
}


def environment_named(name: str) -> Environment:
    """Return an environment. Raise InputError for an unknown name."""
    if name not in ENVIRONMENTS:
        raise InputError(unknown(name, ENVIRONMENTS, "environment"))
    return ENVIRONMENTS[name]


def check_policy_space(environment: str, *, on_ball: bool) -> None:
    """Raise InputError where an environment needs actions, which policies on a ball do not define."""
    if on_ball and environment != "fol":
        raise InputError("a ball has no actions to sample, so it goes with environment fol only")


def check_processes(environment: str, processes: Sequence[str]) -> None:
    """Raise InputError where App. `reward_dist` does not allow a process in an environment."""
    allowed = environment_named(environment).processes
    if not processes:
        raise InputError(f"no process is named; one or more of {', '.join(allowed)}")
    for process in processes:
        if process not in (there := (*TABULAR, ADAPTIVE, *CONTEXTUAL)):
            raise InputError(unknown(process, there, "process", extensible=True))
        if process not in allowed:
            raise InputError(f"process {process!r} does not belong in {environment}; there: {', '.join(allowed)}")
    if ADAPTIVE in processes and len(processes) > 1:
        raise InputError("process 'adaptive' cannot be part of a mixture: its rewards answer the policy")


def check_mixture(processes: Sequence[str]) -> None:
    """Raise InputError where no environment has all of these processes."""
    fitting = [name for name, of in ENVIRONMENTS.items() if processes[0] in of.processes]
    sharing = [name for name in fitting if set(processes) <= set(ENVIRONMENTS[name].processes)]
    check_processes((sharing or fitting or ["fol"])[0], processes)


def check_features(processes: Sequence[str], features: int | None) -> None:
    """Raise InputError where processes have contexts and `features` is None, or the other way round."""
    contextual = [process for process in processes if process in CONTEXTUAL]
    if contextual and features is None:
        raise InputError(f"process {contextual[0]!r} needs the number of features of its contexts")
    if features is not None and not contextual:
        raise InputError(f"process {processes[0]!r} has no contexts, and so no features")


def block_of_rewards(
    root: int,
    name: str,
    processes: Sequence[str],
    shape: tuple[int, int, int],
    block: int,
    features: int | None = None,
) -> Rewards:
    """Draw one block of the reward set `name`: shape (n, T, d) with n ≤ BLOCK.

    Of k processes each serves equally many instances: every run of k instances is a random permutation of the
    processes. features: p; None without contexts. Raise InputError for a block that would not fit into memory.
    """
    require_size(shape)
    if tuple(processes) == (ADAPTIVE,):
        return AdaptiveRewards(shape)
    n, horizon, d = shape
    open_stream = partial(stream, root, "environment", name, block)
    components = [
        CONTEXTUAL[process](partial(open_stream, process), n, horizon, d, features)
        if process in CONTEXTUAL
        else TABULAR[process](partial(open_stream, process), n, horizon, d)
        for process in processes
    ]
    if len(components) == 1:
        return components[0]
    # A permutation for each run of k instances, read row by row as every stream is. # ASSUME: the paper's mixtures have
    # equal parts; drawing each instance's process would add noise and nothing else.
    order = open_stream("mixture").random((-(-n // len(components)), len(components))).argsort(axis=1).ravel()[:n]
    chosen = [component.rows(np.flatnonzero(order == k)) for k, component in enumerate(components)]
    return RewardTable.concatenate(chosen).rows(np.argsort(order, kind="stable").argsort())


def require_size(shape: tuple[int, int, int]) -> None:
    """Raise InputError where rewards (n, T, d) would not fit into memory."""
    if math.prod(map(int, shape)) > MOST_NUMBERS:
        n, horizon, d = shape
        games = f"{n} games of {horizon} rounds with {d} actions"
        raise InputError(f"{games} do not fit into memory; play fewer or shorter ones")


def draw_rewards(
    root: int,
    name: str,
    processes: Sequence[str],
    shape: tuple[int, int, int],
    features: int | None = None,
) -> Rewards:
    """Draw the whole reward set `name`, of shape (n, T, d).

    Instance i is the same for any n, and round t for any T. features: p; None without contexts. Raise InputError for a
    set that would not fit into memory.
    """
    require_size(shape)
    n, horizon, d = shape
    if tuple(processes) == (ADAPTIVE,):
        return AdaptiveRewards(shape)
    return RewardTable.concatenate(
        block_of_rewards(root, name, processes, (size, horizon, d), block, features) for block, size in blocks(n)
    )
