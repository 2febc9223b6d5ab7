"""What is measured on trajectories: exploration, growth of regret, comparison of samples. No torch."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmft.metrics import comparison, exploration, growth, luck, power

__all__ = ["comparison", "exploration", "growth", "luck", "power"]


def __getattr__(name: str) -> ModuleType:
    """Return a module of this package; it is imported when it is first used, as in `rmft.metrics.growth`."""
    if name not in __all__:
        raise AttributeError(f"module 'rmft.metrics' has no attribute {name!r}")
    return import_module(f"rmft.metrics.{name}")
