"""Run the notebooks, and write what they print and draw into them: after a change of the embedded model, or of a cell.

    python notebooks/run.py

A notebook's metadata name the weights that its outputs are of; a test compares them with those that rmft brings.
"""

import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl

from rmft.artifacts.files import sha256

FOLDER = Path(__file__).parent
WEIGHTS = FOLDER.parent / "data/models/embedded/model.safetensors"
DPI = 100


def outputs_of(source: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell, and return its outputs as a notebook has them: what it printed, and the figures that it drew."""
    import matplotlib.pyplot as plt

    with redirect_stdout(io.StringIO()) as printed:
        exec(source, values)
    lines = printed.getvalue().splitlines(keepends=True)
    outputs: list[dict[str, Any]] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    for number in plt.get_fignums():
        picture, figure = io.BytesIO(), plt.figure(number)
        figure.savefig(picture, format="png", dpi=DPI)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": [repr(figure)]}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return outputs


def main() -> None:
    """Run every notebook of this folder from its first cell."""
    mpl.use("agg")
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook, values = json.loads(path.read_text(encoding="utf-8")), {}
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = outputs_of("".join(cell["source"]), values)
        notebook["metadata"]["embedded_model"] = sha256(WEIGHTS)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
