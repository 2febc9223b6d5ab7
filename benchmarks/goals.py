"""How a benchmark says whether a goal or a bound is met."""


def verdict(goal_is_met: bool) -> str:
    """Return whether it is met, in the word that stands before the goal."""
    return "meets" if goal_is_met else "misses"
