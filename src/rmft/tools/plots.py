"""`rmft plots`: the plots that dvc.yaml declares, in a page that needs no network."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from rmft.errors import InputError
from rmft.workflow.runs import run_tool

VEGA_LITE = "5.21"  # the newest of version 5, which DVC's own templates are written for
PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
{{refresh_tag}}
<title>rmft: plots</title>
<script>(() => {{{bundle}}})();</script>
<style>body {{font-family: sans-serif}} img {{max-width: 100%}}</style>
</head>
<body>
{{plot_divs}}
</body>
</html>
"""


def draw_plots(revisions: list[str], folder: Path) -> Path:
    """Let DVC draw the plots of some revisions, the workspace where none is named; return the page.

    DVC's own page loads Vega-Lite from a network; this one holds it. Raise InputError with DVC's line where it fails.
    """
    import vl_convert

    with TemporaryDirectory() as temporary:
        template = Path(temporary) / "page.html"
        bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)
        template.write_text(PAGE.format(bundle=bundle), encoding="utf-8")
        what = ["diff", *revisions] if revisions else ["show"]
        command = ["dvc", "plots", *what, "--html-template", str(template), "--out", str(folder)]
        drawn = run_tool(command)
    if drawn.returncode:
        line = re.search(r"^ERROR: (.+)", drawn.stderr, re.MULTILINE)
        raise InputError(f"dvc plots: {line.group(1) if line else drawn.stderr.strip()}")
    page = folder / "index.html"
    if not page.exists():
        raise InputError("plots: nothing that dvc.yaml declares is built here; `make quick` builds a part of it")
    return page
