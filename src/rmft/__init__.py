"""rmft: iterative regret-minimization fine-tuning, rebuilt as a reproducible workflow.

From Python, see docs/python.md: `rmft.make` and `rmft.make_vec` return games as Gymnasium environments, `rmft.play` has
an algorithm or a language model play them, `rmft.regret` computes the regret of any rewards and actions;
`rmft.algorithms` and `rmft.metrics` are the packages behind them, `rmft.extensions.load` makes your own processes and
algorithms known to them. `rmft.InputError` is raised for wrong arguments.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmft import algorithms, extensions, metrics
    from rmft.api import PlayedGames, play, regret
    from rmft.errors import InputError
    from rmft.gym import make, make_vec

__all__ = ["InputError", "PlayedGames", "algorithms", "extensions", "make", "make_vec", "metrics", "play", "regret"]
_FROM = {"InputError": "errors", "PlayedGames": "api", "play": "api", "regret": "api", "make": "gym", "make_vec": "gym"}


def __getattr__(name: str) -> object:
    """Return what `__all__` names; it is imported when it is first used, so that `import rmft` takes no time."""
    if name not in __all__:
        raise AttributeError(f"module 'rmft' has no attribute {name!r}")
    if name in _FROM:
        return getattr(import_module(f"rmft.{_FROM[name]}"), name)
    return import_module(f"rmft.{name}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
