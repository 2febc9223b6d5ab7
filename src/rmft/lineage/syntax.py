"""The syntax of a source file: its hash, and the names that the file imports.

Comments, blank lines, docstrings and imports under TYPE_CHECKING do not count. Parsing all of our sources takes longer
than planning a build, so the results are cached on disk, by the hash of each text.
"""

import ast
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rmft.artifacts.files import atomic
from rmft.errors import InputError, not_python

CACHE = Path(".rmft/syntax.json")
CACHE_LIMIT = 5000  # texts; beyond, the cache is reduced to those that this process has read
RULE = hashlib.sha256(Path(__file__).read_bytes())  # an edit of this module invalidates the cache


@dataclass(frozen=True)
class Syntax:
    """digest: hash of the syntax. names: dotted names that the file imports, of modules or of objects in modules."""

    digest: str
    names: list[str]


class SourceReader:
    """Reads source files, each text once for all processes that work in a folder."""

    def __init__(self, cache: Path = CACHE) -> None:
        self.cache = cache
        self._cached: dict[str, Syntax] | None = None
        self._read: dict[str, Syntax] = {}

    def read(self, file: Path) -> Syntax:
        """Return the syntax of a file."""
        text = file.read_bytes()
        digest = RULE.copy()
        digest.update(text)
        key = digest.hexdigest()
        if key not in self._read:
            self._read[key] = self._from_cache().get(key) or syntax_of(text, file)
        return self._read[key]

    def _from_cache(self) -> dict[str, Syntax]:
        if self._cached is None:
            self._cached = {}
            # An unreadable or foreign file counts as an empty cache.
            with suppress(OSError, ValueError, TypeError, AttributeError):
                entries = json.loads(self.cache.read_text(encoding="utf-8"))
                self._cached = {key: Syntax(**entry) for key, entry in entries.items()}
        return self._cached

    def keep(self) -> None:
        """Write the cache if anything new was read; where nothing can be written, texts will be parsed again."""
        before = self._from_cache()
        if self._read.keys() <= before.keys():
            return
        self._cached = self._read if len(before) > CACHE_LIMIT else before | self._read
        entries = {key: asdict(syntax) for key, syntax in self._cached.items()}
        with suppress(InputError), atomic(self.cache) as temporary:
            temporary.write_text(json.dumps(entries), encoding="utf-8")


def syntax_of(text: bytes, file: Path) -> Syntax:
    """Return the syntax of a text. Raise InputError, with the file's name and the line, where it is not Python."""
    try:
        tree = ast.parse(text, str(file))
    except SyntaxError as error:
        raise InputError(not_python(file, error)) from None
    except ValueError as error:  # a null byte
        raise InputError(f"{file}: is not Python: {error}") from None
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]  # imported for annotations, and never run
    return Syntax(short_hash(plain(tree)), sorted(set(_imported(tree))))


def plain(syntax: object) -> object:
    """Return a piece of syntax as lists and text, without empty fields: the same in every version of Python."""
    if isinstance(syntax, ast.AST):
        fields = [[name, plain(value)] for name, value in ast.iter_fields(syntax) if value is not None and value != []]
        return [type(syntax).__name__, *fields]
    return [plain(part) for part in syntax] if isinstance(syntax, list) else repr(syntax)


def short_hash(value: object) -> str:
    """Return a hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
