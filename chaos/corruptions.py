"""Damaged, replaced and mixed-up files: whether `rmft lineage` names each, and whether readers refuse it in a line.

In a built tree a file of each type is damaged, looked at and put back: a bit is flipped, the file is cut, emptied,
replaced by another one of its type, by its version of an earlier build, or by a file and a receipt of another job. A
case is *named* when `rmft lineage` says in a line which file it is, and ends with exit code 1 or 2; a reader then
*refused* the file in a line, or *read* it. *Unchanged*: all that is read from the file is as it was. *Another time*:
Snakemake's record, which has no checksum, shows another rule or another time of the job. Nothing but git vouches for
three types (recorded json, measurement json and journal), for which lineage is not asked. *Other values* are read from
such a file; git shows that it was changed. A journal is *cut off* when it lost frames at its end, as where a process
was killed. Size: cases of each type and harm.
"""

import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trees import built_once, copy_of, set_value, snakemake

from chaos.counts import Counts
from rmft.agents.numeric import read_model
from rmft.artifacts.csv_files import read_csv
from rmft.artifacts.evaluations import read_evaluation
from rmft.artifacts.files import is_artifact
from rmft.artifacts.json_files import read_json, read_jsonl
from rmft.artifacts.receipts import receipt_path
from rmft.artifacts.replies import read_claims, read_replies
from rmft.artifacts.rewards import read_rewards
from rmft.artifacts.tensors import read_tensors
from rmft.artifacts.text import read_bytes, read_text
from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.cli import app
from rmft.endpoint.journal import Journal, read_journal, usage_of
from rmft.errors import InputError
from rmft.lineage.records import artifact_of, read_record
from rmft.recorded.bundle import read_bundle
from rmft.report.evidence import picture
from rmft.suite import FILE
from rmft.suite.results import read_result

HARMS = ("flipped bit", "cut", "empty", "swapped", "older version", "of another job")
OUTCOMES = ("named", "refused", "unchanged", "cut off", "another time", "other values")
JOURNAL_LINES = 40


@dataclass(frozen=True)
class FileType:
    """Files of one type. pattern: of their paths. read: what a job does with one.

    about: the path that `rmft lineage` is asked about, from the file's own path; None where it is not asked.
    """

    pattern: str
    read: Callable[[Path], Any]
    about: Callable[[Path], Path] | None = Path


def _of_receipt(path: Path) -> Path:
    return path.relative_to(".snakemake/receipts").with_suffix("")


def _rows(path: Path) -> object:
    return read_csv(path, ())


def _record(path: Path) -> object:
    return read_record(artifact_of(path).as_posix())


def _receipt_record(path: Path) -> object:
    return read_record(_of_receipt(path).as_posix())


def _journal(path: Path) -> object:
    """Read a journal in all ways: its requests and responses, their cost, and for writing."""
    entries, usage = list(read_journal(path)), usage_of([path])
    with Journal.open(path):
        pass
    return entries, usage


TYPES = {
    "reward set (npz)": FileType("data/rewards/*.npz", read_rewards),
    "trajectories (parquet)": FileType("results/**/rollouts.parquet", read_trajectories),
    "selection (parquet)": FileType("results/**/selection.parquet", read_selection),
    "evaluation (parquet)": FileType("results/**/evaluation/g*.parquet", read_evaluation),
    "replies (parquet)": FileType("results/**/replies.parquet", read_replies),
    "claims (parquet)": FileType("results/**/claims.parquet", read_claims),
    "numeric model (safetensors)": FileType("results/experiments/numeric_*/*/model.safetensors", read_model),
    "language model (safetensors)": FileType("results/experiments/*/seed-*/*/*.safetensors", read_tensors),
    "metrics (json)": FileType("results/*.json", read_json),
    "demonstrations (jsonl)": FileType("results/**/demonstrations.jsonl", lambda path: list(read_jsonl(path))),
    "log, table or figure (csv)": FileType("results/**/*.csv", _rows),
    "figure (png)": FileType("results/**/*.png", picture),
    "figure (pdf)": FileType("results/**/*.pdf", read_bytes),
    "table (md)": FileType("results/**/*.md", read_text),
    "table (tex)": FileType("results/**/*.tex", read_text),
    "report (html)": FileType("results/*.html", read_text),
    "receipt (json)": FileType(".snakemake/receipts/**/*.json", _receipt_record, _of_receipt),
    "Snakemake's record (json)": FileType(".snakemake/metadata/*", _record, artifact_of),
    "recorded result (csv)": FileType("data/recorded/**/*.csv", _rows),
    "recorded result (json)": FileType("data/recorded/**/bundle.json", lambda path: read_bundle(path.parent), None),
    "measured games (parquet)": FileType("evals/*/games/*.parquet", read_bytes, lambda path: path.parents[1] / FILE),
    "measurement (json)": FileType("evals/*/eval.json", read_result, None),
    "journal (jsonl.zst)": FileType("chaos/*.jsonl.zst", _journal, None),
}


