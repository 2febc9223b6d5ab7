"""The verifiers environment `rmft-bandit`: verifiers finds an environment by the name of a top-level package."""

from rmft.adapters.verifiers_taskset import BanditEnv, BanditHarness, BanditTaskset

__all__ = ["BanditEnv", "BanditHarness", "BanditTaskset"]
