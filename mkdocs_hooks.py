"""Hooks of mkdocs.yml: README.md is the front page, and links to files outside of docs/ lead to pages of the site too.

A file outside of docs/ to which a page leads becomes a page of the site: Markdown and notebooks as they are meant to be
read, other text as code. A picture is copied. A link to a folder becomes plain text. A link to nothing stays as it is,
and MkDocs refuses it.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pygments.lexers import find_lexer_class_for_filename

ROOT = Path(__file__).parent
FRONT = "README.md"
PROSE = (".md", ".ipynb")
PICTURES = (".png", ".svg")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^):#\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = "`" * 5  # longer than any in the files shown

_paths: dict[str, str] = {}  # of pages: address on the site, without docs/ → path in the repository


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page, and every file outside of docs/ to which a page leads."""
    _paths.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    to_add, added = [FRONT], set(_paths.values())
    for page in list(added):
        to_add += _linked(page)
    while to_add:
        path = to_add.pop()
        if path in added or path.startswith("docs/") or not (ROOT / path).is_file():
            continue
        added.add(path)
        address = _address(path)
        if path.endswith(PICTURES):
            source = {"abs_src_path": str(ROOT / path)}
        else:
            source = {"content": _page_of(path)}
            _paths[address] = path
            to_add += _linked(path)
        files.append(File.generated(config, address, inclusion=InclusionLevel.NOT_IN_NAV, **source))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return the Markdown of a page with links as the site needs them."""
    path = _paths[page.file.src_uri]

    def on_site(link: re.Match[str]) -> str:
        target = _target(path, link)
        if (ROOT / target).is_dir():
            return link["text"]
        if not (ROOT / target).exists():
            return link[0]
        address = posixpath.relpath(_address(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{link['text']}]({address}{link['anchor'] or ''})"

    if not path.endswith(PROSE):
        return markdown
    return "".join(part if part.startswith("```") else LINK.sub(on_site, part) for part in FENCED.split(markdown))


def _linked(path: str) -> Iterator[str]:
    """Yield the paths to which a page leads; nothing for a file that is shown as code."""
    if path.endswith(PROSE):
        for part in FENCED.split(_page_of(path)):
            if not part.startswith("```"):
                yield from (_target(path, link) for link in LINK.finditer(part))


def _target(path: str, link: re.Match[str]) -> str:
    """Return the path to which a link in the file `path` leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link["target"]))


def _address(path: str) -> str:
    """Return where a file of the repository is on the site: the path of its page or picture."""
    if path == FRONT:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith((".md", *PICTURES)):
        return path
    return f"{path.removesuffix('.ipynb')}.md"


def _page_of(path: str) -> str:
    """Return the Markdown that shows a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _parts(cell))
    lexer = find_lexer_class_for_filename(path)
    language = lexer.aliases[0] if lexer else "text"
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n{FENCE}{language}\n{text}\n{FENCE}\n"


def _parts(cell: dict) -> Iterator[str]:
    """Yield the Markdown of a notebook's cell: its text or code, and what it put out."""
    source = "".join(cell["source"])
    yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
    for output in cell.get("outputs", []):
        if picture := output.get("data", {}).get("image/png"):
            yield f"![The figure that this code draws](data:image/png;base64,{picture.strip()})"
        elif "text" in output:
            yield f"```text\n{''.join(output['text'])}```"