def run(size: int, seed: int, types: list[str] | None = None, built: Path | None = None) -> Counts:
    """Damage files of every type, or of some; return what came of it. built: what `trees.built_once` made."""
    counts = Counts()
    with TemporaryDirectory(prefix="rmft-") as folder, TemporaryDirectory(prefix="rmft-") as aside:
        shared = Path(os.environ.get("RMFT_BUILT", folder))
        home = built or built_once(shared)
        tree, older = copy_of(home, Path(folder) / "home"), None
        if size >= len(HARMS):  # it takes minutes
            older = copy_of(home, Path(folder) / "older")
            set_value(older, "seed", 1)
            snakemake(older)
        before = Path.cwd()
        os.chdir(tree)
        try:
            if types is None:
                add_files(seed)
            for name in types or TYPES:
                _damage(name, TYPES[name], size, random.Random(f"{seed} {name}"), older, Path(aside), counts)
        finally:
            os.chdir(before)
    return counts


def add_files(seed: int) -> None:
    """Add what a build does not leave: journals, and measurements with their games."""
    chance = random.Random(seed)
    for horizon, name in enumerate(("one", "other"), start=3):
        with Journal.open(Path(f"chaos/{name}.jsonl.zst")) as journal:
            for number in range(JOURNAL_LINES):
                messages = [{"role": "user", "content": f"{name} {number} {chance.random()}"}]
                request = {"model": name, "messages": messages}
                journal.record(f"{chance.getrandbits(256):064x}", request, {"usage": {}, "text": "x" * number})
        games = f"--environment mab --horizon {horizon} --instances 4 --output evals/{name}".split()
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            app(["eval", "embedded", *games], standalone_mode=False)


def _damage(
    name: str, kind: FileType, size: int, chance: random.Random, older: Path | None, aside: Path, counts: Counts
) -> None:
    files = sorted(path for path in Path().glob(kind.pattern) if path.is_file())
    for harm in HARMS:
        done = 0
        for _ in range(2 * size):  # a harm may change nothing
            path = chance.choice(files)
            with _kept(path, aside), _kept(receipt_path(path), aside):
                sound = path.read_bytes()
                if not _harm(harm, path, files, chance, older) or path.read_bytes() == sound:
                    continue
                _look(name, kind, path, f"{harm} of {path}", aside, counts)
            done += 1
            if done == size:
                break


def _harm(harm: str, path: Path, files: list[Path], chance: random.Random, older: Path | None) -> bool:
    """Do harm to a file; return whether that can be done to it."""
    whole = path.read_bytes()
    if harm == "flipped bit":
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
    elif harm == "cut":
        path.write_bytes(whole[: chance.randrange(1, len(whole))])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "older version":
        if older is None or not (older / path).exists():
            return False
        path.write_bytes((older / path).read_bytes())
        if is_artifact(path.as_posix()) and chance.random() < 0.5:  # with its receipt
            shutil.copy(older / receipt_path(path), receipt_path(path))
    else:
        others = [other for other in files if other != path]
        if not others or (harm == "of another job" and not is_artifact(path.as_posix())):
            return False
        other = chance.choice(others)
        path.write_bytes(other.read_bytes())
        if harm == "of another job":
            shutil.copy(receipt_path(other), receipt_path(path))
    return True


def _look(name: str, kind: FileType, path: Path, what: str, aside: Path, counts: Counts) -> None:
    """Ask lineage about a damaged file, and read the file."""
    found = None
    try:
        found, outcome = kind.read(path), "read"
    except InputError as error:
        outcome = "refused"
        if "\n" in str(error):
            counts.fail(name, f"{what}: refused in several lines: {error}")
            return
    except Exception as error:
        counts.fail(name, f"{what}: reading: {type(error).__name__}: {str(error)[:200]}")
        return
    verdict = _named(kind.about(path)) if kind.about else outcome
    if verdict == "read" or (verdict != "named" and kind.read in (_record, _receipt_record)):
        verdict = _compared(kind, path, found, aside)
    if verdict in OUTCOMES:
        counts.add(name, f"{verdict}, {outcome}" if verdict == "named" else verdict)
    else:
        counts.fail(name, f"{what}: {verdict}")


@contextmanager
def _kept(path: Path, aside: Path) -> Iterator[None]:
    """Put a file back as it was, afterwards."""
    copy = aside / path
    if path.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    try:
        yield
    finally:
        if copy.exists():
            shutil.copy2(copy, path)
            copy.unlink()


def _named(path: Path) -> str:
    """Return "named" where `rmft lineage` names a problem of a file, else what it did."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = app(["lineage", str(path)], standalone_mode=False)
    except InputError as error:
        code, lines = 2, [str(error)]
    except Exception as error:
        return f"lineage: {type(error).__name__}: {str(error)[:200]}"
    else:
        lines = (err.getvalue() + out.getvalue()).splitlines()
    about = any(str(path) in line or f"{path.parent}" in line for line in lines)
    return "named" if code and about else f"lineage did not notice (exit code {code})"


def _compared(kind: FileType, path: Path, found: Any, aside: Path) -> str:  # noqa: ANN401 (what a type's reader returns)
    """Return what differs between what is read from a damaged file and from the sound one."""
    damaged = path.read_bytes()
    shutil.copy2(aside / path, path)
    sound = kind.read(path)
    path.write_bytes(damaged)
    if repr(found) == repr(sound):
        return "unchanged"
    if kind.read is _record and found is not None and sound is not None:
        now = {"rule": found.rule, "started": found.started, "wall_seconds": found.wall_seconds}
        if replace(sound, **now) == found:
            return "another time"
    if kind.read is not _journal:
        return "other values" if kind.about is None else "lineage shows something else, and names nothing"
    entries, before = found[0], sound[0]
    if entries == before[: len(entries)]:
        return "cut off"
    return "other values" if not any(entry in before for entry in entries) else "read as something else"
