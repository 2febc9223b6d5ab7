"""Compare two revisions or two experiments: parameters, code, inputs, results.

DVC gives the parameters, artifacts and metrics of a revision, git the code.
"""

import json
import logging
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo
from dvc.repo.brancher import switch
from dvc.scm import RevError, SCMError, resolve_rev
from scmrepo.exceptions import SCMError as GitError

from rmft.artifacts.files import sha256
from rmft.artifacts.receipts import FOLDER as RECEIPTS
from rmft.errors import InputError, did_you_mean
from rmft.lineage.code import SourceCode, code_of, locked, normalised
from rmft.metrics.summary import summarised
from rmft.params import load
from rmft.recorded.summary import built_metrics
from rmft.tools.diff.difference import (
    ADDED,
    CHANGED,
    DELETED,
    CodeChange,
    Difference,
    LibraryChange,
    Pair,
    differing,
    parameter_difference,
    statuses,
    tree_difference,
)

WORKSPACE = "workspace"
PARAMETERS = ("params.yaml", "outputs.yaml")
WORKFLOW = ("Snakefile", "profiles", "workflow", "extensions")
MEASURES = ("regret", "exponent", "ks_p", "paired_p")  # of the trained model, as in results/summary.json
NO_LOCK = (
    "no dvc.lock is committed there (`make reproduce` and `dvc repro` write it); "
    "`rmft results` prints what is built here"
)
NO_METRICS = "no readable results/summary.json, in DVC's cache neither"
Codes = Mapping[str, Mapping[str, SourceCode]]  # by stage, by module
Metrics = Mapping[tuple[str, str], Mapping[str, float]]  # the measures by (experiment, evaluation)


def compare(a: str = "HEAD", b: str = WORKSPACE) -> Difference:
    """Return the differences between two revisions, or between two experiments of the workspace's params.yaml.

    A revision is a commit, a DVC experiment or `workspace`. Raise InputError where a name is none of these, outside
    of a repository of git and DVC, and where DVC or Python cannot read a file.
    """
    for library in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # its progress bars go by this as well
    try:
        with Repo() as repo:
            parameters = _parameters(repo) or {}
            sections = (_map(parameters.get(section)) for section in ("experiments", "on_request"))
            experiments = {name for section in sections for name in section} - {WORKSPACE}
            if {a, b} <= experiments:
                return _of_experiments(repo, a, b)
            return _of_revisions(repo, *_commits(repo, (a, b), experiments))
    except NotDvcRepoError:
        raise InputError("diff: no DVC repository here; run inside a clone of rmft") from None
    except (SCMError, GitError) as error:
        raise InputError(f"diff: no git repository here ({_one_line(error)})") from None
    except (DvcException, OSError) as error:
        raise InputError(f"diff: DVC cannot compare {a} with {b}: {_one_line(error)}") from None


# Two experiments of the workspace


def _of_experiments(repo: Repo, a: str, b: str) -> Difference:
    root = Path(repo.root_dir)
    params = load(root / "params.yaml").at_scale()
    experiments = params.experiments
    parameters = dict(tree_difference(*(experiments[name].model_dump(mode="json") for name in (a, b))))
    folders = [root / "results/experiments" / name for name in (a, b)]
    unknown = [f"results of {folder.name} are unknown: not built" for folder in folders if not folder.exists()]
    if unknown:
        return Difference(a, b, parameters, unknown=unknown)
    # Of the evaluations themselves: results/summary.json may be older, and has no experiments on request.
    metrics = {name: _measures(summarised(built_metrics(params, name, root))) for name in (a, b)}
    of_each = ({evaluation: value for (_, evaluation), value in metrics[name].items()} for name in (a, b))
    return Difference(
        a,
        b,
        parameters,
        results=statuses(*(_hashes(folder, folder) for folder in folders)),
        metrics=_metric_pairs(*of_each),
        machines=_machine_pair(*(_machines(root / RECEIPTS / folder.relative_to(root)) for folder in folders)),
        unknown=[f"metrics of {name} are unknown: no evaluation is built" for name in (a, b) if not metrics[name]],
    )


# Two revisions


@dataclass(frozen=True)
class _Side:
    """One of two revisions.

    parameters, metrics: None where they cannot be read. workflow, inputs: hashes of files that are no artifacts.
    libraries: locked versions. machines: their kinds, as far as receipts can be read.
    """

    name: str
    commit: str
    parameters: Mapping[str, Any] | None
    codes: Codes
    workflow: dict[str, str]
    libraries: dict[str, str]
    inputs: dict[str, str]
    has_results: bool
    metrics: Metrics | None
    machines: list[str]

    @property
    def unknown(self) -> Iterator[str]:
        """Yield what cannot be said of it, in lines."""
        if self.parameters is None:
            yield f"parameters of {self.name} are unknown: no readable params.yaml"
        if not self.has_results:
            why = "nothing is built here" if self.commit == WORKSPACE else NO_LOCK
            yield f"results and reward sets of {self.name} are unknown: {why}"
        elif self.metrics is None:
            yield f"metrics of {self.name} are unknown: {NO_METRICS}"


