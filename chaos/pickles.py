"""Malicious pickles in place of every file that rmft reads: none of them is ever unpickled.

Each file of a built tree that a reader knows, and each file of a model's folder, is replaced by a program in one of the
forms in which pickles come: bare, compressed, as torch's archive, as an array of objects of numpy's. The reader refuses
it in a line, or reads something harmless; the file that the program would write never appears. Size: repetitions.
"""

import gzip
import io
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import zstandard
from trees import ROOT, built_once, copy_of

from chaos.corruptions import TYPES, add_files
from chaos.counts import Counts
from rmft.errors import InputError

MODEL = ROOT / "data/models/embedded"
WEIGHTS = ("pytorch_model.bin", "adapter_model.bin", "training_args.bin", "optimizer.pt", "model.pkl")


class Program:
    """An object whose unpickling writes a file. canary: the path of that file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        """Return what unpickling calls."""
        return open, (str(self.canary), "w")


def payloads(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Yield malicious files by the name of their form."""
    for protocol in (0, 2, 5):
        bare = pickle.dumps(Program(canary), protocol)
        yield f"protocol {protocol}", bare
    yield "gzip", gzip.compress(bare)
    yield "zstd", zstandard.compress(bare)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", bare)
        file.writestr("archive/version", "3\n")
    yield "torch", archive.getvalue()
    for save in (np.save, np.savez):
        objects = io.BytesIO()
        names = ("rewards", "means", "clipped_means", "shape")
        array = np.array([Program(canary)], dtype=object)
        if save is np.save:
            np.save(objects, array, allow_pickle=True)
        else:
            np.savez(objects, **dict.fromkeys(names, array))
        yield save.__name__, objects.getvalue()


def run(size: int, seed: int, built: Path | None = None) -> Counts:
    """Plant pickles; return what came of it. built: what `trees.built_once` made."""
    counts, before, chance = Counts(), Path.cwd(), random.Random(seed)
    with TemporaryDirectory(prefix="rmft-") as folder:
        home = built or built_once(Path(os.environ.get("RMFT_BUILT", folder)))
        canary, tree = Path(folder) / "canary", copy_of(home, Path(folder) / "home")
        os.chdir(tree)
        try:
            add_files(seed)
            pickle.loads(next(payloads(canary))[1])
            assert canary.exists(), "the pickle does no harm where it is unpickled"
            canary.unlink()
            for form, payload in [*payloads(canary)] * size:
                for name, kind in TYPES.items():
                    path = chance.choice(sorted(path for path in Path().glob(kind.pattern) if path.is_file()))
                    _plant(name, form, path, payload, lambda path=path, kind=kind: kind.read(path), canary, counts)
                for file in sorted(path.name for path in MODEL.iterdir() if path.is_file()):
                    _plant_in_a_model(file, form, payload, Path(folder) / "model", canary, counts)
                for file in WEIGHTS:
                    _plant_in_a_model(file, form, payload, Path(folder) / "model", canary, counts)
        finally:
            os.chdir(before)
    return counts


def _plant_in_a_model(file: str, form: str, payload: bytes, folder: Path, canary: Path, counts: Counts) -> None:
    from rmft.agents.weights import load_pretrained
    from rmft.params.language_model import LanguageModelSettings

    shutil.copytree(MODEL, folder)
    if file == WEIGHTS[0]:
        (folder / "model.safetensors").unlink()
    settings = LanguageModelSettings(kind="language", weights=str(folder), dtype="float32", device="cpu", batch=1)
    _plant(f"model: {file}", form, folder / file, payload, lambda: load_pretrained(settings), canary, counts)
    shutil.rmtree(folder)


def _plant(
    name: str, form: str, path: Path, payload: bytes, read: Callable[[], object], canary: Path, counts: Counts
) -> None:
    """Put a malicious file in a place, and read it."""
    sound = path.read_bytes() if path.exists() else None
    path.write_bytes(payload)
    try:
        outcome = "read" if read() is not None else "refused"
    except InputError:
        outcome = "refused"
    except Exception as error:
        outcome = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        path.unlink() if sound is None else path.write_bytes(sound)
    if canary.exists():
        canary.unlink()
        counts.fail(name, f"{form} ran")
    elif outcome not in ("read", "refused"):
        counts.fail(name, f"{form}: {outcome}")
    else:
        counts.add(name, outcome)
