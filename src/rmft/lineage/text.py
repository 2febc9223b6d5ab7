"""A trace as text: in short, what made one artifact and from what; in full, every job back to the root seed."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from rmft.artifacts.files import SHORT, is_artifact
from rmft.artifacts.receipts import Receipt
from rmft.lineage.records import Record
from rmft.lineage.trace import Ancestor, Trace
from rmft.params.files import experiment_in

INPUTS = 3  # direct inputs that the short text names before it counts the others
NARROWEST = 24  # characters of a line beside its indentation, however narrow the terminal is
LINES = 2  # of one text in the short text
# Settings of figures and tables that change how they look, and no value in them.
LOOKS = ("style.", "titles.", "experiment_titles.", "loops", "scale_note")
# Settings that are shown first, by the last part of their keys.
DECISIVE = (
    "selected", "trajectories", "scenarios", "iterations", "training_seeds", "perturb", "T", "temperature",
    "learning_rate", "epochs", "score",
)  # fmt: skip
TRAINS = ("training", "sft", "grpo", "method")  # how the rules begin that train a model
SELECTS, PLAYS = ("selection",), ("rollouts_shard",)
WEIGHTS = (".safetensors", ".gguf")
LABEL = 12  # characters of the first column of the short text


def as_text(trace: Trace, width: int = 120) -> Iterator[str]:
    """Yield about ten lines: the artifact, its job, its direct inputs, and the sources and seed behind them."""
    artifact = trace.ancestors[trace.path]
    yield trace.path
    for label, texts in _short(trace, artifact):
        for number, text in enumerate(texts):
            indent = f"  {'' if number else label:{LABEL}}"
            yield from _wrapped(text, width, indent, " " * len(indent), LINES)
    if not trace.problems:
        yield f"{_verified(trace)}; --full shows every job"


def _verified(trace: Trace) -> str:
    return f"verified: {len(trace.ancestors)} hash{'es' if len(trace.ancestors) > 1 else ''}"


def _short(trace: Trace, artifact: Ancestor) -> Iterator[tuple[str, Iterable[str]]]:
    yield "sha256", [(artifact.sha256 or "missing")[:SHORT]]
    record = artifact.record
    if record is None:
        yield "record", ["none"]
        return
    yield "job", [_run(record)]
    yield "experiment", filter(None, [", ".join(_experiments(trace))])
    yield "model", filter(None, [", ".join(_models(trace))])
    yield "weights", _weights(trace)
    yield "settings", filter(None, [_settings(record)])
    for label, rules in (("trained by", TRAINS), ("selected by", SELECTS), ("played by", PLAYS)):
        yield label, _last_of(trace, rules)
    yield "code", [_code(record)]
    yield "other code", filter(None, [_other_code(trace, record)])
    yield "made from", _inputs(trace, artifact)
    yield "back to", _origins(trace)


def _settings(record: Record) -> str:
    """Return the settings of a job, the decisive ones first, without those that other lines show."""
    shown = [(key, value) for key, value in flat(record.settings) if not key.startswith((*LOOKS, "model"))]
    return "  ".join(_setting(key, value) for key, value in sorted(shown, key=_rank))


def _rank(setting: tuple[str, object]) -> int:
    """Return the place of a setting in the short text: games and servers are described after all else."""
    first, *_, last = setting[0].split(".") * 2
    if first in ("problem", "served"):
        return len(DECISIVE) + 1
    return DECISIVE.index(last) if last in DECISIVE else len(DECISIVE)


def _experiments(trace: Trace) -> list[str]:
    """Return the experiments that an artifact and its ancestors belong to."""
    return list(dict.fromkeys(filter(None, map(experiment_in, trace.ancestors))))


def _models(trace: Trace) -> list[str]:
    """Return the models that an artifact and its ancestors were made with: their weights, or else their kind."""
    models = (of.record.settings.get("model") for of in trace.ancestors.values() if of.record)
    named = [of.get("weights") or of.get("model") or of.get("kind") for of in models if isinstance(of, dict)]
    return list(dict.fromkeys(filter(None, named)))


def _weights(trace: Trace) -> list[str]:
    """Return the files of a hub's models and the GGUF files behind an artifact, with their hashes."""
    hub = [file for of in trace.ancestors.values() if of.record for file in of.record.receipt.hub.items()]
    own = [(path, of.sha256 or "missing") for path, of in trace.ancestors.items()]
    weights = [(name, digest) for name, digest in hub if name.endswith(WEIGHTS)]
    weights += [(path, digest) for path, digest in own if path.endswith(".gguf")]
    return list(dict.fromkeys(f"{name} {digest[:SHORT]}" for name, digest in weights))


def _last_of(trace: Trace, rules: tuple[str, ...]) -> Iterator[str]:
    """Yield the last job before an artifact whose rule begins so, unless the artifact's own rule does; and how many."""
    records = [of.record for path, of in trace.ancestors.items() if path != trace.path and of.record]
    own = trace.ancestors[trace.path].record
    found = [of for of in records if of.rule.startswith(rules) and not (own and own.rule.startswith(rules))]
    if not found:
        return
    last = max(found, key=lambda record: record.started)
    yield f"{last.rule}: {_settings(last)}"
    if others := {of.job for of in found} - {last.job}:
        yield f"and {len(others)} more, which --full shows"


