"""docs/real-models.md: what real language models gave, rendered from the results bundles: no number is typed."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rmft.artifacts.json_files import read_json
from rmft.recorded.bundle import SUMMARY, bundles, read_bundle
from rmft.workflow.paths import BUNDLE_METRICS, RECORDED

PAGE = Path("docs/real-models.md")
TEMPLATE = Path(RECORDED, "page.md.j2")


def page() -> str:
    """Return the page, from all bundles."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "signed": signed, "percent": percent}
    recorded = [
        {
            "folder": folder.as_posix(),
            "about": read_bundle(folder),
            "metrics": read_json(folder / BUNDLE_METRICS),
            "summary": read_json(folder / SUMMARY),
        }
        for folder in bundles()
    ]
    return environment.get_template(TEMPLATE.name).render(recorded=recorded, verdict=verdict)


def verdict(interval: list[float | None]) -> str:
    """Return what a 95% interval (low, difference, high) of trained minus base says."""
    low, _, high = interval
    if low is None or high is None:
        return "cannot be told"
    if high < 0:
        return "fell"
    return "rose" if low > 0 else "did not surely change"


def number(value: float | None, decimals: int = 1) -> str:
    """Return a number with some decimals."""
    return "–" if value is None or value != value else f"{value:.{decimals}f}".replace("-", "−")


def signed(value: float | None, decimals: int = 1) -> str:
    """Return a number with its sign and some decimals."""
    return "–" if value is None or value != value else f"{value:+.{decimals}f}".replace("-", "−")


def percent(value: Any) -> str:  # noqa: ANN401 (a JSON number or null)
    """Return a share in percent."""
    return "–" if value is None else f"{100 * value:.0f}%"
