"""Hostile text wherever text of others is read: it is data, or refused in a line; no code runs, no path escapes.

Replies of models, scenarios, tables, journals, training files, prompt templates, chat templates and headers of GGUF
files are made of pieces of markup, programs, paths, formulas, numbers and random characters, by the grammar of each
file, which some of them break. A case is *read*, or *refused* in a line. No case may write the file that the programs
among the pieces try to write, hang, or leave anything outside its folder. Size: cases in all.
"""

import json
import math
import os
import random
import re
import shutil
import signal
import string
import struct
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zstandard

from chaos.counts import Counts
from rmft.agents.chat_template import ChatTemplate
from rmft.agents.gguf_header import read_gguf
from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.json_files import read_json, read_jsonl
from rmft.conversion.checkpoint import refuse_scaled_positions
from rmft.endpoint.journal import Journal, read_journal, usage_of
from rmft.endpoint_server.training_file import read_training_file
from rmft.errors import InputError
from rmft.language.parsing import parse
from rmft.language.prompts import read_template, rendered
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.language.scenarios import read_scenarios
from rmft.reasoning.claims import claims_of
from rmft.reasoning.history import History

ROOT = Path(__file__).parents[1]
CANARY = "canary"  # the file that hostile programs try to write
SECONDS = 120  # after which a case hangs: none takes a second, but the machine may be busy
SHELL = f"touch {CANARY}"
MARKUP = (
    "<script>window.hacked=1</script>", "<img src=x onerror='window.hacked=1'>", "</script><svg onload=alert(1)>",
    "<!--", "]]>", "&lt;", "javascript:window.hacked=1", "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "\"><b onmouseover=window.hacked=1>", "</textarea></title></style>", "<a href=//x>", "`", "${window.hacked=1}",
)  # fmt: skip
PROGRAMS = (
    "{{ cycler.__init__.__globals__.os.system('" + SHELL + "') }}",
    "{{ self.__init__.__globals__.__builtins__.open('" + CANARY + "', 'w') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% include '../../../../etc/passwd' %}", "{{ 9 ** 9 }}",
    "{% for i in range(3) %}{{ i }}{% endfor %}", "{{ 1 / 0 }}", "{{ undefined.attribute }}", "{% if", "{{", "%}",
    "{% set x = namespace() %}", "{{ messages[0]['content'] }}", "{{ raise_exception('no') }}", "{{ ' ' * 1000 }}",
    "$(" + SHELL + ")", "; " + SHELL + " ;", "| " + SHELL, "__import__('os').system('" + SHELL + "')",
    "!!python/object/apply:os.system ['" + SHELL + "']", "cos\nsystem\n(S'" + SHELL + "'\ntR.", "%n%s%x",
)  # fmt: skip
PATHS = ("../" * 8 + CANARY, "/etc/passwd", "..", ".", "~", "\\\\host\\share", "CON", "a/b", "file:///etc/passwd", "\0")
NUMBERS = (
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "9" * 400,
    "9" * 5000,
    "0.33",
    "1/0",
    "-0.0",
    "1_000",
    "٣",
    "½",
    "1e-400",
    "0x1F",
)
LABELS = ("Action:", "Policy:", "action = ", "**Action:** ", "Answer: Action: ", "\\boxed{", "[", "]", ", ", "%", "; ")
ODD = ("\u202e", "\ufeff", "\u2028", "\x85", "\x1d", "\r", "\n", "\x00", "\x1b[2J", "e\u0301" * 50, "🂡", "\U0010ffff",
       "ß", "İ", "ﬁ", "\u0600", " " * 200, "\t", "=cmd|'/c calc'!A1", "@SUM(1)", "'", '"', "\\", "\ud800")  # fmt: skip
PIECES = (MARKUP, PROGRAMS, PATHS, NUMBERS, LABELS, ODD)
WORDS = ("crop", "the second one", "1", "2", "3", "option 2", "reward", "average", "was", "better than", "7.25")


def text(chance: random.Random, most: int = 10) -> str:
    """Return hostile text of up to so many pieces."""
    made = []
    for _ in range(chance.randrange(most + 1)):
        kind = chance.randrange(9)
        if kind < len(PIECES):
            made.append(chance.choice(PIECES[kind]))
        elif kind == 6:
            made.append(
                "".join(chr(chance.choice((chance.randrange(0xD800), chance.randrange(128)))) for _ in range(8))
            )
        elif kind == 7:
            made.append(chance.choice(string.punctuation) * chance.choice((1, 3, 3000)))
        else:
            made.append(chance.choice(WORDS))
    return chance.choice(("", " ", "\n")).join(made)