def _commits(repo: Repo, names: tuple[str, str], experiments: Collection[str]) -> list[tuple[str, str]]:
    """Return names of revisions with their commits. Raise InputError for a name of none."""
    commits = {WORKSPACE: WORKSPACE}
    for name in names:
        with suppress(RevError, GitError):
            commits.setdefault(name, repo.scm.resolve_rev(resolve_rev(repo.scm, name) + "^{commit}"))
    right = "a commit, a DVC experiment, workspace, or two experiments of params.yaml"
    for name in names:
        if name not in commits and name not in experiments:
            meant = did_you_mean(name, [*experiments, WORKSPACE]) or f"give {right}"
            raise InputError(f"diff: unknown {name!r}; {meant}")
    for name, other in (names, names[::-1]):
        if name not in commits:
            raise InputError(f"diff: {name} is an experiment of params.yaml and {other} is not; give {right}")
    return [(name, commits[name]) for name in names]


def _refuse_missing_files(root: str, revisions: Iterable[tuple[str, str]]) -> None:
    """Raise InputError where a partial clone lacks files of a commit: DVC would wait for them for ever."""
    git = ("git", "-C", root)
    partial = [*git, "config", "--get-regexp", r"^remote\..*\.promisor$"]
    if subprocess.run(partial, capture_output=True, check=False).returncode:
        return
    for name, commit in revisions:
        objects = [*git, "rev-list", "--objects", "--missing=print", "--no-walk", commit]
        if commit != WORKSPACE and b"\n?" in subprocess.run(objects, capture_output=True, check=True).stdout:
            cure = "`git fetch --refetch --no-filter` gets them"
            raise InputError(f"diff: not all files of {name} are in this clone; {cure}")


def _of_revisions(repo: Repo, a: tuple[str, str], b: tuple[str, str]) -> Difference:
    if a[1] == b[1]:
        return Difference(a[0], b[0])
    _refuse_missing_files(repo.root_dir, (a, b))
    old, new = (_side(repo, *revision) for revision in (a, b))
    parameters, inherited = parameter_difference(*_if_known(old.parameters, new.parameters))
    artifacts, metrics = {}, ({}, {})
    if old.has_results and new.has_results:
        artifacts, metrics = _artifacts(repo, old.commit, new.commit), _if_known(old.metrics, new.metrics)
    folders = [path for path in artifacts if path.endswith("/")]
    unlisted = [f"files of {path} are unknown: their list is not in DVC's cache; see dvc fetch" for path in folders]
    reward_sets, results = (
        {path: status for path, status in artifacts.items() if path.startswith(folder)}
        for folder in ("data/", "results/")
    )
    return Difference(
        old.name,
        new.name,
        parameters=parameters,
        inherited=inherited,
        code=_code_changes(old, new),
        libraries=_library_changes(old, new),
        inputs=statuses(old.inputs, new.inputs) | reward_sets,
        results=results,
        metrics=_metric_pairs(*({"/".join(names): of for names, of in side.items()} for side in metrics)),
        machines=_machine_pair(old.machines, new.machines),
        unknown=[*old.unknown, *new.unknown, *unlisted],
    )


def _side(repo: Repo, name: str, commit: str) -> _Side:
    """Read all of a revision but its artifacts. Raise InputError where its code is not Python."""
    with TemporaryDirectory() as temporary, switch(repo, commit):
        in_workspace = commit == WORKSPACE
        folder = Path(repo.root_dir) if in_workspace else Path(temporary) / "tree"
        if not in_workspace:
            repo.fs.get(repo.root_dir, str(folder))
            with suppress(FileNotFoundError):  # receipts that DVC did not keep, or that are not in its cache
                repo.dvcfs.get(RECEIPTS.as_posix(), str(folder / RECEIPTS))
        ignored = repo.scm.is_ignored if in_workspace else lambda _: False
        return _Side(
            name if commit.startswith(name) else f"{name} ({commit[:7]})",
            commit,
            _parameters(repo),
            _codes(folder, name),
            {path: digest for part in WORKFLOW for path, digest in _hashes(folder, folder / part, ignored).items()},
            locked(folder / "requirements.lock"),
            _hashes(folder, folder / "data", ignored),
            (folder / ("results" if in_workspace else "dvc.lock")).exists(),
            _metrics(repo),
            _machines(folder / RECEIPTS),
        )


def _codes(folder: Path, name: str) -> Codes:
    """Return the code of every stage in a folder."""
    source = folder / "src"
    try:
        return {file.stem: code_of(file.stem, source) for file in sorted((source / "rmft/stages").glob("[!_]*.py"))}
    except InputError as error:
        raise InputError(f"diff: code of {name}: {error}") from None


def _code_changes(old: _Side, new: _Side) -> list[CodeChange]:
    """Return stages that one side lacks, the modules that differ in the other stages, and files of the workflow."""
    alone = statuses(*(dict.fromkeys(side.codes, True) for side in (old, new)))
    return [
        *(CodeChange(f"rmft {stage}", status) for stage, status in alone.items()),
        *_module_changes(old.codes, new.codes),
        *(CodeChange(path, status) for path, status in statuses(old.workflow, new.workflow).items()),
    ]


