"""Run benchmarks, keep what they print, and render docs/performance.md from it: no number on that page is typed.

    python benchmarks/record.py                 # every benchmark that needs no model's file, built tree or GPU
    python benchmarks/record.py throughput      # this one
    python benchmarks/record.py --page          # render the page alone

What a benchmark printed is in benchmarks/results/NAME.txt, below the command, the date, the commit and the machine.
Measure on an idle machine, and at a commit without changes.
"""

import argparse
import ast
import datetime
import shlex
import subprocess
import sys
from pathlib import Path

from rmft.artifacts.receipts import commit, machine

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks/results", ROOT / "docs/performance.md"
WRITTEN = ("benchmarks/results", "docs/performance.md")  # files that do not change what is measured
COMMANDS = {
    "throughput": [],
    "training": [],
    "rollouts": [],
    "compiled": [],
    "layouts": [],
    "fine_tuning": [],
    "endpoint": [],
    "clients": [],
    "servers": [],
    "scaling": ["--quick"],
    "prediction": [],
    "gpu": [],
    "bit_stability": ["--games", "16", "--rounds", "10", "--steps", "2", "--iterations", "20"],
    "build": [],
    "overhead": [],
    "engines": ["gemma-3-270m", "--games", "1", "16"],
}
# Run by name only: the first two need a tree that is built, the others a model's file and a GPU.
UNASKED = ("build", "overhead", "engines", "gpu")
HEAD = """# How fast it is

`make bench` runs the benchmarks and renders this page from what they printed. Each measurement sets ours beside a peer,
or beside a limit that is computed in the same run. Machines are noisy: read the ratios, not the seconds.
"""
TRIED = """
## What was tried and did not help

The benchmarks [compiled](#compiled) and [layouts](#layouts) can be run again. The other attempts were measured by hand.

- **Compiling the decoder** ([compiled](#compiled)).
- **Matrices that MKL packs in advance** ([layouts](#layouts)).
- **AVX-512** ([layouts](#layouts)): no clear gain, and results would depend on the processor.
- **Guessing several tokens ahead** from earlier replies, and computing them in one pass. In a simulation on recorded
  games this saved little: games play in lock-step, and the game with the most surprising reply decides how many passes
  a round takes.
- **Playing all games of an iteration in one shard** in place of two: hardly less CPU, and an experiment that is built
  alone would leave a core idle.
- **One job for all evaluations of a model**: its batches would be larger, but no evaluation could be made again alone.
- **Huge pages, or no memory maps**, for the memory that fine-tuning frees: either more time in the system or more
  memory. `src/rmft/workflow/forkserver.py` says what is in force.
- **Lower priority for jobs beside our own server**: the server's batches stayed as small, since each client sends the
  requests of a round together and then waits for all responses.
- **More jobs that wait for our own server**, 16 in place of 5, by themselves: 20 evaluations took 284 s as before. The
  server's time went to single replies that repeated a digit until they were stopped, while the other 15 games waited.
  Together with replies that are stopped after 96 tokens rather than 256, they took 231 s.
- **A second fork server without torch** for short jobs: to fork it and to end the fork takes 21 ms of CPU in place of
  37.
"""


def run(name: str) -> None:
    """Run a benchmark and keep what it prints; the exit code 1 of a missed goal is part of the result."""
    command = [f"benchmarks/{name}.py", *COMMANDS[name]]
    print(f"python {shlex.join(command)}", flush=True)
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr or not done.stdout.strip():
        sys.exit(f"{done.stderr}{name}: ended with exit code {done.returncode}; its result is not kept")
    today = datetime.datetime.now(datetime.UTC).date()
    lines = (f"python {shlex.join(command)}", f"{today}, commit {commit(ROOT, WRITTEN)}, {machine()}", "")
    text = "\n".join((*lines, *(line.rstrip() for line in done.stdout.splitlines() if not line.startswith("drawn:"))))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    print(done.stdout, flush=True)


def page() -> str:
    """Return docs/performance.md."""
    parts = [HEAD]
    for name in COMMANDS:
        if (kept := RESULTS / f"{name}.txt").exists():
            command, when, printed = kept.read_text(encoding="utf-8").split("\n", 2)
            parts.append(f"\n## {name}\n\n{_purpose(name)}\n\n`{command}`; {when}:\n")
            parts.append(f"\n```text\n{printed.strip()}\n```\n")
    return "".join([*parts, TRIED])


def _purpose(name: str) -> str:
    """Return what a benchmark's docstring says, without the lines that show how to run it."""
    text = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")))
    return "\n\n".join(part for part in text.split("\n\n") if not part.startswith("    "))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--page", action="store_true", help="render docs/performance.md alone")
    options = parser.parse_args()
    if unknown := set(options.names) - COMMANDS.keys():
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}")
    for chosen in [] if options.page else options.names or [name for name in COMMANDS if name not in UNASKED]:
        run(chosen)
    PAGE.write_text(page(), encoding="utf-8")
