"""What the syntax of a source file says: a hash of it, and what it imports.

Comments, blank lines, docstrings and what is imported for annotations alone are no part of it. To read all of our
sources takes longer than to plan a build, so what was read is kept, by the hash of each text.
"""

import ast
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

KEPT = Path(".rmft/syntax.json")
MOST_KEPT = 5000  # texts, before those that were not asked for by now are forgotten
RULE = hashlib.sha256(Path(__file__).read_bytes())  # what is kept holds for this way of reading


@dataclass(frozen=True)
class Syntax:
    """digest: of a text's syntax. names: that it imports, dotted, of modules or of what is in them."""

    digest: str
    names: list[str]


class SourceReader:
    """Reads source files, each text once for all processes that work in a folder."""

    def __init__(self, kept: Path = KEPT) -> None:
        self.kept = kept
        self._known: dict[str, Syntax] | None = None
        self._asked: dict[str, Syntax] = {}

    def read(self, file: Path, command: str | None = None) -> Syntax:
        """Return what a file says; with a sub-command, what it says of that one, see `part_of`."""
        text = file.read_bytes()
        digest = RULE.copy()
        digest.update(text)
        key = f"{digest.hexdigest()} {command or ''}"
        if key not in self._asked:
            self._asked[key] = self._before().get(key) or syntax_of(text, file, command)
        return self._asked[key]

    def _before(self) -> dict[str, Syntax]:
        if self._known is None:
            self._known = {}
            with suppress(
                OSError, ValueError, TypeError, AttributeError
            ):  # if it cannot be read, or is not what we write: begin anew
                held = json.loads(self.kept.read_text(encoding="utf-8"))
                self._known = {key: Syntax(**said) for key, said in held.items()}
        return self._known

    def keep(self) -> None:
        """Write what was read, if any of it is new; where nothing may be written it will be read again."""
        before = self._before()
        if self._asked.keys() <= before.keys():
            return
        self._known = self._asked if len(before) > MOST_KEPT else before | self._asked
        temporary = self.kept.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.kept.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps({key: asdict(said) for key, said in self._known.items()}), encoding="utf-8")
            temporary.replace(self.kept)


def syntax_of(text: bytes, file: Path, command: str | None = None) -> Syntax:
    """Return what a text says. Raise SyntaxError or ValueError, with the file's name, where it is not Python."""
    tree = ast.parse(text, str(file))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]  # imported for annotations, and never run
    if command is not None:
        tree = part_of(tree, command)
    return Syntax(short_hash(plain(tree)), sorted(set(_imported(tree))))


def part_of(tree: ast.Module, command: str) -> ast.Module:
    """Return a sub-command with the helpers and constants of its file that it uses."""
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined |= {
                name.id: node for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            }
    own, pending = {}, [command]
    while pending:
        name = pending.pop()
        if name in defined and name not in own:
            own[name] = defined[name]
            body = getattr(defined[name], "body", [defined[name]])
            names = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
            pending += (name for name in names if name.startswith("_") or name.isupper())  # others are variables
    return ast.Module([own[name] for name in sorted(own)], type_ignores=[])


def plain(syntax: object) -> object:
    """Return a piece of syntax as lists and text, the same from every Python: what is empty is left out."""
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
