"""Hostile replies and prompts in the page of games, in Chromium: text stays text.

All prompts and replies of a built `trajectories.html` are replaced by hostile text, and a browser opens every game. A
text counts as *shown* when the page has exactly this text, no element was made of it, nothing of it ran, and nothing
was asked of the network. Size: repetitions with other text.
"""

import base64
import gzip
import json
import os
import random
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trees import built_once

from chaos.counts import Counts
from chaos.hostile_text import text
from rmft.errors import InputError
from rmft.report.viewer import packed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PIECE = re.compile(r'(<script type="text/plain" id="piece/[^"]+">)([^<]*)(?=</script>)')
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TEXTS = ".prompt, .reply"
WITHIN = "#dialogue :is(script, img, svg, iframe, a, b, style, textarea, title)"


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Look at pages; return what came of each reply. built: what `trees.built_once` made."""
    from playwright.sync_api import sync_playwright

    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        raise InputError("pages needs Chromium; apt-get install chromium")
    counts, chance = Counts(), random.Random(seed)
    with TemporaryDirectory(prefix="rmft-") as folder, sync_playwright() as playwright:
        home = built or built_once(Path(os.environ.get("RMFT_BUILT", folder)))
        page = (home / "rmft/results/trajectories.html").read_text(encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for _ in range(size):
            _open(browser, Path(folder) / "trajectories.html", page, chance, counts)
        browser.close()
    return counts


def _open(browser: "Browser", file: Path, page: str, chance: random.Random, counts: Counts) -> None:
    """Plant hostile texts in the page of games, and look at all of it."""
    planted: set[str] = set()
    wrong: list[str] = []
    own = (file.as_uri(), "data:")
    file.write_text(PIECE.sub(lambda piece: piece[1] + _hostile(piece[2], chance, planted), page), encoding="utf-8")
    tab = browser.new_context(offline=True).new_page()
    tab.on("request", lambda request: request.url.startswith(own) or wrong.append(request.url))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
    tab.goto(file.as_uri())
    _look(tab, planted, counts)
    for what in wrong:
        counts.fail("page", what)


def _hostile(piece: str, chance: random.Random, planted: set[str]) -> str:
    """Return a piece of the page with hostile texts in it, which are added to `planted`."""

    def replaced(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
        if isinstance(value, dict):
            return {key: hostile(of) if key in ("prompts", "replies") else replaced(of) for key, of in value.items()}
        return [replaced(of) for of in value] if isinstance(value, list) else value

    def hostile(texts: list[str]) -> list[str]:
        made = [text(chance, 6).replace("\ud800", "") for _ in texts]
        planted.update(made)
        return made

    return packed(replaced(json.loads(gzip.decompress(base64.b64decode(piece)))))


def _look(tab: "Page", planted: set[str], counts: Counts) -> None:
    """Open every game of a page, and look at all texts in it."""
    for experiment in _values(tab, "experiment"):
        tab.select_option("#experiment", experiment)
        for played in _values(tab, "played"):
            tab.select_option("#played", played)
            tab.wait_for_selector(".turn")
            for game in tab.locator("#list .game").all():
                game.click()
                tab.wait_for_selector(".turn")
                _texts(tab, planted, counts)


def _texts(tab: "Page", planted: set[str], counts: Counts) -> None:
    """Compare the texts of a game with what was planted."""
    shown = tab.evaluate(f"[...document.querySelectorAll('{TEXTS}')].map((one) => one.textContent)")
    ran = tab.evaluate(f"Boolean(window.hacked) || document.querySelectorAll('{WITHIN}').length > 0")
    for one in shown:
        if ran or one not in planted:
            counts.fail("prompt or reply", f"{'ran' if ran else 'changed'}: {one[:200]!r}")
        else:
            counts.add("prompt or reply", "shown")


def _values(tab: "Page", select: str) -> list[str]:
    return tab.evaluate(f"[...document.getElementById('{select}').options].map((one) => one.value)")
