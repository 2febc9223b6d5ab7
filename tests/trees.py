"""Copies of this repository, built at smoke scale, and real Snakemake, DVC and git run in them."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
HERE = Path(sys.executable).parent
USER = "somebody-in-particular"
NUMERIC = (
    "numeric_simplex", "numeric_simplex_logits", "numeric_mixture", "numeric_mab", "numeric_mab_logits_normalised",
)  # fmt: skip
IN_WORDS = {"open_mab_gemma": "gaussian-50", "closed_mab": "gaussian-25"}  # experiments in words, an evaluation each
OUTPUTS = ("figures", "tables", "report")  # sections of outputs.yaml
HASHED = re.compile(r"/(\.dvc/cache|rmft-storage|\.git/objects)/")
MESSAGES = {  # the message of a rule when a job starts: the name of the job in the tests
    r"Write the scenarios (\S+)": "scenarios {}",
    r"Draw the reward set (\S+)": "rewards {}",
    r"Examine replies of (\S+) on (\S+)": "reasoning {}/{}",
    r"Train to convergence for Theorem 1": "theory",
    r"Train (\S+)": "training {}",
    r"Evaluate (\S+) on (\S+)": "evaluation {}/{}",
    r"Draw (\S+)": "figure {}",
    r"Make (\S+)": "table {}",
    r"Write the report": "report",
    r"Collect the metrics of all evaluations": "metrics",
    r"Roll out (\S+), seed (\d+), iteration (\d+), shard (\d+) of \d+": "rollouts {}/{}/{}/{}",
    r"Teach (\S+), seed (\d+)": "distillation {}/{}",
    r"Gather (\S+), seed (\d+), iteration (\d+)": "gather {}/{}/{}",
    r"Select (\S+), seed (\d+), iteration (\d+)": "selection {}/{}/{}",
    r"Fine-tune (\S+), seed (\d+), to iteration (\d+)": "sft {}/{}/{}",
    r"Reinforce (\S+), seed (\d+), to iteration (\d+)": "grpo {}/{}/{}",
    r"Play (\S+) on (\S+), (\S+)": "held-out {}/{}/{}",
}


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell in this folder after `source .venv/bin/activate`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "DVC_", "PYTEST_"))}
    author = {f"GIT_{role}_{part}": "reader" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    path = f"{HERE}{os.pathsep}{os.environ['PATH']}"
    return {
        **kept,
        **author,
        "PATH": path,
        "PYTHONPATH": str(folder / "src"),
        "COLUMNS": "200",
        "USER": USER,
        "LOGNAME": USER,
    }


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment in a folder, on the code of that folder."""
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def done(folder: Path, *command: str) -> str:
    """Run a command that must succeed; return all that it printed."""
    finished = run(folder, *command)
    printed = finished.stdout + finished.stderr
    assert finished.returncode == 0, printed
    return printed


def snakemake(folder: Path, *arguments: str) -> str:
    """Run Snakemake on two cores; return all that it printed."""
    return done(folder, "snakemake", "--cores", "2", *arguments)


def jobs_in(output: str) -> set[str]:
    """Return the names of the jobs that Snakemake announces in its output."""
    jobs = set()
    for line in output.splitlines():
        message = re.fullmatch(r"Job \d+: (.+)", line.strip())
        for pattern, name in MESSAGES.items():
            if message and (match := re.fullmatch(pattern, message.group(1))):
                jobs.add(name.format(*match.groups()))
                break
    return jobs