def _other_code(trace: Trace, record: Record) -> str:
    """Return commits, Pythons and kinds of machines of jobs before an artifact that are not those of its own job."""
    receipts = [of.record.receipt for of in trace.ancestors.values() if of.record]
    own, commits = record.receipt, {_commit(of) for of in receipts}
    parts = [f"commit {commit}" for commit in sorted(commits - {_commit(own)})]
    parts += [f"Python {python}" for python in sorted({of.python for of in receipts} - {own.python})]
    parts += [f"machine {machine}" for machine in sorted({of.machine for of in receipts} - {own.machine})]
    return f"before it: {'; '.join(parts)}" if parts else ""


def _inputs(trace: Trace, artifact: Ancestor) -> Iterator[str]:
    """Yield a line for each direct input, but one for several sources in one folder."""
    files = [trace.ancestors[name] for name in artifact.inputs]
    sources = Counter(_folder(file) for file in files if not is_artifact(file.path))
    lines = list(dict.fromkeys(_input(file, sources[_folder(file)]) for file in files))
    yield from lines[:INPUTS]
    if len(lines) > INPUTS:
        yield f"and {len(lines) - INPUTS} more"


def _input(file: Ancestor, sources: int) -> str:
    if sources > 1 and not is_artifact(file.path):
        return f"{_folder(file)}  {sources} sources, {'in git' if file.in_git else 'not in git'}"
    rule = file.record.rule if file.record else _kind(file)
    return f"{file.path}  {(file.sha256 or 'missing')[:SHORT]}  {rule}"


def _folder(file: Ancestor) -> str:
    return str(PurePath(file.path).parent)


def _origins(trace: Trace) -> Iterator[str]:
    """Yield the rules behind an artifact, the folders of its sources, and the root seed."""
    before = [ancestor for path, ancestor in trace.ancestors.items() if path != trace.path]
    rules = Counter(ancestor.record.rule for ancestor in before if ancestor.record)
    sources = [ancestor for ancestor in before if not is_artifact(ancestor.path)]
    held = Counter(_folder(source) for source in sources if source.in_git)
    elsewhere = Counter(_folder(source) for source in sources if not source.in_git)
    if rules:
        yield f"artifacts by rule: {_counts(rules)}"
    if held:
        yield f"sources in git: {_counts(held)}"
    if elsewhere:
        yield f"sources not in git: {_counts(elsewhere)}"
    seeds = {ancestor.record.settings.get("seed") for ancestor in trace.ancestors.values() if ancestor.record} - {None}
    if seeds:
        yield f"root seed {', '.join(map(str, sorted(seeds)))}"


def _counts(names: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in names.items())


def as_tree(trace: Trace, width: int = 120) -> Iterator[str]:
    """Yield every ancestor below what was made from it, with its job; repeat nothing."""
    shown: set[str] = set()

    def below(path: str, depth: int) -> Iterator[str]:
        ancestor, indent = trace.ancestors[path], "  " * depth
        line = f"{indent}{path}  {(ancestor.sha256 or 'missing')[:SHORT]}"
        if ancestor.record is None:
            yield f"{line}  {_kind(ancestor)}"
        elif path in shown:
            yield f"{line}  (above)"
        else:
            shown.add(path)
            yield line
            for text in _job(ancestor.record, shown):
                yield from _wrapped(text, width, f"{indent}  | ", f"{indent}  |   ")
            for name in ancestor.inputs:
                yield from below(name, depth + 1)
            if ancestor.drawn:
                yield f"{indent}  root seed {ancestor.record.settings.get('seed')}"

    yield from below(trace.path, 0)
    if not trace.problems:
        yield _verified(trace)


def _job(record: Record, shown: set[str]) -> Iterator[str]:
    """Yield when, where, from which code and with which libraries and settings a job ran; the last two only once."""
    yield _run(record)
    yield f"code {_code(record)}"
    settings = "  ".join(_setting(key, value) for key, value in flat(record.settings))
    for text in filter(None, (_libraries(record), settings, _hub(record), _ran_with(record))):
        if text not in shown:
            shown.add(text)
            yield text


def _kind(ancestor: Ancestor) -> str:
    if is_artifact(ancestor.path):
        return "no record"
    return "a source, in git" if ancestor.in_git else "a source, not in git"


def _run(record: Record) -> str:
    made = record.receipt
    cpu = "" if made.cpu_seconds is None else f" ({made.cpu_seconds:.1f} s of CPU)"
    return f"{record.rule}: {record.wall_seconds:.1f} s{cpu} on {made.machine}, {record.started:%Y-%m-%d %H:%M} UTC"


def _code(record: Record) -> str:
    return f"{record.code['digest']}, commit {_commit(record.receipt)}, Python {record.receipt.python}"


def _commit(receipt: Receipt) -> str:
    return f"{receipt.commit[:SHORT]}{receipt.commit[40:]}" if receipt.commit else "none"


def _libraries(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.code["libraries"].items())


def _hub(record: Record) -> str:
    return ", ".join(f"{name} {digest[:SHORT]}" for name, digest in record.receipt.hub.items())


def _ran_with(record: Record) -> str:
    made = record.receipt
    responses = [f"an endpoint's responses {made.responses[:SHORT]}"] if made.responses else []
    return ", ".join([*(f"{name} {version}" for name, version in made.ran_with.items()), *responses])


def _setting(key: str, value: object) -> str:
    return f"{key}={_plain(value)}"


def _plain(value: object) -> str:
    return f"[{', '.join(map(_plain, value))}]" if isinstance(value, list) else str(value)


def flat(settings: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values of nested settings, except null values."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else key)
    elif settings is not None:
        yield prefix, settings


def _wrapped(text: str, width: int, first: str, others: str, lines: int | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(others) + NARROWEST),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=lines,
        placeholder=" …",
    )
