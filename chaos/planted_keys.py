"""Keys planted in the environment of builds and of every tool that writes files: no file that they leave has one.

Keys of endpoints, of a hub and of storages are in the environment while an experiment behind our own server is built
from nothing, a model behind an endpoint is measured with the right key and with a wrong one, and lineage, a crate, an
export, cards, reports and Snakemake's own report are written. Then every file that git does not hold, of the tree and
of the temporary folder, is searched, also inside of what is compressed, for each key and its usual encodings, and for
the keys that our server made for itself, each of which is in one file that its owner alone can read. Size: repetitions
with other keys.
"""

import base64
import gzip
import os
import random
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import zstandard
from endpoint_servers import TOKEN, Server
from trees import built_once, copy_of, environment

from chaos.counts import Counts

NAMES = ("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY", "MY_ENDPOINT_KEY", "GITHUB_TOKEN")
CLOSED = "results/experiments/closed_mab"
ITERATION = "results/experiments/open_mab_gemma/seed-0/iteration-0"
GAMES = "--environment mab --horizon 3 --instances 4"
COMMANDS = (  # what writes files; URL is our server's address
    "snakemake --cores 2",
    "snakemake --report report.html",
    f"rmft eval embedded --base-url URL --key-env MY_ENDPOINT_KEY {GAMES} --output evals/refused",
    f"rmft eval embedded --base-url URL --key-env RIGHT_KEY {GAMES} --output evals/measured",
    "rmft leaderboard evals/measured --output leaderboard.html",
    "rmft lineage results/metrics.json --format rocrate --output crate",
    "rmft lineage results/metrics.json --full",
    f"rmft export {ITERATION} --format dataset --to exported",
    "rmft diff --json",
    "rmft record closed_mab",
    "dvc status",
)
REFUSED = (2,)  # of `eval` with a key that is none


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Build and use everything with keys around; return where they are found. built: what `trees.built_once` made."""
    counts, chance = Counts(), random.Random(seed)
    with TemporaryDirectory(prefix="rmft-") as folder, Server(Path(folder) / "served" / "state") as server:
        home = built or built_once(Path(os.environ.get("RMFT_BUILT", folder)))
        for number in range(size):
            tree, temporary = copy_of(home, Path(folder) / f"home-{number}"), Path(folder) / f"tmp-{number}"
            temporary.mkdir()
            keys = {name: f"sk-planted-{chance.getrandbits(160):040x}" for name in NAMES} | {"RIGHT_KEY": TOKEN}
            for made in (CLOSED, "journal", ".rmft"):
                shutil.rmtree(tree / made)
            for command in COMMANDS:
                printed = _printed(tree, command.replace("URL", f"{server.url}/v1"), keys, temporary)
                _search("printed", [("output", printed.encode())], command, keys, counts)
            own = {str(path): path.read_text(encoding="utf-8") for path in (tree / ".rmft/run").rglob("key")}
            everything = {**keys, **own}
            for path in _written(tree, temporary):
                if str(path) not in own:
                    part = path.relative_to(tree).parts[0] if tree in path.parents else "the temporary folder"
                    harm = f"files below {part}" if (tree / part).is_dir() else "other files"
                    _search(harm, _contents(path), str(path), everything, counts)
            for path in own:
                if Path(path).stat().st_mode & 0o077:
                    counts.fail("our server's own key", f"{path} can be read by others")
                else:
                    counts.add("our server's own key", "private")
    return counts


def _written(tree: Path, temporary: Path) -> Iterator[Path]:
    """Yield the files of a tree, but for those of git as they were committed, and temporary files."""
    git = ("git", "-C", str(tree))
    committed, changed = (
        subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.splitlines()
        for command in (("ls-files",), ("diff", "--name-only"))
    )
    sources = {tree / name for name in {*committed} - {*changed}}
    for path in (*tree.rglob("*"), *temporary.rglob("*")):
        if path.is_file() and not path.is_symlink() and path not in sources and tree / ".git" not in path.parents:
            yield path


def _printed(tree: Path, command: str, keys: dict[str, str], temporary: Path) -> str:
    """Run a command with keys in its environment; return what it printed."""
    variables = {**environment(tree), **keys, "TMPDIR": str(temporary)}
    done = subprocess.run(command.split(), cwd=tree, env=variables, capture_output=True, text=True, check=False)
    if done.returncode and not (done.returncode in REFUSED and "refused" in command):
        raise RuntimeError(f"{command}: {done.stdout[-1000:]} {done.stderr[-1000:]}")
    return done.stdout + done.stderr


def _search(harm: str, contents: list[tuple[str, bytes]], where: str, keys: dict[str, str], counts: Counts) -> None:
    """Search contents for keys, plain and encoded."""
    found = [
        name
        for name, key in keys.items()
        for form in {key, quote(key, safe=""), base64.b64encode(key.encode()).decode()[:-4]}
        if any(form.encode() in content for _, content in contents)
    ]
    if found:
        counts.fail(harm, f"{where} has {', '.join(sorted(set(found)))}")
    else:
        counts.add(harm, "no key")


def _contents(path: Path) -> list[tuple[str, bytes]]:
    """Return what is in a file, and in what is compressed in it."""
    whole = path.read_bytes()
    return [("file", whole), *(("inside", inner) for inner in _inside(path, whole))]


def _inside(path: Path, whole: bytes) -> Iterator[bytes]:
    if path.suffix == ".zst":
        with (
            path.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as frames,
        ):
            yield frames.read()
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        yield str(pq.read_table(path).to_pydict()).encode()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif path.suffix == ".html":
        for piece in re.findall(rb">(H4sI[A-Za-z0-9+/=]+)<", whole):
            yield gzip.decompress(base64.b64decode(piece))
