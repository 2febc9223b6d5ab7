"""How numbers stand in reports, cards and pages: with a true minus sign, and a dash where there is none."""

from collections.abc import Sequence


def number(value: float | None, decimals: int = 1) -> str:
    """Return a number with some decimals."""
    return "–" if value is None or value != value else f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def signed(value: float | None, decimals: int = 1) -> str:
    """Return a number with its sign and some decimals."""
    return "–" if value is None or value != value else f"{value:+.{decimals}f}".replace("-", "−")


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{number(100 * value, 0)}%"


def difference(interval: Sequence[float | None], decimals: int = 1) -> str:
    """Return a difference with its interval: low, mean, high."""
    low, mean, high = (signed(value, decimals) for value in interval)
    return f"{mean} [{low}, {high}]"


def p_value(value: float | None) -> str:
    """Return a p-value with two digits, and without the zero before its point."""
    if value is None:
        return "–"
    return "< .0001" if value < 1e-4 else f"{value:.2g}".replace("0.", ".", 1)
