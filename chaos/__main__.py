"""Run checks of reliability, keep their counts, and render docs/reliability.md from them: no number there is typed.

    python -m chaos                               # every check, with its usual size
    python -m chaos corruptions --size 50         # this one, smaller
    python -m chaos kills --more                  # once more, with another seed; its counts are added
    python -m chaos --page                        # render the page alone

The runs of a check are in chaos/results/NAME.json, each with its counts and its commit; what runs with changes that
are not committed is printed only. The exit code is 1 where a case went wrong. RMFT_CHAOS_MINUTES is a limit for the
long checks, which then count fewer cases. SIGTERM ends a long check after the case that it is at. In both cases the
counts are kept.
"""

import argparse
import ast
import datetime
import json
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from chaos.counts import Counts, end_on_sigterm
from rmft.artifacts.receipts import commit, machine
from rmft.errors import InputError

Run = dict[str, Any]  # of a check: how it was made, and its counts
ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "chaos/results", ROOT / "docs/reliability.md"
WRITTEN = ("chaos/results", "docs/reliability.md")  # files that do not change what happens
SIZES = {  # of `make chaos`, in the order of the page
    "kills": 200,
    "power_cuts": 20,
    "corruptions": 125,
    "parameters": 1000,
    "command_lines": 300,
    "differential": 100,
    "hostile_text": 100_000,
    "pages": 20,
    "pickles": 3,
    "endpoint_server": 11_000,
    "planted_keys": 1,
    "soak": 60,
}
FAILURES = 20  # that are kept
HEAD = """# What happens when something goes wrong

`make chaos` does harm at random, counts what came of it, and renders this page from the counts. Each check ends in the
outcomes of its table, or in *went wrong*: a traceback, a hang, a lost or stale file, or harm that nobody noticed. Where
a check ran several times, with other seeds, its table has the counts of all runs that are named above it. `--size` is
what was planned; a run may end earlier, at its time limit or when it is stopped, and counts the cases that it finished.
"""


def run(name: str, size: int, seed: int, before: list[Run]) -> bool:
    """Run a check and keep its counts beside those of runs before; return whether nothing went wrong.

    Without a commit that has all the code, the counts are printed only.
    """
    print(f"{name}: size {size}, seed {seed}", flush=True)
    start, revision = time.monotonic(), commit(ROOT, WRITTEN)
    counts: Counts = import_module(f"chaos.{name}").run(size, seed)
    kept = {
        "command": f"python -m chaos {name} --size {size} --seed {seed}",
        "date": f"{datetime.datetime.now(datetime.UTC).date()}",
        "commit": revision,
        "machine": machine(),
        "seconds": round(time.monotonic() - start),
        "outcomes": counts.outcomes,
        "failures": counts.failures[:FAILURES],
    }
    if "-dirty" in f"{revision}":
        print(f"{name}: not kept, as there are changes that are not committed: nobody could run this again", flush=True)
    else:
        text = json.dumps([*before, kept], indent=1, ensure_ascii=False)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    print(_table([kept]), flush=True)
    return not counts.failures


def recorded(name: str) -> list[Run]:
    """Return the runs of a check that are kept."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def page() -> str:
    """Return docs/reliability.md."""
    parts = [HEAD]
    for name in SIZES:
        if runs := recorded(name):
            made = "\\\n".join(
                f"`{of['command']}`: {_cases(of):,} cases; {of['date']}, commit {of['commit']}, {of['machine']},"
                f" {of['seconds']} s"
                for of in runs
            )
            parts.append(f"\n## {name}\n\n{_purpose(name)}\n\n{made}.\n\n{_table(runs)}\n")
            failures = [f"{of['date']}, commit {of['commit'][:7]}: {line}" for of in runs for line in of["failures"]]
            if failures:
                parts.append("\n```text\n" + "\n".join(failures) + "\n```\n")
            if failures and not runs[-1]["failures"]:
                parts.append(f"\nThe run of {runs[-1]['date']} above had none.\n")
    return "".join(parts)


def _cases(of: Run) -> int:
    """Return how many cases a run counted."""
    return sum(sum(counts.values()) for counts in of["outcomes"].values())


def _table(runs: list[Run]) -> str:
    """Return all counts of runs as a table in Markdown: a row for each target of harm, a column for each outcome."""
    outcomes: dict[str, Counter[str]] = {}
    for of in runs:
        for target, counts in of["outcomes"].items():
            outcomes.setdefault(target, Counter()).update(counts)
    columns = list(dict.fromkeys(outcome for of in outcomes.values() for outcome in of))
    rows = [(target, *(of[column] for column in columns), of.total()) for target, of in outcomes.items()]
    if len(rows) > 1:
        rows.append(("all", *(sum(row[place] for row in rows) for place in range(1, len(columns) + 2))))
    lines = [("target", *columns, "cases"), ("---", *["---:"] * (len(columns) + 1)), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _purpose(name: str) -> str:
    """Return the docstring of a check."""
    return ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--size", type=int, help="how many cases; what a case is, the check says")
    parser.add_argument("--seed", type=int, help="of all random choices; with --more the number of runs before, else 0")
    parser.add_argument("--more", action="store_true", help="keep the runs before, and add the counts of this one")
    parser.add_argument("--page", action="store_true", help="render docs/reliability.md alone")
    options = parser.parse_args()
    if unknown := set(options.names) - SIZES.keys():
        parser.error(f"no check is named {', '.join(sorted(unknown))}; there are {', '.join(SIZES)}")
    end_on_sigterm()
    try:
        sound = []
        for name in [] if options.page else options.names or SIZES:
            before = recorded(name) if options.more else []
            seed = len(before) if options.seed is None else options.seed
            sound.append(run(name, options.size or SIZES[name], seed, before))
    except InputError as error:  # a library or program that a check needs is not here
        sys.exit(f"chaos: {error}")
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0 if all(sound) else 1)
