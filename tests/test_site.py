"""The docs as a site, `make site`: no link or anchor leads nowhere, and the site needs no server and no network."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from trees import ROOT

pytestmark = pytest.mark.xdist_group("site")


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make site` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", configuration, "--site-dir", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return the site."""
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_files_outside_of_docs_are_pages_too(site):
    front = (site / "index.html").read_text(encoding="utf-8")
    for address in ("measure.html", "CONTRIBUTING.html", "data/models/embedded/index.html", "images/tfbandit.png"):
        assert f'="{address}"' in front
    assert 'href="extensions/dpo.py.html"' in (site / "extending.html").read_text(encoding="utf-8")
    assert "TokenExactDPOTrainer" in (site / "extensions/dpo.py.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in (site / "notebooks/bandit-game.html").read_text(encoding="utf-8")


def test_a_link_and_an_anchor_that_lead_nowhere_are_refused(tmp_path):
    for name in ("mkdocs.yml", "mkdocs_hooks.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("# There", encoding="utf-8")
    (tmp_path / "README.md").write_text(
        "[a](docs/page.md#there) [b](docs/page.md#gone) [c](src/gone.py)", encoding="utf-8"
    )
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 1
    of_links = [line for line in built.stderr.splitlines() if "contains a link" in line]
    assert ["gone.py" in line or "anchor '#gone'" in line for line in of_links] == [True, True]


@pytest.mark.parametrize(
    ("page", "width", "scheme"),
    [
        ("index", 390, "light"),
        ("measure", 390, "dark"),
        ("notebooks/bandit-game", 1400, "light"),
        ("api/games", 1400, "dark"),
    ],
)
def test_pages_are_accessible_fit_their_window_and_load_nothing_from_elsewhere(site, browser, page, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    tab, wrong = context.new_page(), []
    tab.on("request", lambda request: request.url.startswith((site.as_uri(), "data:")) or wrong.append(request.url))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto((site / f"{page}.html").as_uri())
    audit = Axe().run(tab, options={"preload": False}).response
    serious = [one for one in audit["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious] == []
    assert len(audit["passes"]) > 10  # the audit did run
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert wrong == []


def test_search_finds_a_function_of_the_api_without_a_server(site, browser):
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    tab.locator("input.md-search__input").press_sequentially("rmft.make_vec")
    tab.wait_for_selector('.md-search-result__link[href*="api/games.html"]')
    tab.close()