def _module_changes(old: Codes, new: Codes) -> Iterator[CodeChange]:
    shared = sorted(old.keys() & new.keys())
    for module in sorted({module for codes in (old, new) for stage in shared for module in codes[stage]}):
        before, after = (
            {stage: codes[stage][module].digest for stage in shared if module in codes[stage]} for codes in (old, new)
        )
        if set(before.values()) != set(after.values()):  # otherwise only the stages that run it differ
            status = CHANGED if before and after else ADDED if after else DELETED
            yield CodeChange(module, status, list(statuses(before, after)))


def _library_changes(old: _Side, new: _Side) -> list[LibraryChange]:
    changed = dict(differing(old.libraries, new.libraries))
    if not changed:
        return []
    distributions, importing = packages_distributions(), defaultdict(set)
    for stage, codes in (*old.codes.items(), *new.codes.items()):
        for library in {library for code in codes.values() for library in code.libraries}:
            for name in distributions.get(library, [library]):
                importing[normalised(name)].add(stage)
    return [LibraryChange(name, versions, sorted(importing[normalised(name)])) for name, versions in changed.items()]


def _artifacts(repo: Repo, a: str, b: str) -> dict[str, str]:
    """Return the status of every artifact that differs, and of folders (ending in /) whose files DVC does not know."""
    if a == WORKSPACE:  # which DVC takes only as the second
        other_way = {ADDED: DELETED, DELETED: ADDED, CHANGED: CHANGED}
        return {path: other_way[status] for path, status in _artifacts(repo, b, a).items()}
    entries = defaultdict(list, repo.diff(a, b))
    paths = {  # DVC also lists, without a hash, the outs of stages that a revision never ran
        name: [entry["path"] for entry in entries[name] if entry["hash"]]
        for name in ("modified", "deleted", "added", "renamed")
    }
    status_of = {
        **dict.fromkeys(paths["modified"], CHANGED),
        **dict.fromkeys([*paths["deleted"], *(path["old"] for path in paths["renamed"])], DELETED),
        **dict.fromkeys([*paths["added"], *(path["new"] for path in paths["renamed"])], ADDED),
    }
    parents = {f"{parent}/" for path in status_of if not path.endswith("/") for parent in PurePosixPath(path).parents}
    return {path: status_of[path] for path in sorted(status_of) if path not in parents}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# What DVC reads of the revision that it is at; None where the file is missing or holds no map


def _parameters(repo: Repo) -> Mapping[str, Any] | None:
    """Return params.yaml and outputs.yaml as they are written; an older revision has no outputs.yaml."""
    files = [name for name in PARAMETERS if repo.fs.exists(repo.fs.join(repo.root_dir, name))]
    shown = repo.params.show(files) if files else {}
    contents = [_content(shown, name) for name in files]
    if not files or not all(contents):
        return None
    return {key: value for content in contents for key, value in content.items()}


def _metrics(repo: Repo) -> Metrics | None:
    summary = _content(repo.metrics.show(), "results/summary.json")
    return None if summary is None else _measures(summary)


def _measures(summary: Mapping[str, Any]) -> Metrics:
    """Return the measures in the content of results/summary.json."""
    return {
        (experiment, evaluation): {name: of[name] for name in MEASURES if isinstance(of.get(name), int | float)}
        for experiment, evaluations in summary.items()
        for evaluation, of in _map(evaluations).items()
    }


def _content(shown: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    content = shown.get("", {}).get("data", {}).get(path, {}).get("data")
    return content if isinstance(content, Mapping) else None


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _if_known(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[Mapping, Mapping]:
    return ({}, {}) if old is None or new is None else (old, new)


def _hashes(root: Path, folder: Path, ignored: Callable[[Path], bool] = lambda _: False) -> dict[str, str]:
    """Return the hash of a file, or of every file below a folder, READMEs aside, by its path from root."""
    paths = (path for path in (folder, *folder.rglob("*")) if path.is_file() and path.stem != "README")
    return {path.relative_to(root).as_posix(): sha256(path) for path in paths if not ignored(path)}


def _machines(receipts: Path) -> list[str]:
    """Return the kinds of machines in the receipts of a folder, in order."""
    kinds = set()
    for path in receipts.rglob("*.json"):
        with suppress(ValueError, KeyError, TypeError):  # a damaged one, which `rmft lineage` names
            kinds.add(json.loads(path.read_text(encoding="utf-8"))["machine"])
    return sorted(kinds)


def _machine_pair(old: list[str], new: list[str]) -> tuple[list[str], list[str]] | None:
    """Return the kinds of machines of both sides; None where they are the same, or where one side's are unknown."""
    return (old, new) if old and new and old != new else None


def _metric_pairs(old: Mapping[str, Mapping], new: Mapping[str, Mapping]) -> dict[str, dict[str, Pair]]:
    """Return, by evaluation, the measures that differ."""
    pairs = {name: dict(differing(before or {}, after or {})) for name, (before, after) in differing(old, new)}
    return {name: measures for name, measures in pairs.items() if measures}
