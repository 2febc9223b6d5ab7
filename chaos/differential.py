"""The same edits through `snakemake` and through `dvc repro`: after each step both trees are what a new build gives.

From one small built tree (two numeric experiments, their figures and tables) a sequence of random steps is made in two
copies: values, defaults, code, data files, deletions of artifacts, returns to earlier states, checkouts of commits, and
`dvc exp run --set-param` where the other copy gets the value by hand. Then one copy runs `snakemake`, the other one
`dvc repro`, and a third one, with no artifact in it, `snakemake`. Size: sequences, each of three steps.
"""

import hashlib
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from trees import (
    checkout,
    commit,
    copy_of,
    digests,
    done,
    edit,
    keep_experiments,
    set_value,
    snakemake,
)
from trees import (
    run as run_in,
)

from chaos.counts import Counts, time_left

STEPS = 3  # of a sequence
EXPERIMENT = "numeric_simplex"
VALUES = {  # of params.yaml and outputs.yaml, in an experiment, above it, and beside it
    f"experiments.{EXPERIMENT}.rmft.selected": (1, 2),
    f"experiments.{EXPERIMENT}.checkpoints": ([10], [10, 15]),
    "defaults.numeric.rmft.variance": (1.0, 0.5),
    "evaluation.floor": (None, 0.01),
    "rewards.uniform.instances": (100, 120),  # evaluations play 100
    "seed": (0, 1),
    "figures.style.width_inches": (6.5, 5.0),
}
CODE = {  # what is appended to a file: a comment, which changes nothing, or a statement
    "src/rmft/tables/layout.py": "SPARE = {}\n",
    "src/rmft/figures/style.py": "SPARE = {}\n",
    "src/rmft/algorithms/full_information.py": "SPARE = {}\n",
    "src/rmft/metrics/growth.py": "# note {}\n",
}
DATA = ("data/paper/simplex-table.csv", "data/report/templates/style.css", "docs/glossary.md")
BY_SNAKEMAKE, BY_DVC = ("snakemake", "--cores", "2"), ("dvc", "repro")
FORMER = "former"  # git's tag of a state that sequences come back to


@dataclass
class Step:
    """An edit. change: makes it in a tree. by_dvc: what DVC's tree runs in place of the edit and `dvc repro`."""

    name: str
    change: Callable[[Path], object]
    by_dvc: tuple[str, ...] = ()


@dataclass
class Trees:
    """The trees of a check, and the hashes of artifacts of builds from nothing, by a hash of all sources."""

    built: Path
    folder: Path
    from_nothing: dict[str, dict[str, str]] = field(default_factory=dict)


def run(size: int, seed: int) -> Counts:
    """Make sequences of edits; return what came of them."""
    counts, chance = Counts(), random.Random(seed)
    with TemporaryDirectory(prefix="rmft-") as folder:
        trees = Trees(Path(folder) / "built", Path(folder))
        _build(trees.built / "rmft")
        for number in range(size):
            if time_left():
                _sequence(number, trees, chance, counts)
    return counts


def _build(tree: Path) -> None:
    """Build the small tree, let DVC adopt it, and commit an earlier state of it too."""
    checkout(tree)
    edit(tree / "params.yaml", "scale: demo", "scale: smoke")
    keep_experiments(tree, [EXPERIMENT, f"{EXPERIMENT}_logits"])
    set_value(tree, "report.story", None)
    done(tree, "git", "init", "--quiet")
    done(tree, "dvc", "config", "core.autostage", "true")
    set_value(tree, "evaluation.floor", 0.02)
    for message in (FORMER, "Go on"):
        done(tree, "dvc", "repro", "--quiet")
        commit(tree, message)
        done(tree, "git", "tag", message.replace(" ", "-").lower())
        set_value(tree, "evaluation.floor", None)
    done(tree, "dvc", "repro", "--quiet")
    commit(tree, "Go on")


def _sequence(number: int, trees: Trees, chance: random.Random, counts: Counts) -> None:
    ours, theirs = (copy_of(trees.built, trees.folder / name) for name in ("by-snakemake", "by-dvc"))
    steps = [_step(chance) for _ in range(STEPS)]
    for place, step in enumerate(steps):
        what = f"sequence {number}, {' > '.join(one.name for one in steps[: place + 1])}"
        problem = _take(step, ours, theirs, trees)
        if problem:
            counts.fail(step.name.split(" ")[0], f"{what}: {problem}")
            break
        counts.add(step.name.split(" ")[0], "equal")
    else:
        counts.add("sequence", "equal")
    for tree in (ours, theirs):
        shutil.rmtree(tree.parent)