def to_do(folder: Path) -> set[str]:
    """Return the names of the jobs that Snakemake would start."""
    return jobs_in(snakemake(folder, "--dry-run"))


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of every artifact by path."""
    files = [path for part in ("results", "data/rewards") for path in (folder / part).rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)
    }


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a text file, which must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def values_in(folder: Path) -> dict[str, Any]:
    """Return all values of params.yaml and outputs.yaml, by section."""
    files = [yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in ("params.yaml", "outputs.yaml")]
    return files[0] | files[1]


def write_values(folder: Path, values: dict[str, Any]) -> None:
    """Write params.yaml and outputs.yaml anew."""
    for name in ("params.yaml", "outputs.yaml"):
        part = {section: of for section, of in values.items() if (section in OUTPUTS) == (name == "outputs.yaml")}
        (folder / name).write_text(yaml.safe_dump(part, sort_keys=False, allow_unicode=True), encoding="utf-8")


def set_value(folder: Path, key: str, value: object) -> None:
    """Set one dotted key of params.yaml, or of outputs.yaml."""
    path = folder / ("outputs.yaml" if key.partition(".")[0] in OUTPUTS else "params.yaml")
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    *parents, last = key.split(".")
    section = values
    for part in parents:
        section = section.setdefault(part, {})
    section[last] = value
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")


def built_once(shared: Path) -> Path:
    """Return a folder with a built tree and its DVC storage; the first test process that calls this builds them.

    rmft/ in it is the checkout, with everything committed; rmft-storage/ holds what DVC has pushed.
    """
    home = shared / "built"
    with (shared / "built.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            _build(home / "rmft")
            (home / "ready").touch()
    return home


def checkout(folder: Path) -> None:
    """Copy all files of this repository that git does not ignore, as they are now."""
    for name in done(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def _build(folder: Path) -> None:
    checkout(folder)
    edit(folder / "params.yaml", "scale: demo", "scale: smoke")
    _keep_few_experiments(folder)
    done(folder, "git", "init", "--quiet")
    commit(folder, "Start")
    snakemake(folder)
    done(folder, "dvc", "repro", "--quiet")
    commit(folder, "Build")
    commit(folder, "Look at it")
    done(folder, "dvc", "push", "--quiet")


def _keep_few_experiments(folder: Path) -> None:
    """Drop experiments whose jobs are like those of another. Those in words keep one evaluation."""
    path, outputs_path = folder / "params.yaml", folder / "outputs.yaml"
    text, drawn = (of.read_text(encoding="utf-8") for of in (path, outputs_path))
    values = yaml.safe_load(text) | yaml.safe_load(drawn)
    experiments = values["experiments"]
    dropped = [name for name in experiments if name not in (*NUMERIC, *IN_WORDS)]
    for name in dropped:
        text = _without(text, "experiments", 2, name)
    for name in values["quick"].keys() & dropped:
        text = _without(text, "quick", 2, name)
    for scale, of in values["scales"].items():
        if "experiments" in of.get("language", {}):  # changes in some of those that are dropped
            text = _without(text, f"  {scale}", 6, "experiments")
    for name in values["reasoning"]["of"].keys() & set(dropped):
        text = _without(text, "  of", 4, name)
    for kept, evaluation in IN_WORDS.items():
        for name in experiments[kept]["evaluations"].keys() - {evaluation}:
            text = _without(text, f"  {kept}", 6, name)
    gone = list(dropped)
    for section, indent, outputs in (("  drawn", 4, values["figures"]["drawn"]), ("tables", 2, values["tables"])):
        for label, of in outputs.items():
            evaluations, shown_experiments = set(of.get("evaluations", [])), of.get("experiments", [])
            shown = all(evaluations <= {IN_WORDS[name]} for name in shown_experiments if name in IN_WORDS)
            if (shown_experiments and shown_experiments[0] in dropped) or not shown:
                drawn = _without(drawn, section, indent, label)
                gone.append(label)
    path.write_text(text, encoding="utf-8")
    outputs_path.write_text(re.sub(rf", ({'|'.join(dropped)})(?=[],])", "", drawn), encoding="utf-8")
    stages = folder / "dvc.yaml"
    lines = stages.read_text(encoding="utf-8").splitlines(keepends=True)
    named = re.compile(rf"results/(figures/)?({'|'.join(map(re.escape, gone))})(\.csv|\.png)?(: |$)")
    stages.write_text("".join(line for line in lines if not named.search(line.rstrip())), encoding="utf-8")


def _without(text: str, section: str, indent: int, name: str) -> str:
    """Return YAML without one entry of a section; everything else keeps its layout."""
    head, begin, rest = text.partition(f"\n{section}:")
    entry = re.compile(rf"^ {{{indent}}}{re.escape(name)}:.*\n(?: {{{indent + 1}}}.*\n)*", re.MULTILINE)
    assert entry.search(rest), f"{section}.{name}"
    return head + begin + entry.sub("", rest, count=1)


def commit(folder: Path, message: str) -> None:
    """Commit everything that git does not ignore."""
    done(folder, "git", "add", "--all")
    done(folder, "git", "commit", "--quiet", "--allow-empty", "--message", message)


def copy_of(home: Path, folder: Path) -> Path:
    """Copy what `built_once` made, with the times of files; return the checkout.

    A file that is stored by its hash is linked instead: nobody writes over it, and a hundred copies take ten gigabytes.
    """
    same_disk = home.stat().st_dev == folder.parent.stat().st_dev

    def copy(source: str, target: str) -> None:
        (os.link if same_disk and HASHED.search(source) else shutil.copy2)(source, target)

    shutil.copytree(home, folder, symlinks=True, copy_function=copy)
    return folder / "rmft"


def metrics(folder: Path) -> dict:
    """Return results/metrics.json."""
    return json.loads((folder / "results/metrics.json").read_text(encoding="utf-8"))
