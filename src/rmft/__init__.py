"""rmft: iterative regret-minimization fine-tuning, rebuilt as a reproducible workflow.

From Python: `rmft.make` and `rmft.make_vec` return Gymnasium environments (the extra `gymnasium`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmft.gym import make, make_vec

__all__ = ["make", "make_vec"]


def __getattr__(name: str) -> object:
    """Return what `__all__` names; it is imported when it is first used, so that `import rmft` takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'rmft' has no attribute {name!r}")
    try:
        from rmft import gym
    except ModuleNotFoundError as error:
        raise ImportError(f"rmft.{name} needs Gymnasium: pip install 'rmft[gymnasium]'") from error
    return getattr(gym, name)
