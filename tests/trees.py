"""Copies of this repository, built at smoke scale, and real Snakemake, DVC and git run in them."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
HERE = Path(sys.executable).parent
USER = "somebody-in-particular"
HANG_SECONDS = 900.0  # of a command
NUMERIC = (
    "numeric_simplex", "numeric_simplex_logits", "numeric_mixture", "numeric_mab", "numeric_mab_logits_normalised",
)  # fmt: skip
EVALUATIONS = {  # of experiments of which not all evaluations are kept
    "numeric_simplex": ("gaussian", "uniform"),
    "open_mab_gemma": ("gaussian-50",),
    "closed_mab": ("gaussian-25",),
}
IN_WORDS = ("open_mab_gemma", "closed_mab")
OUTPUTS = ("figures", "tables", "report")  # sections of outputs.yaml
HASHED = re.compile(r"/(\.dvc/cache|rmft-storage|\.git/objects)/")
MESSAGES = {  # the message of a rule when a job starts: the name of the job in the tests
    r"Write the scenarios (\S+)": "scenarios {}",
    r"Draw the reward set (\S+)": "rewards {}",
    r"Examine replies of (\S+) on (\S+)": "reasoning {}/{}",
    r"Convert the GGUF file of (\S+)": "conversion {}",
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
    """Run a command of this environment in a folder, on the code of that folder.

    A command that does not end is killed with all that it has started; the error has what it printed.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        printed = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed = process.communicate()
        raise AssertionError(f"{' '.join(command)} hangs after {printed[0][-2000:]} {printed[1][-2000:]}") from None
    return subprocess.CompletedProcess(command, process.returncode, *printed)


def at_work_until(file: Path, folder: Path, *command: str) -> subprocess.Popen:
    """Start a command, in a process group of its own, and return it, still running, when it has written a file."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not file.exists():
        with suppress(subprocess.TimeoutExpired):
            assert process.wait(timeout=0.05) == "still running"
    return process


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


def read_yaml(path: Path) -> Any:
    """Return what is in a YAML file, by the parser in C: params.yaml is read hundreds of times."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def write_yaml(path: Path, values: object, **style: object) -> None:
    """Write a YAML file, in the order of its keys. style: options of yaml.dump."""
    text = yaml.dump(values, Dumper=yaml.CSafeDumper, sort_keys=False, **style)
    path.write_text(text, encoding="utf-8")


def values_in(folder: Path) -> dict[str, Any]:
    """Return all values of params.yaml and outputs.yaml, by section."""
    files = [read_yaml(folder / name) for name in ("params.yaml", "outputs.yaml")]
    return files[0] | files[1]


def write_values(folder: Path, values: dict[str, Any]) -> None:
    """Write params.yaml and outputs.yaml anew."""
    for name in ("params.yaml", "outputs.yaml"):
        part = {section: of for section, of in values.items() if (section in OUTPUTS) == (name == "outputs.yaml")}
        write_yaml(folder / name, part, allow_unicode=True, default_flow_style=None, width=10_000)


def set_value(folder: Path, key: str, value: object) -> None:
    """Set one dotted key of params.yaml, or of outputs.yaml."""
    path = folder / ("outputs.yaml" if key.partition(".")[0] in OUTPUTS else "params.yaml")
    values = read_yaml(path)
    *parents, last = key.split(".")
    section = values
    for part in parents:
        section = section.setdefault(part, {})
    section[last] = value
    write_yaml(path, values)


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
    keep_experiments(folder, (*NUMERIC, *IN_WORDS))
    done(folder, "git", "init", "--quiet")
    commit(folder, "Start")
    snakemake(folder)
    # What DVC would run for the other stages is `snakemake` again, a dozen times. Tests of it change something first.
    done(folder, "dvc", "repro", "--quiet", "parameters", "rewards", "theory")
    for name in ("journal", ".rmft/server"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    done(folder, "dvc", "commit", "--quiet", "--force")
    commit(folder, "Build")
    commit(folder, "Look at it")
    done(folder, "dvc", "push", "--quiet")


def keep_experiments(folder: Path, names: Collection[str]) -> None:
    """Drop all other experiments, what is on request, and evaluations and reward sets like those that are kept."""
    values = values_in(folder)
    experiments = values["experiments"]
    dropped = {*experiments, *values.pop("on_request")} - {*names}
    for section in (experiments, values["quick"], values["reasoning"]["of"]):
        for name in section.keys() & dropped:
            del section[name]
    for scale in values["scales"].values():
        scale.get("language", {}).pop("experiments", None)  # changes in some of the dropped experiments
    for name, kept in EVALUATIONS.items():
        if name in dropped:
            continue
        experiments[name]["evaluations"] = {label: experiments[name]["evaluations"][label] for label in kept}
    used = {
        of.get("rewards", label) for each in experiments.values() for label, of in each.get("evaluations", {}).items()
    }
    values["rewards"] = {label: of for label, of in values["rewards"].items() if label in used}
    gone = set(dropped)
    for outputs in (values["figures"]["drawn"], values["tables"]):
        for label, of in list(outputs.items()):
            names, wanted = of.get("experiments", []), of.get("evaluations", [])
            lacks_evaluations = any(set(wanted) - set(EVALUATIONS[name]) for name in names if name in IN_WORDS)
            if dropped.intersection(names[:1]) or lacks_evaluations:
                del outputs[label]
                gone.add(label)
            elif names:
                of["experiments"] = [name for name in names if name not in dropped]
                if wanted:
                    kept = EVALUATIONS.get(names[0], wanted)
                    of["evaluations"] = [evaluation for evaluation in wanted if evaluation in kept]
    write_values(folder, values)
    stages = folder / "dvc.yaml"
    lines = stages.read_text(encoding="utf-8").splitlines(keepends=True)
    plotted = re.compile(rf"results/(experiments|figures)/({'|'.join(map(re.escape, gone))})(/|\.csv|\.png)")
    stages.write_text("".join(line for line in lines if not plotted.search(line)), encoding="utf-8")


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
