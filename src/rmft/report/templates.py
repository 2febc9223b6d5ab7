"""Render the pages from their templates in data/report/templates, and format what they show."""

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined

from rmft.artifacts.json_files import finite
from rmft.artifacts.text import read_text
from rmft.workflow.paths import REPORT_TEMPLATES

SYMBOLS = {r"\\\|": "‖", r"\\eta": "η", r"\\,": " ", r"\\math\w+": "", r"[${}]": ""}  # LaTeX in legends


def rendered(files: dict[str, Path], name: str, **values: Any) -> str:  # noqa: ANN401 (a template's values)
    """Return a page. Included files are templates too; a template that uses a value not given is an error."""
    texts = {path.name: read_text(path) for path in files.values() if path.as_posix().startswith(REPORT_TEMPLATES)}
    environment = Environment(
        loader=DictLoader(texts), undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"json_text": json_text, "number": number, "difference": difference}
    return environment.get_template(name).render(**values)


def json_text(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Return JSON that cannot close the HTML element that holds it."""
    from markupsafe import Markup

    text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def number(value: Any) -> str:  # noqa: ANN401 (a value of a csv)
    """Return a number with few decimals; texts such as <0.001 stay as they are."""
    if value is None or value != value:
        return "–"
    try:
        value = float(value)
    except ValueError:
        return str(value)
    size = abs(value)
    if size >= 1000 or value == int(value):
        text = f"{value:,.0f}"
    elif size < 0.001:
        text = f"{value:.1e}"
    else:
        text = f"{value:.{1 if size >= 100 else 2 if size >= 1 else 3}f}"
    return text.replace("-", "−")


def difference(value: float | None) -> str:
    """Return a number with its sign; 0 has none."""
    text = number(value)
    return f"+{text}" if value is not None and value == value and value > 0 else text


def plain(label: str) -> str:
    """Return a legend's label without LaTeX."""
    for pattern, symbol in SYMBOLS.items():
        label = re.sub(pattern, symbol, label)
    return label
