"""Compare every artifact of two commits at smoke scale, byte by byte.

    python benchmarks/same_bytes.py OLD NEW

OLD and NEW are commits of this repository, or folders in which a checkout is built already. A commit is cloned into a
temporary folder and built there by its own code, with the Python and the libraries that run this script; that takes
some minutes. Files are compared by SHA-256. Figures and the pages of the report are left out: they show the same
values, but their bytes follow every change of style.

One line is printed for each difference, then a summary. Exit code: 0 if there is none, 1 if there is one, 2 if a
commit cannot be built.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FIGURES, PAGES = r"results/figures/.*", r"results/(report|trajectories)\.html"


def artifacts(folder: Path, left_out: Iterable[str] = ()) -> dict[str, str]:
    """Return the SHA-256 of every artifact of a built checkout, by its path in today's layout.

    left_out: regular expressions of paths that are not compared.
    """
    settings = folder / "params.yaml"
    experiments = yaml.safe_load(settings.read_text(encoding="utf-8"))["experiments"] if settings.exists() else ()
    digests = {}
    for path in sorted(file for part in ("results", "data/rewards") for file in (folder / part).rglob("*")):
        name = todays_path(path.relative_to(folder).as_posix(), experiments)
        if path.is_file() and not any(re.fullmatch(pattern, name) for pattern in left_out):
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def todays_path(path: str, experiments: Iterable[str]) -> str:
    """Return where an artifact stands today: experiments were in results/ itself before they got a folder."""
    first, _, rest = path.removeprefix("results/").partition("/")
    return f"results/experiments/{first}/{rest}" if rest and first in experiments else path


def differences(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    """Yield a line for each artifact that only one of two trees has, or whose bytes differ."""
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            yield f"only in the old tree: {path}"
        elif path not in old:
            yield f"only in the new tree: {path}"
        elif old[path] != new[path]:
            yield f"other bytes: {path}"


def built(tree: str, folder: Path, cores: int) -> Path:
    """Return a built checkout: `tree` itself if it is a folder, else its commit, built in `folder` at smoke scale."""
    if (Path(tree) / "results").is_dir():
        return Path(tree)
    check_out(tree, folder)
    command = ["snakemake", "--quiet", "all", "--cores", str(cores)]
    subprocess.run(command, cwd=folder, env=environment(folder), check=True)
    return folder


def check_out(commit: str, folder: Path) -> None:
    """Clone a commit of this repository into a new folder, and set smoke scale there."""
    folder.mkdir()
    for arguments in (["clone", "--shared", "--no-checkout", str(ROOT), "."], ["checkout", commit]):
        subprocess.run(["git", *arguments, "--quiet"], cwd=folder, env=environment(folder), check=True)
    settings = folder / "params.yaml"
    text = re.sub(r"^scale: \w+", "scale: smoke", settings.read_text(encoding="utf-8"), flags=re.MULTILINE)
    settings.write_text(re.sub(r"^( +shards:) \d+", r"\1 1", text, flags=re.MULTILINE), encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which the code of a checkout runs in this script's environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    return {**inherited, "PATH": path, "PYTHONPATH": str(folder / "src")}


def main() -> int:
    """Build and compare; return the exit code."""
    parser = argparse.ArgumentParser(description="Compare every artifact of two commits at smoke scale, byte by byte.")
    parser.add_argument("old", help="a commit, or a folder in which a checkout is built")
    parser.add_argument("new", help="a commit, or a folder in which a checkout is built")
    parser.add_argument("--figures", action="store_true", help="compare figures too")
    parser.add_argument("--pages", action="store_true", help="compare the pages of the report too")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="cores to build on")
    options = parser.parse_args()
    left_out = [*([] if options.figures else [FIGURES]), *([] if options.pages else [PAGES])]
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as temporary:
        try:
            old_tree = built(options.old, Path(temporary) / "old", options.cores)
            new_tree = built(options.new, Path(temporary) / "new", options.cores)
        except subprocess.CalledProcessError as error:
            print(f"same_bytes: {' '.join(error.cmd)}: ended with exit code {error.returncode}", file=sys.stderr)
            return 2
        old, new = artifacts(old_tree, left_out), artifacts(new_tree, left_out)
    lines = list(differences(old, new))
    print(*lines, f"{len(old.keys() | new.keys())} artifacts, {len(lines)} differences", sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