def _step(chance: random.Random) -> Step:
    """Return a random step."""
    kind = chance.randrange(7)
    key = chance.choice(list(VALUES))
    value = chance.choice(VALUES[key])
    if kind in (0, 1):
        return Step(f"value {key}={value}", lambda tree: set_value(tree, key, value))
    if kind == 2:
        file = chance.choice(list(CODE))
        line = CODE[file].format(chance.randrange(3))
        return Step(f"code {file}", lambda tree: _append(tree / file, line))
    if kind == 3:
        file = chance.choice(DATA)
        return Step(f"data {file}", lambda tree: _append(tree / file, "\n"))
    if kind == 4:
        at = chance.random()
        return Step(f"deletion {at:.3f}", lambda tree: _delete(tree, at))
    if kind == 5:
        where = chance.choice((FORMER, "HEAD"))
        return Step(f"checkout {where}", lambda tree: _check_out(tree, where))
    key = chance.choice([key for key in VALUES if not key.startswith("figures.") and "checkpoints" not in key])
    value = chance.choice(VALUES[key])
    set_param = f"{key}={'null' if value is None else value}"
    by_dvc = ("dvc", "exp", "run", "--set-param", f"++{set_param}")
    return Step(f"exp {set_param}", lambda tree: set_value(tree, key, value), by_dvc)


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def _delete(tree: Path, at: float) -> None:
    """Delete an artifact, or a folder of them."""
    paths = sorted(path for path in (tree / "results").rglob("*") if path.is_file())
    path = paths[int(at * len(paths))]
    if at * 100 % 1 < 0.3:
        shutil.rmtree(path.parent)
    else:
        path.unlink()


def _check_out(tree: Path, where: str) -> None:
    """Go back to a commit, with its artifacts where the tree is DVC's."""
    done(tree, "git", "checkout", "--quiet", "--force", where)
    if tree.parent.name == "by-dvc":
        done(tree, "dvc", "checkout", "--quiet", "--force")


def _take(step: Step, ours: Path, theirs: Path, trees: Trees) -> str:
    """Take a step in both trees and build them; return how they differ, "" where they do not."""
    step.change(ours)
    if not step.by_dvc:
        step.change(theirs)
    with ThreadPoolExecutor() as pool:
        new = shutil.copytree(ours, trees.folder / "new", symlinks=True, ignore=_artifacts)
        anew = pool.submit(_from_nothing, new, trees)
        problems = pool.map(_build_by, (ours, theirs), (BY_SNAKEMAKE, step.by_dvc or BY_DVC))
    if problem := next(filter(None, problems), ""):
        return problem
    if error := anew.exception():
        return f"from nothing: {error}"
    by_snakemake = digests(ours)
    for name, one, other in (("dvc", digests(theirs), by_snakemake), ("from nothing", anew.result(), by_snakemake)):
        if one != other:
            differ = sorted({path for path, _ in one.items() ^ other.items()})
            return f"{name} differs from snakemake in {len(differ)} files: {', '.join(differ[:5])}"
    return ""


def _build_by(tree: Path, command: tuple[str, ...]) -> str:
    """Build a tree, and drop what it no longer asks for, as the stages of DVC do; return what went wrong."""
    finished = run_in(tree, *command)
    if finished.returncode:
        return f"{' '.join(command)}: {finished.stdout[-500:]} {finished.stderr[-500:]}"
    run_in(tree, "rmft", "prune")
    return ""


def _from_nothing(new: Path, trees: Trees) -> dict[str, str]:
    """Return the hashes of the artifacts that a build of a copy without artifacts gives, and delete the copy."""
    try:
        tracked = done(new, "git", "ls-files").splitlines()
        sources = hashlib.sha256()
        for name in sorted({*tracked} - {"dvc.lock"}):
            sources.update((new / name).read_bytes() if (new / name).is_file() else b"")
        key = sources.hexdigest()
        if key not in trees.from_nothing:
            snakemake(new)
            trees.from_nothing[key] = digests(new)
        return trees.from_nothing[key]
    finally:
        shutil.rmtree(new)


def _artifacts(folder: str, names: list[str]) -> list[str]:
    """Return what is not copied for a new build."""
    made = ("results", ".snakemake", ".dvc", ".rmft", *(["rewards"] if Path(folder).name == "data" else []))
    return [name for name in names if name in made]