def value(chance: random.Random, depth: int = 3) -> Any:  # noqa: ANN401 (any JSON value)
    """Return a hostile value."""
    kind = chance.randrange(8 if depth else 6)
    if kind == 6:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 7:
        keys = ("scenario", "actions", "messages", "role", "content", "usage", "kind", text(chance, 2))
        return {chance.choice(keys): value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return [text(chance, 4), None, True, chance.choice((0, -1, 10**30, 1e308)), float("nan"), "x" * 100][kind]


def mutated(record: Any, chance: random.Random) -> Any:  # noqa: ANN401 (any JSON value)
    """Return a JSON value with one part of it replaced by a hostile one, or dropped."""
    if isinstance(record, dict) and record and chance.random() < 0.8:
        key = chance.choice(list(record))
        return {
            name: mutated(of, chance) if name == key else of for name, of in record.items() if chance.random() < 0.95
        }
    if isinstance(record, list) and record and chance.random() < 0.8:
        place = chance.randrange(len(record))
        return [mutated(of, chance) if at == place else of for at, of in enumerate(record)]
    return value(chance)


def encoded(texts: str, chance: random.Random) -> bytes:
    """Return text as bytes, some of which are no UTF-8."""
    whole = texts.encode("utf-8", "surrogatepass")
    at = chance.randrange(len(whole) + 1)
    return chance.choice(
        [whole] * 6 + [whole[:at], whole[:at] + b"\xff\xfe" + whole[at:], texts.encode("utf-16", "replace")]
    )


def _lines(records: list[Any], chance: random.Random) -> bytes:
    """Return JSON lines, in which lone surrogates are escaped."""
    return encoded("".join(json.dumps(record) + "\n" for record in records), chance)


# The places. Each makes hostile text in the current folder, and reads it as rmft does.

SCENARIO = {
    "scenario": "A farmer chooses a crop for a field each season. " * 3,
    "actions": ["Wheat", "Rye"],
    "domain": "other",
}
CONVERSATION = {"messages": [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "Action: 1"}]}
LINES = [
    {"kind": "message", "hash": "a" * 64, "after": "", "role": "user", "content": "Which?"},
    {"kind": "answer", "key": "b" * 64, "usage": {"model": "m", "prompt": 1},
     "request": {"model": "m", "messages": "a" * 64}, "response": {"choices": []}},
]  # fmt: skip
FOLDER = Path("here")
PAST = [Round(1, 1, None, (math.nan, 7.25, math.nan)), Round(2, 0, None, (3.5, math.nan, math.nan))]


def reply(chance: random.Random) -> None:
    """Read the decision of a reply, and the claims in it."""
    names = chance.choice(((), ("Wheat", "Rye", "Oats"), ("Plan A", "Plan B", "Don't")))
    scenario = Scenario("Choose.", names) if names else None
    protocol = Protocol("dialogue", chance.choice(("action", "distribution")), "bandit", "with-reasoning", 3, scenario)
    words = text(chance, 20)
    decision = parse(words, protocol, 0.05)
    if decision is not None:
        assert decision.action in (None, 0, 1, 2)
        assert decision.policy is None or abs(sum(decision.policy) - 1) < 1e-9
    claims_of(words, protocol, History(3, PAST), decision, 0.05)


def scenarios(chance: random.Random) -> None:
    """Read a file of scenarios: JSON lines, or CSV."""
    if chance.random() < 0.5:
        path, content = FOLDER / "s.jsonl", _lines([SCENARIO, mutated(SCENARIO, chance)], chance)
    else:
        path, row = FOLDER / "s.csv", [text(chance, 3) for _ in range(4)]
        cells = ['"' + cell.replace('"', '""') + '"' if chance.random() < 0.7 else cell for cell in row]
        content = encoded("scenario,action 1,action 2,domain\n" + ",".join(cells) + "\n", chance)
    path.write_bytes(content)
    read_scenarios(path)


def table(chance: random.Random) -> None:
    """Read a table, and what is in JSON."""
    path = FOLDER / "table.csv"
    rows = [",".join(text(chance, 2) for _ in range(3)) for _ in range(3)]
    path.write_bytes(encoded("\n".join(["a,b,c", *rows, ""]), chance))
    read_csv(path, ["a"])


def record(chance: random.Random) -> None:
    """Read JSON, and JSON lines."""
    path = FOLDER / "record.json"
    path.write_bytes(_lines([value(chance)], chance))
    list(read_jsonl(path))
    read_json(path)


def training_file(chance: random.Random) -> None:
    """Read a file to fine-tune on, as our server does."""
    path = FOLDER / "train.jsonl"
    path.write_bytes(_lines([*[CONVERSATION] * 10, mutated(CONVERSATION, chance)], chance))
    read_training_file(path)


def journal(chance: random.Random) -> None:
    """Read a journal in all ways."""
    path = FOLDER / "j.jsonl.zst"
    lines = _lines([mutated(line, chance) if chance.random() < 0.5 else line for line in LINES], chance)
    path.write_bytes(zstandard.compress(lines) if chance.random() < 0.9 else lines)
    usage_of([path])
    list(read_journal(path))
    with Journal.open(path) as opened:
        for key in ("b" * 64, "c" * 64):
            opened.response(key)


def prompt_template(chance: random.Random) -> None:
    """Read a template of prompts, and render it."""
    path = FOLDER / "opening.j2"
    path.write_bytes(encoded(text(chance), chance))
    rendered(read_template(path), {"t": 1, "names": ["a"], "past": [], "messages": [{"content": "x"}]})


def chat_template(chance: random.Random) -> None:
    """Probe the chat template of a tokenizer."""
    tokenizer, own = _tokenizer()
    at = chance.choice([place.start() for place in re.finditer(r"\{%|\{\{|\Z", own)])
    tokenizer.chat_template = chance.choice((text(chance), *[own[:at] + text(chance, 2) + own[at:]] * 3))
    ChatTemplate.probe(tokenizer)


@cache
def _tokenizer() -> Any:  # noqa: ANN401 (a tokenizer of transformers, and its chat template)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data/models/embedded")
    return tokenizer, tokenizer.chat_template


def gguf_header(chance: random.Random) -> None:
    """Read the header of a GGUF file: names and values of all types, counts and offsets."""
    path = FOLDER / "model.gguf"
    pairs = [("general.architecture", "qwen2"), ("qwen2.block_count", 2), (text(chance, 2), text(chance, 3))]
    pairs.append((chance.choice(("qwen2.rope.scaling.type", "general.alignment", text(chance, 1))), text(chance, 2)))
    pairs = [pair for pair in pairs if chance.random() < 0.95]
    body = b"".join(_gguf_string(key) + _gguf_value(of, chance) for key, of in pairs)
    tensors, values = chance.choice((0, 0, 1, 1, 2**40)), chance.choice((*[len(pairs)] * 6, 0, 99, 2**60))
    if tensors:
        offset = chance.choice((0, 0, 2**50))
        body += _gguf_string(text(chance, 1)) + struct.pack("<IQIQ", 1, 4, chance.choice((0, 0, 1, 8, 40)), offset)
    version = chance.choice((3, 3, 3, 3, 2, 99))
    whole = b"GGUF" + struct.pack("<IQQ", version, tensors, values) + body + bytes(4096)
    at = chance.randrange(len(whole))
    path.write_bytes(chance.choice([whole, whole, whole, whole[:at], whole[:at] + b"\xff" + whole[at + 1 :]]))
    refuse_scaled_positions(read_gguf(path))


def _gguf_string(of: str) -> bytes:
    content = of.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(content)) + content


def _gguf_value(of: str | int, chance: random.Random) -> bytes:
    if isinstance(of, int):
        return struct.pack("<II", 4, of)
    kind = chance.choice((8, 8, 8, 4, 9, 200))
    if kind == 9:
        return struct.pack("<IIQ", 9, 8, chance.choice((1, 2**50))) + _gguf_string(of)
    return struct.pack("<I", kind) + (_gguf_string(of) if kind == 8 else struct.pack("<I", 7))


PLACES: dict[Callable[[random.Random], None], float] = {  # the share of each in all cases
    reply: 0.5, scenarios: 0.1, table: 0.04, record: 0.04, training_file: 0.06, journal: 0.1, prompt_template: 0.06,
    chat_template: 0.02, gguf_header: 0.08,
}  # fmt: skip


def run(size: int, seed: int) -> Counts:
    """Read hostile text in every place; return what came of it."""
    counts, before = Counts(), Path.cwd()
    _tokenizer()  # what is imported first takes its time
    import_module("gguf")
    heard = signal.signal(signal.SIGALRM, _too_long)
    with TemporaryDirectory(prefix="rmft-") as folder:
        os.chdir(folder)
        try:
            for place, share in PLACES.items():
                FOLDER.mkdir()
                chance = random.Random(f"{seed} {place.__name__}")
                for number in range(round(size * share)):
                    _read(place, number, chance, counts)
                    if escaped := [path.name for path in Path().iterdir() if path != FOLDER]:
                        counts.fail(place.__name__.replace("_", " "), f"case {number} wrote {escaped}")
                        Path(escaped[0]).unlink()
                shutil.rmtree(FOLDER)
        finally:
            os.chdir(before)
            signal.alarm(0)
            signal.signal(signal.SIGALRM, heard)
    return counts


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} seconds")


def _read(place: Callable[[random.Random], None], number: int, chance: random.Random, counts: Counts) -> None:
    name = place.__name__.replace("_", " ")
    signal.alarm(SECONDS)
    try:
        place(chance)
    except InputError as error:
        if "\n" in str(error):
            counts.fail(name, f"case {number}: refused in several lines: {error}")
        else:
            counts.add(name, "refused")
    except Exception as error:
        counts.fail(name, f"case {number}: {type(error).__name__}: {str(error)[:200]!r}")
    else:
        counts.add(name, "read")
